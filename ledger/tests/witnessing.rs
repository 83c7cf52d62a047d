//! A log and its witnesses: honest, slow, dead and lying ones, forks, restarts, and what is published of it.

mod support;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ledger::http::server::{Options, Running, ServeError, start};
use ledger::witness::counters::{Counters, WitnessCounters};
use ledger::witness::plan::{Pace, Plan, PlanError};
use ledger::witness::records::system_clock;
use ledger::witness::server::Running as Witness;
use sha2::{Digest as _, Sha256};
use support::witness::{answer, path_of, pretender, until, witness};
use support::{ORIGIN, get, request, run_statement, served, submit};
use tlog::checkpoint::Checkpoint;
use tlog::cosignature::{CosignerKey, CosigningKey};
use tlog::note::{KeyName, Verifier as _, VerifierKey};
use tlog::policy::Policy;
use tlog::witness::{AddCheckpoint, SIZE_TYPE};

/// Fast enough for tests: a dead witness is left alone for moments only.
fn pace() -> Pace {
    Pace {
        interval: Duration::from_millis(10),
        request: Duration::from_millis(500),
        backoff: Duration::from_millis(20),
        backoff_max: Duration::from_millis(100),
    }
}

/// A witness line of a policy.
fn line(name: &str, key: &str, address: SocketAddr) -> String {
    format!("witness {name} {key} http://{address}/\n")
}

/// A log in a folder that asks the witnesses of a policy.
fn asking(data: &Path, policy: &str) -> (Running, Arc<Counters>) {
    let plan = Plan::new(Policy::parse(policy.as_bytes()).unwrap(), pace(), system_clock).unwrap();
    let counters = plan.counters.clone();
    (start(Options { witnesses: Some(plan), ..support::options(data) }).unwrap(), counters)
}

/// The log's key: it is made by the first start, so that witnesses can be told.
fn key_of(data: &Path) -> VerifierKey {
    let server = served(data);
    let key = VerifierKey::parse(server.verifier_key()).unwrap();
    server.stop().unwrap();
    key
}

fn counters<'a>(all: &'a Counters, name: &str) -> &'a WitnessCounters {
    all.witnesses.iter().find(|witness| witness.name == name).unwrap()
}

/// Size, witnesses and note of what the log calls witnessed, checked under the policy.
fn witnessed(address: SocketAddr, log: &VerifierKey, policy: &str) -> Option<(u64, Vec<String>, String)> {
    let answer = get(address, "/checkpoint/witnessed");
    if answer.status == 404 {
        return None;
    }
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("cache-control"), Some("public, max-age=1"));
    let policy = Policy::parse(format!("log {log}\n{policy}").as_bytes()).unwrap();
    let (checkpoint, cosignatures) = policy.open(&answer.body).unwrap();
    let name = |key: &CosignerKey| {
        policy.witnesses().iter().find(|witness| witness.key == *key).unwrap().name.clone()
    };
    let names = cosignatures.iter().map(|cosignature| name(&cosignature.witness)).collect();
    Some((checkpoint.head.size.0, names, answer.text().to_owned()))
}

/// Submits a statement and waits until the log's checkpoint that covers it is witnessed.
fn submit_witnessed(server: &Running, number: u64, log: &VerifierKey, policy: &str) -> u64 {
    assert_eq!(submit(server.address(), &run_statement(number)).status, 201);
    let note = get(server.address(), "/checkpoint").body;
    let size = Checkpoint::open(&note, ORIGIN, log).unwrap().head.size.0;
    until("the checkpoint is witnessed", || {
        witnessed(server.address(), log, policy).filter(|(found, ..)| *found >= size)
    });
    size
}

/// Witnesses `first`, `second` and so on, with a folder each.
struct Honest {
    _folders: Vec<support::Folder>,
    servers: Vec<Witness>,
}

impl Honest {
    fn new(count: usize, log: &VerifierKey) -> Honest {
        let folders: Vec<_> = (0..count).map(|_| support::folder()).collect();
        let servers = folders.iter().map(|folder| witness(folder.path(), &[log])).collect();
        Honest { _folders: folders, servers }
    }

    fn lines(&self) -> String {
        let line_of = |(at, server): (usize, &Witness)| {
            line(&format!("w{at}"), server.verifier_key(), server.address())
        };
        self.servers.iter().enumerate().map(line_of).collect()
    }
}

fn liar(name: &str) -> CosigningKey {
    CosigningKey::from_seed(KeyName::new(name).unwrap(), &Sha256::digest(name).into())
}

/// An address where nobody listens.
fn dead() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn two_honest_witnesses_of_five_suffice_whatever_the_others_do() {
    let folder = support::folder();
    let log = key_of(folder.path());
    let honest = Honest::new(2, &log);
    // One takes connections and never answers, one is not there, one signs something else.
    let slow = pretender(|_, _| ());
    let lying = liar("lying");
    let wrong = lying.cosign("something else\n", system_clock()).to_string();
    let lies = pretender(move |_, stream| answer(stream, 200, "text/plain", wrong.as_bytes()));
    let policy = format!(
        "{}{}{}{}group g 2 w0 slow dead lying w1\nquorum g\n",
        honest.lines(),
        line("slow", &liar("slow").verifier().to_string(), slow),
        line("dead", &liar("dead").verifier().to_string(), dead()),
        line("lying", &lying.verifier().to_string(), lies),
    );
    let (server, counted) = asking(folder.path(), &policy);
    for number in 1..=20 {
        submit_witnessed(&server, number, &log, &policy);
    }
    let (size, names, note) = witnessed(server.address(), &log, &policy).unwrap();
    assert_eq!((size, names), (21, vec!["w0".to_owned(), "w1".to_owned()]));
    assert_eq!(get(server.address(), "/checkpoint").text(), note, "the latest, with its cosignatures");
    for name in ["w0", "w1"] {
        assert!(counters(&counted, name).cosigned.value() > 0);
        assert_eq!(counters(&counted, name).size.value(), 21);
    }
    until("everybody was asked", || {
        let [slow, dead, lying] = ["slow", "dead", "lying"].map(|name| counters(&counted, name));
        assert_eq!([slow, dead, lying].map(|one| one.cosigned.value()), [0; 3]);
        (slow.unreachable.value() > 0 && dead.unreachable.value() > 0 && lying.lied.value() > 0).then_some(())
    });
    assert_eq!((counted.witnessed_size.value(), counted.forked.value()), (21, 0));
    server.stop().unwrap();
}

#[test]
fn without_a_quorum_the_log_goes_on_and_calls_nothing_witnessed() {
    let folder = support::folder();
    let log = key_of(folder.path());
    let honest = Honest::new(1, &log);
    let policy = format!(
        "{}{}{}group g 2 w0 slow dead\nquorum g\n",
        honest.lines(),
        line("slow", &liar("slow").verifier().to_string(), pretender(|_, _| ())),
        line("dead", &liar("dead").verifier().to_string(), dead()),
    );
    let (server, counted) = asking(folder.path(), &policy);
    for number in 1..=10 {
        assert_eq!(submit(server.address(), &run_statement(number)).status, 201);
    }
    until("the honest one has cosigned", || (counters(&counted, "w0").cosigned.value() > 0).then_some(()));
    assert_eq!(witnessed(server.address(), &log, &policy), None);
    let note = get(server.address(), "/checkpoint");
    assert_eq!(note.text().lines().filter(|line| line.starts_with('\u{2014}')).count(), 1);
    server.stop().unwrap();
}

#[test]
fn cosignatures_that_were_half_collected_at_a_crash_are_collected_again() {
    let folder = tempfile::tempdir().unwrap();
    let log = key_of(folder.path());
    let honest = Honest::new(2, &log);
    let both = format!("{}group g all w0 w1\nquorum g\n", honest.lines());
    let second = honest.servers[1].address().to_string();
    let half = both.replace(&second, &dead().to_string());
    let (server, counted) = asking(folder.path(), &half);
    assert_eq!(submit(server.address(), &run_statement(1)).status, 201);
    until("one of two has cosigned", || (counters(&counted, "w0").size.value() == 2).then_some(()));
    assert_eq!(witnessed(server.address(), &log, &both), None);
    server.stop().unwrap();
    let (server, _) = asking(folder.path(), &both);
    let (size, names, _) = until("both have cosigned", || witnessed(server.address(), &log, &both));
    assert_eq!((size, names.len()), (2, 2));
    server.stop().unwrap();
}

/// The checkpoint's text in a request.
fn text_of(request: &str) -> String {
    let body = request.split_once("\r\n\r\n").unwrap().1;
    let note = AddCheckpoint::parse(body.as_bytes()).unwrap().checkpoint;
    format!("{}\n", note.split("\n\n").next().unwrap())
}

/// A larger checkpoint of the log's name, signed by another key of that name.
fn forged_checkpoint() -> String {
    support::witness::Tree::new(ORIGIN, "other").checkpoint(60)
}

type Lie = Box<dyn Fn(&CosigningKey, &str, &mut TcpStream) + Send + Sync>;

#[test]
fn every_lie_is_passed_over_and_counted_for_what_it_is() {
    let signed = |body: fn(&CosigningKey, &str) -> Vec<u8>| -> Lie {
        Box::new(move |key, request, stream| answer(stream, 200, "text/plain", &body(key, &text_of(request))))
    };
    let fixed = |status, content_type: &'static str, body: &'static [u8]| -> Lie {
        Box::new(move |_, _, stream| answer(stream, status, content_type, body))
    };
    let raw = |bytes: &'static [u8]| -> Lie {
        Box::new(move |_, _, stream| {
            let _ = std::io::Write::write_all(stream, bytes);
            let _ = stream.shutdown(std::net::Shutdown::Both);
        })
    };
    let endless = |head: &'static [u8], more: &'static [u8]| -> Lie {
        Box::new(move |_, _, stream| {
            let mut going = std::io::Write::write_all(stream, head);
            while going.is_ok() {
                going = std::io::Write::write_all(stream, more);
            }
        })
    };
    let later =
        |key: &CosigningKey, text: &str| key.cosign(text, system_clock() + 1000).to_string().into_bytes();
    let lies: Vec<(&str, &str, Lie)> = vec![
        ("later", "lied", signed(later)),
        ("earlier", "lied", signed(|key, text| key.cosign(text, 1).to_string().into_bytes())),
        ("other-text", "lied", signed(|key, _| key.cosign("x\n", system_clock()).to_string().into_bytes())),
        (
            "other-key",
            "lied",
            signed(|_, text| liar("no").cosign(text, system_clock()).to_string().into_bytes()),
        ),
        (
            "borrowed",
            "lied",
            signed(|key, text| {
                let mut line = liar("no").cosign(text, system_clock());
                (line.name, line.id) = (key.verifier().name().clone(), key.verifier().id());
                line.to_string().into_bytes()
            }),
        ),
        ("empty", "lied", fixed(200, "text/plain", b"")),
        ("garbage", "lied", fixed(200, "text/plain", b"\xff\x00<html>")),
        ("many", "lied", signed(|key, text| key.cosign(text, 5).to_string().repeat(65).into_bytes())),
        ("same-size", "lied", fixed(409, SIZE_TYPE, b"0\n")),
        ("no-size", "lied", fixed(409, SIZE_TYPE, b"many\n")),
        ("untyped", "inconsistent", fixed(409, "text/plain", b"1\n")),
        (
            "in-turns",
            "lied",
            Box::new(|_, request, stream| {
                let body: &[u8] = if request.contains("\nold 1\n") { b"0\n" } else { b"1\n" };
                answer(stream, 409, SIZE_TYPE, body);
            }),
        ),
        ("beyond", "inconsistent", fixed(409, SIZE_TYPE, b"18446744073709551615\n")),
        ("accuses", "inconsistent", fixed(422, "text/plain", b"no")),
        (
            "forges",
            "inconsistent",
            Box::new(|_, request, stream| {
                let status = if request.starts_with("GET ") { 200 } else { 422 };
                answer(stream, status, "text/plain", forged_checkpoint().as_bytes());
            }),
        ),
        ("refuses", "refused", fixed(403, "text/plain", b"who are you\x1b[31m")),
        ("moved", "refused", fixed(302, "text/plain", b"")),
        ("broken", "unreachable", raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")),
        ("no-http", "unreachable", raw(b"SSH-2.0-x\r\n")),
        ("closes", "unreachable", raw(b"")),
        ("huge", "unreachable", raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")),
        ("endless-body", "unreachable", endless(b"HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 4096])),
        ("endless-head", "unreachable", endless(b"HTTP/1.1 200 OK\r\n", b"X-More: and more\r\n")),
    ];
    let folder = support::folder();
    let log = key_of(folder.path());
    let honest = Honest::new(1, &log);
    let (mut policy, mut expected) = (honest.lines(), Vec::new());
    for (name, what, lie) in lies {
        let key = liar(name);
        let vkey = key.verifier().to_string();
        policy += &line(name, &vkey, pretender(move |request, stream| lie(&key, request, stream)));
        expected.push((name, what));
    }
    let members: String = expected.iter().map(|(name, _)| format!(" {name}")).collect();
    // One cosignature is enough: no liar may give it.
    policy += &format!("group liars any{members}\ngroup g 2 w0 liars\nquorum g\n");
    let (server, counted) = asking(folder.path(), &policy);
    assert_eq!(submit(server.address(), &run_statement(1)).status, 201);
    for (name, what) in &expected {
        let found = until(&format!("{name} is {what}"), || {
            let counters = counters(&counted, name);
            let all = [
                ("lied", &counters.lied),
                ("inconsistent", &counters.inconsistent),
                ("refused", &counters.refused),
                ("unreachable", &counters.unreachable),
            ];
            let found: Vec<&str> =
                all.iter().filter(|(_, counter)| counter.value() > 0).map(|(what, _)| *what).collect();
            (!found.is_empty()).then_some(found)
        });
        assert_eq!(found, [*what], "{name}");
        assert_eq!(counters(&counted, name).cosigned.value(), 0, "{name}");
    }
    until("the honest one has cosigned", || (counters(&counted, "w0").cosigned.value() > 0).then_some(()));
    assert_eq!(witnessed(server.address(), &log, &policy), None);
    assert_eq!(counted.forked.value(), 0, "nobody has proof of a fork");
    server.stop().unwrap();
}

#[test]
fn slow_witnesses_make_a_quorum_although_the_log_grows_faster() {
    let folder = support::folder();
    let log = key_of(folder.path());
    let honest = Honest::new(2, &log);
    // Each answers in another time, longer than the interval: what it cosigns must still be the same checkpoint.
    let slowly = |address: SocketAddr, delay_ms: u64| {
        pretender(move |text, stream| {
            std::thread::sleep(Duration::from_millis(delay_ms));
            let body = text.split_once("\r\n\r\n").unwrap().1;
            let real = request(address, "POST", "/add-checkpoint", "", body.as_bytes()).unwrap();
            answer(stream, real.status, real.header("content-type").unwrap(), &real.body);
        })
    };
    let (first, second) = (&honest.servers[0], &honest.servers[1]);
    let policy = format!(
        "{}{}group g all a b\nquorum g\n",
        line("a", first.verifier_key(), slowly(first.address(), 60)),
        line("b", second.verifier_key(), slowly(second.address(), 150)),
    );
    let (server, counted) = asking(folder.path(), &policy);
    let mut number = 0;
    until("several checkpoints are witnessed while the log grows", || {
        number += 1;
        assert_eq!(submit(server.address(), &run_statement(number)).status, 201);
        (counted.quorums.value() >= 3).then_some(())
    });
    // Whatever one has cosigned, the other has too, but for what is under way.
    for name in ["a", "b"] {
        let cosigned = counters(&counted, name).cosigned.value();
        assert!(cosigned <= counted.quorums.value() + 1, "{name} has cosigned {cosigned} checkpoints");
    }
    assert!(witnessed(server.address(), &log, &policy).is_some());
    server.stop().unwrap();
}

#[test]
fn what_was_witnessed_is_there_after_a_restart_and_under_another_policy_only_if_it_meets_it() {
    let folder = support::folder();
    let log = key_of(folder.path());
    let honest = Honest::new(3, &log);
    let two: String = honest.lines().lines().take(2).map(|line| format!("{line}\n")).collect();
    let two = format!("{two}group g 2 w0 w1\nquorum g\n");
    let (server, _) = asking(folder.path(), &two);
    let size = submit_witnessed(&server, 1, &log, &two);
    let (_, _, note) = witnessed(server.address(), &log, &two).unwrap();
    server.stop().unwrap();

    // Without any witness, and with the same ones out of reach.
    let server = served(folder.path());
    assert_eq!(get(server.address(), "/checkpoint/witnessed").text(), note);
    assert_eq!(get(server.address(), "/checkpoint").text(), note);
    server.stop().unwrap();
    let gone = two.lines().map(|text| match text.strip_prefix("witness ") {
        Some(rest) => format!("witness {} http://{}/\n", rest.rsplit_once(' ').unwrap().0, dead()),
        None => format!("{text}\n"),
    });
    let (server, _) = asking(folder.path(), &gone.collect::<String>());
    assert_eq!(
        witnessed(server.address(), &log, &two),
        Some((size, vec!["w0".into(), "w1".into()], note.clone()))
    );
    server.stop().unwrap();

    // A policy that the old note does not meet: at once it does not count, and then a new one does.
    let other = format!("{}group g 2 w1 w2\nquorum g\n", honest.lines());
    let (server, _) = asking(folder.path(), &other);
    let (again, names, _) = until("it is witnessed anew", || witnessed(server.address(), &log, &other));
    assert!(again == size && names.contains(&"w2".to_owned()), "{again} {names:?}");
    server.stop().unwrap();
}

#[test]
fn a_witness_that_was_killed_or_set_back_is_followed_from_where_it_is() {
    let folder = support::folder();
    let log = key_of(folder.path());
    let data = support::folder();
    let mut first = support::witness::WitnessProcess::start(data.path(), &["--log", &log.to_string()]);
    let policy = |address| format!("{}quorum w\n", line("w", &first.verifier_key, address));
    let (policy, key) = (policy(first.address), first.verifier_key.clone());
    let (server, counted) = asking(folder.path(), &policy);
    submit_witnessed(&server, 1, &log, &policy);
    let old = support::folder();
    copy_folder(data.path(), old.path());
    submit_witnessed(&server, 2, &log, &policy);
    first.child.kill().unwrap();
    first.child.wait().unwrap();

    // It comes back at the same address, as it was, and the log goes on asking it.
    let listen = first.address.to_string();
    let again = support::witness::WitnessProcess::start(
        data.path(),
        &["--log", &log.to_string(), "--listen", &listen],
    );
    assert_eq!(again.verifier_key, key);
    let size = submit_witnessed(&server, 3, &log, &policy);
    drop(again);
    // An old copy of its folder answers an older size. The log cannot know why, and proves from there.
    let set_back = support::witness::WitnessProcess::start(
        old.path(),
        &["--log", &log.to_string(), "--listen", &listen],
    );
    let shown = get(set_back.address, &path_of(ORIGIN));
    assert!(Checkpoint::open(&shown.body, ORIGIN, &log).unwrap().head.size.0 < size);
    assert_eq!(submit_witnessed(&server, 4, &log, &policy), size + 1);
    assert_eq!((counters(&counted, "w").inconsistent.value(), counted.forked.value()), (0, 0));
    server.stop().unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// Two logs with one key and other entries; `first` submissions to the one that is witnessed, `second` to the other.
fn forked(first: u64, second: u64) {
    let folders = [support::folder(), support::folder()];
    let log = key_of(folders[0].path());
    std::fs::copy(folders[0].path().join("log.key"), folders[1].path().join("log.key")).unwrap();
    let honest = Honest::new(1, &log);
    let policy = format!("{}quorum w0\n", honest.lines());
    let (server, _) = asking(folders[0].path(), &policy);
    for number in 1..=first {
        submit_witnessed(&server, number, &log, &policy);
    }
    let before = get(honest.servers[0].address(), &path_of(ORIGIN)).text().to_owned();

    let other = served(folders[1].path());
    for number in 1..=second {
        assert_eq!(submit(other.address(), &run_statement(100 + number)).status, 201);
    }
    other.stop().unwrap();
    let (other, counted) = asking(folders[1].path(), &policy);
    until("the fork is proven", || (counted.forked.value() == 1).then_some(()));
    assert!(counters(&counted, "w0").inconsistent.value() > 0);
    let answer = get(other.address(), "/checkpoint/witnessed");
    assert_eq!(answer.status, 500);
    assert!(answer.text().contains("another history"), "{}", answer.text());
    assert_eq!(submit(other.address(), &run_statement(200)).status, 201);
    assert_eq!(get(other.address(), "/checkpoint").text().matches('\u{2014}').count(), 1);
    // The witness still holds the first one.
    let after = get(honest.servers[0].address(), &path_of(ORIGIN)).text().to_owned();
    assert_eq!(after, before);
    other.stop().unwrap();
    server.stop().unwrap();
}

#[test]
fn a_fork_of_the_same_size_is_refused_and_told() {
    forked(3, 3);
}

#[test]
fn a_longer_fork_is_refused_and_told() {
    forked(2, 5);
}

#[test]
fn a_shorter_fork_is_refused_and_told() {
    forked(5, 2);
}

#[test]
fn policies_that_cannot_be_asked_by_are_refused() {
    let key = liar("w").verifier().to_string();
    let wrong = |policy: &str| {
        Plan::new(Policy::parse(policy.as_bytes()).unwrap(), pace(), system_clock).err().unwrap().to_string()
    };
    assert!(wrong("quorum none\n").contains("quorum is none"));
    let https = wrong(&format!("witness w {key} https://w.example/\nquorum w\n"));
    assert!(https.contains("witness \"w\"") && https.contains("proxy"), "{https}");
    assert!(wrong(&format!("witness w {key} w.example\nquorum w\n")).contains("http://"));
    let unreachable = wrong(&format!("witness w {key}\nquorum w\n"));
    assert!(unreachable.contains("0 of 1"), "{unreachable}");

    let folder = support::folder();
    let starts = |policy: &str| {
        let plan = Plan::new(Policy::parse(policy.as_bytes()).unwrap(), pace(), system_clock).unwrap();
        match start(Options { witnesses: Some(plan), ..support::options(folder.path()) }) {
            Err(ServeError::Plan(error)) => Err(error),
            Err(error) => panic!("{error}"),
            Ok(running) => running.stop().map_err(|error| panic!("{error}")),
        }
    };
    let witness = line("w", &key, dead());
    let log = key_of(folder.path());
    assert!(starts(&format!("log {log}\n{witness}quorum w\n")).is_ok());
    let stranger = support::witness::Tree::new("example.com/other", "x");
    let other = format!("log {}\n{witness}quorum w\n", stranger.key.verifier());
    assert!(matches!(starts(&other), Err(PlanError::OtherLog { .. })));
    let long = |number: usize| {
        let name = format!("{number}{}", "x".repeat(250));
        let key = CosigningKey::from_seed(KeyName::new(&name).unwrap(), &[number as u8; 32]);
        line(&format!("w{number}"), &key.verifier().to_string(), dead())
    };
    let many = |count: usize| format!("{}quorum w1\n", (1..=count).map(long).collect::<String>());
    assert!(starts(&many(40)).is_ok());
    assert!(matches!(starts(&many(50)), Err(PlanError::TooLong { .. })));
}

#[test]
fn the_command_asks_by_a_policy_and_says_what_is_wrong_with_one() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("log");
    let log = key_of(&data);
    let honest = Honest::new(1, &log);
    let policy = folder.path().join("policy");
    let serve = |text: &str| {
        std::fs::write(&policy, text).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ledger"));
        command.args(["serve", "--listen", "0", "--witness-interval", "0", "--data"]).arg(&data);
        command.arg("--witness-policy").arg(&policy);
        command
    };
    let wrong = |text: &str| {
        let output = serve(text).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(wrong("quorum w\n").contains("policy: line 1: \"w\" is not the name"));
    let https = wrong(&honest.lines().replace("http:", "https:").replace('\n', "\nquorum w0\n"));
    assert!(https.contains("ledger: error: ") && https.contains("expected http; let a proxy"), "{https}");
    let other = support::witness::Tree::new("example.com/other", "x");
    let other = format!("log {}\n{}quorum w0\n", other.key.verifier(), honest.lines());
    assert!(wrong(&other).contains("expected this log's key example.com/ledger-test"));

    let text = format!("log {log}\n{}quorum w0\n", honest.lines());
    let process = support::Process::of(serve(&text).stderr(std::process::Stdio::null()));
    let lines = text.split_once('\n').unwrap().1;
    let found = until("the first checkpoint is witnessed", || witnessed(process.address, &log, lines));
    assert_eq!(found.0, 1);
}
