//! The steps that a prediction's folder keeps: `steps/steps-FIRST-END.cbor`, each with the records, meetings and traces
//! of steps FIRST to END - 1.
//!
//! ```text
//! 32 bytes   SHA-256 of the rest: a damaged record would be sealed as it is and honest devices blamed for it
//! CBOR       [ run id, [record, meeting, [trace, ...]], ... ], after the run one for each step; meeting and traces as
//!            encoded byte strings, an empty one for a step without a meeting, none where no traces are kept
//! ```
//!
//! Many steps in one file: a thousand steps would else be thousands of files, each waiting for the disk. Files may
//! overlap where work was interrupted; what they say of a step is the same.

use crate::atomic::{self, WriteError};
use crate::folder::read_file;
use crate::output;
use schemas::cbor::{self, Value};
use schemas::digest::{AttachmentDigest, RunId};
use schemas::record::StepRecord;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Largest file of steps that is read.
const STEPS_BYTES_MAX: u64 = 4 << 30;

/// What is kept of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What is predicted.
    pub record: StepRecord,
    /// The encoded meeting; none if a leaf was not finite.
    pub meeting: Option<Vec<u8>>,
    /// The encoded trace of each leaf; none if traces are not kept.
    pub traces: Vec<Vec<u8>>,
}

/// Writes the steps of `run` from `first` on as one file, whole and durable.
pub fn write(folder: &Path, run: RunId, first: u64, steps: &[Kept]) -> Result<(), WriteError> {
    let item = |kept: &Kept| {
        let traces = kept.traces.iter().map(Value::bytes).collect();
        let meeting = Value::bytes(kept.meeting.as_deref().unwrap_or_default());
        Value::Array(vec![kept.record.to_value(), meeting, Value::Array(traces)])
    };
    let items = [Value::bytes(run.0)].into_iter().chain(steps.iter().map(item));
    let content = cbor::encode(&Value::Array(items.collect()));
    let bytes = [&AttachmentDigest::of(&content).0[..], &content].concat();
    let end = first + steps.len() as u64;
    atomic::write(&folder.join(format!("steps-{first:06}-{end:06}.cbor")), &bytes, atomic::PUBLIC)
}

/// The kept steps of `run` in a folder within `range`, ascending; each once, from the first file that is whole and has
/// it. A file that is not, or of another run, is told and left out.
pub fn read(folder: &Path, run: RunId, range: Range<u64>) -> Vec<(u64, Kept)> {
    let mut found: Vec<(u64, Kept)> = Vec::new();
    for (steps, path) in files(folder) {
        let next = found.last().map_or(range.start, |(last, _)| last + 1);
        if steps.end <= next || steps.start >= range.end {
            continue;
        }
        match read_one(&path, run, &steps) {
            Some(kept) => {
                let kept = (steps.start..).zip(kept);
                found.extend(kept.filter(|(step, _)| (next..range.end).contains(step)));
            }
            None => output::note(&format!("{} is damaged or of another run, not used", path.display())),
        }
    }
    found
}

/// One kept step.
pub fn find(folder: &Path, run: RunId, step: u64) -> Option<Kept> {
    read(folder, run, step..step + 1).pop().map(|(_, kept)| kept)
}

/// Files of steps by name, ascending by first step; of those with one first step the longest first.
fn files(folder: &Path) -> Vec<(Range<u64>, PathBuf)> {
    let parse = |name: &str| {
        let (first, end) = name.strip_prefix("steps-")?.strip_suffix(".cbor")?.split_once('-')?;
        let steps: Range<u64> = first.parse().ok()?..end.parse().ok()?;
        (steps.start < steps.end).then_some(steps)
    };
    let names = std::fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<(Range<u64>, PathBuf)> = names
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| Some((parse(&name)?, folder.join(&name))))
        .collect();
    files.sort_by_key(|(steps, _)| (steps.start, std::cmp::Reverse(steps.end)));
    files
}

fn read_one(path: &Path, run: RunId, steps: &Range<u64>) -> Option<Vec<Kept>> {
    let bytes = read_file(path, STEPS_BYTES_MAX).ok()?;
    let (digest, content) = bytes.split_at_checked(32)?;
    if AttachmentDigest::of(content).0 != digest {
        return None;
    }
    let Value::Array(items) = cbor::decode(content, content.len()).ok()? else { return None };
    let mut items = items.into_iter();
    if items.next() != Some(Value::bytes(run.0)) {
        return None;
    }
    let kept: Option<Vec<Kept>> = items.map(kept).collect();
    kept.filter(|kept| kept.len() as u64 == steps.end - steps.start)
}

fn kept(item: Value) -> Option<Kept> {
    let Value::Array(parts) = item else { return None };
    let [record, Value::Bytes(meeting), Value::Array(traces)] = <[Value; 3]>::try_from(parts).ok()? else {
        return None;
    };
    let trace = |value| match value {
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    };
    Some(Kept {
        record: StepRecord::from_value(record).ok()?,
        meeting: (!meeting.is_empty()).then_some(meeting),
        traces: traces.into_iter().map(trace).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::digest::TraceRoot;
    use schemas::record::NonFinite;

    fn some(number: u8) -> Kept {
        let record = StepRecord {
            traces: vec![TraceRoot([number; 32])],
            losses: vec![0x7fc0_0000],
            outcome: None,
            non_finite: Some(NonFinite::Tap { leaf: 0, tap: 3 }),
        };
        Kept { record, meeting: (number > 2).then(|| vec![number; 5]), traces: vec![vec![number; 9]] }
    }

    #[test]
    fn steps_are_found_across_files_and_a_damaged_file_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let all: Vec<(u64, Kept)> = (2..9).map(|step| (step, some(step as u8))).collect();
        let part = |range: Range<usize>| all[range].iter().map(|(_, kept)| kept.clone()).collect::<Vec<_>>();
        let run = RunId([7; 32]);
        write(folder, run, 2, &part(0..3)).unwrap();
        write(folder, run, 5, &part(3..7)).unwrap();
        // Interrupted work, done again: the same steps in other files.
        write(folder, run, 4, &part(2..4)).unwrap();
        std::fs::write(folder.join("steps-x-000009.cbor"), b"").unwrap();
        std::fs::write(folder.join("other"), b"").unwrap();
        assert_eq!(read(folder, run, 0..100), all);
        assert_eq!(read(folder, run, 3..6), all[1..4]);
        assert_eq!(find(folder, run, 8), Some(some(8)));
        assert_eq!(find(folder, run, 9), None);

        assert_eq!(read(folder, RunId([8; 32]), 0..100), [], "another run's");

        let path = folder.join("steps-000005-000009.cbor");
        let whole = std::fs::read(&path).unwrap();
        for at in [0, 31, 32, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(read(folder, run, 0..100), all[..4], "byte {at}");
        }
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(find(folder, run, 8), None);
        // The name must tell the number of steps.
        std::fs::write(folder.join("steps-000005-000008.cbor"), &whole).unwrap();
        assert_eq!(find(folder, run, 7), None);
    }
}
