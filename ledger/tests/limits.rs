//! What keeps one submitter, one address or one kind of data from taking all of a server.

mod support;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use ledger::http::buckets::Rate;
use ledger::http::server::start;
use schemas::attachment::AttachmentName;
use support::witness::until;
use support::{
    Answer, Process, folder, get, key, options, prediction_statement, read_answer, receipt_statement,
    request, run, run_statement, served, submit,
};

fn refused(answer: &Answer, status: u16, detail: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert!(answer.text().contains(detail), "{}, expected {detail:?}", answer.text());
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[test]
fn an_address_that_asks_too_often_is_told_when_to_ask_again() {
    let folder = folder();
    let mut options = options(folder.path());
    options.limits.requests_per_peer_per_s = 1;
    let server = start(options).unwrap();
    let address = server.address();
    let answers: Vec<Answer> = (0..14).map(|_| get(address, "/log.json")).collect();
    let taken = answers.iter().filter(|answer| answer.status == 200).count();
    assert!((10..=13).contains(&taken), "{taken}");
    let last = answers.last().unwrap();
    refused(last, 429, "one address (IPv6: one /64) may make 1 requests a second; ask again in 1 s");
    assert_eq!(last.header("retry-after"), Some("1"));
    let cbor = request(address, "POST", "/entries", "Accept: application/cose\r\n", b"").unwrap();
    assert_eq!(cbor.status, 429);
    assert_eq!(cbor.header("content-type"), Some("application/concise-problem-details+cbor"));
    server.stop().unwrap();
}

/// The server's command where so many files may be open.
fn within(files: usize, data: &std::path::Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {files} && exec \"$@\""), "sh", env!("CARGO_BIN_EXE_ledger")]);
    command.args(["serve", "--listen", "0", "--origin", support::ORIGIN, "--connections-per-peer", "1000"]);
    command.arg("--data").arg(data);
    command
}

#[test]
fn connections_do_not_take_the_files_that_the_log_needs() {
    let folder = folder();
    let errors = folder.path().join("errors");
    let file = std::fs::File::create(&errors).unwrap();
    let process = Process::of(within(128, &folder.path().join("log")).stderr(file));
    let mut first = TcpStream::connect(process.address).unwrap();
    let idle: Vec<TcpStream> = (0..150).map(|_| TcpStream::connect(process.address).unwrap()).collect();
    let files = format!("/proc/{}/fd", process.child.id());
    // Accepted one by one in the order they came.
    let open = || std::fs::read_dir(&files).map_or(0, Iterator::count);
    until("as many are accepted as may be", || (open() > 64).then_some(()));
    let statement = run_statement(1);
    let head = format!(
        "POST /entries HTTP/1.1\r\nHost: t\r\n{}Content-Length: {}\r\n\r\n",
        "Connection: close\r\nContent-Type: application/cose\r\n",
        statement.len()
    );
    std::io::Write::write_all(&mut first, &[head.as_bytes(), &statement].concat()).unwrap();
    assert_eq!(read_answer(&mut first).unwrap().status, 201);
    drop(idle);
    until("others get in again", || (get(process.address, "/log.json").status == 200).then_some(()));
    assert_eq!(process.terminate(), Some(0));
    let told = std::fs::read_to_string(&errors).unwrap();
    assert!(told.contains("at most 64 connections at once instead of 512"), "{told}");

    let output = within(63, &folder.path().join("none")).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("may open 63 files, expected 64 at least"), "{told}");
    assert!(told.contains("ledger: hint: `ulimit -n 1024`"), "{told}");
}

#[test]
fn only_listed_keys_add_entries_and_what_is_in_the_log_is_found_by_all() {
    let folder = folder();
    let server = served(folder.path());
    assert_eq!(submit(server.address(), &run_statement(0)).status, 201);
    server.stop().unwrap();
    let mut options = options(folder.path());
    options.rules.allowed = Some(BTreeSet::from([key(2).public()]));
    let server = start(options).unwrap();
    let address = server.address();
    let named = format!("{} is not among the keys", key(1).public());
    refused(&submit(address, &run_statement(1)), 403, &named);
    assert_eq!(submit(address, &run_statement(0)).status, 200);
    assert_eq!(submit(address, &prediction_statement(run(0).id(), 0, 10, 2)).status, 201);
    let mut forged = prediction_statement(run(0).id(), 10, 20, 2);
    *forged.last_mut().unwrap() ^= 1;
    refused(&submit(address, &forged), 400, "signature");
    server.stop().unwrap();
}

#[test]
fn a_quota_counts_new_entries_and_nothing_else() {
    let folder = folder();
    let mut options = options(folder.path());
    options.rules.entries = Some(Rate { amount: 2, period: Duration::from_secs(86_400), burst: 2 });
    let server = start(options).unwrap();
    let address = server.address();
    for number in 0..2 {
        // Refused: its run is unknown. Repeated: it is there. Forged: it is not this key's.
        refused(&submit(address, &prediction_statement(run(7).id(), 0, 1, 1)), 409, "unknown run");
        assert_eq!(submit(address, &run_statement(number)).status, 201);
        assert_eq!(submit(address, &run_statement(number)).status, 200);
        let mut forged = run_statement(9);
        *forged.last_mut().unwrap() ^= 1;
        refused(&submit(address, &forged), 400, "signature");
    }
    let over = submit(address, &run_statement(2));
    refused(&over, 429, &format!("{} may add 2 entries in 86400 s; ask again in ", key(1).public()));
    assert!(over.header("retry-after").unwrap().parse::<u64>().unwrap() > 40_000);
    assert_eq!(submit(address, &run_statement(1)).status, 200, "a repetition is never an error");
    assert_eq!(submit(address, &receipt_statement(run(0).id(), 0, b"note")).status, 201, "another key");
    server.stop().unwrap();
}

#[test]
fn a_quota_of_many_at_once_is_not_gone_around() {
    let folder = folder();
    let mut options = options(folder.path());
    options.rules.entries = Some(Rate { amount: 5, period: Duration::from_secs(86_400), burst: 5 });
    let server = start(options).unwrap();
    let address = server.address();
    // Every statement twice, all at once: the copies come to the sequencer together.
    let statuses: Vec<u16> = std::thread::scope(|threads| {
        let workers: Vec<_> = (0..16)
            .map(|number| threads.spawn(move || submit(address, &run_statement(number / 2)).status))
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let new = statuses.iter().filter(|status| **status == 201).count();
    assert!(new <= 5, "{statuses:?}");
    // What copies were counted for has been given back.
    let more = (20..30).filter(|number| submit(address, &run_statement(*number)).status == 201).count();
    assert_eq!(new + more, 5, "{statuses:?}");
    server.stop().unwrap();
}

fn put(address: SocketAddr, bytes: &[u8]) -> Answer {
    let path = format!("/attachments/{}", AttachmentName::of(bytes).sha256);
    request(address, "PUT", &path, "", bytes).unwrap()
}

#[test]
fn attachments_take_no_more_room_than_they_may() {
    let folder = folder();
    let with_room = |bytes_max| {
        let mut options = options(folder.path());
        options.limits.attachments_bytes_max = bytes_max;
        start(options).unwrap()
    };
    let server = with_room(1000);
    let address = server.address();
    let [first, second, third] = [vec![1; 600], vec![2; 600], vec![3; 400]];
    assert_eq!(put(address, &first).status, 201);
    refused(&put(address, &second), 507, "take 600; expected at most 400 bytes, found 600");
    assert_eq!(put(address, &first).status, 200, "what is there needs no further room");
    // Other bytes than named take no room either, and what is damaged takes as much as it is long.
    let path = format!("/attachments/{}", AttachmentName::of(&second).sha256);
    refused(&request(address, "PUT", &path, "", &third).unwrap(), 422, "expected");
    let name = AttachmentName::of(&first).sha256.to_string();
    std::fs::write(folder.path().join(format!("attachments/{}/{name}", &name[..2])), vec![9; 600]).unwrap();
    assert_eq!(put(address, &first).status, 201);
    assert_eq!(put(address, &third).status, 201);
    refused(&put(address, b"x"), 507, "take 1000; expected at most 0 bytes, found 1");
    server.stop().unwrap();

    let server = with_room(1100);
    let address = server.address();
    refused(&put(address, &second), 507, "take 1000; expected at most 100 bytes, found 600");
    // The same without a length announced: it is stopped where the room ends.
    let head =
        format!("PUT {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut stream = TcpStream::connect(address).unwrap();
    let chunk = format!("{head}65\r\n{}\r\n0\r\n\r\n", "\u{2}".repeat(0x65));
    std::io::Write::write_all(&mut stream, chunk.as_bytes()).unwrap();
    refused(&read_answer(&mut stream).unwrap(), 507, "take 1000; expected at most 100 bytes, found 101");
    assert_eq!(std::fs::read_dir(folder.path().join("attachments/incoming")).unwrap().count(), 0);
    assert_eq!(put(address, &[4; 100]).status, 201);
    server.stop().unwrap();
}

#[test]
fn a_list_of_keys_that_is_none_is_said_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let (data, list) = (folder.path().join("log"), folder.path().join("keys"));
    std::fs::write(&list, "ed25519:00\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ledger"));
    command.args(["serve", "--listen", "0", "--data"]).arg(&data).arg("--allow-submitters").arg(&list);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("keys line 1: expected a public key"), "{said}");
    assert!(!data.exists());
}
