//! Snapshots: the same bytes for the same state, and nothing else accepted.

mod runs;

use runs::{SMALL, first_state, run};
use schemas::digest::RunId;
use schemas::plan::Plan;
use std::path::Path;
use step::dispatch::Backend;
use step::session::Session;
use step::snapshot::{self, WrongSnapshot};
use step::state::State;

const RUN: RunId = RunId([7; 32]);

fn trained() -> (Plan, State) {
    let (plan, tokens) = run(SMALL);
    let mut state = first_state(&plan);
    let session = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
    session.step(&mut state).expect("a step");
    (plan, state)
}

fn header_and_rest(bytes: &[u8]) -> (String, Vec<u8>) {
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    (
        String::from_utf8(bytes[8..8 + length].to_vec()).expect("a header is text"),
        bytes[8 + length..].to_vec(),
    )
}

fn joined(header: &str, rest: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), rest].concat()
}

#[test]
fn a_state_survives_and_training_goes_on_from_it_with_the_same_bits() {
    let (plan, mut state) = trained();
    let folder = tempfile::tempdir().expect("a folder");
    let (one, two) = (folder.path().join("one.safetensors"), folder.path().join("two.safetensors"));
    snapshot::write(&one, &plan.parameters, &state).expect("written");
    let mut read = snapshot::read(&one, &plan.parameters).expect("read");
    assert_eq!((read.digest(), read.step), (state.digest(), 1));
    snapshot::write(&two, &plan.parameters, &read).expect("written");
    assert_eq!(std::fs::read(&one).expect("bytes"), std::fs::read(&two).expect("bytes"));
    let files = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(files, 2, "no part is left");

    let (_, tokens) = run(SMALL);
    let session = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
    let (one, two) = (session.step(&mut state).expect("a step"), session.step(&mut read).expect("a step"));
    assert_eq!(one.record, two.record);
}

#[test]
fn a_snapshot_has_the_names_and_places_that_other_readers_expect() {
    let (plan, state) = trained();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s.safetensors");
    snapshot::write(&path, &plan.parameters, &state).expect("written");
    let bytes = std::fs::read(&path).expect("bytes");
    let (header, rest) = header_and_rest(&bytes);
    assert!(header.starts_with(
        r#"{"__metadata__":{"format":"pt","step":"1"},"transformer.wte.weight":{"dtype":"F32","#
    ));
    assert_eq!((8 + header.len()) % 8, 0);
    let json: serde_json::Value = serde_json::from_str(&header).expect("JSON");
    let place = |name: &str| {
        let offsets = &json[name]["data_offsets"];
        offsets[0].as_u64().expect("a number") as usize..offsets[1].as_u64().expect("a number") as usize
    };
    let words = |name: &str| rest[place(name)].to_vec();
    let wpe = step::state::spans(&plan.parameters)[1].clone();
    let bytes_of = |words: &[f32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    assert_eq!(words("transformer.wpe.weight"), bytes_of(&state.parameters[wpe.clone()]));
    assert_eq!(words("adamw.m.transformer.wpe.weight"), bytes_of(&state.first_moment[wpe.clone()]));
    assert_eq!(words("adamw.v.transformer.wpe.weight"), bytes_of(&state.second_moment[wpe]));
}

/// Writes `bytes` and returns what reading them says.
fn refusal(folder: &Path, plan: &Plan, bytes: &[u8]) -> WrongSnapshot {
    let path = folder.join("bad.safetensors");
    std::fs::write(&path, bytes).expect("written");
    let error = snapshot::read(&path, &plan.parameters).expect_err("a bad snapshot is refused");
    assert_eq!(error.path, path);
    error.source
}

#[test]
fn a_changed_header_is_refused_by_what_is_wrong() {
    let (plan, state) = trained();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s.safetensors");
    snapshot::write(&path, &plan.parameters, &state).expect("written");
    let (header, rest) = header_and_rest(&std::fs::read(&path).expect("bytes"));
    let with = |from: &str, to: &str| {
        assert!(header.contains(from), "{from}");
        refusal(folder.path(), &plan, &joined(&header.replacen(from, to, 1), &rest))
    };
    use WrongSnapshot::*;
    assert!(
        matches!(with("transformer.wpe.", "transformer.wpx."), Missing(name) if name == "transformer.wpe.weight")
    );
    assert!(matches!(with(r#""dtype":"F32""#, r#""dtype":"F16""#), Dtype { found, .. } if found == "F16"));
    assert!(matches!(with("[67,36]", "[36,67]"), Shape { .. }));
    assert!(matches!(with("[67,36]", "[2412]"), Shape { .. }));
    assert!(matches!(with(r#""data_offsets":[0,"#, r#""data_offsets":[4,"#), Place { .. }));
    assert!(matches!(with(r#""step":"1""#, r#""step":"01""#), Step(Some(text)) if text == "01"));
    assert!(matches!(with(r#""step":"1""#, r#""step":"-1""#), Step(_)));
    assert!(matches!(with(r#","step":"1""#, ""), Step(None)));
    assert!(
        matches!(with(r#""format":"pt""#, r#""other":"pt""#), Extra(name) if name == "__metadata__.other")
    );
    assert!(matches!(with(r#""step":"1""#, r#""step":"1","step":"2""#), Extra(_)));
    assert!(matches!(with(r#""format":"pt","#, ""), Format(None)));
    assert!(matches!(with(r#""format":"pt""#, r#""format":"np""#), Format(Some(text)) if text == "np"));
    let twice = with(r#""format":"pt""#, r#""format":"pt","format":"pt""#);
    assert!(matches!(twice, Extra(name) if name == "__metadata__.format"));
    assert!(matches!(with(r#""dtype":"F32","#, r#""dtype":"F32","more":1,"#), Json(_)));
    assert!(matches!(with("{\"__metadata__\"", "[\"__metadata__\""), Json(_)));
    let extra = r#"{"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"__metadata__""#;
    assert!(matches!(with("{\"__metadata__\"", extra), Extra(name) if name == "x"));
    // A name twice: a map would keep one and not say which.
    let wte = header.split_once(r#""transformer.wte.weight":"#).expect("wte").1;
    let entry = &wte[..wte.find('}').expect("an end") + 1];
    let twice = format!(r#"{{"transformer.wte.weight":{entry},"__metadata__""#);
    assert!(matches!(with("{\"__metadata__\"", &twice), Extra(name) if name == "transformer.wte.weight"));
}

#[test]
fn a_file_cut_anywhere_or_with_more_is_refused() {
    let (plan, state) = trained();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s.safetensors");
    snapshot::write(&path, &plan.parameters, &state).expect("written");
    let bytes = std::fs::read(&path).expect("bytes");
    let header_end = 8 + header_and_rest(&bytes).0.len();
    use WrongSnapshot::*;
    for length in [0, 7, 8, 9, header_end - 1] {
        assert!(
            matches!(refusal(folder.path(), &plan, &bytes[..length]), HeaderLength { .. }),
            "{length} bytes"
        );
    }
    for length in [header_end, header_end + 1, bytes.len() - 1] {
        assert!(matches!(refusal(folder.path(), &plan, &bytes[..length]), Length { .. }), "{length} bytes");
    }
    assert!(matches!(refusal(folder.path(), &plan, &[&bytes[..], &[0]].concat()), Length { .. }));
    for length in [0, 1 << 24, u64::MAX, i64::MAX as u64] {
        let hostile = [&length.to_le_bytes()[..], &bytes[8..]].concat();
        assert!(
            matches!(refusal(folder.path(), &plan, &hostile), HeaderLength { found, .. } if found == length)
        );
    }
}

#[test]
fn a_header_longer_than_the_limit_is_not_read_though_the_file_holds_it() {
    let (plan, _) = run(SMALL);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("long.safetensors");
    let length = (8 << 20) + 1_u64;
    std::fs::write(&path, length.to_le_bytes()).expect("written");
    std::fs::File::options().write(true).open(&path).expect("a file").set_len(9 << 20).expect("longer");
    let wrong = snapshot::read(&path, &plan.parameters).expect_err("too long").source;
    let limit = WrongSnapshot::HeaderLength { limit: length - 1, found: length };
    assert_eq!(wrong.to_string(), limit.to_string());
}

#[test]
fn saved_steps_are_numbers_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["step-000010", "step-1000000", "step-000002", "step-x", "other-000001"] {
        std::fs::write(folder.path().join(name).with_extension("safetensors"), "").expect("written");
        std::fs::write(folder.path().join(name).with_extension("digest"), "").expect("written");
    }
    assert_eq!(snapshot::saved_steps(folder.path()), [2, 10, 1_000_000]);
}

#[test]
fn a_snapshot_that_cannot_be_written_leaves_nothing() {
    let (plan, state) = trained();
    let folder = tempfile::tempdir().expect("a folder");
    // A folder stands where the file should go, so the last step, the rename, fails.
    let path = folder.path().join("taken");
    std::fs::create_dir_all(path.join("inside")).expect("a folder");
    assert!(matches!(
        snapshot::write(&path, &plan.parameters, &state).expect_err("taken").source,
        WrongSnapshot::System(_)
    ));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    let missing = folder.path().join("none").join("s.safetensors");
    assert!(snapshot::write(&missing, &plan.parameters, &state).is_err());
}

#[test]
fn a_kept_snapshot_is_used_only_as_the_one_that_was_saved() {
    let (plan, state) = trained();
    let folder = tempfile::tempdir().expect("a folder");
    snapshot::keep(folder.path(), &plan.parameters, RUN, &state).expect("kept");
    assert_eq!(snapshot::saved_steps(folder.path()), [1]);
    let kept = || snapshot::kept(folder.path(), &plan.parameters, RUN, 1);
    assert_eq!(kept().expect("as saved").digest(), state.digest());

    let refused = |what: &str| {
        let wrong = kept().expect_err(what).source;
        assert!(matches!(wrong, WrongSnapshot::NotTheOneSaved { .. }), "{what}: {wrong}");
    };
    // One that is whole and of another step.
    for ending in ["safetensors", "digest"] {
        let at = |step: u64| folder.path().join(format!("step-00000{step}.{ending}"));
        std::fs::copy(at(1), at(2)).expect("copied");
    }
    let wrong = snapshot::kept(folder.path(), &plan.parameters, RUN, 2).expect_err("another step").source;
    assert!(matches!(wrong, WrongSnapshot::NotTheOneSaved { .. }), "{wrong}");
    let path = folder.path().join("step-000001.safetensors");
    let whole = std::fs::read(&path).expect("bytes");
    let mut flipped = whole.clone();
    *flipped.last_mut().expect("a byte") ^= 1;
    std::fs::write(&path, flipped).expect("written");
    refused("one bit of the last value");
    std::fs::write(&path, whole).expect("written");
    assert!(kept().is_ok());
    let others = snapshot::kept(folder.path(), &plan.parameters, RunId([8; 32]), 1);
    let wrong = others.expect_err("another run's").to_string();
    assert!(wrong.contains("expected the state and run") && wrong.contains(&"08".repeat(32)), "{wrong}");
    std::fs::remove_file(path.with_extension("digest")).expect("removed");
    refused("no digest noted");
}

#[test]
fn a_file_holds_a_state_only_if_it_is_what_would_be_written() {
    let (plan, state) = trained();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s.safetensors");
    let holds = || snapshot::holds(&path, &plan.parameters, &state);
    assert!(!holds(), "no file");
    snapshot::write(&path, &plan.parameters, &state).expect("written");
    assert!(holds());
    let whole = std::fs::read(&path).expect("bytes");
    for at in [0, 20, whole.len() / 2, whole.len() - 1] {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        std::fs::write(&path, flipped).expect("written");
        assert!(!holds(), "byte {at}");
    }
    for other in [&whole[..whole.len() - 1], &[&whole[..], &[0]].concat()] {
        std::fs::write(&path, other).expect("written");
        assert!(!holds(), "{} bytes", other.len());
    }
}
