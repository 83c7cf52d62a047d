//! Who may submit, and how much: a list of keys, and quotas for each key. Without rules everybody may.
//!
//! A quota counts entries that get a place. What was refused, and bytes that the log has already, cost nothing of it;
//! that these are not free of work is what the limit for each address is for. Counts are not kept over a restart.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::StatusCode;
use schemas::key::{KeyError, PublicKey};
use thiserror::Error;

use crate::disk::durable::read_limited;
use crate::http::buckets::{Buckets, Rate};
use crate::http::problem::Problem;

/// Longest list of keys that is read: some hundred thousand of them.
const LIST_BYTES_MAX: u64 = 16 << 20;

/// What a server is told about who may submit.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The only keys whose statements are taken; none means all.
    pub allowed: Option<BTreeSet<PublicKey>>,
    /// Entries for each key.
    pub entries: Option<Rate>,
    /// Bytes of entries for each key.
    pub bytes: Option<Rate>,
}

/// Why a list of keys is none.
#[derive(Debug, Error)]
pub enum ListError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line that is no key.
    #[error("{} line {line}: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        source: KeyError,
    },
    /// A list on which nobody stands.
    #[error("{} names no key, expected at least one", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a list of keys: one to a line; what follows a `#` is a comment.
pub fn read_list(path: &Path) -> Result<BTreeSet<PublicKey>, ListError> {
    let path = path.to_owned();
    let text = read_limited(&path, LIST_BYTES_MAX)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| io::Error::other("expected UTF-8 text")));
    let text = match text {
        Ok(text) => text,
        Err(source) => return Err(ListError::Read { path, source }),
    };
    let mut keys = BTreeSet::new();
    for (number, line) in text.lines().enumerate() {
        let key = line.split('#').next().unwrap_or_default().trim();
        if key.is_empty() {
            continue;
        }
        match key.parse() {
            Ok(key) => keys.insert(key),
            Err(source) => return Err(ListError::Line { path, line: number + 1, source }),
        };
    }
    if keys.is_empty() { Err(ListError::Empty { path }) } else { Ok(keys) }
}

/// Rules with what has been counted.
#[derive(Debug)]
pub struct Submitters {
    allowed: Option<BTreeSet<PublicKey>>,
    entries: Option<Buckets<PublicKey>>,
    bytes: Option<Buckets<PublicKey>>,
}

/// What a submission was counted as.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    key: PublicKey,
    bytes: u64,
}

impl Submitters {
    /// Nothing counted yet.
    pub fn new(rules: Rules) -> Submitters {
        let Rules { allowed, entries, bytes } = rules;
        Submitters { allowed, entries: entries.map(Buckets::new), bytes: bytes.map(Buckets::new) }
    }

    /// Whether there is any rule.
    pub fn has_rules(&self) -> bool {
        self.allowed.is_some() || self.entries.is_some() || self.bytes.is_some()
    }

    /// Counts a new entry of a key, or says why it may not submit it.
    pub fn count(&self, key: PublicKey, bytes: u64) -> Result<Counted, Problem> {
        if self.allowed.as_ref().is_some_and(|allowed| !allowed.contains(&key)) {
            let detail = format!("{key} is not among the keys whose statements this log takes");
            return Err(Problem::new(StatusCode::FORBIDDEN, "not allowed", detail));
        }
        if let Some(entries) = &self.entries {
            entries.fill(key, 1).map_err(|wait| over_quota(key, entries.rate(), "entries", wait))?;
        }
        if let Some(counts) = &self.bytes
            && let Err(wait) = counts.fill(key, bytes)
        {
            if let Some(entries) = &self.entries {
                entries.give_back(&key, 1);
            }
            return Err(over_quota(key, counts.rate(), "bytes of entries", wait));
        }
        Ok(Counted { key, bytes })
    }

    /// Takes a count back: no new entry came of it.
    pub fn give_back(&self, counted: Counted) {
        if let Some(entries) = &self.entries {
            entries.give_back(&counted.key, 1);
        }
        if let Some(bytes) = &self.bytes {
            bytes.give_back(&counted.key, counted.bytes);
        }
    }
}

fn over_quota(key: PublicKey, rate: Rate, what: &str, wait: Duration) -> Problem {
    let (amount, seconds) = (rate.amount, rate.period.as_secs());
    Problem::too_many(format!("{key} may add {amount} {what} in {seconds} s"), wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::key::SecretKey;

    fn key(seed: u8) -> PublicKey {
        SecretKey::from_seed([seed; 32]).public()
    }

    #[test]
    fn a_list_is_read_with_its_comments_and_a_wrong_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let (a, b) = (key(1), key(2));
        std::fs::write(&path, format!("# ours\n\n{a}\n  {b} # and theirs\r\n{a}\n")).unwrap();
        assert_eq!(read_list(&path).unwrap(), BTreeSet::from([a, b]));
        std::fs::write(&path, format!("{a}\n{b}x\n")).unwrap();
        let error = read_list(&path).unwrap_err().to_string();
        assert!(error.contains("keys line 2: expected a public key"), "{error}");
        std::fs::write(&path, "# nobody\n").unwrap();
        assert!(read_list(&path).unwrap_err().to_string().ends_with("names no key, expected at least one"));
        assert!(read_list(&folder.path().join("none")).unwrap_err().to_string().contains("No such file"));
    }

    #[test]
    fn quotas_are_each_keys_own_and_an_entry_over_one_counts_in_none() {
        let day = Duration::from_secs(86_400);
        let entries = Some(Rate { amount: 3, period: day, burst: 3 });
        let bytes = Some(Rate { amount: 100, period: day, burst: 100 });
        let submitters = Submitters::new(Rules { allowed: None, entries, bytes });
        let refused = |key, bytes| {
            let problem = submitters.count(key, bytes).unwrap_err();
            assert_eq!(problem.status, StatusCode::TOO_MANY_REQUESTS);
            assert!(problem.retry_after_s.unwrap() > 1000 && problem.detail.contains(&key.to_string()));
            problem.detail
        };
        submitters.count(key(1), 60).unwrap();
        for _ in 0..5 {
            assert!(refused(key(1), 60).contains("may add 100 bytes of entries in 86400 s"));
        }
        let second = submitters.count(key(1), 20).unwrap();
        submitters.count(key(1), 20).unwrap();
        assert!(refused(key(1), 0).contains("may add 3 entries in 86400 s"));
        submitters.give_back(second);
        submitters.count(key(1), 20).unwrap();
        refused(key(1), 0);
        submitters.count(key(2), 100).unwrap();
    }
}
