//! What a witness cosigned last, for each origin: one file, replaced durably before the cosignature is given out.
//!
//! `logs/<sha256 of the origin>` holds `sha256 `, the digest of what follows, a line feed, and the checkpoint's note:
//! its text, the log's verified signature lines, and this witness's cosignature. Lines of unknown keys are never
//! stored. A file of another digest, or that does not open under the witness's own key, is damaged: it is told, never
//! overwritten, and nothing is cosigned for that origin; the others go on. So it is where a record is gone that
//! the list of [origins](crate::witness::origins) has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use tlog::checkpoint::Checkpoint;
use tlog::cosignature::CosigningKey;
use tlog::note::{SignedNote, Verifier as _, VerifierKey};
use tlog::tree::TreeHead;
use tlog::witness::{AddCheckpoint, Refusal, decide};

use crate::disk::durable::{Files, read_optional};
use crate::disk::folder::names;
use crate::error::LogError;
use crate::witness::error::WitnessError;
use crate::witness::origins::Origins;

/// The folder of records within a witness's.
pub const RECORDS: &str = "logs";

/// Says what time it is, in POSIX seconds.
pub type Clock = fn() -> u64;

/// The system's clock.
pub fn system_clock() -> u64 {
    // A clock before 1970 is wrong, and a cosignature of second 0 says nothing false.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The records of one witness.
pub struct Records {
    key: CosigningKey,
    files: Files,
    clock: Clock,
    origins: Origins,
    /// By the lower-case hexadecimal SHA-256 of the origin. Which there are is fixed by the start.
    slots: BTreeMap<String, Slot>,
}

/// One origin.
struct Slot {
    path: PathBuf,
    /// The keys that may sign its checkpoints; none where the policy no longer has it.
    keys: Vec<VerifierKey>,
    /// Held from before the last record is looked at until the next one is durable.
    writing: Mutex<()>,
    last: RwLock<Last>,
    /// Whether proof of a fork has been told: whoever has it could send it over and over.
    told: AtomicBool,
}

#[derive(Clone)]
enum Last {
    Nothing,
    Cosigned(Arc<Record>),
    Damaged(String),
    /// It was there once.
    Gone,
    Unknown,
}

/// A checkpoint that was cosigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its origin, tree size and root.
    pub checkpoint: Checkpoint,
    /// When it was cosigned, in POSIX seconds.
    pub time_s: u64,
    /// The note with the log's signatures and the cosignature.
    pub note: String,
}

/// Why nothing was cosigned.
#[derive(Debug)]
pub enum NotCosigned {
    /// The request is refused.
    Refused(Refusal),
    /// The witness is not in order.
    Failed(WitnessError),
}

impl Records {
    /// Reads all records of a folder, for these logs.
    pub fn open(
        base: &Path,
        key: CosigningKey,
        logs: &[VerifierKey],
        files: Files,
        clock: Clock,
    ) -> Result<Records, WitnessError> {
        let folder = base.join(RECORDS);
        let mut keys: BTreeMap<String, Vec<VerifierKey>> = BTreeMap::new();
        let records: Vec<String> = names(&folder)?.into_iter().filter(|name| is_digest(name)).collect();
        let origins = Origins::open(base, &records, &files)?;
        let entered = origins.names();
        for name in &entered {
            keys.entry(name.clone()).or_default();
        }
        for log in logs {
            keys.entry(name_of(log.name().as_str())).or_default().push(log.clone());
        }
        let mut slots = BTreeMap::new();
        for (name, keys) in keys {
            let path = folder.join(&name);
            let mut last = read(&path, &name, &key)?;
            if matches!(last, Last::Nothing) && entered.binary_search(&name).is_ok() {
                last = Last::Gone;
            }
            let (last, told) = (RwLock::new(last), AtomicBool::new(false));
            let slot = Slot { path, keys, writing: Mutex::new(()), last, told };
            if let Err(error) = slot.latest() {
                tracing::error!("nothing is cosigned for its origin: {error}");
            }
            slots.insert(name, slot);
        }
        Ok(Records { key, files, clock, origins, slots })
    }

    /// The witness's key.
    pub fn key(&self) -> &CosigningKey {
        &self.key
    }

    /// The checkpoint last cosigned for the origin with this digest, if there is one.
    pub fn latest(&self, name: &str) -> Result<Option<Arc<Record>>, WitnessError> {
        self.slots.get(name).map_or(Ok(None), Slot::latest)
    }

    /// Decides on a request, and cosigns: what is returned is durable, and nothing smaller is cosigned after it.
    ///
    /// Requests for one origin come one after the other, so that between comparing and storing there is no other.
    pub fn cosign(&self, request: &AddCheckpoint) -> Result<Arc<Record>, NotCosigned> {
        let Some(slot) = self.slots.get(&name_of(request.origin())) else {
            return Err(NotCosigned::Refused(
                decide(request, &[], None).expect_err("ledger: no key is known"),
            ));
        };
        let _writing = slot.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let last = slot.latest().map_err(NotCosigned::Failed)?;
        let head = last.as_ref().map(|record| record.checkpoint.head);
        let accepted = decide(request, &slot.keys, head).map_err(|refusal| {
            if let (Refusal::Inconsistent { size, .. }, Some(last)) = (&refusal, &last)
                && *size == last.checkpoint.head.size
            {
                slot.tell_of_fork(&last.note, &request.checkpoint);
            }
            NotCosigned::Refused(refusal)
        })?;

        // A cosignature says that at its time nothing larger had been seen, so times must not go back.
        let now_s = (self.clock)();
        if let Some(last_s) = last.map(|record| record.time_s).filter(|last_s| now_s < *last_s) {
            return Err(NotCosigned::Failed(WitnessError::ClockBehind { now_s, last_s }));
        }
        let text = accepted.checkpoint.text();
        let signatures: String = accepted.signatures.iter().map(|line| line.to_string()).collect();
        let note = format!("{text}\n{signatures}{}", self.key.cosign(&text, now_s));
        let record = Arc::new(Record { checkpoint: accepted.checkpoint, time_s: now_s, note });

        // POINT OF NO RETURN: once the record is replaced the checkpoint counts as cosigned, whether anybody hears of
        // it or not. A crash before leaves the old record, a crash after the new one; both are ones to go on from. A
        // crash before a first record's name is entered leaves that to the next start.
        self.store(slot, record.clone()).map_err(NotCosigned::Failed)?;
        Ok(record)
    }

    fn store(&self, slot: &Slot, record: Arc<Record>) -> Result<(), WitnessError> {
        let bytes = format(&record.note).into_bytes();
        let stored = self.files.replace(&slot.path, &bytes);
        let Err(error) = stored else {
            let name = name_of(&record.checkpoint.origin);
            // Until it is entered the record could go missing unseen, so nobody is shown it.
            self.origins.enter(&[name], &self.files).inspect_err(|_| slot.set(Last::Unknown))?;
            slot.set(Last::Cosigned(record));
            return Ok(());
        };
        // If the old record is still there, nothing was promised, and a later request may try anew with a new file. If
        // the new one is there, it is not known whether it stays.
        let found = read_optional(&slot.path).ok();
        let before = slot.latest()?.map(|record| format(&record.note).into_bytes());
        if found != Some(before) {
            slot.set(Last::Unknown);
        }
        Err(LogError::Io { path: slot.path.clone(), source: error }.into())
    }
}

impl Slot {
    fn latest(&self) -> Result<Option<Arc<Record>>, WitnessError> {
        // It is replaced as a whole, so a poisoned lock still holds a good one.
        match self.last.read().unwrap_or_else(PoisonError::into_inner).clone() {
            Last::Nothing => Ok(None),
            Last::Cosigned(record) => Ok(Some(record)),
            Last::Damaged(reason) => Err(WitnessError::RecordDamaged { path: self.path.clone(), reason }),
            Last::Gone => Err(WitnessError::RecordGone { path: self.path.clone() }),
            Last::Unknown => Err(WitnessError::RecordUnknown { path: self.path.clone() }),
        }
    }

    /// Two checkpoints of one size, both signed by the log: nobody needs to be believed that it has forked.
    fn tell_of_fork(&self, ours: &str, theirs: &str) {
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::error!("A LOG HAS FORKED: it has signed both {ours:?} and {theirs:?}");
        }
    }

    fn set(&self, last: Last) {
        *self.last.write().unwrap_or_else(PoisonError::into_inner) = last;
    }
}

/// The name of an origin's record and of its address: lower-case hexadecimal SHA-256.
pub fn name_of(origin: &str) -> String {
    hex::encode(Sha256::digest(origin))
}

fn is_digest(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn read(path: &Path, name: &str, key: &CosigningKey) -> Result<Last, WitnessError> {
    let Some(bytes) = read_optional(path).map_err(LogError::io(path))? else { return Ok(Last::Nothing) };
    Ok(match parse(&bytes, name, key) {
        Ok(record) => Last::Cosigned(Arc::new(record)),
        Err(reason) => Last::Damaged(reason),
    })
}

fn format(note: &str) -> String {
    format!("sha256 {}\n{note}", hex::encode(Sha256::digest(note)))
}

/// A record is good if it is whole and carries this witness's own cosignature: nobody else can have made that.
fn parse(bytes: &[u8], name: &str, key: &CosigningKey) -> Result<Record, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let whole = text.split_once('\n').filter(|(_, note)| format(note) == text);
    let (_, stored) = whole.ok_or("what follows the first line has another digest than it says")?;
    let note = SignedNote::parse(stored.as_bytes()).map_err(|error| error.to_string())?;
    let cosignatures =
        note.cosignatures(std::slice::from_ref(key.verifier())).map_err(|error| error.to_string())?;
    let cosignature = cosignatures.first().ok_or("it has no cosignature of this witness's key")?;
    let checkpoint = Checkpoint::parse_text(note.text()).map_err(|error| error.to_string())?;
    if name_of(&checkpoint.origin) != name {
        return Err(format!("it is the record of origin {:?}", checkpoint.origin));
    }
    Ok(Record { checkpoint, time_s: cosignature.time_s, note: stored.to_owned() })
}

impl Record {
    /// Size and root.
    pub fn head(&self) -> TreeHead {
        self.checkpoint.head
    }

    /// The witness's signature line, which is the last.
    pub fn cosignature_line(&self) -> &str {
        self.note.split_inclusive('\n').next_back().unwrap_or_default()
    }
}
