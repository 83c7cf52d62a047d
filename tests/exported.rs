//! `client bundle --export` by a log that is asked for receipts: what it writes is read by scitt-cose, which others
//! wrote (tools/setup.sh puts it under target/), and a log that is another one is refused.

use std::path::Path;
use std::process::Command;
use tests::workshop::{Workshop, workspace};

/// Runs a program of `tests/independent` with the packages of tools/python.txt.
fn python(program: &str, argument: &Path) -> (bool, String) {
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python");
    let installed = std::fs::read_to_string(packages.join("installed"));
    let installed = installed.expect("verifiers in Python are missing: run tools/setup.sh test");
    let program = workspace().join("tests/independent").join(program);
    let mut command = Command::new(installed.lines().next().unwrap());
    let output = command.arg(program).arg(argument).env("PYTHONPATH", packages).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn exported_receipts_and_transparent_statements_are_read_by_tools_of_scitt() {
    let (shop, log) = Workshop::ready();
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    let export =
        |folder: &str, more: &str| shop.run("client", &format!("bundle run.tally --export {folder} {more}"));
    let asked = export("proofs", &format!("--ledger {} --log-key log/log.pub", log.url)).expect_code(0);
    assert!(!asked.stderr.contains("no COSE receipts"), "{}", asked.stderr);
    let names = |folder: &str| {
        let files = std::fs::read_dir(shop.path(folder)).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let written = names("proofs");
    for kind in ["1-run", "2-prediction", "3-receipt", "4-receipt"] {
        for ending in ["cose", "tlog-proof", "receipt.cbor", "transparent.cose"] {
            assert!(written.contains(&format!("{kind}.{ending}")), "{written:?}");
        }
    }
    let receipts = written.iter().filter(|name| name.ends_with(".receipt.cbor")).count();
    assert_eq!(receipts, written.iter().filter(|name| name.ends_with(".tlog-proof")).count());
    // The log's key as the tools read it.
    std::fs::write(shop.path("proofs/keys.cbor"), log.get("/.well-known/scitt-keys")).unwrap();
    let (right, said) = python("exported.py", &shop.path("proofs"));
    assert!(right && said.contains(&format!("{receipts} receipts verified")), "{said}");

    // Without a log to ask, what the bundle holds; and nothing at all by a log that is not the bundle's.
    let alone = export("alone", "").expect_code(0);
    assert!(
        alone.stderr.contains("with --ledger and --log-key the log is asked for them"),
        "{}",
        alone.stderr
    );
    assert!(names("alone").iter().all(|name| written.contains(name) && !name.contains("receipt.cbor")));
    let other = Workshop::open();
    let stranger = other.ledger();
    std::fs::copy(other.path("log/log.pub"), shop.path("stranger.pub")).unwrap();
    export("none", &format!("--ledger {} --log-key stranger.pub", stranger.url))
        .expect_code(2)
        .expect_text("client: hint: another log's key, or another's bundle");
    export("none", &format!("--ledger {} --log-key log/log.pub", stranger.url))
        .expect_code(2)
        .expect_text("expected the log ");
    assert!(!shop.path("none").exists());
    export("none", &format!("--ledger {}", log.url)).expect_code(2).expect_text("--log-key <VKEY|FILE>");
}
