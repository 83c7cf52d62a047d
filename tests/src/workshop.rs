//! A temporary folder in which the real commands run against a real log on the loopback interface.

use schemas::digest::RunId;
use schemas::statement::Statement;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The workspace's root folder.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests: the package is in the workspace").to_owned()
}

/// Folder of the built commands. They are built here first, so that no test runs yesterday's.
fn binaries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let build = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--workspace", "--bins"])
            .current_dir(workspace())
            .status();
        assert!(build.expect("tests: cargo runs").success(), "the commands do not build");
        // The test itself is target/debug/deps/NAME-HASH.
        let test = std::env::current_exe().expect("tests: the test knows its path");
        test.ancestors().nth(2).expect("tests: the test stands in target/debug/deps").to_owned()
    })
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ended {
    /// Asserts the exit code; shows everything if it is another.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Ended {
        assert_eq!(self.code, code, "\n--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr);
        self
    }

    /// Asserts that both outputs together contain a text. Columns do not matter: spaces in a row count as one.
    #[track_caller]
    pub fn expect_text(self, text: &str) -> Ended {
        let all = format!("--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr);
        let squeezed = all.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        assert!(squeezed.contains(text), "{text:?} is not in\n{all}");
        self
    }
}

/// A folder and the commands.
pub struct Workshop {
    folder: TempDir,
}

impl Workshop {
    /// A new empty folder.
    pub fn open() -> Workshop {
        Workshop { folder: tempfile::tempdir().expect("tests: a temporary folder") }
    }

    /// A folder with `run/` predicted, committed and run by two devices, and its log.
    pub fn ready() -> (Workshop, Log) {
        let shop = Workshop::open();
        shop.write_run("run", 1);
        let log = shop.ledger();
        shop.predict("run", Some(&log)).expect_code(0);
        shop.challenge("run", &log).expect_code(0);
        shop.devices("run", 2, "receipts", "").expect_code(0);
        (shop, log)
    }

    /// The id of the run of `NAME/`, from the statement that the oracle wrote.
    pub fn run_id(&self, name: &str) -> RunId {
        let bytes =
            std::fs::read(self.path(&format!("{name}/job/run.cose"))).expect("tests: the run is there");
        Statement::open(&bytes).expect("tests: it is a statement").payload.run()
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder of the built commands.
    pub fn binaries(&self) -> &'static Path {
        binaries()
    }

    /// A path in the folder, as text for a command line.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("tests: the folder's path is text").to_owned()
    }

    /// Runs a command in the folder. Arguments are split at spaces.
    pub fn run(&self, binary: &str, arguments: &str) -> Ended {
        let output = Command::new(binaries().join(binary))
            .args(arguments.split_whitespace())
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .expect("tests: the command starts");
        Ended {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("tests: output is text"),
            stderr: String::from_utf8(output.stderr).expect("tests: output is text"),
        }
    }

    /// Writes `NAME.toml`: a tiny GPT-2 on a small text, three steps of four leaves.
    pub fn write_run(&self, name: &str, seed: u64) {
        self.write_model(include_str!("run.toml"), name, seed);
    }

    /// The same of a tiny Llama with grouped heads.
    pub fn write_llama(&self, name: &str, seed: u64) {
        self.write_model(include_str!("llama.toml"), name, seed);
    }

    fn write_model(&self, text: &str, name: &str, seed: u64) {
        // The project's own prose: real text that every clone has.
        std::fs::copy(workspace().join("docs/VERIFY.md"), self.path("corpus.txt"))
            .expect("tests: the corpus is there");
        let text = text.replace("NAME", name).replace("SEED", &seed.to_string());
        std::fs::write(self.path(&format!("{name}.toml")), text).expect("tests: the folder is writable");
    }

    /// Starts a log kept in `log/` of the folder.
    pub fn ledger(&self) -> Log {
        self.server(&["serve", "--data", &self.text("log")])
    }

    /// Starts a log or a witness: a subcommand of `ledger` with its arguments, on a port of its own.
    pub fn server(&self, arguments: &[&str]) -> Log {
        let address = self.path("address");
        let _ = std::fs::remove_file(&address);
        let child = Command::new(binaries().join("ledger"))
            .args(arguments)
            .args(["--listen", "0", "--address-file", &self.text("address")])
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("tests: the ledger starts");
        let started = Instant::now();
        loop {
            match std::fs::read_to_string(&address) {
                Ok(text) if !text.trim().is_empty() => {
                    return Log { child, url: text.trim().to_owned() };
                }
                _ => assert!(started.elapsed() < Duration::from_secs(30), "the ledger wrote no address"),
            }
            std::thread::yield_now();
        }
    }

    /// Predicts steps 0..3 of `NAME.toml` into `NAME/` with `predictor.key`, and commits if there is a log.
    pub fn predict(&self, name: &str, log: Option<&Log>) -> Ended {
        let commit = log.map(|log| format!("--commit --ledger {} --log-key log/log.pub", log.url));
        let commit = commit.unwrap_or_default();
        self.run(
            "oracle",
            &format!("predict --run {name}.toml --steps 0..3 --out {name} --key predictor.key {commit}"),
        )
    }

    /// Writes `NAME/job/challenge.note` from the log.
    pub fn challenge(&self, name: &str, log: &Log) -> Ended {
        let arguments = format!(
            "challenge --ledger {} --log-key log/log.pub --prediction {name}/prediction \
             --out {name}/job/challenge.note",
            log.url
        );
        self.run("client", &arguments)
    }

    /// Runs the job of `NAME/` on some devices into `NAME/OUT`.
    ///
    /// Their arithmetic is the simulated backend's unless `more` names another: most tests are not about it.
    pub fn devices(&self, name: &str, count: u64, out: &str, more: &str) -> Ended {
        let backend = if more.contains("--backend") { "" } else { "--backend simulated" };
        let arguments = format!(
            "run {backend} --job {name}/job --challenge {name}/job/challenge.note --devices {count} \
             --steps 0..3 --keys keys \
             --out {name}/{out} {more}"
        );
        self.run("device", &arguments)
    }

    /// The same into `NAME/receipts`, each device a process of its own; what each said.
    pub fn processes(&self, name: &str, count: u64, more: &str) -> Vec<Ended> {
        // An address of the loopback that no other test's process has.
        let id = std::process::id();
        let host = format!("127.{}.{}.{}", 1 + (id >> 16) % 250, (id >> 8) % 256, 1 + id % 250);
        let peers: Vec<String> = (0..count).map(|rank| format!("{host}:{}", 7300 + rank)).collect();
        let peers = peers.join(",");
        std::thread::scope(|scope| {
            let one = |rank: u64| format!("--rank {rank} --peers {peers} --peer-timeout 120 {more}");
            let ranks: Vec<_> = (0..count)
                .map(one)
                .map(|more| scope.spawn(move || self.devices(name, count, "receipts", &more)))
                .collect();
            ranks.into_iter().map(|rank| rank.join().expect("tests: a command is run")).collect()
        })
    }

    /// Reconciles `NAME/` into `NAME.tally`.
    pub fn reconcile(&self, name: &str, log: &Log, more: &str) -> Ended {
        let arguments = format!(
            "reconcile --ledger {} --log-key log/log.pub --key predictor.key --prediction {name}/prediction \
             --receipts {name}/receipts --out {name}.tally {more}",
            log.url
        );
        self.run("client", &arguments)
    }

    /// Reconciling opens nothing and ends with 2; if it is told that incomplete is what it is, with 1. Both say why.
    #[track_caller]
    pub fn expect_incomplete(&self, log: &Log, why: &str) {
        let ended = self.reconcile("run", log, "--no-replay").expect_code(2);
        ended.expect_text(why).expect_text("nothing was opened");
        assert!(!self.path("run.tally").exists(), "a bundle of what was not opened");
        let ended = self.reconcile("run", log, "--no-replay --accept-incomplete").expect_code(1);
        ended.expect_text("incomplete").expect_text(why);
        self.verify("run.tally").expect_code(1).expect_text("genuine, but verdict is incomplete");
    }

    /// A run of two devices with these faults, reconciled with a replay.
    pub fn faulty(faults: &[&str]) -> (Workshop, Log, Ended) {
        let shop = Workshop::open();
        shop.write_run("run", 1);
        let log = shop.ledger();
        shop.predict("run", Some(&log)).expect_code(0);
        shop.challenge("run", &log).expect_code(0);
        shop.devices("run", 2, "receipts", &format!("--traces {}", faults.join(" "))).expect_code(0);
        let ended = shop.reconcile("run", &log, "--replay run.toml --accept-incomplete");
        (shop, log, ended)
    }

    /// Verifies `FILE` under the log's and the predictor's key.
    pub fn verify(&self, file: &str) -> Ended {
        self.run("client", &format!("verify {file} --log-key log/log.pub --predictor-key predictor.pub"))
    }
}

/// A running log; stopped when dropped.
pub struct Log {
    child: Child,
    /// Its address.
    pub url: String,
}

impl Log {
    /// Ends it in good order.
    pub fn stop(mut self) {
        let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(told.expect("tests: kill is run").success());
        let ended = self.child.wait().expect("tests: the ledger is waited for");
        assert!(ended.success(), "the ledger ended with {ended}");
    }

    /// GET over a plain socket, HTTP/1.1: the body of an answer that must be 200.
    pub fn get(&self, path: &str) -> Vec<u8> {
        let (head, body) = self.answer(path);
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}\n{}", String::from_utf8_lossy(&body));
        body
    }

    /// The head and the body of any answer.
    pub fn answer(&self, path: &str) -> (String, Vec<u8>) {
        let host = self.url.strip_prefix("http://").expect("tests: the log speaks plain HTTP");
        let mut stream = TcpStream::connect(host).expect("tests: the log listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
            .expect("tests: it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("tests: it answers");
        let head =
            answer.windows(4).position(|window| window == b"\r\n\r\n").expect("tests: an answer has a head");
        let body = answer.split_off(head + 4);
        (String::from_utf8_lossy(&answer).into_owned(), body)
    }

    /// The same, as text.
    pub fn page(&self, path: &str) -> String {
        String::from_utf8(self.get(path)).expect("tests: a page is text")
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
