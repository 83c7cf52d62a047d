//! What the pages say, from views alone.

use std::collections::BTreeSet;

use schemas::attachment::AttachmentName;
use schemas::digest::{EntryDigest, Salt, Seal};
use schemas::key::SecretKey;
use schemas::object::Object as _;
use schemas::opening::Opening;
use schemas::prediction::{OpenBody, Prediction};
use schemas::receipt::{DeviceFacts, Receipt};
use schemas::run::{Run, Steps};
use schemas::statement::{Payload, Statement};
use schemas::verdict::{Outcome, Verdict};
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
    let run = Run::decode(include_bytes!("../../fixtures/run/run.cbor")).unwrap();
    Run { name: "<script>alert(1)</script>".to_owned(), steps: 100, ..run }
}

fn entry(index: u64, payload: Payload, signer: u8) -> RunEntry {
    let bytes = Statement::sign(&payload, &SecretKey::from_seed([signer; 32])).unwrap();
    RunEntry { index, statement: Statement::open(&bytes).unwrap() }
}

fn prediction() -> RunEntry {
    let steps = Steps { first: 0, end: 100 };
    let sealed = Prediction {
        run: run().id(),
        steps,
        seal: Seal([6; 32]),
        reveal_by: REVEAL_BY,
        by: None,
        open: None,
    };
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

/// Entries beyond those shown may hold the opening: anybody can put any number before it.
#[test]
fn of_a_run_with_too_many_entries_no_prediction_is_called_sealed_or_unopened() {
    let page = |entries, now_unix_s| {
        let view = RunView {
            id: run().id(),
            run: run(),
            entries,
            truncated: true,
            held: BTreeSet::new(),
            now_unix_s,
        };
        run_page(&log(), &view)
    };
    for now_unix_s in [REVEAL_BY, REVEAL_BY + 1] {
        let cut = page(vec![prediction()], now_unix_s);
        assert!(!cut.contains(">unopened<") && !cut.contains(">sealed<") && cut.contains(">opened or not<"));
        assert!(page(vec![prediction(), opening(2)], now_unix_s).contains(">opened<"));
    }
}

#[test]
fn only_the_predictor_can_open_a_prediction() {
    let own = shown(vec![prediction(), opening(2)], REVEAL_BY + 1);
    assert!(own.contains(">opened<") && own.contains("not on this server"));
    let foreign = shown(vec![prediction(), opening(3)], REVEAL_BY + 1);
    assert!(foreign.contains(">unopened<") && !foreign.contains(">opened<"));
}

fn run_row() -> RunRow {
    RunRow { id: run().id(), run: run(), index: 1, predictions: 0, receipts: 0, outcomes: Vec::new() }
}

#[test]
fn the_list_of_runs_says_how_far_each_has_come_and_its_verdict() {
    let listed = |row: RunRow| runs_page(&log(), &[row], Paging::default());
    let predicted = RunRow { predictions: 1, ..run_row() };
    let returned = RunRow { receipts: 2, ..predicted.clone() };
    let compared = RunRow { outcomes: vec![Outcome::Agree], ..returned.clone() };
    for (row, state) in [
        (run_row(), "stated, not predicted"),
        (RunRow { receipts: 1, ..run_row() }, "receipts without a prediction"),
        (predicted, "predicted, no receipts yet"),
        (returned, "receipts in, not compared"),
    ] {
        let page = listed(row);
        assert!(page.contains(state) && page.contains("none yet"), "{state:?} in {page}");
    }
    let page = listed(compared);
    assert!(page.contains("<td>compared</td>") && page.contains(">agree<"), "{page}");
}

#[test]
fn links_to_older_and_newest_rows_stand_on_lines_of_their_own() {
    let page = entries_page(&log(), &[], Paging { newer: true, older_before: Some(2) });
    assert!(page.contains("<p><a href=\"/entries\">Newest</a></p>"), "{page}");
    assert!(page.contains("<p><a href=\"/entries?before=2\">Older</a></p>"), "{page}");
}

fn receipt(rank: u64) -> RunEntry {
    let facts = DeviceFacts {
        name: "card".into(),
        architecture: "x".into(),
        driver: "none".into(),
        units: 1,
        kernels: "1".into(),
    };
    let receipt = Receipt {
        run: run().id(),
        steps: Steps { first: 0, end: 100 },
        devices: 2,
        rank,
        simulated: true,
        facts,
        checkpoint: b"note".to_vec(),
        answer: None,
        body: AttachmentName::of(b"body"),
    };
    entry(3 + rank, Payload::Receipt(Box::new(receipt)), 4)
}

fn verdict(index: u64, receipts: Vec<EntryDigest>, outcome: Outcome) -> RunEntry {
    let verdict = Verdict {
        run: run().id(),
        prediction: prediction().statement.digest,
        opening: None,
        receipts,
        steps: Steps { first: 0, end: 100 },
        outcome,
        step: None,
        findings: vec![],
        missing: vec![],
        simulated: true,
        answer: None,
        evidence: vec![],
    };
    entry(index, Payload::Verdict(Box::new(verdict)), 2)
}

#[test]
fn the_tree_of_devices_says_which_verdict_it_is_drawn_by() {
    let before = shown(vec![prediction(), receipt(0)], 0);
    assert!(before.contains("there is no verdict yet:</p><svg"), "{before}");
    let first = verdict(5, vec![], Outcome::Incomplete);
    let named = receipt(0).statement.digest;
    let entries = vec![prediction(), receipt(0), receipt(1), first, verdict(6, vec![named], Outcome::Agree)];
    let after = shown(entries, 0);
    assert!(after.contains("the latest verdict (agree, steps 0..100, entry 6):</p><svg"), "{after}");
    let none = shown(vec![prediction()], 0);
    assert!(!none.contains("<svg") && !none.contains("The devices by"), "{none}");
}

#[test]
fn a_verdict_without_receipts_says_none() {
    let page = shown(vec![prediction(), verdict(5, vec![], Outcome::Incomplete)], 0);
    assert!(page.contains("<dt>Receipts</dt><dd>none</dd>"), "{page}");
    let named = shown(vec![prediction(), verdict(5, vec![EntryDigest([9; 32])], Outcome::Incomplete)], 0);
    assert!(!named.contains("<dd>none</dd>"), "{named}");
}

#[test]
fn every_page_says_what_it_proves_and_does_not_and_loads_nothing_from_elsewhere() {
    let digest = EntryDigest([8; 32]);
    let row = EntryRow { index: 2, kind: "prediction", digest, run: Some(run().id()), signer: None };
    let statement = Box::new(prediction().statement);
    let contents =
        [EntryContent::Statement(statement), EntryContent::Genesis("text".into()), EntryContent::Unreadable];
    let mut pages = vec![
        entries_page(&log(), &[row], Paging { newer: true, older_before: Some(2) }),
        runs_page(&log(), &[run_row()], Paging::default()),
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
        assert!(page.contains(" - Tallystick</title>") && page.contains(">Tallystick</a>"), "{page}");
        assert!(page.contains("What this page proves") && page.contains("What it does not"), "{page}");
        assert!(page.contains("client verify") && page.contains("width=device-width"), "{page}");
        assert!(!page.contains("<script") && !page.contains("style=") && !page.contains("://"), "{page}");
    }
}

#[test]
fn characters_that_hide_or_turn_text_round_are_shown_as_what_they_are() {
    let ranges = [0x200b..=0x200f, 0x202a..=0x202e, 0x2060..=0x2064, 0x2066..=0x2069, 0xfeff..=0xfeff];
    for code in ranges.into_iter().flatten() {
        let character = char::from_u32(code).unwrap();
        let name = format!("r\u{fc}n{character}x");
        let escaped = format!("r\u{fc}n\\u{{{code:x}}}x");
        let run = Run { name: name.clone(), ..run() };
        let view = RunView {
            id: run.id(),
            run: run.clone(),
            entries: Vec::new(),
            truncated: false,
            held: BTreeSet::new(),
            now_unix_s: 0,
        };
        let genesis = EntryContent::Genesis(name);
        let entry = EntryView {
            index: 0,
            digest: EntryDigest([8; 32]),
            bytes: 5,
            content: genesis,
            held: BTreeSet::new(),
        };
        for page in [
            run_page(&log(), &view),
            runs_page(&log(), &[RunRow { run, ..run_row() }], Paging::default()),
            entry_page(&log(), &entry),
        ] {
            assert!(!page.contains(character) && page.contains(&escaped), "{code:x} in {page}");
        }
    }
}
