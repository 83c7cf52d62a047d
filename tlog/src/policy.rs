//! Trust policies (C2SP tlog-policy): which logs are known, which witnesses, and whose cosignatures suffice.
//!
//! ```text
//! log <vkey> [<url>]
//! witness <name> <vkey> [<url>]
//! group <name> all|any|<k> <member> ...
//! quorum <name>|none
//! ```
//!
//! Items are separated by spaces and tabs; empty lines and lines that begin with `#` are passed over. A name is
//! defined on a line before the one that uses it, and is a member of at most one group: so each witness counts once.
//! Only Ed25519 keys are read: 0x01 for logs, 0x04 for witnesses (see [`crate::cosignature`]).

use std::collections::{HashMap, HashSet};

use thiserror::Error;

use crate::checkpoint::{Checkpoint, CheckpointError, parse_decimal};
use crate::cosignature::{Cosignature, CosignerKey};
use crate::note::{KeyError, SIGNATURES_MAX, Verifier as _, VerifierKey};

/// Longest policy that is looked at.
pub const POLICY_BYTES_MAX: usize = 64 * 1024;
/// Most logs of a policy; the page asks for at least 32.
pub const LOGS_MAX: usize = 64;
/// Most witnesses of a policy: the log's signature and all of theirs fit in one note.
pub const WITNESSES_MAX: usize = SIGNATURES_MAX - 1;
/// Most groups of a policy; the page asks for at least 32.
pub const GROUPS_MAX: usize = 64;

/// The name that stands for no cosignatures in a quorum line.
const NONE: &[u8] = b"none";

/// A policy, whose every name is defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    logs: Vec<PolicyLog>,
    witnesses: Vec<PolicyWitness>,
    groups: Vec<Group>,
    /// None where no cosignature is asked for.
    quorum: Option<Member>,
}

/// A known log. Its key's name is its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyLog {
    /// Its key.
    pub key: VerifierKey,
    /// Where to reach it, if the policy says so.
    pub url: Option<String>,
}

/// A known witness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyWitness {
    /// Its name within the policy. Names are bytes; this is for people to read.
    pub name: String,
    /// Its key.
    pub key: CosignerKey,
    /// Where to ask it for cosignatures, if the policy says so.
    pub url: Option<String>,
}

/// Witnesses and groups of which `threshold` suffice.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    threshold: usize,
    members: Vec<Member>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Member {
    Witness(usize),
    Group(usize),
}

/// Why some bytes are not a policy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// The policy is longer than the limit.
    #[error("policy is {found} bytes, expected at most {POLICY_BYTES_MAX}")]
    TooLong {
        /// Bytes found.
        found: usize,
    },
    /// A line is wrong.
    #[error("line {line}: {source}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        source: LineError,
    },
    /// There is no quorum line.
    #[error("policy has no quorum line; expected one, which may be `quorum none`")]
    NoQuorum,
}

/// What is wrong with a line of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LineError {
    /// The last line is not ended.
    #[error("the line does not end in a line feed; the file may be cut short")]
    NotEnded,
    /// Only printable characters, spaces and tabs are allowed.
    #[error("control character {found:#04x}; expected text, spaces and tabs, each line ended by a line feed")]
    ControlCharacter {
        /// The byte found.
        found: u8,
    },
    /// The first word is none of the four.
    #[error("the line begins with {found:?}, expected log, witness, group or quorum")]
    UnknownWord {
        /// The word found.
        found: String,
    },
    /// Too few or too many items.
    #[error("the line has {found} items, expected `{expected}`")]
    WrongForm {
        /// The line's form.
        expected: &'static str,
        /// Items found.
        found: usize,
    },
    /// The key is not one.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Another line has this key, perhaps under another name; or one that signature lines cannot tell from it.
    #[error("the key is that of line {first}; expected each key once")]
    DuplicateKey {
        /// The earlier line's number.
        first: usize,
    },
    /// The name is taken.
    #[error("{name:?} is defined already; expected each name once, and never `none`")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The name is not defined.
    #[error("{name:?} is not the name of a witness or group on an earlier line")]
    NameUnknown {
        /// The name.
        name: String,
    },
    /// The name is a member already.
    #[error("{name:?} is a member of a group already; expected each witness and group in one place")]
    MemberTwice {
        /// The name.
        name: String,
    },
    /// The threshold is not a number that the group can reach.
    #[error("threshold is {found:?}, expected all, any or a decimal from 1 to {members}")]
    BadThreshold {
        /// The word found.
        found: String,
        /// Members of the group.
        members: usize,
    },
    /// There are more of them than the limit.
    #[error("more than {expected} {what}")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// The limit.
        expected: usize,
    },
    /// There is a quorum line already.
    #[error("a second quorum line; expected one")]
    SecondQuorum,
}

/// Why a note is not a checkpoint that a policy accepts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UntrustedError {
    /// It is not signed by any of the logs, or does not stand.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Its origin is none of the logs'.
    #[error("checkpoint origin {found:?} is no log of the policy")]
    UnknownLog {
        /// The origin found.
        found: String,
    },
    /// It is not cosigned by enough witnesses.
    #[error("checkpoint is cosigned by {found} known witnesses, which is no quorum of the policy")]
    NoQuorum {
        /// Valid cosignatures of known witnesses.
        found: usize,
    },
}

impl Policy {
    /// Parses a policy strictly.
    pub fn parse(bytes: &[u8]) -> Result<Policy, PolicyError> {
        if bytes.len() > POLICY_BYTES_MAX {
            return Err(PolicyError::TooLong { found: bytes.len() });
        }
        let mut reader = Reader::default();
        for (at, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\n").ok_or(LineError::NotEnded);
            let read = line.and_then(|line| reader.line(at + 1, line));
            read.map_err(|source| PolicyError::Line { line: at + 1, source })?;
        }
        let quorum = reader.quorum.ok_or(PolicyError::NoQuorum)?;
        Ok(Policy { logs: reader.logs, witnesses: reader.witnesses, groups: reader.groups, quorum })
    }

    /// The logs, in the order of their lines.
    pub fn logs(&self) -> &[PolicyLog] {
        &self.logs
    }

    /// The witnesses, in the order of their lines.
    pub fn witnesses(&self) -> &[PolicyWitness] {
        &self.witnesses
    }

    /// The witnesses' keys, for [`Checkpoint::open_cosigned`].
    pub fn witness_keys(&self) -> Vec<CosignerKey> {
        self.witnesses.iter().map(|witness| witness.key.clone()).collect()
    }

    /// Whether any cosignature is asked for: `quorum none` is met by nothing.
    pub fn asks_for_cosignatures(&self) -> bool {
        self.quorum.is_some()
    }

    /// Whether these cosignatures are a quorum. Those of witnesses that the policy does not know do not count.
    pub fn is_quorum(&self, cosignatures: &[Cosignature]) -> bool {
        self.is_met(|witness| cosignatures.iter().any(|cosignature| cosignature.witness == witness.key))
    }

    /// Whether the quorum is met if exactly the witnesses that `cosigned` names have cosigned.
    pub fn is_met(&self, cosigned: impl Fn(&PolicyWitness) -> bool) -> bool {
        let Some(quorum) = self.quorum else { return true };
        let mut groups: Vec<bool> = Vec::with_capacity(self.groups.len());
        let holds = |member: Member, groups: &[bool]| match member {
            Member::Witness(at) => cosigned(&self.witnesses[at]),
            Member::Group(at) => groups[at],
        };
        // A group's members stand on earlier lines, so they are decided before it.
        for group in &self.groups {
            let count = group.members.iter().filter(|member| holds(**member, &groups)).count();
            groups.push(count >= group.threshold);
        }
        holds(quorum, &groups)
    }

    /// The latest time by which the cosigned checkpoint is proven to have existed if at most `faulty` of the policy's
    /// witnesses lie about the time: the (faulty + 1)-th smallest time, because one of so many witnesses is honest.
    /// None if there are not so many.
    pub fn proven_by(&self, cosignatures: &[Cosignature], faulty: usize) -> Option<u64> {
        let earliest = |witness: &PolicyWitness| {
            let of_witness = cosignatures.iter().filter(|cosignature| cosignature.witness == witness.key);
            of_witness.map(|cosignature| cosignature.time_s).min()
        };
        let mut times: Vec<u64> = self.witnesses.iter().filter_map(earliest).collect();
        times.sort_unstable();
        times.get(faulty).copied()
    }

    /// The earliest time at which something can have been made that holds these cosignatures, if at most `faulty` of
    /// the policy's witnesses lie about the time: the (faulty + 1)-th largest time, because one of so many witnesses is
    /// honest and cosigned then or later. None if there are not so many.
    pub fn proven_since(&self, cosignatures: &[Cosignature], faulty: usize) -> Option<u64> {
        let latest = |witness: &PolicyWitness| {
            let of_witness = cosignatures.iter().filter(|cosignature| cosignature.witness == witness.key);
            of_witness.map(|cosignature| cosignature.time_s).max()
        };
        let mut times: Vec<u64> = self.witnesses.iter().filter_map(latest).collect();
        times.sort_unstable_by_key(|time_s| std::cmp::Reverse(*time_s));
        times.get(faulty).copied()
    }

    /// Opens a note as a checkpoint that this policy accepts: signed by one of its logs, cosigned by a quorum.
    pub fn open(&self, note: &[u8]) -> Result<(Checkpoint, Vec<Cosignature>), UntrustedError> {
        let origin = note.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let named = self.logs.iter().filter(|log| log.key.name().as_str().as_bytes() == origin);
        // A log may have had several keys; the first that signed this note will do.
        let mut result = Err(UntrustedError::UnknownLog { found: text(origin) });
        for log in named {
            let origin = log.key.name().as_str();
            result = Checkpoint::open_cosigned(note, origin, &log.key, &self.witness_keys())
                .map_err(UntrustedError::from);
            if result.is_ok() {
                break;
            }
        }
        let (checkpoint, cosignatures) = result?;
        if !self.is_quorum(&cosignatures) {
            return Err(UntrustedError::NoQuorum { found: cosignatures.len() });
        }
        Ok((checkpoint, cosignatures))
    }
}

/// What has been read of a policy.
#[derive(Default)]
struct Reader {
    logs: Vec<PolicyLog>,
    log_keys: HashMap<[u8; 32], usize>,
    witnesses: Vec<PolicyWitness>,
    witness_keys: HashMap<[u8; 32], usize>,
    groups: Vec<Group>,
    names: HashMap<Vec<u8>, Member>,
    members: HashSet<Member>,
    quorum: Option<Option<Member>>,
}

impl Reader {
    fn line(&mut self, number: usize, line: &[u8]) -> Result<(), LineError> {
        let control = |byte: &&u8| **byte == 0x7f || (**byte < 0x20 && **byte != b'\t');
        if let Some(found) = line.iter().find(control) {
            return Err(LineError::ControlCharacter { found: *found });
        }
        let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
        let items: Vec<&[u8]> = line.split(blank).filter(|item| !item.is_empty()).collect();
        let Some((word, rest)) = items.split_first() else { return Ok(()) };
        if word.starts_with(b"#") {
            return Ok(());
        }
        let form = |expected| LineError::WrongForm { expected, found: items.len() };
        match (*word, rest) {
            (b"log", [key, url @ ..]) if url.len() < 2 => self.log(number, key, url.first()),
            (b"log", _) => Err(form("log <vkey> [<url>]")),
            (b"witness", [name, key, url @ ..]) if url.len() < 2 => {
                self.witness(number, name, key, url.first())
            }
            (b"witness", _) => Err(form("witness <name> <vkey> [<url>]")),
            (b"group", [name, threshold, members @ ..]) if !members.is_empty() => {
                self.group(name, threshold, members)
            }
            (b"group", _) => Err(form("group <name> all|any|<k> <member> ...")),
            (b"quorum", [name]) => self.quorum(name),
            (b"quorum", _) => Err(form("quorum <name>|none")),
            (word, _) => Err(LineError::UnknownWord { found: text(word) }),
        }
    }

    fn log(&mut self, number: usize, key: &[u8], url: Option<&&[u8]>) -> Result<(), LineError> {
        if self.logs.len() == LOGS_MAX {
            return Err(LineError::TooMany { what: "logs", expected: LOGS_MAX });
        }
        let key = VerifierKey::parse(&text(key))?;
        if let Some(first) = self.log_keys.insert(*key.public_key(), number) {
            return Err(LineError::DuplicateKey { first });
        }
        self.logs.push(PolicyLog { key, url: url.map(|url| text(url)) });
        Ok(())
    }

    fn witness(
        &mut self,
        number: usize,
        name: &[u8],
        key: &[u8],
        url: Option<&&[u8]>,
    ) -> Result<(), LineError> {
        if self.witnesses.len() == WITNESSES_MAX {
            return Err(LineError::TooMany { what: "witnesses", expected: WITNESSES_MAX });
        }
        let key = CosignerKey::parse(&text(key))?;
        // Signature lines carry a name and a short ID. Two keys that share both would be one witness to a reader.
        let same = |known: &&PolicyWitness| known.key.name() == key.name() && known.key.id() == key.id();
        let twin =
            self.witnesses.iter().find(same).and_then(|known| self.witness_keys.get(known.key.public_key()));
        if let Some(first) = self.witness_keys.get(key.public_key()).or(twin) {
            return Err(LineError::DuplicateKey { first: *first });
        }
        self.witness_keys.insert(*key.public_key(), number);
        self.define(name, Member::Witness(self.witnesses.len()))?;
        self.witnesses.push(PolicyWitness { name: text(name), key, url: url.map(|url| text(url)) });
        Ok(())
    }

    fn group(&mut self, name: &[u8], threshold: &[u8], names: &[&[u8]]) -> Result<(), LineError> {
        if self.groups.len() == GROUPS_MAX {
            return Err(LineError::TooMany { what: "groups", expected: GROUPS_MAX });
        }
        let mut members = Vec::new();
        for name in names {
            let member = self.named(name)?;
            if !self.members.insert(member) {
                return Err(LineError::MemberTwice { name: text(name) });
            }
            members.push(member);
        }
        let threshold = match threshold {
            b"all" => members.len(),
            b"any" => 1,
            number => {
                let wrong = || LineError::BadThreshold { found: text(number), members: members.len() };
                let number = parse_decimal(&text(number)).and_then(|number| usize::try_from(number).ok());
                number.filter(|number| (1..=members.len()).contains(number)).ok_or_else(wrong)?
            }
        };
        self.define(name, Member::Group(self.groups.len()))?;
        self.groups.push(Group { threshold, members });
        Ok(())
    }

    fn quorum(&mut self, name: &[u8]) -> Result<(), LineError> {
        if self.quorum.is_some() {
            return Err(LineError::SecondQuorum);
        }
        self.quorum = Some(if name == NONE { None } else { Some(self.named(name)?) });
        Ok(())
    }

    fn named(&self, name: &[u8]) -> Result<Member, LineError> {
        self.names.get(name).copied().ok_or_else(|| LineError::NameUnknown { name: text(name) })
    }

    fn define(&mut self, name: &[u8], member: Member) -> Result<(), LineError> {
        if name == NONE || self.names.insert(name.to_vec(), member).is_some() {
            return Err(LineError::NameTaken { name: text(name) });
        }
        Ok(())
    }
}

/// Bytes as text for people, and for keys: one that was no UTF-8 is no key afterwards either.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
