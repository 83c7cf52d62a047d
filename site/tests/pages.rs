//! What the pages say, from views alone.

use std::collections::BTreeSet;

use schemas::attachment::AttachmentName;
use schemas::digest::{
    Checksum, ConfigDigest, EntryDigest, PlanDigest, ProfileDigest, Salt, Seal, StateDigest,
};
use schemas::key::SecretKey;
use schemas::opening::Opening;
use schemas::prediction::{OpenBody, Prediction};
use schemas::run::{Run, Steps};
use schemas::statement::{Payload, Statement};
use site::entries::entries_page;
use site::entry::entry_page;
use site::layout::message_page;
use site::run::run_page;
use site::runs::runs_page;
use site::view::{EntryContent, EntryRow, EntryView, LogView, Paging, RunEntry, RunRow, RunView};

const REVEAL_BY: u64 = 1_000_000;

fn log() -> LogView {
    LogView {
        origin: "example.com/log".into(),
        verifier_key: "example.com/log+00+AA".into(),
        size: 3,
        root: "r".into(),
    }
}

fn run() -> Run {
    Run {
        name: "<script>alert(1)</script>".to_owned(),
        profile: "f32-fma".to_owned(),
        profile_digest: ProfileDigest([1; 32]),
        config: ConfigDigest([2; 32]),
        plan: PlanDigest([3; 32]),
        state: StateDigest([4; 32]),
        dataset: Checksum([5; 32]),
        steps: 100,
        leaves: 4,
        devices_max: 4,
    }
}

fn entry(index: u64, payload: Payload, signer: u8) -> RunEntry {
    let bytes = Statement::sign(&payload, &SecretKey::from_seed([signer; 32])).unwrap();
    RunEntry { index, statement: Statement::open(&bytes).unwrap() }
}

fn prediction() -> RunEntry {
    let steps = Steps { first: 0, end: 100 };
    let sealed = Prediction { run: run().id(), steps, seal: Seal([6; 32]), reveal_by: REVEAL_BY, open: None };
    entry(2, Payload::Prediction(sealed), 2)
}

fn opening(signer: u8) -> RunEntry {
    let open = OpenBody { salt: Salt([7; 32]), body: AttachmentName::of(b"body") };
    let opening = Opening { run: run().id(), prediction: prediction().statement.digest, open };
    entry(3, Payload::Opening(opening), signer)
}

fn shown(entries: Vec<RunEntry>, now_unix_s: u64) -> String {
    let view =
        RunView { id: run().id(), run: run(), entries, truncated: false, held: BTreeSet::new(), now_unix_s };
    run_page(&log(), &view)
}

#[test]
fn a_prediction_is_sealed_until_its_deadline_and_unopened_after_it() {
    let before = shown(vec![prediction()], REVEAL_BY);
    assert!(before.contains(">sealed<") && !before.contains(">unopened<"));
    let after = shown(vec![prediction()], REVEAL_BY + 1);
    assert!(after.contains(">unopened<") && !after.contains(">sealed<"));
    assert!(after.contains("1970-01-12 13:46 UTC"));
}

#[test]
fn only_the_predictor_can_open_a_prediction() {
    let own = shown(vec![prediction(), opening(2)], REVEAL_BY + 1);
    assert!(own.contains(">opened<") && own.contains("not on this server"));
    let foreign = shown(vec![prediction(), opening(3)], REVEAL_BY + 1);
    assert!(foreign.contains(">unopened<") && !foreign.contains(">opened<"));
}

#[test]
fn every_page_says_what_it_proves_and_does_not_and_loads_nothing_from_elsewhere() {
    let digest = EntryDigest([8; 32]);
    let row = EntryRow { index: 2, kind: "prediction", digest, run: Some(run().id()), signer: None };
    let run_row =
        RunRow { id: run().id(), run: run(), index: 1, predictions: 1, receipts: 0, outcomes: Vec::new() };
    let statement = Box::new(prediction().statement);
    let contents =
        [EntryContent::Statement(statement), EntryContent::Genesis("text".into()), EntryContent::Unreadable];
    let mut pages = vec![
        entries_page(&log(), &[row], Paging { newer: true, older_before: Some(2) }),
        runs_page(&log(), &[run_row], Paging::default()),
        runs_page(&log(), &[], Paging::default()),
        shown(vec![prediction()], 0),
        message_page(&log(), "not found", "There is nothing here."),
    ];
    for content in contents {
        pages.push(entry_page(
            &log(),
            &EntryView { index: 2, digest, bytes: 5, content, held: BTreeSet::new() },
        ));
    }
    for page in pages {
        assert!(page.contains("What this page proves") && page.contains("What it does not"), "{page}");
        assert!(page.contains("client verify") && page.contains("width=device-width"), "{page}");
        assert!(!page.contains("<script") && !page.contains("style=") && !page.contains("://"), "{page}");
    }
}
