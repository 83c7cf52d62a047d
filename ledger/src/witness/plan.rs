//! Which witnesses a log asks: a policy, checked before anything is asked.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tlog::note::{NoteSignature, Verifier as _, VerifierKey};
use tlog::policy::{Policy, PolicyError};
use tlog::witness::ADD_CHECKPOINT_BYTES_MAX;

use crate::call::url::{HttpUrl, UrlError};
use crate::witness::counters::{Counters, WitnessCounters};
use crate::witness::records::Clock;

/// Longest cosigned note: what a receipt can carry of it (docs/spec/checkpoint.md).
pub const COSIGNED_BYTES_MAX: usize = 16_384;
/// Bytes of a cosignature: the time and the signature.
const COSIGNATURE_BYTES: usize = 72;

/// How a log asks its witnesses.
#[derive(Clone)]
pub struct Plan {
    /// Which witnesses, and which of them suffice.
    pub policy: Policy,
    /// Those with an address: their place in the policy, and the address.
    pub asked: Vec<(usize, HttpUrl)>,
    /// How often, and how long.
    pub pace: Pace,
    /// What time it is.
    pub clock: Clock,
    /// What became of it.
    pub counters: Arc<Counters>,
}

/// Times of asking.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Least time between two checkpoints that witnesses are asked for.
    pub interval: Duration,
    /// How long one request may take, and how long a quorum is waited for while a newer checkpoint is there.
    pub request: Duration,
    /// How long a witness is left alone after its first failure; doubled with each further one.
    pub backoff: Duration,
    /// At most so long.
    pub backoff_max: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            interval: Duration::from_secs(1),
            request: Duration::from_secs(10),
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
        }
    }
}

/// Why a policy is of no use for asking.
#[derive(Debug, Error)]
pub enum PlanError {
    /// It is no policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Its quorum is `none`.
    #[error("the policy's quorum is none; expected one that witnesses can meet, or no policy")]
    NoQuorum,
    /// A witness's address is not one.
    #[error("witness {name:?}: {source}")]
    Url {
        /// The witness's name.
        name: String,
        /// What is wrong with it.
        source: UrlError,
    },
    /// Too few witnesses have an address.
    #[error("the witnesses with an address ({found} of {all}) cannot meet the policy's quorum")]
    Unreachable {
        /// Those with an address.
        found: usize,
        /// All of them.
        all: usize,
    },
    /// The policy is about another log.
    #[error("the policy names the log {found}, expected this log's key {expected} or no log")]
    OtherLog {
        /// This log's key.
        expected: String,
        /// The first key in the policy.
        found: String,
    },
    /// With all cosignatures a checkpoint would be too long.
    #[error("a checkpoint with all cosignatures can be {found} bytes, expected at most {COSIGNED_BYTES_MAX}")]
    TooLong {
        /// Bytes at most.
        found: usize,
    },
}

impl Plan {
    /// Checks what can be checked without the log.
    pub fn new(policy: Policy, pace: Pace, clock: Clock) -> Result<Plan, PlanError> {
        if !policy.asks_for_cosignatures() {
            return Err(PlanError::NoQuorum);
        }
        let mut asked = Vec::new();
        for (at, witness) in policy.witnesses().iter().enumerate() {
            let Some(url) = &witness.url else { continue };
            let url = HttpUrl::parse(url);
            asked.push((at, url.map_err(|source| PlanError::Url { name: witness.name.clone(), source })?));
        }
        if !policy.is_met(|witness| witness.url.is_some()) {
            let all = policy.witnesses().len();
            return Err(PlanError::Unreachable { found: asked.len(), all });
        }
        let name = |(at, _): &(usize, HttpUrl)| policy.witnesses()[*at].name.clone();
        let witnesses = asked
            .iter()
            .map(|one| WitnessCounters { name: name(one), ..WitnessCounters::default() })
            .collect();
        let counters = Arc::new(Counters { witnesses, ..Counters::default() });
        Ok(Plan { policy, asked, pace, clock, counters })
    }

    /// Checks the rest: the policy is about this log, and its checkpoints keep within their length.
    pub fn check_log(&self, log: &VerifierKey) -> Result<(), PlanError> {
        let logs = self.policy.logs();
        if !logs.is_empty() && logs.iter().all(|known| known.key != *log) {
            return Err(PlanError::OtherLog { expected: log.to_string(), found: logs[0].key.to_string() });
        }
        let line = |name: &tlog::note::KeyName, id, bytes| {
            NoteSignature { name: name.clone(), id, bytes: vec![0; bytes] }.to_string().len()
        };
        // Origin, a size of 20 digits, a root, three line feeds, the empty line and the log's own line.
        let own = log.name().as_str().len() + 20 + 44 + 4 + line(log.name(), log.id(), 64);
        let keys = self.asked.iter().map(|(at, _)| &self.policy.witnesses()[*at].key);
        let found = own + keys.map(|key| line(key.name(), key.id(), COSIGNATURE_BYTES)).sum::<usize>();
        if found > COSIGNED_BYTES_MAX {
            return Err(PlanError::TooLong { found });
        }
        const { assert!(COSIGNED_BYTES_MAX + 64 * 45 + 32 < ADD_CHECKPOINT_BYTES_MAX) };
        Ok(())
    }
}
