//! SIGTERM with submissions under way: what has begun to come is taken in, proven and answered, and is there later.

mod support;

use std::io::Write as _;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use schemas::digest::EntryDigest;
use support::{ORIGIN, Process, folder, get, read_answer, run_statement, submit};
use tlog::hash::leaf_hash;
use tlog::note::VerifierKey;
use tlog::tlog_proof::TlogProof;

#[test]
fn submissions_under_way_at_sigterm_are_answered_and_kept() {
    const COUNT: u64 = 24;
    let folder = folder();
    let mut server = Process::start(folder.path());
    let address = server.address;
    let log = VerifierKey::parse(&server.verifier_key).unwrap();
    // All but the last byte of each; the server has the request and waits for the rest of it.
    let mut coming: Vec<(Vec<u8>, TcpStream)> = (0..COUNT)
        .map(|number| {
            let statement = run_statement(number);
            let mut stream = TcpStream::connect(address).unwrap();
            let length = statement.len();
            let head = "POST /entries HTTP/1.1\r\nHost: t\r\nContent-Type: application/cose\r\n";
            // It says when it has begun to read the body.
            write!(stream, "{head}Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n").unwrap();
            let mut line = [0; 25];
            std::io::Read::read_exact(&mut stream, &mut line).unwrap();
            assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
            stream.write_all(&statement[..length - 1]).unwrap();
            (statement, stream)
        })
        .collect();
    let sent = Command::new("kill").arg("-TERM").arg(server.child.id().to_string()).status().unwrap();
    assert!(sent.success());
    // It is stopping when it takes no further connections.
    while TcpStream::connect(address).is_ok() {}
    for (statement, stream) in &mut coming {
        stream.write_all(&statement[statement.len() - 1..]).unwrap();
    }
    let mut indexes = Vec::new();
    for (statement, stream) in &mut coming {
        let answer = read_answer(stream).unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
        let proof = TlogProof::parse(&answer.body).unwrap();
        proof.check(leaf_hash(statement), ORIGIN, &log).unwrap();
        indexes.push(proof.index.0);
    }
    indexes.sort_unstable();
    assert_eq!(indexes, (1..=COUNT).collect::<Vec<_>>());
    assert_eq!(server.child.wait().unwrap().code(), Some(0));

    let server = Process::start(folder.path());
    for (statement, _) in &coming {
        let digest = EntryDigest::of(statement);
        assert_eq!(get(server.address, &format!("/by-hash/{digest}")).body, *statement);
    }
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn whatever_was_acknowledged_before_the_end_is_there_and_the_end_comes_soon() {
    let folder = folder();
    let mut server = Process::start(folder.path());
    let address = server.address;
    let acknowledged: Vec<Vec<u8>> = std::thread::scope(|threads| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                threads.spawn(move || {
                    let statements = (0..).map(|number| run_statement(worker << 32 | number));
                    let answered = |statement: &Vec<u8>| {
                        let mut stream = TcpStream::connect(address)?;
                        let head = "POST /entries HTTP/1.1\r\nHost: t\r\nConnection: close\r\n";
                        let length = statement.len();
                        write!(
                            stream,
                            "{head}Content-Type: application/cose\r\nContent-Length: {length}\r\n\r\n"
                        )?;
                        stream.write_all(statement)?;
                        read_answer(&mut stream)
                    };
                    statements
                        .take_while(|statement| answered(statement).is_ok_and(|answer| answer.status == 201))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        // In the midst of it: some have been answered, and others are always under way.
        while get(address, "/log.json").text().contains("\"size\":1,") {}
        let sent = Command::new("kill").arg("-TERM").arg(server.child.id().to_string()).status().unwrap();
        assert!(sent.success());
        let since = Instant::now();
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
        assert!(since.elapsed() < Duration::from_secs(8), "nobody is waited for who has nothing under way");
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(!acknowledged.is_empty());
    let server = Process::start(folder.path());
    for statement in &acknowledged {
        assert_eq!(submit(server.address, statement).status, 200, "it has its place");
    }
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_terminal_that_goes_away_stops_a_server_in_order_unless_it_was_started_to_outlive_it() {
    let folder = folder();
    let mut server = Process::start(folder.path());
    assert_eq!(submit(server.address, &run_statement(0)).status, 201);
    server.signal("-HUP");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let mut nohup = Command::new("nohup");
    nohup.arg(env!("CARGO_BIN_EXE_ledger")).args(["serve", "--listen", "0", "--data"]).arg(folder.path());
    let server = Process::of(nohup.stdin(Stdio::null()).stderr(Stdio::null()));
    server.signal("-HUP");
    assert_eq!(submit(server.address, &run_statement(1)).status, 201);
    assert_eq!(server.terminate(), Some(0));
}
