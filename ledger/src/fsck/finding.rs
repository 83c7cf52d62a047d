//! What is wrong, and where.

use std::fmt;
use std::ops::Range;

use serde_json::{Value, json};

/// In which way something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It is not there.
    Missing,
    /// It ends early.
    Truncated,
    /// It has other bytes than the signed root calls for.
    Wrong,
    /// It has bytes behind what the tree holds.
    Extra,
    /// It and what it belongs to differ, and nothing tells which of the two is right.
    Undecided,
}

impl Kind {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Missing => "missing",
            Kind::Truncated => "truncated",
            Kind::Wrong => "wrong",
            Kind::Extra => "extra",
            Kind::Undecided => "undecided",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// In which way.
    pub kind: Kind,
    /// The file: its path below the log's prefix.
    pub path: String,
    /// Bytes of it; none if all of it is concerned.
    pub bytes: Option<Range<u64>>,
    /// The entry's leaf index, if one entry is concerned.
    pub entry: Option<u64>,
    /// What was expected and what was found.
    pub detail: String,
}

impl Finding {
    /// Something about a file as a whole.
    pub fn of_file(kind: Kind, path: &str, detail: impl Into<String>) -> Finding {
        Finding { kind, path: path.to_owned(), bytes: None, entry: None, detail: detail.into() }
    }

    /// Something about a place in a file.
    pub fn at(kind: Kind, path: &str, bytes: Range<u64>, detail: impl Into<String>) -> Finding {
        Finding { bytes: Some(bytes), ..Finding::of_file(kind, path, detail) }
    }

    /// For machines.
    pub fn to_json(&self) -> Value {
        json!({
            "kind": self.kind.word(),
            "path": self.path,
            "bytes": self.bytes.as_ref().map(|bytes| [bytes.start, bytes.end]),
            "entry": self.entry,
            "detail": self.detail,
        })
    }
}

impl fmt::Display for Finding {
    /// `tile/entries/x001/234: bytes 812..1190 (entry 316212): wrong: ...`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        if let Some(bytes) = &self.bytes {
            write!(f, "bytes {}..{}", bytes.start, bytes.end)?;
            match self.entry {
                Some(entry) => write!(f, " (entry {entry}): ")?,
                None => f.write_str(": ")?,
            }
        } else if let Some(entry) = self.entry {
            write!(f, "entry {entry}: ")?;
        }
        write!(f, "{}: {}", self.kind.word(), self.detail)
    }
}

/// What a walk found.
#[derive(Debug, Default)]
pub struct Findings {
    /// The first ones, at most [`FINDINGS_MAX`].
    pub list: Vec<Finding>,
    /// How many more there were.
    pub more: u64,
}

/// Most findings that are kept; a log that has lost a folder has as many as it has files.
pub const FINDINGS_MAX: usize = 1000;

impl Findings {
    /// Adds one.
    pub fn add(&mut self, finding: Finding) {
        if self.list.len() < FINDINGS_MAX {
            self.list.push(finding);
        } else {
            self.more += 1;
        }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
