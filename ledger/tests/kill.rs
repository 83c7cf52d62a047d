//! SIGKILL at many moments: what was acknowledged stays, at its place, and no two checkpoints contradict each other.

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex};

use schemas::digest::EntryDigest;
use support::{ORIGIN, Process, get, request, run_statement};
use tlog::checkpoint::Checkpoint;
use tlog::hash::{Hash, leaf_hash};
use tlog::note::VerifierKey;
use tlog::proof::{ConsistencyProof, check_consistency};
use tlog::tlog_proof::TlogProof;
use tlog::tree::TreeHead;

const SUBMISSIONS: u64 = 200;
const THREADS: u64 = 4;
const KILLS: usize = 16;

#[derive(Default)]
struct Shared {
    /// The server that is up; none while it is being restarted.
    address: Option<SocketAddr>,
    acknowledged: BTreeMap<u64, (u64, EntryDigest)>,
    checkpoints: Vec<Checkpoint>,
    repeats: usize,
    /// A thread has panicked: nobody need wait for it.
    failed: bool,
}

/// Tells the others when the thread that holds it panics.
struct Alarm<'a>(&'a Scene);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).failed = true;
            self.0.changed.notify_all();
        }
    }
}

struct Scene {
    shared: Mutex<Shared>,
    changed: Condvar,
    log: VerifierKey,
}

impl Scene {
    /// Submits until it is acknowledged, by however many servers it takes.
    fn submit(&self, number: u64) {
        let statement = run_statement(number);
        loop {
            let down = |shared: &mut Shared| shared.address.is_none() && !shared.failed;
            let shared = self.changed.wait_while(self.shared.lock().unwrap(), down).unwrap();
            let Some(address) = shared.address else { return };
            drop(shared);
            let headers = "Content-Type: application/cose\r\n";
            match request(address, "POST", "/entries", headers, &statement) {
                Ok(answer) if answer.status == 200 || answer.status == 201 => {
                    return self.acknowledge(number, &statement, answer.status, &answer.body);
                }
                // The server is stopping or gone: wait for another one.
                Ok(answer) => assert_eq!(answer.status, 503, "{}", answer.text()),
                Err(_) => {
                    let unchanged = |shared: &mut Shared| shared.address == Some(address) && !shared.failed;
                    drop(self.changed.wait_while(self.shared.lock().unwrap(), unchanged).unwrap());
                }
            }
        }
    }

    fn acknowledge(&self, number: u64, statement: &[u8], status: u16, proof: &[u8]) {
        let proof = TlogProof::parse(proof).unwrap();
        let checkpoint = proof.check(leaf_hash(statement), ORIGIN, &self.log).unwrap();
        let mut shared = self.shared.lock().unwrap();
        let before = shared.acknowledged.insert(number, (proof.index.0, EntryDigest::of(statement)));
        assert_eq!(before, None, "acknowledged twice");
        shared.checkpoints.push(checkpoint);
        shared.repeats += usize::from(status == 200);
        self.changed.notify_all();
    }

    /// Kills the server as soon as so many submissions are acknowledged, while others are under way.
    fn kill_at(&self, server: &mut Process, acknowledged: usize) {
        let few = |shared: &mut Shared| shared.acknowledged.len() < acknowledged && !shared.failed;
        let mut shared = self.changed.wait_while(self.shared.lock().unwrap(), few).unwrap();
        assert!(!shared.failed, "a submitter has failed");
        shared.address = None;
        drop(shared);
        server.kill();
        self.changed.notify_all();
    }

    fn announce(&self, server: &Process) {
        self.shared.lock().unwrap().address = Some(server.address);
        self.changed.notify_all();
    }
}

/// Numbers of acknowledgements after which to kill, from a fixed generator: the same in every run.
fn kill_points() -> Vec<usize> {
    let mut state: u64 = 0x7461_6c6c;
    let mut points: Vec<usize> = Vec::new();
    while points.len() < KILLS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let point = (state >> 33) as usize % (SUBMISSIONS as usize - 10) + 1;
        if !points.contains(&point) {
            points.push(point);
        }
    }
    points.sort_unstable();
    points
}

#[test]
fn what_was_acknowledged_survives_being_killed_at_any_moment() {
    let folder = support::folder();
    let mut server = Process::start(folder.path());
    let log = VerifierKey::parse(&server.verifier_key).unwrap();
    let scene = Scene { shared: Mutex::default(), changed: Condvar::new(), log };
    scene.announce(&server);
    let kept = &mut server;
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let scene = &scene;
            threads.spawn(move || {
                let _alarm = Alarm(scene);
                for number in (thread..SUBMISSIONS).step_by(THREADS as usize) {
                    scene.submit(number);
                }
            });
        }
        for point in kill_points() {
            scene.kill_at(kept, point);
            *kept = Process::start(folder.path());
            scene.announce(kept);
        }
    });
    let shared = scene.shared.into_inner().unwrap();
    assert_eq!(shared.acknowledged.len() as u64, SUBMISSIONS);
    whole_log_bears_out(&server, &scene.log, &shared);
    eprintln!("{} of {SUBMISSIONS} acknowledged on a repeat", shared.repeats);
    assert_eq!(server.terminate(), Some(0));
    let fsck = std::process::Command::new(env!("CARGO_BIN_EXE_ledger"))
        .args(["fsck", "--data"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stderr));
}

/// Every acknowledged entry is where it was said to be, there is nothing else, and every checkpoint seen is
/// consistent with the last one.
fn whole_log_bears_out(server: &Process, log: &VerifierKey, shared: &Shared) {
    let note = get(server.address, "/checkpoint").body;
    let last = Checkpoint::open(&note, ORIGIN, log).unwrap().head;
    assert_eq!(last.size.0, SUBMISSIONS + 1, "the genesis entry and every submission once");
    for (index, digest) in shared.acknowledged.values() {
        let entry = get(server.address, &format!("/by-hash/{digest}")).body;
        assert_eq!(EntryDigest::of(&entry), *digest);
        let proof = get(server.address, &format!("/proof/{index}.tlog-proof")).body;
        let proof = TlogProof::parse(&proof).unwrap();
        assert_eq!(proof.index.0, *index);
        assert_eq!(proof.check(leaf_hash(&entry), ORIGIN, log).unwrap().head, last);
    }
    let mut heads: Vec<TreeHead> = shared.checkpoints.iter().map(|checkpoint| checkpoint.head).collect();
    heads.sort_by_key(|head| head.size);
    heads.dedup();
    for old in heads {
        let path = format!("/consistency/{}/{}", old.size, last.size);
        let lines = get(server.address, &path);
        let hashes = lines.text().lines().map(|line| Hash::from_base64(line).unwrap()).collect();
        assert_eq!(check_consistency(&ConsistencyProof(hashes), old, last), Ok(()), "{path}");
        let older = get(server.address, &format!("/checkpoint/{}", old.size)).body;
        assert_eq!(Checkpoint::open(&older, ORIGIN, log).unwrap().head, old);
    }
}
