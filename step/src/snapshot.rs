//! Snapshots: a training state as one safetensors file (docs/spec/snapshot.md).
//!
//! Tensors stand in the plan's order: parameters by their Hugging Face names, then `adamw.m.<name>`, then
//! `adamw.v.<name>`; the metadata is `format` and `step`. The same state always gives the same bytes. Reading
//! is strict: a file that differs in anything but values from what would be written is rejected.

pub(crate) mod header;
mod map;
pub(crate) mod words;

use crate::buffer::Flat;
use crate::file::open_file;
use crate::state::{State, words_of};
use schemas::digest::RunId;
use schemas::plan::Parameter;
use std::fs::File;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};
use words::Source;

/// Why a file is not the snapshot it should be, or was not written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct SnapshotError {
    /// Which file.
    pub path: PathBuf,
    /// What is wrong.
    pub source: WrongSnapshot,
}

/// What is wrong with a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum WrongSnapshot {
    /// Whole, but not the state that was saved under this name, or of another run.
    #[error("expected the state and run {expected:?} that were saved, found {found:?}")]
    NotTheOneSaved {
        /// The digest and the run noted when it was saved; empty if none are there.
        expected: String,
        /// The digest of what was read, and the run that it is read for.
        found: String,
    },
    /// The system refused.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// Too short for a header, or the header is longer than the file or the limit.
    #[error("expected a header of at most {limit} bytes, found a length of {found}")]
    HeaderLength {
        /// The smaller of the limit and what the file holds.
        limit: u64,
        /// What the file's first eight bytes say.
        found: u64,
    },
    /// The header is not the JSON of safetensors.
    #[error("expected a safetensors header, found one that does not parse: {0}")]
    Json(#[from] serde_json::Error),
    /// A tensor that must be there is not.
    #[error("expected tensor {0:?}, found none of that name")]
    Missing(String),
    /// A tensor (or header entry) that must not be there is.
    #[error("expected no tensor {0:?}")]
    Extra(String),
    /// A tensor with another dtype.
    #[error("tensor {name:?}: expected dtype F32, found {found}")]
    Dtype {
        /// Which tensor.
        name: String,
        /// What the header says.
        found: String,
    },
    /// A tensor with another shape.
    #[error("tensor {name:?}: expected shape {expected:?}, found {found:?}")]
    Shape {
        /// Which tensor.
        name: String,
        /// The plan's shape.
        expected: Vec<u64>,
        /// The header's shape.
        found: Vec<u64>,
    },
    /// A tensor that lies elsewhere than where it would be written.
    #[error("tensor {name:?}: expected bytes {expected:?}, found {found:?}")]
    Place {
        /// Which tensor.
        name: String,
        /// First byte and byte after the last, from the end of the header.
        expected: [u64; 2],
        /// What the header says.
        found: [u64; 2],
    },
    /// A file cut short, or with something after the last tensor.
    #[error("expected {expected} bytes after the header, found {found}")]
    Length {
        /// What the tensors need.
        expected: u64,
        /// What the file holds.
        found: u64,
    },
    /// Another format than is written, or none.
    #[error("expected format \"pt\" in the metadata, found {0:?}")]
    Format(Option<String>),
    /// No step, or not a number.
    #[error("expected a step number in the metadata, found {0:?}")]
    Step(Option<String>),
}

/// Writes a state to `path`: to a file beside it, synced, then renamed, so that `path` is whole or absent.
pub fn write(path: &Path, layout: &[Parameter], state: &State) -> Result<(), SnapshotError> {
    write_whole(path, layout, state).map_err(|source| SnapshotError { path: path.to_owned(), source })
}

fn write_whole(path: &Path, layout: &[Parameter], state: &State) -> Result<(), WrongSnapshot> {
    replace(path, |file| write_to(file, layout, state))
}

/// Replaces the file at `path` by what `write` puts into one beside it, once that is durable.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<(), WrongSnapshot>,
) -> Result<(), WrongSnapshot> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let whole = || {
        let mut file = File::create(&beside)?;
        write(&mut file)?;
        file.sync_all()?;
        Ok(std::fs::rename(&beside, path)?)
    };
    let written = whole();
    if written.is_err() {
        // What failed is reported; a left-over part that cannot be removed either would say the same.
        let _ = std::fs::remove_file(&beside);
        return written;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(File::open(folder)?.sync_all()?)
}

fn write_to(file: &mut impl Write, layout: &[Parameter], state: &State) -> Result<(), WrongSnapshot> {
    let words = layout.iter().map(words_of).sum::<usize>();
    write_header(file, &header::of_snapshot(layout, state.step))?;
    for part in [&state.parameters, &state.first_moment, &state.second_moment] {
        assert_eq!(part.len(), words, "snapshot: a state's buffers hold its layout");
        words::write(file, part)?;
    }
    Ok(())
}

/// Writes the length of a header and the header.
pub(crate) fn write_header(file: &mut impl Write, header: &[u8]) -> Result<(), WrongSnapshot> {
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    Ok(file.write_all(header)?)
}

/// Whether `path` is, byte for byte, what `write` would write.
pub fn holds(path: &Path, layout: &[Parameter], state: &State) -> bool {
    let Ok(mut file) = open_file(path) else { return false };
    let same = write_to(&mut Comparing(&mut file), layout, state).is_ok();
    same && file.read(&mut [0]).is_ok_and(|more| more == 0)
}

/// Takes what is written to it only as long as a file goes on with the same.
struct Comparing<'f>(&'f mut File);

impl Write for Comparing<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let part = &bytes[..bytes.len().min(1 << 20)];
        let mut found = vec![0; part.len()];
        self.0.read_exact(&mut found)?;
        match found == part {
            true => Ok(part.len()),
            false => Err(std::io::Error::other("other bytes")),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The name of the snapshot before `step`, in a folder of them.
fn file_name(step: u64) -> String {
    format!("step-{step:06}.safetensors")
}

/// What stands in the file beside a kept snapshot: which state it is, and of which run.
fn note(state: &State, run: RunId) -> String {
    format!("{} {run}", state.digest())
}

/// Saves the state of `run` before its next step into a folder of snapshots, and beside it what it is.
pub fn keep(folder: &Path, layout: &[Parameter], run: RunId, state: &State) -> Result<(), SnapshotError> {
    let path = folder.join(file_name(state.step));
    write(&path, layout, state)?;
    let digest = path.with_extension("digest");
    let text = format!("{}\n", note(state, run));
    let write = |file: &mut File| Ok(file.write_all(text.as_bytes())?);
    replace(&digest, write).map_err(|source| SnapshotError { path: digest, source })
}

/// Reads the snapshot before `step` from such a folder, if it is whole, the one that was saved, and of `run`: what is
/// not and is gone on from would give a false prediction, and honest devices would be blamed for it.
pub fn kept(folder: &Path, layout: &[Parameter], run: RunId, step: u64) -> Result<State, SnapshotError> {
    let path = folder.join(file_name(step));
    // The folder is the program's own, where files are replaced and never shortened: so the file can be mapped.
    let state = read_whole(&path, layout, Source::Mapped);
    let state = state.map_err(|source| SnapshotError { path: path.clone(), source })?;
    let noted =
        open_file(&path.with_extension("digest")).and_then(std::io::read_to_string).unwrap_or_default();
    let found = note(&state, run);
    match noted.trim_end() == found && state.step == step {
        true => Ok(state),
        false => {
            let source = WrongSnapshot::NotTheOneSaved { expected: noted.trim_end().to_owned(), found };
            Err(SnapshotError { path, source })
        }
    }
}

/// The steps that a folder holds snapshots of, ascending; none if it cannot be read.
pub fn saved_steps(folder: &Path) -> Vec<u64> {
    let names = std::fs::read_dir(folder).into_iter().flatten();
    let mut steps: Vec<u64> = names
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok())
        .collect();
    steps.sort_unstable();
    steps
}

/// Reads the state of `layout` from `path`.
pub fn read(path: &Path, layout: &[Parameter]) -> Result<State, SnapshotError> {
    read_whole(path, layout, Source::Read).map_err(|source| SnapshotError { path: path.to_owned(), source })
}

fn read_whole(
    path: &Path,
    layout: &[Parameter],
    source: impl Fn(File) -> Source,
) -> Result<State, WrongSnapshot> {
    let mut file = open_file(path)?;
    let (header, body) = header::read(&mut file)?;
    let step = header::check(header, layout)?;
    let words = layout.iter().map(words_of).sum::<usize>();
    let expected = 3 * 4 * words as u64;
    if expected != body.bytes {
        return Err(WrongSnapshot::Length { expected, found: body.bytes });
    }
    let source = source(file);
    let part = |number: u64| -> Result<Flat, WrongSnapshot> {
        Ok(Flat::copied(&source.words(body.start + number * 4 * words as u64, words)?))
    };
    Ok(State { step, parameters: part(0)?, first_moment: part(1)?, second_moment: part(2)? })
}
