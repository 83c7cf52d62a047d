//! `client verify` on files that are made to cost: each in a bounded address space and a bounded time, with an answer.
//!
//! docs/spec/bundle.md says how much any bundle may need; these are the shapes that need most.

#[path = "../../verify/tests/support/mod.rs"]
mod support;

use schemas::attachment::{ATTACHMENT_BYTES_MAX, AttachmentName};
use schemas::bundle::{Bundle, COVERS_MAX, ENTRIES_MAX, FOLDS_MAX};
use schemas::completeness::{Completeness, LIST_LEAVES_MAX};
use schemas::digest::{AttachmentDigest, EntryDigest};
use schemas::object::Object as _;
use schemas::register::{EntryLeaf, PredictionLeaf};
use schemas::run::Steps;
use schemas::trace::{TAPS_MAX, Trace};
use std::fs::File;
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::{Command, Output};
use support::World;
use support::log::Log;
use support::story::{Story, device_key, predictor_key};
use tempfile::TempDir;

/// What any bundle may need, by docs/spec/bundle.md.
const ANY_KIB: u64 = 512 << 10;
/// Seconds for any of them, in a build that is not optimised and on a machine that does other things.
const SECONDS: u64 = 120;

/// Runs `client verify` on `run.tally` with this address space.
fn verify(folder: &Path, log: &str, kib: u64) -> Output {
    let limits = format!("ulimit -v {kib}; exec timeout {SECONDS} \"$@\"");
    let predictor = predictor_key().public().to_string();
    Command::new("sh")
        .args(["-c", &limits, "sh", env!("CARGO_BIN_EXE_client"), "verify", "run.tally"])
        .args(["--log-key", log, "--predictor-key", &predictor])
        .current_dir(folder)
        .output()
        .unwrap()
}

/// Exit status and everything that was said.
fn said(output: &Output) -> (Option<i32>, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// Writes CBOR; what is all zeros is a hole in the file.
struct Cbor(BufWriter<File>);

impl Cbor {
    fn head(&mut self, major: u8, number: u64) -> &mut Cbor {
        let bytes = match number {
            0..24 => vec![number as u8],
            24..0x100 => vec![24, number as u8],
            0x100..0x1_0000 => [&[25][..], &(number as u16).to_be_bytes()].concat(),
            0x1_0000..0x1_0000_0000 => [&[26][..], &(number as u32).to_be_bytes()].concat(),
            _ => [&[27][..], &number.to_be_bytes()].concat(),
        };
        self.0.write_all(&[bytes[0] | major << 5]).unwrap();
        self.0.write_all(&bytes[1..]).unwrap();
        self
    }

    fn text(&mut self, text: &str) -> &mut Cbor {
        self.head(3, text.len() as u64);
        self.0.write_all(text.as_bytes()).unwrap();
        self
    }

    fn zeros(&mut self, count: u64) -> &mut Cbor {
        self.0.seek(SeekFrom::Current(count as i64)).unwrap();
        self
    }

    /// A byte string of zeros.
    fn hole(&mut self, bytes: u64) -> &mut Cbor {
        self.head(2, bytes).zeros(bytes)
    }

    /// Many copies of an item of one byte.
    fn copies(&mut self, byte: u8, count: u64) -> &mut Cbor {
        let piece = [byte; 1 << 16];
        let mut left = count;
        while left > 0 {
            let now = left.min(piece.len() as u64);
            self.0.write_all(&piece[..now as usize]).unwrap();
            left -= now;
        }
        self
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Cbor {
        self.0.write_all(bytes).unwrap();
        self
    }

    fn end(mut self) {
        let end = self.0.stream_position().unwrap();
        self.0.into_inner().unwrap().set_len(end).unwrap();
    }
}

/// One field that a hostile bundle has in place of an empty one.
type Part<'a> = (&'a str, &'a dyn Fn(&mut Cbor) -> &mut Cbor);

fn cbor(folder: &Path) -> Cbor {
    Cbor(BufWriter::new(File::create(folder.join("run.tally")).unwrap()))
}

/// Writes a bundle whose fields are empty but for these.
fn write(folder: &Path, parts: &[Part]) {
    let mut out = cbor(folder);
    out.head(5, 8);
    let fields = [
        "plan",
        "folds",
        "covers",
        "entries",
        "checkpoint",
        "attachments",
        "completeness",
        "tallystick_bundle",
    ];
    for field in fields {
        out.text(field);
        match parts.iter().find(|part| part.0 == field) {
            Some((_, write)) => write(&mut out),
            None if field == "tallystick_bundle" => out.head(0, 2),
            None if ["plan", "folds", "checkpoint"].contains(&field) => out.head(2, 0),
            None => out.head(4, 0),
        };
    }
    out.end();
}

/// Attachments of these many zeros each, in their order.
fn attachments(lengths: &[u64]) -> impl Fn(&mut Cbor) -> &mut Cbor {
    use sha2::{Digest as _, Sha256};
    let mut lengths = lengths.to_vec();
    lengths.sort();
    let (mut hasher, mut done) = (Sha256::new(), 0);
    let mut named: Vec<([u8; 32], u64)> = Vec::new();
    let zeros = vec![0; 1 << 20];
    for length in lengths {
        while done < length {
            let now = (length - done).min(zeros.len() as u64);
            hasher.update(&zeros[..now as usize]);
            done += now;
        }
        named.push((hasher.clone().finalize().into(), length));
    }
    named.sort();
    move |out| {
        out.head(4, named.len() as u64);
        named.iter().fold(out, |out, (_, length)| out.hole(*length))
    }
}

/// The largest entries, covers and completeness that are read.
fn entries(out: &mut Cbor) -> &mut Cbor {
    out.head(4, ENTRIES_MAX as u64);
    for _ in 0..ENTRIES_MAX {
        out.head(5, 3).text("bytes").hole(61_440).text("index").head(0, 7).text("proof").hole(64 * 32);
    }
    out
}

fn covers(out: &mut Cbor) -> &mut Cbor {
    out.head(4, COVERS_MAX as u64);
    for size in 0..COVERS_MAX as u64 {
        out.head(5, 4).text("inclusion").hole(64 * 32).text("tree_size").head(0, size);
        out.text("checkpoint").hole(16 << 10).text("consistency").hole(128 * 32);
    }
    out
}

fn completeness(out: &mut Cbor) -> &mut Cbor {
    let signer = predictor_key().public();
    let entry = EntryDigest([9; 32]);
    let steps = Steps { first: 0, end: 1 << 32 };
    let leaf = |index| PredictionLeaf { index, signer, steps, entry };
    let listed = |index| EntryLeaf { index, kind: "prediction", signer, entry };
    let object = Completeness {
        checkpoint: vec![0; 16 << 10],
        register: schemas::bundle::ProvenEntry { index: 7, bytes: vec![0; 61_440], proof: vec![[0; 32]; 64] },
        predictions: (1 << 33..).take(LIST_LEAVES_MAX).map(leaf).collect(),
        entries: Some((1 << 33..).take(LIST_LEAVES_MAX).map(listed).collect()),
    };
    out.head(4, 1).raw(&object.encode())
}

/// A log's key; nothing that these files hold is signed by it.
fn some_log() -> String {
    Log::new("log.example/test", 1).key().to_string()
}

#[test]
fn whatever_a_file_holds_it_is_answered_in_bounded_memory() {
    let folder = TempDir::new().unwrap();
    let log = some_log();
    let answered = |kib: u64, status: i32, expected: &str| {
        let (found, text) = said(&verify(folder.path(), &log, kib));
        assert_eq!(found, Some(status), "{expected}: {text}");
        assert!(text.contains(expected), "{expected}: {text}");
    };
    // Form alone needs next to nothing, but for the lists that are kept.
    let little = 64 << 10;
    let large: Vec<u64> = (0..15).map(|less| ATTACHMENT_BYTES_MAX - less).collect();
    let unsigned = "2. checkpoint is signed by the log [failed]";
    write(folder.path(), &[("attachments", &attachments(&large))]);
    answered(little, 1, unsigned);
    write(folder.path(), &[("attachments", &attachments(&(0..8192).collect::<Vec<_>>()))]);
    answered(little, 1, unsigned);
    write(folder.path(), &[("attachments", &attachments(&(0..8193).collect::<Vec<_>>()))]);
    answered(little, 2, "\"attachments\": expected at most 8192 items, found 8193");
    let largest: Part = ("plan", &|out| out.hole(ATTACHMENT_BYTES_MAX));
    let folds: Part = ("folds", &|out| out.hole(16 * FOLDS_MAX as u64));
    let lists: [Part; 3] = [("entries", &entries), ("covers", &covers), ("completeness", &completeness)];
    write(folder.path(), &[&[largest, folds], &lists[..]].concat());
    answered(ANY_KIB, 1, unsigned);
    // Items without end: in a list, as a list in a list's place, as fields.
    for field in ["entries", "covers", "attachments", "completeness"] {
        write(folder.path(), &[(field, &|out| out.head(4, 4 << 20).copies(0, 4 << 20))]);
        answered(little, 2, "more than 4194304 items at byte");
    }
    write(folder.path(), &[("covers", &|out| out.head(4, 1).head(4, 3 << 20).copies(0x80, 3 << 20))]);
    answered(little, 2, "\"covers\": expected items of at most 131072 bytes, found 3145733 bytes");
    write(folder.path(), &[("entries", &|out| out.head(4, 1).head(4, 5000).copies(0, 5000))]);
    answered(little, 2, "more than 4096 items at byte");
    let mut out = cbor(folder.path());
    out.head(5, 1 << 20);
    for key in 0..1 << 20_u32 {
        out.text(&format!("{key:07}")).head(0, 0);
    }
    out.end();
    answered(little, 2, "field \"tallystick_bundle\" is missing");
}

#[test]
fn lengths_that_lie_and_files_without_content_are_answered_at_once() {
    let folder = TempDir::new().unwrap();
    let log = some_log();
    let little = 64 << 10;
    let answered = |write: &dyn Fn(&mut Cbor) -> &mut Cbor, expected: &str| {
        let mut out = cbor(folder.path());
        write(&mut out);
        out.end();
        let (status, text) = said(&verify(folder.path(), &log, little));
        assert_eq!(status, Some(2), "{expected}: {text}");
        assert!(text.contains(expected), "{expected}: {text}");
    };
    answered(&|out| out.copies(0x81, 1 << 20), "nested deeper than 12 levels at byte 13");
    answered(&|out| out.copies(0xc1, 1 << 20), "nested deeper than 12 levels at byte 13");
    for major in [2, 3] {
        answered(&|out| out.head(major, 1 << 62).zeros(9), "at byte 0: end of input bytes");
    }
    answered(&|out| out.head(4, 1 << 62), "4611686018427387904 items declared, 0 bytes left");
    answered(&|out| out.head(5, u64::MAX), "18446744073709551615 items declared, 0 bytes left");
    let most = Bundle::BYTES_MAX as u64;
    answered(&|out| out.zeros(most), "differs from the one accepted encoding at byte 1");
    answered(&|out| out.zeros(most + 1), "1073741825 bytes, expected at most 1073741824");
    answered(&|out| out.zeros(1 << 40), "1099511627776 bytes, expected at most 1073741824");
    answered(&|out| out.head(2, most - 5).zeros(most - 5), "expected a map with text keys");
    // A text is looked at from end to end, and so are two long keys.
    answered(&|out| out.head(3, most - 5).zeros(most - 5), "expected a map with text keys");
    let half = most / 2 - 100;
    for (first, second, expected) in [
        (b"b", b"a", "differs from the one accepted encoding at byte 536870817"),
        (b"a", b"b", "field \"tallystick_bundle\" is missing"),
    ] {
        let key = |out: &mut Cbor, last: &[u8]| {
            out.head(3, half).zeros(half - 1).raw(last).head(0, 0);
        };
        answered(
            &|out| {
                key(out.head(5, 2), first);
                key(out, second);
                out
            },
            expected,
        );
    }
}

/// Writes a story's bundle and returns its log's key.
fn put(folder: &Path, story: &Story, bundle: &Bundle) -> String {
    std::fs::write(folder.join("run.tally"), bundle.encode()).unwrap();
    story.log.key().to_string()
}

#[test]
fn bodies_are_in_memory_one_at_a_time() {
    let folder = TempDir::new().unwrap();
    let world = World::long(16, 16, 8192);
    let bodies = world.implied_bodies(16);
    let story = Story::whole(&world, &bodies, vec![], false);
    let mut bundle = story.bundle(&world);
    let log = put(folder.path(), &story, &bundle);
    let attached: usize = bundle.attachments.iter().map(Vec::len).sum();
    assert!(attached > 95 << 20, "{attached}");
    let limit = 96 << 10;
    let (status, text) = said(&verify(folder.path(), &log, limit));
    assert_eq!(status, Some(0), "{text}");
    // Left out, they are not in memory at all.
    bundle.version = 2;
    story.leave_out_implied(&world, &mut bundle);
    assert_eq!(bundle.attachments.len(), 1);
    put(folder.path(), &story, &bundle);
    let (status, text) = said(&verify(folder.path(), &log, limit));
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("bodies of 16 receipts follow from the prediction"), "{text}");
}

#[test]
fn evidence_is_in_memory_where_it_is_looked_at() {
    let folder = TempDir::new().unwrap();
    let world = World::new(2, 2, 2);
    let trace = |leaf| Trace { step: 0, leaf, folds: vec![schemas::fold::Fold { a: leaf, b: 0 }; TAPS_MAX] };
    let evidence: Vec<Vec<u8>> = (0..100).map(|leaf| trace(leaf).encode()).collect();
    let mut story = Story::whole(&world, &world.bodies(2), vec![], false);
    let mut verdict = story.verdict(&world, None);
    verdict.evidence = evidence.iter().map(|bytes| AttachmentName::of(bytes)).collect();
    story.log_verdict_of(verdict);
    let mut bundle = story.bundle(&world);
    bundle.attachments.extend(evidence);
    bundle.attachments.sort_by_key(|bytes| AttachmentDigest::of(bytes));
    let log = put(folder.path(), &story, &bundle);
    let (status, text) = said(&verify(folder.path(), &log, 64 << 10));
    assert_eq!(status, Some(0), "{text}");
}

/// A run whose plan, or whose opened body, is this.
fn with_large(folder: &Path, plan: Option<&[u8]>, body: Option<&[u8]>) -> String {
    let mut world = World::new(2, 2, 2);
    if let Some(plan) = plan {
        world.run.plan = schemas::digest::PlanDigest(schemas::digest::digest("plan", &[plan]));
        world.id = world.run.id();
    }
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, false);
    let note = story.log.checkpoint(story.log.size());
    for honest in world.bodies(2) {
        let receipt = story.receipt(&world, 2, &honest, &note);
        story.log_receipt(receipt, &honest, device_key(honest.rank));
    }
    story.log_opening_of(&world, body.map_or(AttachmentName::of(&world.body.encode()), AttachmentName::of));
    let receipts = story.receipts.iter().map(|logged| logged.entry).collect();
    story.log_verdict_of(support::story::some_verdict(&world, &story, receipts));
    let mut bundle = story.bundle(&world);
    bundle.plan = plan.map_or(bundle.plan, <[u8]>::to_vec);
    bundle.attachments.extend(body.map(<[u8]>::to_vec));
    bundle.attachments.sort_by_key(|bytes| AttachmentDigest::of(bytes));
    put(folder, &story, &bundle)
}

#[test]
fn a_plan_or_a_body_that_only_looks_like_one_does_not_fill_memory() {
    let folder = TempDir::new().unwrap();
    // Four million items of one byte each, as many as are read; as the one field of a map, or in its list's place.
    let flood = |field: &str| {
        let count: u32 = (4 << 20) - 16;
        let mut bytes = vec![0xa1, 0x60 | field.len() as u8];
        bytes.extend(field.as_bytes());
        bytes.push(0x9a);
        bytes.extend(count.to_be_bytes());
        bytes.resize(bytes.len() + count as usize, 0x60);
        bytes
    };
    for (plan, body, expected) in [
        (Some(flood("operations")), None, "plan: field \"data\" is missing"),
        (Some(flood("data")), None, "plan: field \"data\": expected items of at most 131072 bytes"),
        (Some(flood("update")), None, "plan: field \"data\" is missing"),
        (None, Some(flood("records")), "prediction: field \"run\" is missing"),
        (None, Some(flood("run")), "prediction: field \"run\": expected items of at most 131072 bytes"),
    ] {
        let log = with_large(folder.path(), plan.as_deref(), body.as_deref());
        let (status, text) = said(&verify(folder.path(), &log, 64 << 10));
        assert_eq!(status, Some(1), "{expected}: {text}");
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
