//! A log, over HTTP. What the server says is checked before it is believed: checkpoints by the log's key, places by
//! inclusion proofs, histories by consistency proofs, bytes by their digests.

use crate::http::{HttpError, Server};
use schemas::attachment::{ATTACHMENT_BYTES_MAX, AttachmentName};
use schemas::challenge::CHECKPOINT_BYTES_MAX;
use schemas::cose_receipt::COSE_RECEIPT_BYTES_MAX;
use schemas::digest::{EntryDigest, RunId};
use schemas::key::PublicKey;
use schemas::statement::STATEMENT_BYTES_MAX;
use serde_json::Value;
use std::time::Duration;
use tlog::checkpoint::{Checkpoint, CheckpointError};
use tlog::hash::{Hash, HashError, leaf_hash};
use tlog::note::{KeyError, SignedNote, Verifier as _, VerifierKey};
use tlog::proof::{ConsistencyProof, ProofError, check_consistency};
use tlog::tlog_proof::{PROOF_BYTES_MAX, TlogProof, TlogProofError};
use tlog::tree::TreeHead;
use verify::cose_receipt::ReceiptedError;

/// Longest answer about a log or a run.
const JSON_BYTES_MAX: u64 = 16 << 20;
/// Most hashes of a consistency proof, as text lines.
const CONSISTENCY_BYTES_MAX: u64 = 16 << 10;
const TIMEOUT_MS: u64 = 30_000;
/// For attachments, of up to 64 MiB.
const LONG_TIMEOUT_MS: u64 = 600_000;

/// How long a log's witnesses have for a checkpoint, and how often the log is asked meanwhile.
const WITNESSES_WAIT_MS: u64 = 20_000;
const WITNESSES_ASK_MS: u64 = 250;

/// Why a log could not be used, or is not to be believed.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// No answer, or a no.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// An answer that is not of the form the log's page describes.
    #[error("{what}: expected {expected}")]
    Form {
        /// Which answer.
        what: String,
        /// Its form.
        expected: &'static str,
    },
    /// The server names no usable key.
    #[error("the server's log key: {0}")]
    Key(#[from] KeyError),
    /// It is another log.
    #[error("the server at {address} runs log {found}, expected {expected}")]
    OtherLog {
        /// Where.
        address: String,
        /// The key that is trusted.
        expected: String,
        /// The key it names.
        found: String,
    },
    /// A checkpoint that the log's key did not sign.
    #[error("the server's checkpoint: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// A proof that does not prove.
    #[error("the server's proof of entry {digest}: {source}")]
    Proof {
        /// The entry.
        digest: EntryDigest,
        /// What is wrong.
        source: TlogProofError,
    },
    /// A COSE receipt that shows nothing.
    #[error("the server's receipt of entry {digest}: {source}")]
    Receipt {
        /// The entry.
        digest: EntryDigest,
        /// What is wrong.
        source: ReceiptedError,
    },
    /// A hash that is none.
    #[error("the server's consistency proof: {0}")]
    Hash(#[from] HashError),
    /// Two trees of one log that do not fit together.
    #[error("the log's history is not consistent: {0}")]
    Inconsistent(ProofError),
    /// Two trees of one size.
    #[error("the log signed two trees of size {size}: root {one} before, root {other} now")]
    TwoRoots {
        /// Their size.
        size: u64,
        /// The root that was known.
        one: Hash,
        /// The root in this answer.
        other: Hash,
    },
    /// Bytes other than those asked for.
    #[error("the server gave other bytes for {0}")]
    OtherBytes(String),
    /// Something too large to be submitted.
    #[error("{what} is {found} bytes, expected at most {max}")]
    TooLong {
        /// An entry or an attachment.
        what: &'static str,
        /// Bytes found.
        found: u64,
        /// Bytes allowed.
        max: u64,
    },
}

impl LedgerError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            LedgerError::Http(HttpError::Address { found }) if !found.contains("://") => {
                return Some(format!("did you mean http://{found}?"));
            }
            LedgerError::Http(HttpError::Unreachable { .. }) => {
                "is the ledger running? `ledger serve --data DIR` prints its address"
            }
            LedgerError::Http(HttpError::Address { found }) if found.starts_with("https:") => {
                "this build speaks plain http, which is enough: everything received is checked by signature, \
                 proof or digest"
            }
            LedgerError::Http(HttpError::Status { status: 409, detail, .. })
                if detail.contains("is not in this log") =>
            {
                "a run is logged before anything that belongs to it: `client submit run.cose`"
            }
            LedgerError::OtherLog { .. } => "compare both keys with one you have from the log's operator",
            LedgerError::Inconsistent(_)
            | LedgerError::Proof { .. }
            | LedgerError::Receipt { .. }
            | LedgerError::TwoRoots { .. }
            | LedgerError::Checkpoint(_) => {
                "keep what the server sent: a log that contradicts itself is evidence against its operator"
            }
            _ => return None,
        };
        Some(hint.into())
    }
}

/// A checkpoint whose signature has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedHead {
    /// The exact bytes of the note.
    pub note: Vec<u8>,
    /// What it commits to.
    pub head: TreeHead,
}

impl SignedHead {
    /// Whether somebody besides the log has signed it; whoever reads a bundle checks by whom.
    pub fn is_cosigned(&self) -> bool {
        SignedNote::parse(&self.note).is_ok_and(|note| note.signatures().len() > 1)
    }
}

/// An entry's place in the log, proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Leaf index.
    pub index: u64,
    /// Its name.
    pub digest: EntryDigest,
    /// Inclusion in the tree of `signed`.
    pub proof: TlogProof,
    /// The checkpoint that covers it.
    pub signed: SignedHead,
    /// Whether the log had these bytes before.
    pub repeated: bool,
}

/// A line of a run's list of entries. It is the server's word: open the entry itself to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEntry {
    /// Leaf index.
    pub index: u64,
    /// `run`, `prediction`, `opening`, `receipt` or `verdict`.
    pub kind: String,
    /// Who signed.
    pub signer: PublicKey,
    /// The entry's name.
    pub digest: EntryDigest,
}

/// A log.
pub struct Ledger {
    server: Server,
    key: VerifierKey,
}

impl Ledger {
    /// Connects to the log at `http://host[:port]`. With a key, only the log of that key will do; without one, the
    /// key that the server names is taken for this connection.
    pub fn connect(address: &str, key: Option<&VerifierKey>) -> Result<Ledger, LedgerError> {
        let server = Server::at(address)?;
        let facts = json("/log.json", &server.fetch("/log.json", JSON_BYTES_MAX, TIMEOUT_MS)?)?;
        let text = facts["key"].as_str().ok_or_else(|| form("/log.json", "a text field \"key\""))?;
        let named = VerifierKey::parse(text)?;
        if let Some(expected) = key
            && *expected != named
        {
            return Err(LedgerError::OtherLog {
                address: server.base().to_owned(),
                expected: expected.to_string(),
                found: named.to_string(),
            });
        }
        if facts["origin"].as_str() != Some(named.name().as_str()) {
            return Err(form("/log.json", "an origin that is the key's name"));
        }
        let ledger = Ledger { server, key: named };
        // A server that cannot sign with the key it names is not that log.
        ledger.checkpoint()?;
        Ok(ledger)
    }

    /// The log's key; its name is the log's origin.
    pub fn key(&self) -> &VerifierKey {
        &self.key
    }

    /// Where the server is.
    pub fn address(&self) -> &str {
        self.server.base()
    }

    /// The latest checkpoint.
    pub fn checkpoint(&self) -> Result<SignedHead, LedgerError> {
        let note = self.server.fetch("/checkpoint", CHECKPOINT_BYTES_MAX as u64, TIMEOUT_MS)?;
        self.open(note)
    }

    fn open(&self, note: Vec<u8>) -> Result<SignedHead, LedgerError> {
        let checkpoint = Checkpoint::open(&note, self.key.name().as_str(), &self.key)?;
        Ok(SignedHead { note, head: checkpoint.head })
    }

    /// Submits a statement. When this returns, the log holds it and a checkpoint covers it. Submitting the same
    /// bytes again gives their first place.
    pub fn submit(&self, entry: &[u8]) -> Result<Logged, LedgerError> {
        if entry.len() > STATEMENT_BYTES_MAX {
            let (found, max) = (entry.len() as u64, STATEMENT_BYTES_MAX as u64);
            return Err(LedgerError::TooLong { what: "the entry", found, max });
        }
        let (status, answer) = self.server.post(
            "/entries",
            "application/cose",
            entry.to_vec(),
            PROOF_BYTES_MAX as u64,
            TIMEOUT_MS,
        )?;
        self.proven(entry, answer, status == reqwest::StatusCode::OK)
    }

    /// The place of a statement, if the log holds it: asked by its name, which anybody's flood of other entries cannot
    /// hide as it could in a list, and proven.
    pub fn find(&self, entry: &[u8]) -> Result<Option<Logged>, LedgerError> {
        match self.entry(EntryDigest::of(entry)) {
            Err(LedgerError::Http(error)) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
            // It is there, so submitting it again only tells where.
            Ok(_) => self.submit(entry).map(Some),
        }
    }

    /// The place of an entry that is known to have index `index`, proven in the tree of the checkpoint of `size`.
    pub fn proof(&self, entry: &[u8], index: u64, size: u64) -> Result<Logged, LedgerError> {
        let path = format!("/proof/{index}.tlog-proof?size={size}");
        let answer = self.server.fetch(&path, PROOF_BYTES_MAX as u64, TIMEOUT_MS)?;
        let logged = self.proven(entry, answer, true)?;
        let right = logged.index == index && logged.signed.head.size.0 == size;
        if right { Ok(logged) } else { Err(form(&path, "the index and tree size asked for")) }
    }

    /// The COSE receipt of an entry that is known to have index `index`, in the tree `head`; checked.
    pub fn cose_receipt(&self, entry: &[u8], index: u64, head: TreeHead) -> Result<Vec<u8>, LedgerError> {
        let path = format!("/proof/{index}.cose?size={}", head.size);
        let receipt = self.server.fetch(&path, COSE_RECEIPT_BYTES_MAX as u64, TIMEOUT_MS)?;
        let digest = EntryDigest::of(entry);
        let shown = verify::cose_receipt::check(&receipt, entry, &self.key)
            .map_err(|source| LedgerError::Receipt { digest, source })?;
        if shown.head.size == head.size && shown.head.root != head.root {
            return Err(LedgerError::TwoRoots { size: head.size.0, one: head.root, other: shown.head.root });
        }
        let right = (shown.index, shown.head) == (index, head);
        if right { Ok(receipt) } else { Err(form(&path, "the index and tree size asked for")) }
    }

    /// The place of an entry that is known to have index `index`, proven under the first checkpoint that covers it and
    /// that witnesses have cosigned; or, if there is none yet, the latest.
    pub fn first_proof(&self, entry: &[u8], index: u64) -> Result<Logged, LedgerError> {
        let path = format!("/proof/{index}.tlog-proof");
        let answer = self.server.fetch(&path, PROOF_BYTES_MAX as u64, TIMEOUT_MS)?;
        let logged = self.proven(entry, answer, true)?;
        if logged.index == index { Ok(logged) } else { Err(form(&path, "the index asked for")) }
    }

    /// The first cosigned checkpoint that covers an entry, for which witnesses have some seconds: they are asked for
    /// no more than the latest tree, and the entry may have only just come into it.
    pub fn cosigned(&self, entry: &[u8], index: u64) -> Result<Option<SignedHead>, LedgerError> {
        for _ in 0..WITNESSES_WAIT_MS / WITNESSES_ASK_MS {
            let first = self.first_proof(entry, index)?.signed;
            if first.is_cosigned() {
                return Ok(Some(first));
            }
            std::thread::sleep(Duration::from_millis(WITNESSES_ASK_MS));
        }
        Ok(None)
    }

    /// Whether witnesses cosign this log: there is a checkpoint that a quorum has cosigned.
    pub fn is_witnessed(&self) -> Result<bool, LedgerError> {
        match self.server.fetch("/checkpoint/witnessed", CHECKPOINT_BYTES_MAX as u64, TIMEOUT_MS) {
            Err(error) if error.status() == Some(404) => Ok(false),
            Err(error) => Err(error.into()),
            Ok(note) => self.open(note).map(|_| true),
        }
    }

    fn proven(&self, entry: &[u8], answer: Vec<u8>, repeated: bool) -> Result<Logged, LedgerError> {
        let digest = EntryDigest::of(entry);
        let wrong = |source| LedgerError::Proof { digest, source };
        let proof = TlogProof::parse(&answer).map_err(wrong)?;
        proof.check(leaf_hash(entry), self.key.name().as_str(), &self.key).map_err(wrong)?;
        let signed = self.open(proof.checkpoint.clone().into_bytes())?;
        Ok(Logged { index: proof.index.0, digest, proof, signed, repeated })
    }

    /// The proof that the tree `old` is a prefix of the tree `new`, checked.
    pub fn consistency(&self, old: TreeHead, new: TreeHead) -> Result<ConsistencyProof, LedgerError> {
        let path = format!("/consistency/{}/{}", old.size, new.size);
        let bytes = self.server.fetch(&path, CONSISTENCY_BYTES_MAX, TIMEOUT_MS)?;
        let text = String::from_utf8(bytes).map_err(|_| form(&path, "lines of base64"))?;
        let hashes = text.lines().map(Hash::from_base64).collect::<Result<_, _>>()?;
        let proof = ConsistencyProof(hashes);
        check_consistency(&proof, old, new).map_err(LedgerError::Inconsistent)?;
        Ok(proof)
    }

    /// Uploads an attachment; again if it is there already, which changes nothing.
    pub fn attach(&self, bytes: &[u8]) -> Result<AttachmentName, LedgerError> {
        let name = AttachmentName::of(bytes);
        if name.bytes > ATTACHMENT_BYTES_MAX {
            let (found, max) = (name.bytes, ATTACHMENT_BYTES_MAX);
            return Err(LedgerError::TooLong { what: "the attachment", found, max });
        }
        let path = format!("/attachments/{}", name.sha256);
        let octets = "application/octet-stream";
        self.server.post(&path, octets, bytes.to_vec(), JSON_BYTES_MAX, LONG_TIMEOUT_MS)?;
        Ok(name)
    }

    /// Downloads an attachment, checked against its name.
    pub fn attachment(&self, name: AttachmentName) -> Result<Vec<u8>, LedgerError> {
        let path = format!("/attachments/{}", name.sha256);
        let bytes = self.server.fetch(&path, name.bytes.min(ATTACHMENT_BYTES_MAX), LONG_TIMEOUT_MS)?;
        match name.names(&bytes) {
            true => Ok(bytes),
            false => Err(LedgerError::OtherBytes(format!("attachment {}", name.sha256))),
        }
    }

    /// Downloads an entry, checked against its name.
    pub fn entry(&self, digest: EntryDigest) -> Result<Vec<u8>, LedgerError> {
        let path = format!("/by-hash/{digest}");
        let bytes = self.server.fetch(&path, STATEMENT_BYTES_MAX as u64, TIMEOUT_MS)?;
        match EntryDigest::of(&bytes) == digest {
            true => Ok(bytes),
            false => Err(LedgerError::OtherBytes(format!("entry {digest}"))),
        }
    }

    /// An answer of up to 64 MiB, unchecked.
    pub(crate) fn fetch_long(&self, path: &str, bytes_max: u64) -> Result<Vec<u8>, LedgerError> {
        Ok(self.server.fetch(path, bytes_max, LONG_TIMEOUT_MS)?)
    }

    /// What the server lists of a run, by ascending index; nothing if it does not know the run.
    pub fn run_entries(&self, run: RunId) -> Result<Vec<RunEntry>, LedgerError> {
        self.run_listing(run).map(|(entries, _)| entries)
    }

    /// The same, and whether the server says that it lists all.
    pub fn run_listing(&self, run: RunId) -> Result<(Vec<RunEntry>, bool), LedgerError> {
        let path = format!("/run/{run}");
        let bytes = match self.server.fetch(&path, JSON_BYTES_MAX, TIMEOUT_MS) {
            Err(error) if error.status() == Some(404) => return Ok((Vec::new(), true)),
            other => other?,
        };
        let answer = json(&path, &bytes)?;
        let rows = answer["entries"].as_array();
        let rows = rows.ok_or_else(|| form(&path, "an array field \"entries\""))?;
        let row = |row: &Value| -> Option<RunEntry> {
            Some(RunEntry {
                index: row["index"].as_u64()?,
                kind: row["kind"].as_str()?.to_owned(),
                signer: row["signer"].as_str()?.parse().ok()?,
                digest: row["sha256"].as_str()?.parse().ok()?,
            })
        };
        let entries: Option<Vec<RunEntry>> = rows.iter().map(row).collect();
        let entries = entries.ok_or_else(|| form(&path, "entries of index, kind, signer and sha256"))?;
        Ok((entries, answer["complete"].as_bool().unwrap_or(false)))
    }
}

fn json(what: &str, bytes: &[u8]) -> Result<Value, LedgerError> {
    serde_json::from_slice(bytes).map_err(|_| form(what, "JSON"))
}

fn form(what: &str, expected: &'static str) -> LedgerError {
    LedgerError::Form { what: what.to_owned(), expected }
}
