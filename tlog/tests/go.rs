//! The same questions to the Go project's packages `sumdb/tlog` and `sumdb/note`, which this log's formats come from:
//! each answer is ours, or the difference has a reason. `tlog/tests/go/tlog.go` asks them.

mod questions;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use questions::{Question, asked, compare, reasons};

/// The program, or none (with a message) where there is no Go with its packages; `tools/setup.sh test` installs both.
fn built() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("tlog-go-{}", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/go/tlog.go");
    let mut go = Command::new("go");
    go.env("GO111MODULE", "off").env("GOPATH", "/usr/share/gocode").env("GOCACHE", folder.join("go-cache"));
    match go.arg("build").arg("-o").arg(&program).arg(source).output() {
        Ok(output) if output.status.success() => return Some(program),
        Ok(output) => println!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("no go: {error}"),
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "the Go program cannot be built");
    println!("skipped: no Go with golang.org/x/mod");
    None
}

fn answers(program: &Path, questions: &[Question]) -> Vec<String> {
    let mut child =
        Command::new(program).arg("answer").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines: String = questions.iter().map(|question| question.line() + "\n").collect();
    let writing = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn what_go_answers_is_what_we_answer() {
    let Some(program) = built() else { return };
    let sets: [(Vec<Question>, &[&str]); 7] = [
        (asked::hashes_and_positions(), &[]),
        (asked::proofs(), &[reasons::EMPTY_OLDER_TREE]),
        (asked::checks(), &[reasons::EMPTY_OLDER_TREE]),
        (asked::tiles(), &[reasons::LEVEL, reasons::SIGNED]),
        (asked::keys(), &[reasons::NAME, reasons::UPPER_CASE, reasons::LINE_FEED, reasons::SMALL_ORDER]),
        (asked::notes(), &[reasons::LIMIT, reasons::NAME, reasons::SPARE_BITS, reasons::SECOND_SIGNATURE]),
        (
            asked::checkpoints(),
            &[reasons::EMPTY_ROOT, reasons::EXTENSION, reasons::SIGNED, reasons::SPARE_BITS],
        ),
    ];
    for (questions, expected) in sets {
        let needed = compare(&questions, &answers(&program, &questions));
        assert_eq!(needed, BTreeSet::from_iter(expected.iter().copied()));
    }
    std::fs::remove_file(program).unwrap();
}
