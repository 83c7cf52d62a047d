//! The built command: exit statuses, messages, and what is left on disk, as far as no log is needed.

use schemas::object::Object as _;
use schemas::run::Run;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

fn client(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_client")).current_dir(folder).args(arguments).output().unwrap()
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("the command ends by itself")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn every_command_has_help_with_an_example() {
    let folder = tempfile::tempdir().unwrap();
    let whole = stdout(&client(folder.path(), &["--help"]));
    let (_, list) = whole.split_once("Commands:\n").unwrap();
    let named =
        list.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    let commands: Vec<&str> = named.filter(|name| *name != "help").collect();
    assert!(commands.contains(&"open") && commands.contains(&"pinpoint") && commands.len() >= 12, "{whole}");
    for command in commands {
        let output = client(folder.path(), &[command, "--help"]);
        assert_eq!(status(&output), 0);
        assert!(stdout(&output).contains(&format!("Example:\n  client {command} ")), "{command}");
        assert!(output.stderr.is_empty());
    }
    assert!(whole.contains("Example:\n  client keygen "), "{whole}");
    assert!(whole.contains("--log-key log/log.pub"), "{whole}");
}

#[test]
fn bad_usage_is_status_two_in_the_commands_own_form() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&[][..], &["frobnicate"], &["verify"], &["verify", "a", "--log-key", "x"]] {
        let output = client(folder.path(), arguments);
        assert_eq!(status(&output), 2, "{arguments:?}");
        assert!(stderr(&output).starts_with("client: error: "), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn keygen_prints_the_public_key_and_never_overwrites() {
    let folder = tempfile::tempdir().unwrap();
    let made = client(folder.path(), &["keygen", "predictor.key"]);
    assert_eq!(status(&made), 0);
    let public = std::fs::read_to_string(folder.path().join("predictor.pub")).unwrap();
    assert_eq!(stdout(&made), public);
    let secret = std::fs::read(folder.path().join("predictor.key")).unwrap();
    let again = client(folder.path(), &["keygen", "predictor.key"]);
    assert_eq!(status(&again), 2);
    assert!(stderr(&again).contains("client: hint: a key file is never overwritten"), "{}", stderr(&again));
    assert_eq!(std::fs::read(folder.path().join("predictor.key")).unwrap(), secret);
    let nowhere = stderr(&client(folder.path(), &["keygen", "keys/predictor.key"]));
    assert!(nowhere.contains("client: hint: there is no folder keys: make it first"), "{nowhere}");
}

#[test]
fn what_is_no_bundle_could_not_be_checked() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("run.tally"), b"not a bundle").unwrap();
    let log = "example.com/log+6fa2a6fc+AduMfgFyPLsp+0iRQOhvMKPsP8aKRcZVm8nTvV7I7+pC";
    client(folder.path(), &["keygen", "predictor.key"]);
    let with = |arguments: &[&str]| client(folder.path(), &[&["verify", "run.tally"], arguments].concat());
    // A vkey with a wrong id, then no predictor, then a secret key in place of a public one.
    let bad = with(&["--log-key", log, "--predictor-key", "predictor.pub"]);
    assert_eq!(status(&bad), 2);
    assert!(stderr(&bad).starts_with("client: error: expected a log's vkey"), "{}", stderr(&bad));
    let key =
        tlog::note::SigningKey::from_seed(tlog::note::KeyName::new("example.com/log").unwrap(), &[1; 32]);
    let log = key.verifier().to_string();
    let secret = with(&["--log-key", &log, "--predictor-key", "predictor.key"]);
    assert_eq!(status(&secret), 2);
    assert!(stderr(&secret).contains("expected a public key, found a secret key"), "{}", stderr(&secret));
    let checked = with(&["--log-key", &log, "--predictor-key", "predictor.pub"]);
    assert_eq!(status(&checked), 2);
    let text = stdout(&checked);
    assert!(text.starts_with("1. bundle can be read [failed]: "), "{text}");
    assert!(text.contains("\n2. checkpoint is signed by the log [not reached]\n"), "{text}");
    assert!(text.lines().last().unwrap().starts_with("not verified: check 1: "), "{text}");
    let hint = "client: hint: cut short, or not a bundle? `client reconcile` writes them (.tally)\n";
    assert_eq!(stderr(&checked), hint);
    let json = stdout(&with(&["--log-key", &log, "--predictor-key", "predictor.pub", "--json"]));
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((value["verified"].as_bool(), value["status"].as_u64()), (Some(false), Some(2)));
    assert_eq!(value["checks"].as_array().unwrap().len(), 9);
    let shown = client(folder.path(), &["show", "run.tally"]);
    assert_eq!(status(&shown), 2);
    assert!(stderr(&shown).starts_with("client: error: run.tally: bundle: "), "{}", stderr(&shown));
    assert!(stderr(&shown).ends_with(hint), "{}", stderr(&shown));
    let submitted = client(folder.path(), &["submit", "run.tally", "--ledger", "http://127.0.0.1:1"]);
    assert_eq!(status(&submitted), 2);
    assert!(
        stderr(&submitted).contains("client: hint: cut short, or not a statement?"),
        "{}",
        stderr(&submitted)
    );
    let absent = client(folder.path(), &["show", "absent.tally"]);
    assert!(stderr(&absent).starts_with("client: error: cannot read absent.tally: "), "{}", stderr(&absent));
}

/// `make wasm-check` holds the module for pages against `browser`; this holds `browser` against the command.
#[test]
fn the_command_prints_as_json_what_a_page_is_told() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fixtures");
    let log = std::fs::read_to_string(fixtures.join("checkpoint/log.vkey")).unwrap();
    let key = |role: &str| {
        let mut seed = [0; 32];
        seed[..role.len()].copy_from_slice(role.as_bytes());
        schemas::key::SecretKey::from_seed(seed).public().to_string()
    };
    let [predictor, device, other] = ["predictor", "device-0", "device-1"].map(key);
    for (file, keys, expected) in [
        ("bundle/agree.cbor", &[device.as_str(), other.as_str()][..], 0),
        ("bundle/agree.cbor", &[&device], 1),
        ("plan/tiny.cbor", &[], 2),
    ] {
        let path = fixtures.join(file);
        let mut arguments = vec!["verify", path.to_str().unwrap(), "--json", "--log-key", &log];
        arguments.extend(["--predictor-key", &predictor]);
        keys.iter().for_each(|key| arguments.extend(["--device-key", key]));
        let output = client(Path::new("."), &arguments);
        assert_eq!(status(&output), expected, "{}", stderr(&output));
        let policy =
            serde_json::json!({ "log_key": log, "predictor_keys": [predictor], "device_keys": keys });
        let page = browser::check(policy.to_string().as_bytes(), &std::fs::read(&path).unwrap());
        assert_eq!(i32::from(page.status), expected);
        assert_eq!(stdout(&output), page.json + "\n");
    }
}

/// The fixtures' policy of witnesses, the predictor's key, and what else it asks for.
fn fixture_policy(folder: &Path, lines: &str) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fixtures");
    let trust = std::fs::read_to_string(fixtures.join("witness/policy.txt")).unwrap();
    let mut seed = [0; 32];
    seed[..9].copy_from_slice(b"predictor");
    let predictor = schemas::key::SecretKey::from_seed(seed).public();
    std::fs::write(folder.join("policy.txt"), format!("{trust}predictor {predictor}\n{lines}")).unwrap();
}

#[test]
fn a_policy_file_takes_the_place_of_keys_and_tells_times() {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fixtures");
    let file = fixtures.join("bundle/agree.cbor");
    let verify = |arguments: &[&str]| {
        client(
            folder.path(),
            &[&["verify", file.to_str().unwrap(), "--policy", "policy.txt"], arguments].concat(),
        )
    };
    fixture_policy(folder.path(), "faulty 1\n");
    let good = verify(&[]);
    assert_eq!(status(&good), 0, "{}", stdout(&good));
    let line = "time: the prediction was in the log by 2027-01-15T08:00:07Z, if at most 1 of 2 witnesses are wrong\n";
    assert!(stdout(&good).contains(line), "{}", stdout(&good));
    let json: serde_json::Value = serde_json::from_str(&stdout(&verify(&["--json"]))).unwrap();
    assert_eq!(json["times"]["prediction_by_unix_s"], 1_800_000_007);
    fixture_policy(folder.path(), "simulated no\n");
    let simulated = verify(&[]);
    assert_eq!(status(&simulated), 1);
    assert!(stdout(&simulated).contains("genuine, but verdict is agree by receipts of a simulated device"));
    fixture_policy(folder.path(), "predictors x\n");
    let wrong = verify(&[]);
    assert_eq!(status(&wrong), 2);
    assert!(
        stderr(&wrong).starts_with("client: error: policy.txt: line 7: the line begins with \"predictors\"")
    );
    assert!(stderr(&wrong).contains("client: hint: a policy has lines such as "), "{}", stderr(&wrong));
    let both = verify(&["--log-key", "x"]);
    assert_eq!(status(&both), 2);
    assert!(stderr(&both).contains("cannot be used with"), "{}", stderr(&both));
}

#[test]
fn a_bundle_is_explained_and_its_proofs_are_files_that_prove() {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fixtures");
    let [second, first] = ["bundle/agree.cbor", "bundle/v1/agree.cbor"].map(|path| fixtures.join(path));
    let [second, first] = [&second, &first].map(|path| path.to_str().unwrap());
    let none = client(folder.path(), &["bundle", second]);
    assert_eq!(status(&none), 2, "something has to be asked for");
    let told = stdout(&client(folder.path(), &["bundle", second, "--explain"]));
    assert!(told.starts_with("This explains what the bundle says. Nothing was verified: "), "{told}");
    for part in ["checkpoint\n", "entry 2: prediction, signed by ", "cover of size 3\n", "completeness\n"] {
        assert!(told.contains(&format!("\n{part}")), "{part} in {told}");
    }
    assert!(told.contains("under the names of witness.example/first, witness.example/second\n"), "{told}");
    let told = stdout(&client(folder.path(), &["bundle", first, "--explain"]));
    assert!(told.contains("is      not there\n"), "{told}");

    let written = client(folder.path(), &["bundle", second, "--export", "proofs"]);
    assert_eq!(status(&written), 0, "{}", stderr(&written));
    assert!(stderr(&written).contains("client: note: no COSE receipts: "), "{}", stderr(&written));
    assert_eq!(stdout(&written).lines().count(), 2 * 7 + 3);
    let proofs = folder.path().join("proofs");
    let key = std::fs::read_to_string(fixtures.join("checkpoint/log.vkey")).unwrap();
    let key = tlog::note::VerifierKey::parse(key.trim()).unwrap();
    for name in ["1-run", "2-prediction", "3-receipt", "4-receipt", "5-opening", "7-verdict", "8-register"] {
        let entry = std::fs::read(proofs.join(format!("{name}.cose"))).unwrap();
        let proof = std::fs::read(proofs.join(format!("{name}.tlog-proof"))).unwrap();
        let proof = tlog::tlog_proof::TlogProof::parse(&proof).unwrap();
        let origin = tlog::note::Verifier::name(&key).as_str();
        proof.check(tlog::hash::leaf_hash(&entry), origin, &key).unwrap();
    }
    let file = std::fs::read(proofs.join("run.completeness")).unwrap();
    let report = verify::completeness::check(&file, &key, &[]);
    assert_eq!(report.class, verify::report::Class::Agreeing, "{report}");
    let again = client(folder.path(), &["bundle", second, "--export", "proofs"]);
    assert_eq!(status(&again), 2);
    assert!(stderr(&again).contains("hint: it is there already and is left alone: "), "{}", stderr(&again));
    let nowhere = client(folder.path(), &["bundle", second, "--export", "absent/proofs"]);
    assert!(
        stderr(&nowhere).contains("hint: there is no folder absent: make it first"),
        "{}",
        stderr(&nowhere)
    );
}

/// What is not exported whole is not there at all, or the next try would find a folder in its way.
#[test]
fn an_export_that_finds_no_room_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/bundle/agree.cbor");
    let script = "ulimit -f 0; exec \"$@\"";
    let output = Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_client"), "bundle"])
        .arg(&bundle)
        .args(["--export", "proofs"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(status(&output), 2);
    let said = stderr(&output);
    assert!(said.contains("client: error: cannot write proofs/1-run.cose: "), "{said}");
    assert!(said.contains("hint: the disk is full, or a limit is set (`ulimit -f`, a quota)\n"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_file_that_is_no_bundle_is_told_with_the_command_that_is_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let path = |name: &str| fixtures.join(name).to_str().unwrap().to_owned();
    let keys = [
        "--log-key",
        &path("checkpoint/log.vkey"),
        "--predictor-key",
        &format!("ed25519:{}", "35".repeat(32)),
    ]
    .map(str::to_owned);
    for (name, hint) in [
        ("statement/run.cbor", "hint: a statement alone? "),
        ("completeness/short.cbor", "hint: a completeness file? `client completeness FILE"),
        ("completeness/run.cbor", "hint: a completeness file? `client completeness FILE"),
        ("checkpoint/log.vkey", "hint: cut short, or not a bundle? `client reconcile` writes them"),
    ] {
        let mut verify = vec!["verify".to_owned(), path(name)];
        verify.extend(keys.clone());
        let commands =
            [verify, vec!["show".into(), path(name)], vec!["bundle".into(), path(name), "--explain".into()]];
        for command in commands {
            let command: Vec<&str> = command.iter().map(String::as_str).collect();
            let output = client(folder.path(), &command);
            assert_eq!(status(&output), 2, "{command:?}");
            assert!(stderr(&output).contains(hint), "{command:?}: {}", stderr(&output));
        }
    }
    let step = path("opened/step.cbor");
    let said = stderr(&client(folder.path(), &["show", &step]));
    assert!(said.contains("hint: an opened step? `client verify` checks and shows it"), "{said}");
}

#[test]
fn a_log_that_is_not_there_is_an_error_with_a_hint_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = |arguments: &[&str]| {
        let output = client(folder.path(), arguments);
        assert_eq!(status(&output), 2);
        stderr(&output)
    };
    let missing = bundle(&[
        "challenge",
        "--ledger",
        "http://127.0.0.1:1",
        "--prediction",
        "absent",
        "--out",
        "challenge.note",
    ]);
    assert!(missing.contains("client: hint: the oracle writes OUT/prediction"), "{missing}");
    // A port that was free a moment ago and that nobody listens on.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let key = schemas::key::SecretKey::from_seed([1; 32]);
    let run = schemas::statement::Payload::Run(some_run());
    let statement = schemas::statement::Statement::sign(&run, &key).unwrap();
    std::fs::write(folder.path().join("run.cose"), statement).unwrap();
    let refused = bundle(&["submit", "run.cose", "--ledger", &format!("http://127.0.0.1:{port}")]);
    assert!(refused.starts_with("client: error: cannot reach http://127.0.0.1:"), "{refused}");
    assert!(refused.contains("client: hint: is the ledger running?"), "{refused}");
    let other = bundle(&["submit", "run.cose", "--ledger", "https://log.example"]);
    assert!(other.contains("expected http://HOST[:PORT]"), "{other}");
    let bare = bundle(&["submit", "run.cose", "--ledger", "127.0.0.1:7180"]);
    assert!(bare.contains("client: hint: did you mean http://127.0.0.1:7180?"), "{bare}");
    assert!(!folder.path().join("challenge.note").exists());
}

/// A small genuine-looking bundle: its form is right, nothing in it was verified.
fn some_bundle() -> Vec<u8> {
    use schemas::object::Object as _;
    let key = schemas::key::SecretKey::from_seed([1; 32]);
    let run = schemas::statement::Payload::Run(some_run());
    let bytes = schemas::statement::Statement::sign(&run, &key).unwrap();
    let entries = vec![schemas::bundle::ProvenEntry { index: 1, bytes, proof: vec![] }];
    schemas::bundle::Bundle {
        version: 1,
        folds: vec![],
        completeness: None,
        checkpoint: b"log.example\n2\n".to_vec(),
        entries,
        covers: vec![],
        plan: b"plan".to_vec(),
        attachments: vec![b"attachment".to_vec()],
    }
    .encode()
}

#[test]
fn a_bundle_is_shown_in_words_and_as_json() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("run.tally"), some_bundle()).unwrap();
    let words = client(folder.path(), &["show", "run.tally"]);
    assert_eq!(status(&words), 0);
    assert!(stdout(&words).contains("\nentry 1: run "), "{}", stdout(&words));
    let json = client(folder.path(), &["show", "run.tally", "--json"]);
    assert_eq!(status(&json), 0);
    let value: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert!(value["verified"].is_null());
    assert_eq!(value["entries"][0]["kind"], "run");
    assert_eq!(value["entries"][0]["content"]["name"], "tiny");
    assert_eq!(
        (value["plan_bytes"].as_u64(), value["attachments"][0]["bytes"].as_u64()),
        (Some(4), Some(10))
    );
    // One of a whole run: what is in words is so in both.
    std::fs::copy(fixture("bundle/agree.cbor"), folder.path().join("whole.tally")).unwrap();
    let words = stdout(&client(folder.path(), &["show", "whole.tally"]));
    assert!(words.contains("\n  steps 0..3, sealed, seal 1fccdd6d"), "{words}");
    let cover = "cover: a checkpoint of size 3 that holds the prediction, with cosignatures\n";
    assert!(words.contains(cover), "{words}");
    let json = stdout(&client(folder.path(), &["show", "whole.tally", "--json"]));
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["cover_sizes"], serde_json::json!([3]));
    assert_eq!((&value["register"], &value["plan_bytes"]), (&8.into(), &11_255.into()));
    let kinds: Vec<_> = value["entries"].as_array().unwrap().iter().map(|entry| &entry["kind"]).collect();
    assert_eq!(kinds, ["run", "prediction", "opening", "receipt", "receipt", "verdict"]);
    assert_eq!(value["entries"][1]["content"]["open"], false);
}

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name)
}

/// Writes run.cose signed by one key and prediction.cose signed by another.
fn write_prediction(folder: &Path, run_seed: u8, predictor_seed: u8) {
    use schemas::digest::Seal;
    use schemas::statement::{Payload, Statement};
    let key = |seed: u8| schemas::key::SecretKey::from_seed([seed; 32]);
    let steps = schemas::run::Steps { first: 0, end: 1 };
    let run = some_run();
    let prediction = schemas::prediction::Prediction {
        run: run.id(),
        steps,
        seal: Seal([7; 32]),
        reveal_by: 1,
        by: None,
        open: None,
    };
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("run.cose"), Statement::sign(&Payload::Run(run), &key(run_seed)).unwrap())
        .unwrap();
    let bytes = Statement::sign(&Payload::Prediction(prediction), &key(predictor_seed)).unwrap();
    std::fs::write(folder.join("prediction.cose"), bytes).unwrap();
}

#[test]
fn another_signers_run_statement_is_refused_before_the_log_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    client(folder.path(), &["keygen", "predictor.key"]);
    let secret = client::keyfile::load(&folder.path().join("predictor.key")).unwrap();
    let log = tlog::note::SigningKey::from_seed(tlog::note::KeyName::new("log.example").unwrap(), &[1; 32]);
    let log = log.verifier().to_string();
    let prediction = folder.path().join("prediction");
    write_prediction(&prediction, 2, 3);
    let reconcile = |key: &str| {
        let with =
            ["reconcile", "--ledger", "http://127.0.0.1:1", "--log-key", &log, "--prediction", "prediction"];
        let output = client(
            folder.path(),
            &[&with[..], &["--receipts", ".", "--out", "run.tally", "--key", key]].concat(),
        );
        assert_eq!(status(&output), 2);
        stderr(&output)
    };
    let public = reconcile("predictor.pub");
    assert!(public.contains("that is a public key; the secret one is predictor.key"), "{public}");
    let other = reconcile("predictor.key");
    assert!(other.contains("expected the predictor's key"), "{other}");
    // The prediction by the right key, the run by another.
    let run = std::fs::read(prediction.join("run.cose")).unwrap();
    let bytes = std::fs::read(prediction.join("prediction.cose")).unwrap();
    let payload = schemas::statement::Statement::open(&bytes).unwrap().payload;
    let signed = schemas::statement::Statement::sign(&payload, &secret).unwrap();
    std::fs::write(prediction.join("prediction.cose"), signed).unwrap();
    let foreign = reconcile("predictor.key");
    assert!(foreign.contains("expected a statement signed by the predictor "), "{foreign}");
    assert!(foreign.contains("client: hint: take the run.cose that `oracle predict` wrote"), "{foreign}");
    assert_eq!(std::fs::read(prediction.join("run.cose")).unwrap(), run);
}

fn some_run() -> Run {
    Run::decode(include_bytes!("../../fixtures/run/run.cbor")).unwrap()
}
