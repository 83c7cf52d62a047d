//! The next step for whoever reads an error.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::error::LogError;
use crate::fsck::FsckError;
use crate::http::server::ServeError;
use crate::witness::error::WitnessError;

/// The log that a command was about.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// Its folder, if it is one.
    pub data: Option<PathBuf>,
    /// Where its lock was said to be.
    pub lock: Option<PathBuf>,
    /// Whether it was being checked: then to check it is no advice.
    pub checked: bool,
}

impl Place {
    /// A command on this log, as it is typed.
    fn command(&self, name: &str, option: &str) -> String {
        let data = self.data.as_ref().map_or_else(|| "DIR".to_owned(), |data| data.display().to_string());
        let lock = self.lock.as_ref().map(|lock| format!(" --lock {}", lock.display())).unwrap_or_default();
        format!("`ledger {name}{option} --data {data}{lock}`")
    }

    fn fsck(&self) -> String {
        self.command("fsck", "")
    }
}

/// What to try, where there is something.
pub fn hint(error: &anyhow::Error, place: &Place) -> Option<String> {
    if let Some(error) = error.downcast_ref::<FsckError>() {
        return of_fsck(error, place);
    }
    match error.downcast_ref::<ServeError>()? {
        ServeError::Log(error) => of_log(error, place),
        ServeError::Witness(WitnessError::Folder(error)) => of_witness_folder(error),
        ServeError::Witness(error) => Some(of_witness(error).to_owned()),
        error => of_server(error).map(str::to_owned),
    }
}

fn of_fsck(error: &FsckError, place: &Place) -> Option<String> {
    match error {
        FsckError::NoKey { .. } => Some(
            "the log's operator publishes its verifier key; a ledger prints it when it starts".to_owned(),
        ),
        FsckError::Interrupted { .. } | FsckError::CheckpointMissing { .. } => Some(format!(
            "the journal has the rest: run {} once, stop it, and check again",
            place.command("serve", "")
        )),
        FsckError::Log(error) => of_log(error, place),
        _ => None,
    }
}

/// Every refusal of a log's folder has one.
fn of_log(error: &LogError, place: &Place) -> Option<String> {
    let fixed = match error {
        LogError::InUse { .. } => "stop the server that has it: a log has one",
        LogError::NotALog { .. } => "give --data a new or empty folder, or that of a log with its log.key",
        LogError::KeyMissing { .. } => "restore log.key; a new log needs a new or empty folder",
        LogError::Key { .. } => {
            "restore the key's file from where it was kept; a new log needs a new or empty folder"
        }
        LogError::KeyExposed { .. } => {
            "if nobody else has read it, run chmod 600 on it; if somebody has, start anew with another key"
        }
        LogError::OriginMismatch { .. } => "leave --origin away: a log keeps the name it was made with",
        LogError::LockMissing { .. } => {
            "restore the lock's folder, or say with --lock where it is: it tells what was promised; without it, \
             start a new log with a new folder and key"
        }
        LogError::LockMoved { .. } => "move it: mv DIR/lock DIR.lock, or say with --lock where it is to be",
        LogError::LockInside { .. } => {
            "a copy of the folder must not bring an old lock with it; give --lock another folder"
        }
        LogError::LockOfAnother { .. } | LogError::LockDamaged { .. } => {
            "give --lock the folder that this log had; a new log needs one of its own"
        }
        LogError::LockSlotDamaged { .. } => {
            "restore the lock's folder as it was when the server last ran; if it is lost, the log cannot go on \
             without signing a second tree: start a new one with a new folder, key and origin"
        }
        LogError::LockOlderThanData { .. } => "this is an old copy of the lock: restore the newer one",
        LogError::LockChanged => {
            "somebody else writes to the lock: one server has it, and nothing else; find out, then start again"
        }
        LogError::DataOlderThanLock { .. } => {
            "this is an old copy: restore the newer folder; if it is lost, the log cannot go on without signing a \
             second tree: start a new one with a new folder, key and origin"
        }
        LogError::Moved { .. } => {
            "put it back where it was, or start again with --data and --lock where they are now; nothing was \
             signed since"
        }
        LogError::AttachmentMismatch { .. } => "upload it again: its name says what it has to be",
        LogError::Io { source, .. } if source.kind() == ErrorKind::StorageFull => {
            "make room on this disk and start again: what was acknowledged is on it"
        }
        LogError::Io { source, .. } if source.kind() == ErrorKind::NotADirectory => {
            "give --data a new or empty folder, or that of a log"
        }
        LogError::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            "the user that runs this needs to read and write there"
        }
        LogError::EntriesMismatch { .. } => {
            return Some(format!(
                "{} names the entries that are wrong; put them back from a copy of the log",
                place.fsck()
            ));
        }
        LogError::IndexDamaged | LogError::Index(_) | LogError::IndexMismatch { .. } => {
            let reindex = place.command("reindex", "");
            return Some(format!("run {reindex}: the index is made anew from the tiles"));
        }
        LogError::Random(_) => return None,
        // What the folder holds is not what was written there, or nobody can tell.
        _ if place.checked => return None,
        LogError::CheckpointMissing { .. }
        | LogError::RootMismatch { .. }
        | LogError::TileMismatch { .. }
        | LogError::ProofMismatch { .. }
        | LogError::Tile(_)
        | LogError::Entries { .. } => {
            return Some(format!(
                "{} names the bytes that are wrong; tiles of hashes are made anew by {}, and entries come from a \
                 copy of the log",
                place.fsck(),
                place.command("reindex", " --tiles")
            ));
        }
        LogError::Io { .. }
        | LogError::Checkpoint { .. }
        | LogError::Note { .. }
        | LogError::HistoryDamaged { .. }
        | LogError::Journal(_)
        | LogError::WrittenMismatch { .. } => {
            return Some(format!(
                "look after the disk; {} then tells what is wrong with the log",
                place.fsck()
            ));
        }
    };
    Some(fixed.to_owned())
}

fn of_server(error: &ServeError) -> Option<&'static str> {
    match error {
        ServeError::Listen { source, .. } => Some(match source.kind() {
            ErrorKind::AddrInUse => "another server listens there; `--listen 0` takes any free port",
            ErrorKind::PermissionDenied => {
                "a port below 1024 is for privileged users; take another and let a proxy pass requests on"
            }
            _ => "give --listen an address of this machine",
        }),
        ServeError::FewFiles { .. } => {
            Some("`ulimit -n 1024` before the start is enough for all connections")
        }
        ServeError::Plan(_) => {
            Some("--witness-policy takes a C2SP tlog-policy that names this log's witnesses")
        }
        _ => None,
    }
}

fn of_witness_folder(error: &LogError) -> Option<String> {
    match error {
        LogError::InUse { .. } => Some("stop the witness that has it: a folder has one".to_owned()),
        LogError::Key { .. } => Some(
            "restore witness.key from where it was kept; a new witness needs a new or empty folder"
                .to_owned(),
        ),
        error => of_log(error, &Place { checked: true, ..Place::default() }),
    }
}

fn of_witness(error: &WitnessError) -> &'static str {
    match error {
        WitnessError::Folder(_) => unreachable!("hint: a folder's errors have their own"),
        WitnessError::NotAWitness { .. } => "give --data a new or empty folder, or that of a witness",
        WitnessError::KeyMissing { .. } => {
            "restore witness.key; a new witness needs a new or empty folder, and a new name in every policy"
        }
        WitnessError::NameMismatch { .. } => "leave --name away: a witness keeps the name it was made with",
        WitnessError::RecordsMissing { .. }
        | WitnessError::OriginsDamaged { .. }
        | WitnessError::RecordDamaged { .. }
        | WitnessError::RecordGone { .. }
        | WitnessError::RecordUnknown { .. } => {
            "with this key a fork could be cosigned unseen; restore the current records, or start a new witness in a \
             new folder"
        }
        WitnessError::ClockBehind { .. } => "set this machine's clock",
    }
}
