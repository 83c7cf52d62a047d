//! What a monitor finds, and what it keeps of it.

use serde_json::{Value, json};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Two trees of one log that do not fit together, both signed.
    Fork,
    /// A checkpoint of a smaller tree than one seen before.
    Shrunken,
    /// A tile of a signed tree that is not there.
    Withheld,
    /// A tile or an entry bundle that does not hash to the signed tree.
    Tile,
    /// An entry other than the one in the signed tree.
    Entry,
    /// A first entry that does not name the log.
    Genesis,
    /// An entry that is no valid statement.
    Invalid,
    /// A statement of a run whose own statement is not below it.
    UnknownRun,
    /// A step that its key had predicted already.
    SecondPrediction,
    /// A prediction that its signer had opened already.
    SecondOpening,
    /// A register that says otherwise than the entries below it, or is not the log's.
    RegisterWrong,
    /// A register without an opening or a verdict since the last one.
    RegisterExtra,
    /// An opening or a verdict without a register above it, at a published checkpoint.
    RegisterMissing,
    /// A prediction that is not opened although its time has passed.
    Overdue,
}

impl Kind {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Fork => "fork",
            Kind::Shrunken => "shrunken",
            Kind::Withheld => "withheld",
            Kind::Tile => "tile",
            Kind::Entry => "entry",
            Kind::Genesis => "genesis",
            Kind::Invalid => "invalid",
            Kind::UnknownRun => "unknown run",
            Kind::SecondPrediction => "second prediction",
            Kind::SecondOpening => "second opening",
            Kind::RegisterWrong => "register wrong",
            Kind::RegisterExtra => "register extra",
            Kind::RegisterMissing => "register missing",
            Kind::Overdue => "overdue",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// What it is about: one kind and subject are found once.
    pub subject: String,
    /// A sentence: expected and found.
    pub message: String,
    /// What shows it to others, such as both notes of a fork.
    pub evidence: Value,
}

impl Finding {
    /// A finding that the log's entries show by themselves.
    pub fn new(kind: Kind, subject: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding { kind, subject: subject.into(), message: message.into(), evidence: Value::Null }
    }

    /// The same, with evidence.
    pub fn with(self, evidence: Value) -> Finding {
        Finding { evidence, ..self }
    }

    /// The line that is kept: one JSON object.
    pub fn line(&self, now_unix_s: u64) -> String {
        let mut object = json!({
            "finding": self.kind.word(),
            "subject": self.subject,
            "message": self.message,
            "found_unix_s": now_unix_s,
        });
        if !self.evidence.is_null() {
            object["evidence"] = self.evidence.clone();
        }
        object.to_string()
    }
}
