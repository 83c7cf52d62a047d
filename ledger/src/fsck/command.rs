//! `ledger fsck`: a log's folder or address in, lines or JSON out.

use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tlog::checkpoint::Checkpoint;
use tlog::note::{Verifier as _, VerifierKey};
use tlog::tree::{TreeHead, TreeSize};

use crate::argument::verifier_key;
use crate::disk::durable::{Files, read_optional};
use crate::disk::folder::require_log;
use crate::disk::journal::Journal;
use crate::disk::key::read_key;
use crate::disk::lock::{FolderLock, Lock, beside};
use crate::disk::store::Store;
use crate::error::LogError;
use crate::fsck::finding::{Finding, Findings, Kind};
use crate::fsck::folder::Folder;
use crate::fsck::history::Kept;
use crate::fsck::index::{INDEX, check_index};
use crate::fsck::remote::Remote;
use crate::fsck::source::Source;
use crate::fsck::{FsckError, check_tree, open_checkpoint};
use crate::http::attachments::check_attachments;
use crate::say;

/// Time between two lines of progress.
const PROGRESS_MS: u64 = 2_000;

/// What is asked.
pub struct Ask {
    /// A folder, or an address beginning with `http://`.
    pub log: String,
    /// The folder of a log's lock, if it is not beside the log's.
    pub lock: Option<PathBuf>,
    /// The log's verifier key or a file with it, if it is not to be taken from the folder.
    pub key: Option<String>,
    /// One JSON object in place of lines.
    pub json: bool,
}

/// What was looked at.
#[derive(Debug)]
pub struct Checked {
    /// The log's identity line.
    pub origin: String,
    /// The tree of its checkpoint.
    pub head: TreeHead,
    /// Tiles of hashes looked at.
    pub tiles: u64,
    /// What is wrong.
    pub findings: Findings,
    /// Files below `tile/` that do not belong to the tree.
    pub foreign: u64,
    /// Attachments looked at; none over HTTP.
    pub attachments: Option<u64>,
}

/// Checks a log and prints the result. False if something is wrong with it.
pub fn run(ask: &Ask, out: &mut dyn Write) -> Result<bool, FsckError> {
    let key = ask.key.as_deref().map(verifier_key).transpose()?;
    let checked = match ask.log.contains("://") {
        true => check_remote(&ask.log, key)?,
        false => check_folder(Path::new(&ask.log), ask.lock.as_deref(), key)?,
    };
    match ask.json {
        true => writeln!(out, "{}", checked.to_json())?,
        false => checked.print(out)?,
    }
    Ok(checked.findings.is_empty())
}

fn check_remote(address: &str, key: Option<VerifierKey>) -> Result<Checked, FsckError> {
    let key = key.ok_or_else(|| FsckError::NoKey { place: address.to_owned() })?;
    let remote = Remote::at(address)?;
    let checkpoint = open_checkpoint(&remote, address, &key)?;
    walked(&remote, checkpoint)
}

/// Checks a folder that no server works on, under a key or else its own, with the lock beside it or another.
pub fn check_folder(
    base: &Path,
    lock_folder: Option<&Path>,
    key: Option<VerifierKey>,
) -> Result<Checked, FsckError> {
    let place = base.display().to_string();
    let lock_folder = lock_folder.map_or_else(|| beside(base), |folder| Ok(folder.to_owned()))?;
    // With a key, what is checked may be a copy of a log's static files, with nothing beside them.
    if key.is_none() || base.join("log.key").exists() {
        require_log(base, &lock_folder)?;
    }
    let lock = Lock::new(&lock_folder, Arc::default());
    let _held = lock.path().is_file().then(|| FolderLock::take(base, &lock_folder)).transpose()?;
    let store = Store::new(base, Files::default());
    let key = match key {
        Some(key) => key,
        None => own_key(&store, &place)?,
    };
    let promised = promised(&lock, &key)?;
    let folder = Folder(base.to_owned());
    let (checkpoint, lost) = match (open_checkpoint(&folder, &place, &key), promised) {
        (Err(FsckError::NoCheckpoint { .. }), Some(promised)) => {
            let origin = key.name().as_str().to_owned();
            (Checkpoint { origin, head: without_checkpoint(&store, promised)? }, true)
        }
        (other, _) => (other?, false),
    };
    if let Some(promised) = promised {
        let size = checkpoint.head.size;
        if size > promised.size {
            return Err(lock.older_than(lock.has_damaged_slot()?, size, promised.size).into());
        }
        if size == promised.size && checkpoint.head != promised {
            let (expected, found) = (promised.root, checkpoint.head.root);
            return Err(LogError::RootMismatch { size, expected, found }.into());
        }
    }
    let mut checked = walked(&folder, checkpoint)?;
    let (others, foreign) = folder.others(checked.head.size)?;
    others.into_iter().for_each(|finding| checked.findings.add(finding));
    checked.foreign = foreign;
    let (attachments, damaged) = check_attachments(&store)?;
    checked.attachments = Some(attachments);
    for error in damaged {
        checked.findings.add(attachment_finding(base, error));
    }
    if base.join("log.key").exists() {
        let tiles_right = checked.findings.is_empty();
        let last = if promised == Some(checked.head) { lock.read()? } else { None };
        let (last, head) = (last.as_deref(), checked.head);
        Kept { store: &store, key: &key, head, last, tiles_right }.check(&mut checked.findings)?;
        if let Some(finding) = check_index(&store, head.size, tiles_right)? {
            checked.findings.add(finding);
        }
    }
    if lost {
        let what = "the file is not there; the tree looked at is the one that the lock records".to_owned();
        checked.findings.add(Finding::of_file(Kind::Missing, "checkpoint", what));
    }
    match promised {
        // What is published was checked. What was promised beyond it is in the journal, or the folder is an old copy.
        Some(promised) if checked.findings.is_empty() && promised.size > checked.head.size => {
            Err(behind(&store, checked.head.size, promised.size)?)
        }
        _ => Ok(checked),
    }
}

/// The tree that a folder without a checkpoint has to hold: what its lock promised, unless there is a journal, which
/// leads there from what nobody knows.
fn without_checkpoint(store: &Store, promised: TreeHead) -> Result<TreeHead, FsckError> {
    let mut begins = None;
    Journal::new(store.path("journal"), Arc::default()).replay(|record| {
        begins.get_or_insert(record.old);
        Ok(())
    })?;
    match begins {
        None => Ok(promised),
        Some(TreeSize(0)) => Err(behind(store, TreeSize(0), promised.size)?),
        Some(_) => Err(FsckError::CheckpointMissing { promised: promised.size.0 }),
    }
}

/// What it means that a folder has published less than was promised.
fn behind(store: &Store, data: TreeSize, lock: TreeSize) -> Result<FsckError, LogError> {
    let mut reached = data;
    Journal::new(store.path("journal"), Arc::default()).replay(|record| {
        if record.old <= reached {
            reached = reached.max(record.new_size());
        }
        Ok(())
    })?;
    Ok(match reached >= lock {
        true => FsckError::Interrupted { promised: lock.0, published: data.0 },
        false => LogError::DataOlderThanLock { data: reached, lock }.into(),
    })
}

/// The log's key from its folder: of the secret key, or where that is not readable, the public half beside it.
fn own_key(store: &Store, place: &str) -> Result<VerifierKey, FsckError> {
    if let Some(key) = read_key(store)? {
        return Ok(key.verifier().clone());
    }
    let path = store.path("log.pub");
    let text = read_optional(&path).map_err(LogError::io(&path))?;
    let text = text.ok_or_else(|| FsckError::NoKey { place: place.to_owned() })?;
    let key = VerifierKey::parse(String::from_utf8_lossy(&text).trim());
    Ok(key.map_err(|source| LogError::Key { path, source })?)
}

/// The head that the log promised last.
fn promised(lock: &Lock, key: &VerifierKey) -> Result<Option<TreeHead>, FsckError> {
    let Some(note) = lock.read()? else { return Ok(None) };
    let opened = Checkpoint::open(note.as_bytes(), key.name().as_str(), key);
    let wrong = |source| LogError::Checkpoint { path: lock.path().to_owned(), source };
    Ok(Some(opened.map_err(wrong)?.head))
}

fn attachment_finding(base: &Path, error: LogError) -> Finding {
    let (path, what) = match error {
        LogError::AttachmentMismatch { path, found } => {
            (path, format!("it has SHA-256 {found}, expected that of its name; upload it again"))
        }
        other => (PathBuf::from("attachments"), other.to_string()),
    };
    let path = path.strip_prefix(base).unwrap_or(&path).display().to_string();
    Finding::of_file(Kind::Wrong, &path, what)
}

fn walked(source: &impl Source, checkpoint: Checkpoint) -> Result<Checked, FsckError> {
    let Checkpoint { origin, head } = checkpoint;
    let shown = std::io::stderr().is_terminal();
    let mut last = Instant::now();
    let mut progress = |entries: u64| {
        if shown && last.elapsed() >= Duration::from_millis(PROGRESS_MS) {
            last = Instant::now();
            say::progress(&format!("{entries} of {} entries", head.size));
        }
    };
    let (findings, tiles) = check_tree(source, head, &mut progress)?;
    Ok(Checked { origin, head, tiles, findings, foreign: 0, attachments: None })
}

impl Checked {
    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        for finding in &self.findings.list {
            say::error(&finding.to_string(), None);
        }
        if self.findings.more > 0 {
            say::error(&format!("and {} more", self.findings.more), None);
        }
        let any = |of: fn(&str) -> bool| self.findings.list.iter().any(|finding| of(&finding.path));
        if any(|path| path.starts_with("tile/")) {
            say::hint(
                "`ledger reindex --tiles` makes tiles of hashes anew from the entries; entries are restored from a \
                 copy of the log, and only what has the signed root is one",
            );
        }
        if any(|path| path == INDEX || path.ends_with(".sizes")) {
            say::hint("`ledger reindex` makes the index anew, and the rows that find notes");
        }
        if any(|path| path == "checkpoint") {
            say::hint("a start of `ledger serve` makes the checkpoint anew, if the tiles bear it out");
        }
        if self.foreign > 0 {
            let files =
                if self.foreign == 1 { "file below tile/ belongs" } else { "files below tile/ belong" };
            say::hint(&format!("{} {files} to no tree of this size", self.foreign));
        }
        writeln!(out, "size: {}", self.head.size)?;
        writeln!(out, "root: {}", self.head.root)?;
        if self.findings.is_empty() {
            writeln!(out, "every tile is what the entries hash to, and the root is the one last signed")?;
        } else {
            let count = self.findings.list.len() as u64 + self.findings.more;
            writeln!(out, "{count} finding{}", if count == 1 { "" } else { "s" })?;
        }
        if let Some(attachments) = self.attachments {
            let right = if self.findings.is_empty() { ", each with the SHA-256 of its name" } else { "" };
            writeln!(out, "attachments: {attachments}{right}")?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        json!({
            "origin": self.origin,
            "size": self.head.size.0,
            "root": self.head.root.to_base64(),
            "ok": self.findings.is_empty(),
            "entries": self.head.size.0,
            "tiles": self.tiles,
            "foreign_files": self.foreign,
            "attachments": self.attachments,
            "findings": self.findings.list.iter().map(Finding::to_json).collect::<Vec<_>>(),
            "more_findings": self.findings.more,
        })
    }
}
