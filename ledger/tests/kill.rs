//! SIGKILL at random moments under load: what was acknowledged stays, at its place, and no two checkpoints ever seen
//! contradict each other.
//!
//! `KILLS` says how often (`make kill-check` does it 200 times), `KILL_SEED` at which moments.

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use ledger::fsck::check_tree;
use ledger::fsck::remote::Remote;
use ledger::fsck::source::Source as _;
use schemas::digest::EntryDigest;
use support::{ORIGIN, Process, get, request, run_statement};
use tlog::checkpoint::Checkpoint;
use tlog::entries::decode_bundle_of;
use tlog::hash::{Hash, leaf_hash};
use tlog::note::VerifierKey;
use tlog::proof::{ConsistencyProof, check_consistency};
use tlog::tile::{TileKind, tile_in_tree};
use tlog::tlog_proof::TlogProof;
use tlog::tree::{TreeHead, TreeSize};

const KILLS: u64 = 40;
const SEED: u64 = 0x7461_6c6c;
const WRITERS: u64 = 8;
/// Longest time that a server lives after it has said where it is.
const LIFE_US_MAX: u64 = 150_000;
/// Longest time that a server lives which is killed while it starts.
const START_US_MAX: u64 = 40_000;

#[derive(Default)]
struct Shared {
    /// The server that is up; none while it is being restarted.
    address: Option<SocketAddr>,
    /// Where each statement, by its number, was said to be.
    acknowledged: BTreeMap<u64, (u64, EntryDigest)>,
    /// The root that each tree size was signed with, wherever the note was seen.
    roots: BTreeMap<u64, Hash>,
    repeats: usize,
    /// A thread has panicked: nobody need wait for it.
    failed: bool,
}

struct Scene {
    shared: Mutex<Shared>,
    changed: Condvar,
    /// The last kill is over: what is under way is finished, and nothing new is begun.
    over: AtomicBool,
    next: AtomicU64,
    polled: AtomicUsize,
    log: VerifierKey,
}

/// Tells the others when the thread that holds it panics.
struct Alarm<'a>(&'a Scene);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.shared.lock().unwrap_or_else(PoisonError::into_inner).failed = true;
            self.0.changed.notify_all();
        }
    }
}

impl Scene {
    /// The server that is up, sooner or later; none if a thread has panicked.
    fn address(&self) -> Option<SocketAddr> {
        let down = |shared: &mut Shared| shared.address.is_none() && !shared.failed;
        self.changed.wait_while(self.shared.lock().unwrap(), down).unwrap().address
    }

    /// Waits until a server is up at another address.
    fn leave(&self, address: SocketAddr) {
        let unchanged = |shared: &mut Shared| shared.address == Some(address) && !shared.failed;
        drop(self.changed.wait_while(self.shared.lock().unwrap(), unchanged).unwrap());
    }

    fn write(&self) {
        while !self.over.load(Ordering::Relaxed) {
            self.submit(self.next.fetch_add(1, Ordering::Relaxed));
        }
    }

    /// Submits until it is acknowledged, by however many servers it takes.
    fn submit(&self, number: u64) {
        let statement = run_statement(number);
        while let Some(address) = self.address() {
            let headers = "Content-Type: application/cose\r\n";
            match request(address, "POST", "/entries", headers, &statement) {
                Ok(answer) if answer.status == 200 || answer.status == 201 => {
                    return self.acknowledge(number, &statement, answer.status, &answer.body);
                }
                // The server is stopping or gone: wait for another one.
                Ok(answer) => assert_eq!(answer.status, 503, "{}", answer.text()),
                Err(_) => self.leave(address),
            }
        }
    }

    fn acknowledge(&self, number: u64, statement: &[u8], status: u16, proof: &[u8]) {
        let proof = TlogProof::parse(proof).unwrap();
        let checkpoint = proof.check(leaf_hash(statement), ORIGIN, &self.log).unwrap();
        let mut shared = self.shared.lock().unwrap();
        let before = shared.acknowledged.insert(number, (proof.index.0, EntryDigest::of(statement)));
        assert_eq!(before, None, "acknowledged twice");
        shared.repeats += usize::from(status == 200);
        shared.saw(checkpoint.head);
    }

    /// Looks at the latest checkpoint over and over, and forgets none.
    fn read(&self) {
        while !self.over.load(Ordering::Relaxed) {
            let Some(address) = self.address() else { return };
            let Ok(answer) = request(address, "GET", "/checkpoint", "", b"") else {
                self.leave(address);
                continue;
            };
            assert_eq!(answer.status, 200, "{}", answer.text());
            let checkpoint = Checkpoint::open(&answer.body, ORIGIN, &self.log).unwrap();
            self.shared.lock().unwrap().saw(checkpoint.head);
            self.polled.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn announce(&self, address: Option<SocketAddr>) {
        let mut shared = self.shared.lock().unwrap();
        assert!(!shared.failed, "a writer or the reader has failed");
        shared.address = address;
        self.changed.notify_all();
    }
}

impl Shared {
    fn saw(&mut self, head: TreeHead) {
        let before = *self.roots.entry(head.size.0).or_insert(head.root);
        assert_eq!(before, head.root, "two roots for size {}", head.size);
    }
}

/// Numbers that are the same in every run with the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Lets some time pass. The moments of a kill are moments in time: this is the one test that has to wait.
    fn wait(&mut self, us_max: u64) {
        std::thread::sleep(Duration::from_micros(self.below(us_max)));
    }
}

/// A server that is killed while it starts: while it reads the folder, or repairs what the last kill has left.
fn start_and_kill(data: &Path, dice: &mut Dice) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ledger"));
    command.args(["serve", "--listen", "0", "--origin", ORIGIN, "--data"]).arg(data);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    dice.wait(START_US_MAX);
    child.kill().unwrap();
    child.wait().unwrap();
}

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}, expected a number")),
        Err(_) => default,
    }
}

#[test]
fn what_was_acknowledged_survives_being_killed_at_any_moment() {
    let (kills, seed) = (setting("KILLS", KILLS), setting("KILL_SEED", SEED));
    println!("{kills} kills, seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("log");
    let mut server = Process::start(&data);
    let scene = Scene {
        shared: Mutex::default(),
        changed: Condvar::new(),
        over: AtomicBool::new(false),
        next: AtomicU64::new(0),
        polled: AtomicUsize::new(0),
        log: VerifierKey::parse(&server.verifier_key).unwrap(),
    };
    scene.announce(Some(server.address));
    let (mut dice, mut while_starting) = (Dice(seed), 0);
    std::thread::scope(|threads| {
        for _ in 0..WRITERS {
            threads.spawn(|| {
                let _alarm = Alarm(&scene);
                scene.write();
            });
        }
        threads.spawn(|| {
            let _alarm = Alarm(&scene);
            scene.read();
        });
        // Should this thread fail, the others must not wait for another server.
        let _alarm = Alarm(&scene);
        let mut killed = 0;
        while killed < kills {
            dice.wait(LIFE_US_MAX);
            scene.announce(None);
            server.kill();
            killed += 1;
            while killed < kills && dice.below(4) == 0 {
                start_and_kill(&data, &mut dice);
                (killed, while_starting) = (killed + 1, while_starting + 1);
            }
            server = Process::start(&data);
            scene.announce(Some(server.address));
        }
        scene.over.store(true, Ordering::Relaxed);
    });
    let size = whole_log_bears_out(&server, &scene);
    let shared = scene.shared.into_inner().unwrap();
    println!(
        "{kills} kills ({while_starting} while starting), seed {seed}: {} acknowledged ({} on a repeat), log of {size}, \
         {} checkpoints of {} polls and all proofs, each consistent with the next",
        shared.acknowledged.len(),
        shared.repeats,
        shared.roots.len(),
        scene.polled.into_inner(),
    );
    assert_eq!(server.terminate(), Some(0));
    let fsck = Command::new(env!("CARGO_BIN_EXE_ledger")).args(["fsck"]).arg(&data).output().unwrap();
    assert!(fsck.status.success(), "{fsck:?}");
}

/// Every acknowledged entry is where it was said to be, each statement is there once and nothing else is, and each
/// checkpoint that was seen is consistent with the next one that was seen. The log's size.
fn whole_log_bears_out(server: &Process, scene: &Scene) -> u64 {
    let shared = scene.shared.lock().unwrap();
    let note = get(server.address, "/checkpoint").body;
    let last = Checkpoint::open(&note, ORIGIN, &scene.log).unwrap().head;
    let remote = Remote::at(&format!("http://{}", server.address)).unwrap();
    assert_eq!(check_tree(&remote, last, &mut |_| {}).unwrap().0.list, []);

    let mut places: BTreeMap<EntryDigest, u64> = BTreeMap::new();
    for bundle in 0.. {
        let Some(tile) = tile_in_tree(TileKind::Entries, bundle, last.size) else { break };
        let found = remote.tile(tile).unwrap().unwrap();
        for (index, entry) in (bundle * 256..).zip(decode_bundle_of(&found.bytes, tile.width).unwrap()) {
            assert_eq!(places.insert(EntryDigest::of(entry), index), None, "entry {index} is there twice");
        }
    }
    // Every submission has been acknowledged by now, so there are the genesis entry and all of them.
    let submitted = scene.next.load(Ordering::Relaxed);
    assert_eq!(shared.acknowledged.len() as u64, submitted);
    assert_eq!(last.size.0, submitted + 1, "the genesis entry and every submission once");
    for (number, (index, digest)) in &shared.acknowledged {
        assert_eq!(places.get(digest), Some(index), "submission {number}");
    }

    let heads = shared.roots.iter().map(|(size, root)| TreeHead { size: TreeSize(*size), root: *root });
    let heads: Vec<TreeHead> = heads.chain([last]).collect();
    for pair in heads.windows(2) {
        let path = format!("/consistency/{}/{}", pair[0].size, pair[1].size);
        let lines = get(server.address, &path);
        let hashes = lines.text().lines().map(|line| Hash::from_base64(line).unwrap()).collect();
        assert_eq!(check_consistency(&ConsistencyProof(hashes), pair[0], pair[1]), Ok(()), "{path}");
    }
    last.size.0
}
