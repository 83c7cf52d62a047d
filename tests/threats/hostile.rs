//! Files and servers that are empty, cut short, endless, of another kind or made to harm: every command that reads one
//! ends soon, says what is wrong with which file, and writes nothing.

use crate::forge::read;
use crate::lying::{Answer, Files, Log as LyingLog};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tests::workshop::{Ended, Log, Workshop, workspace};

/// Longer than any command takes here, and than most people wait.
const SECONDS_MAX: u32 = 60;
/// Address space in KiB: enough for what the commands allow a file to hold, far from what the files claim.
const MEMORY_KIB_MAX: u32 = 6 << 20;

/// Runs a command that must not take long, nor much.
fn limited(shop: &Workshop, binary: &str, arguments: &str) -> Ended {
    let script = format!("ulimit -v {MEMORY_KIB_MAX}; exec timeout {SECONDS_MAX} \"$@\"");
    let output = Command::new("bash")
        .args(["-c", &script, "limited"])
        .arg(shop.binaries().join(binary))
        .args(arguments.split_whitespace())
        .current_dir(shop.path(""))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// What may stand where a file should.
const KINDS: [&str; 10] = [
    "nothing",
    "an empty file",
    "its first half",
    "a huge file of zeros",
    "text of another kind",
    "random bytes",
    "deep nesting",
    "a folder",
    "a pipe that nobody writes to",
    "a device that never ends",
];

/// Puts it there.
fn put(path: &Path, kind: &str, whole: &[u8]) {
    remove(path);
    let nested = if whole.is_ascii() { b"[" } else { b"\x81" };
    match kind {
        "nothing" => {}
        "an empty file" => std::fs::write(path, b"").unwrap(),
        "its first half" => std::fs::write(path, &whole[..whole.len() / 2]).unwrap(),
        "a huge file of zeros" => File::create(path).unwrap().set_len(1 << 42).unwrap(),
        "text of another kind" => drop(std::fs::copy(workspace().join("docs/STYLE.md"), path).unwrap()),
        "random bytes" => {
            let byte = |at: u64| (crate::forge::fold(at + 1).a >> 56) as u8;
            std::fs::write(path, (0..5000).map(byte).collect::<Vec<u8>>()).unwrap();
        }
        "deep nesting" => std::fs::write(path, nested.repeat(200_000)).unwrap(),
        "a folder" => std::fs::create_dir(path).unwrap(),
        "a pipe that nobody writes to" => {
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        }
        "a device that never ends" => std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
        _ => panic!("{kind}"),
    }
    // A secret that others can read would be refused for that alone.
    if path.is_file() {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    }
}

fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => std::fs::remove_dir(path).unwrap(),
        Ok(_) => std::fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

/// A command that reads a file.
struct Place<'a> {
    binary: &'a str,
    arguments: &'a str,
    /// The file that is spoilt.
    file: &'a str,
    /// One of the same kind that belongs elsewhere.
    other: Option<&'a str>,
    /// What the command would write.
    out: Option<&'a str>,
    /// Kinds that are all right there.
    skip: &'a [&'a str],
    /// What is said where it is not the file's name.
    said: &'a str,
}

/// Of a text that may be any: only what is no file of bytes is wrong.
const ANY_BYTES: [&str; 4] = ["its first half", "text of another kind", "random bytes", "deep nesting"];
/// Of a file that is made where there is none.
const MADE: [&str; 1] = ["nothing"];

/// Tries every kind in a place; what is wrong with the answers.
fn tried(shop: &Workshop, place: &Place) -> Vec<String> {
    let Place { binary, arguments, file, other, out, skip, said } = *place;
    let (path, whole) = (shop.path(file), read(shop, file));
    let name = Path::new(file).file_name().unwrap().to_str().unwrap();
    let mut wrong = Vec::new();
    let mut hold = |kind: &str| {
        let ended = limited(shop, binary, arguments);
        let told = format!("{}{}", ended.stdout, ended.stderr);
        let mut complain = |what: &str| {
            wrong.push(format!("{binary} {arguments}\n  {file} is {kind}: {what}: {}\n{told}", ended.code));
        };
        if ![1, 2].contains(&ended.code) {
            complain("exit status");
        } else if told.contains("panicked") || told.contains("RUST_BACKTRACE") {
            complain("a panic");
        } else if !told.contains(name) && !told.contains(said) {
            complain("the file is not named");
        } else if !told.contains("error: ") && !told.contains("not ") {
            complain("nothing is said to be wrong");
        }
        if let Some(out) = out.filter(|out| shop.path(out).exists()) {
            complain(&format!("{out} was written"));
            let _ = std::fs::remove_dir_all(shop.path(out));
        }
    };
    for kind in KINDS.into_iter().filter(|kind| !skip.contains(kind)) {
        put(&path, kind, &whole);
        hold(kind);
    }
    remove(&path);
    if let Some(other) = other {
        std::fs::copy(shop.path(other), &path).unwrap();
        hold("of another run");
    }
    std::fs::write(&path, whole).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    wrong
}

fn expect_refused(shop: &Workshop, places: &[Place]) {
    let wrong: Vec<String> = places.iter().flat_map(|place| tried(shop, place)).collect();
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}

/// A place without another file of its kind, and without an output.
fn place<'a>(binary: &'a str, arguments: &'a str, file: &'a str) -> Place<'a> {
    Place { binary, arguments, file, other: None, out: None, skip: &[], said: "check 1" }
}

/// Two runs that went well, the second's parts to be taken for the first's.
fn two_runs() -> (Workshop, Log) {
    let (shop, log) = Workshop::ready();
    shop.write_run("other", 2);
    shop.predict("other", Some(&log)).expect_code(0);
    shop.challenge("other", &log).expect_code(0);
    shop.devices("other", 2, "receipts", "--traces").expect_code(0);
    shop.reconcile("other", &log, "--no-replay").expect_code(0);
    (shop, log)
}

#[test]
fn what_is_reconciled() {
    let (shop, log) = two_runs();
    let trust = format!("--ledger {} --log-key log/log.pub", log.url);
    let policy = format!(
        "log {}\nquorum none\npredictor {}\n",
        text(&shop, "log/log.pub"),
        text(&shop, "predictor.pub")
    );
    std::fs::write(shop.path("policy.txt"), policy).unwrap();
    let challenge = format!("challenge {trust} --prediction run/prediction --out new.note");
    let reconcile = format!(
        "reconcile {trust} --prediction run/prediction --receipts run/receipts --key predictor.key --out run.tally \
         --replay run.toml --policy policy.txt"
    );
    let of = |file, other, out| Place { other, out, ..place("client", &reconcile, file) };
    let tally = Some("run.tally");
    let open = format!("open {trust} --prediction run/prediction");
    let whole = format!("{open} --key predictor.key --without-receipts");
    let step = format!("{open} --step 1 --out step-1.opened");
    let shown = |file, other| Place { arguments: &step, ..of(file, other, Some("step-1.opened")) };
    let status = format!("status run/prediction {trust}");
    expect_refused(
        &shop,
        &[
            Place {
                arguments: &challenge,
                ..of(
                    "run/prediction/prediction.cose",
                    Some("other/prediction/prediction.cose"),
                    Some("new.note"),
                )
            },
            Place { arguments: &challenge, ..of("log/log.pub", None, Some("new.note")) },
            Place {
                said: "prediction.cose: expected a prediction of run",
                ..of("run/prediction/run.cose", Some("other/prediction/run.cose"), tally)
            },
            of("run/prediction/plan.cbor", Some("run.toml"), tally),
            of("run/prediction/salt", Some("other/prediction/salt"), tally),
            of("run/prediction/body.cbor", Some("other/prediction/body.cbor"), tally),
            Place {
                said: "device 0 of 2: no receipt",
                ..of("run/receipts/receipt-0.cose", Some("other/receipts/receipt-0.cose"), tally)
            },
            Place {
                said: "receipt-0.cose: receipt body: expected",
                ..of("run/receipts/receipt-0.body.cbor", Some("other/receipts/receipt-0.body.cbor"), tally)
            },
            of("predictor.key", Some("keys/device-0.key"), tally),
            of("run.toml", Some("other.toml"), tally),
            Place { skip: &ANY_BYTES, ..of("corpus.txt", None, tally) },
            of("policy.txt", None, tally),
            Place { arguments: &whole, ..of("run/prediction/salt", Some("other/prediction/salt"), None) },
            Place {
                arguments: &whole,
                ..of("run/prediction/body.cbor", Some("other/prediction/body.cbor"), None)
            },
            Place { arguments: &whole, ..of("predictor.key", Some("keys/device-0.key"), None) },
            shown("run/prediction/prediction.cose", Some("other/prediction/prediction.cose")),
            shown("run/prediction/salt", Some("other/prediction/salt")),
            shown("run/prediction/body.cbor", Some("other/prediction/body.cbor")),
            Place { arguments: &status, ..of("run/prediction/prediction.cose", None, None) },
        ],
    );
    let listed = log.page(&format!("/run/{}", shop.run_id("run")));
    assert!(!listed.contains("opening"), "nothing was opened: {listed}");
}

fn text(shop: &Workshop, file: &str) -> String {
    String::from_utf8(read(shop, file)).unwrap().trim().to_owned()
}

#[test]
fn what_is_verified_and_shown() {
    let (shop, log) = two_runs();
    let (key, predictor) = (text(&shop, "log/log.pub"), text(&shop, "predictor.pub"));
    std::fs::write(shop.path("policy.txt"), format!("log {key}\nquorum none\npredictor {predictor}\n"))
        .unwrap();
    let trust = "--log-key log/log.pub --predictor-key predictor.pub";
    let fetch = format!(
        "completeness {} --ledger {} --log-key log/log.pub --out run.completeness",
        shop.run_id("other"),
        log.url
    );
    shop.run("client", &fetch).expect_code(0);
    let monitor = format!("monitor --ledger {} --log-key log/log.pub --state seen --once", log.url);
    shop.run("client", &monitor).expect_code(0);
    let verify = format!("verify other.tally {trust}");
    let verify_step = format!("verify step-1.opened {trust}");
    let open = format!(
        "open --prediction other/prediction --step 1 --out step-1.opened --ledger {} --log-key log/log.pub",
        log.url
    );
    shop.run("client", &open).expect_code(0);
    let pinpoint = "pinpoint other/receipts/traces/rank-0/step-000000-leaf-0000.cbor --prediction other/prediction \
                    --receipt other/receipts/receipt-0.cose --replay other.toml";
    let submit = format!("submit run/job/run.cose --ledger {}", log.url);
    expect_refused(
        &shop,
        &[
            place("client", &verify, "other.tally"),
            place("client", &verify, "log/log.pub"),
            place("client", &verify, "predictor.pub"),
            place("client", "verify other.tally --policy policy.txt", "policy.txt"),
            place("client", "show other.tally", "other.tally"),
            place("client", &verify_step, "step-1.opened"),
            Place {
                out: Some("proofs"),
                ..place("client", "bundle other.tally --export proofs", "other.tally")
            },
            place("client", "completeness run.completeness --log-key log/log.pub", "run.completeness"),
            place("client", pinpoint, "other/receipts/traces/rank-0/step-000000-leaf-0000.cbor"),
            place("client", pinpoint, "other/receipts/receipt-0.cose"),
            place("client", pinpoint, "other/receipts/receipt-0.body.cbor"),
            place("client", &submit, "run/job/run.cose"),
            place("client", &monitor, "seen/monitor.redb"),
        ],
    );
}

#[test]
fn what_is_predicted_and_run() {
    let shop = Workshop::open();
    for (name, seed) in [("run", 1), ("other", 2)] {
        shop.write_run(name, seed);
        shop.predict(name, None).expect_code(0);
    }
    let note = format!("example.org/log\n7\n{0}=\n\n\u{2014} example.org/log {0}\n", "A".repeat(43));
    std::fs::write(shop.path("run/job/challenge.note"), note).unwrap();
    shop.devices("run", 2, "receipts", "").expect_code(0);
    let predict = "predict --run run.toml --steps 0..2 --out new --key predictor.key";
    let weights =
        "weights --run run.toml --snapshot run/prediction/snapshots/step-000003.safetensors --out new";
    let run = "run --backend simulated --job run/job --challenge run/job/challenge.note --devices 2 --keys keys \
               --out new";
    let job = |file, other| Place { other, out: Some("new/receipt-0.cose"), ..place("device", run, file) };
    assert!(shop.path("run/prediction/snapshots/step-000003.safetensors").exists());
    expect_refused(
        &shop,
        &[
            place("oracle", "plan --run run.toml", "run.toml"),
            Place { out: Some("new"), ..place("oracle", predict, "run.toml") },
            Place { out: Some("new"), skip: &ANY_BYTES, ..place("oracle", predict, "corpus.txt") },
            Place { out: Some("new"), skip: &MADE, ..place("oracle", predict, "predictor.key") },
            Place {
                out: Some("new"),
                ..place("oracle", weights, "run/prediction/snapshots/step-000003.safetensors")
            },
            Place { said: "plan.cbor: digest is", ..job("run/job/run.cose", Some("other/job/run.cose")) },
            job("run/job/plan.cbor", Some("run.toml")),
            job("run/job/initial.safetensors", Some("other/job/initial.safetensors")),
            job("run/job/tokens.bin", Some("run.toml")),
            Place { said: "challenge: ", ..job("run/job/challenge.note", Some("run.toml")) },
            Place { skip: &MADE, ..job("keys/device-0.key", Some("run.toml")) },
            place("device", "faults --job run/job", "run/job/plan.cbor"),
        ],
    );
}

#[test]
fn what_a_log_and_a_witness_read() {
    let (shop, log) = Workshop::ready();
    let (key, predictor) = (text(&shop, "log/log.pub"), text(&shop, "predictor.pub"));
    log.stop();
    std::fs::write(shop.path("policy.txt"), format!("log {key}\nquorum none\n")).unwrap();
    std::fs::write(shop.path("allowed.txt"), format!("{predictor}\n")).unwrap();
    let serve = "serve --data log --listen 0 --allow-submitters allowed.txt --witness-policy policy.txt";
    let witness = "witness --data witness --name witness.example/w --listen 0 --policy policy.txt";
    expect_refused(
        &shop,
        &[
            place("ledger", serve, "allowed.txt"),
            place("ledger", serve, "policy.txt"),
            Place { out: Some("witness"), ..place("ledger", witness, "policy.txt") },
            Place { skip: &MADE, ..place("ledger", "fsck log", "log/checkpoint") },
            place("ledger", "fsck log", "log/log.key"),
        ],
    );
}

/// Servers that do not speak as a log does.
#[test]
fn servers() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    shop.predict("run", None).expect_code(0);
    let log = LyingLog::new();
    std::fs::write(shop.path("log.pub"), log.key().verifier().to_string()).unwrap();
    let files = Files::default();
    let address = files.start();
    let commands = [
        format!("submit run/job/run.cose --ledger {address} --log-key log.pub"),
        format!("challenge --ledger {address} --log-key log.pub --prediction run/prediction --out new"),
        format!("completeness {} --ledger {address} --log-key log.pub --out new", shop.run_id("run")),
        format!("open --prediction run/prediction --step 1 --ledger {address} --log-key log.pub --out new"),
        format!("status run/prediction --ledger {address} --log-key log.pub"),
        format!("monitor --ledger {address} --log-key log.pub --once"),
    ];
    let facts =
        serde_json::json!({ "key": log.key().verifier().to_string(), "origin": crate::lying::ORIGIN });
    let answers = [
        Answer::Bytes(vec![]),
        Answer::Bytes(b"[".repeat(200_000)),
        Answer::Bytes((0..5000).map(|at| (crate::forge::fold(at + 1).a >> 56) as u8).collect()),
        // A reason that would clear the terminal it is told on.
        Answer::Refusal(500, b"{\"detail\":\"busy\\u001b[2J\"}".to_vec()),
        Answer::Short(b"{".to_vec()),
        Answer::Endless,
        Answer::Status(500),
    ];
    for path in ["/log.json", "/checkpoint"] {
        for answer in &answers {
            files.show(&log);
            files.set("/log.json", Answer::Bytes(facts.to_string().into_bytes()));
            files.set(path, answer.clone());
            for command in &commands {
                if path == "/log.json" && command.starts_with("monitor") {
                    continue;
                }
                let ended = limited(&shop, "client", command).expect_code(2).expect_text("client: error: ");
                assert!(
                    !ended.stderr.contains("panicked") && !ended.stderr.contains('\u{1b}'),
                    "{}",
                    ended.stderr
                );
                assert!(!shop.path("new").exists(), "{command}");
            }
        }
    }
}
