//! Whom the reader of a bundle trusts, and what they ask for. A policy that exists is usable: every key in it has been
//! parsed.

use crate::answered::Asked;
use crate::policy_file::LineError;
use schemas::key::PublicKey;
use tlog::cosignature::CosignerKey;
use tlog::note::{Verifier as _, VerifierKey};

/// What a bundle is checked against.
#[derive(Clone, Debug)]
pub struct Policy {
    /// At least one.
    logs: Vec<VerifierKey>,
    predictors: Vec<PublicKey>,
    devices: Vec<PublicKey>,
    verdict_signers: Vec<PublicKey>,
    /// None means any that this program knows.
    profiles: Vec<String>,
    simulated: bool,
    complete: bool,
    sealed: bool,
    replayed: bool,
    challenge: Vec<Asked>,
    witnesses: Option<tlog::policy::Policy>,
    faulty: usize,
}

/// Why a policy is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Not a vkey.
    #[error("log key {found:?}: {source}")]
    Log {
        /// The text, cut after 80 characters.
        found: String,
        /// What is wrong with it.
        source: tlog::note::KeyError,
    },
    /// Not a public key.
    #[error("{role} key: {source}")]
    Key {
        /// Whose.
        role: &'static str,
        /// What is wrong with it.
        source: schemas::key::KeyError,
    },
    /// Without it, anybody's prediction would do.
    #[error("expected at least one predictor key, found none")]
    NoPredictor,
    /// Without it, anybody's log would do.
    #[error("expected at least one log key, found none")]
    NoLog,
    /// A line of a policy file is wrong.
    #[error("line {line}: {source}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        source: LineError,
    },
    /// The lines about logs and witnesses are no tlog-policy.
    #[error(transparent)]
    Trust(#[from] tlog::policy::PolicyError),
}

impl Policy {
    /// A policy of parsed keys. Without device keys any device is taken, and a report says so. Without signers of
    /// verdicts the predictors are taken for them.
    pub fn new(
        log: VerifierKey,
        predictors: Vec<PublicKey>,
        devices: Vec<PublicKey>,
        verdict_signers: Vec<PublicKey>,
    ) -> Result<Policy, PolicyError> {
        Policy::of_logs(vec![log], predictors, devices, verdict_signers)
    }

    /// The same for several logs: a bundle may be of any one of them.
    pub(crate) fn of_logs(
        logs: Vec<VerifierKey>,
        predictors: Vec<PublicKey>,
        devices: Vec<PublicKey>,
        verdict_signers: Vec<PublicKey>,
    ) -> Result<Policy, PolicyError> {
        if logs.is_empty() {
            return Err(PolicyError::NoLog);
        }
        if predictors.is_empty() {
            return Err(PolicyError::NoPredictor);
        }
        let verdict_signers = if verdict_signers.is_empty() { predictors.clone() } else { verdict_signers };
        Ok(Policy {
            logs,
            predictors,
            devices,
            verdict_signers,
            profiles: Vec::new(),
            simulated: true,
            complete: false,
            sealed: false,
            replayed: false,
            challenge: Vec::new(),
            witnesses: None,
            faulty: 0,
        })
    }

    pub(crate) fn set_profiles(&mut self, profiles: Vec<String>) {
        self.profiles = profiles;
    }

    pub(crate) fn set_simulated(&mut self, counts: bool) {
        self.simulated = counts;
    }

    pub(crate) fn set_complete(&mut self, asked: bool) {
        self.complete = asked;
    }

    pub(crate) fn set_sealed(&mut self, asked: bool) {
        self.sealed = asked;
    }

    pub(crate) fn set_replayed(&mut self, asked: bool) {
        self.replayed = asked;
    }

    pub(crate) fn set_challenge(&mut self, asked: Vec<Asked>) {
        self.challenge = asked;
    }

    /// What witnesses there are, how many must have cosigned, and how many of them may be wrong about the time.
    pub(crate) fn set_witnesses(&mut self, witnesses: tlog::policy::Policy, faulty: usize) {
        (self.witnesses, self.faulty) = (Some(witnesses), faulty);
    }

    /// A policy of key texts: the log's vkey, and `ed25519:<64 hexadecimal digits>` each. White space around a key
    /// is ignored.
    pub fn parse(
        log: &str,
        predictors: &[&str],
        devices: &[&str],
        verdict_signers: &[&str],
    ) -> Result<Policy, PolicyError> {
        let log_key = VerifierKey::parse(log.trim())
            .map_err(|source| PolicyError::Log { found: log.trim().chars().take(80).collect(), source })?;
        Policy::new(
            log_key,
            parse_keys("predictor", predictors)?,
            parse_keys("device", devices)?,
            parse_keys("verdict signer's", verdict_signers)?,
        )
    }

    /// The logs' keys; a key's name is the log's origin.
    pub fn logs(&self) -> &[VerifierKey] {
        &self.logs
    }

    /// The log that a checkpoint names, or the first: its key will then say what is wrong with the checkpoint. Of
    /// several keys of one log, the first that has signed.
    pub(crate) fn log_of(&self, note: &[u8]) -> &VerifierKey {
        let origin = note.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut named = self.logs.iter().filter(|log| log.name().as_str().as_bytes() == origin).peekable();
        let first = named.peek().copied().unwrap_or(&self.logs[0]);
        let signed =
            |log: &&VerifierKey| tlog::checkpoint::Checkpoint::open(note, log.name().as_str(), *log).is_ok();
        named.find(signed).unwrap_or(first)
    }

    /// Who may state runs, predict and open.
    pub fn predictors(&self) -> &[PublicKey] {
        &self.predictors
    }

    /// Which devices may sign receipts; none means any.
    pub fn devices(&self) -> &[PublicKey] {
        &self.devices
    }

    /// Who may sign verdicts.
    pub fn verdict_signers(&self) -> &[PublicKey] {
        &self.verdict_signers
    }

    /// Which profiles are taken; none means any that this program knows.
    pub fn profiles(&self) -> &[String] {
        &self.profiles
    }

    /// Whether receipts of simulated devices count.
    pub fn simulated(&self) -> bool {
        self.simulated
    }

    /// Whether a bundle must show that its prediction is the only one.
    pub fn complete(&self) -> bool {
        self.complete
    }

    /// Whether a prediction that was made openly does not count.
    pub fn sealed(&self) -> bool {
        self.sealed
    }

    /// Whether the answers to the challenge must have been held against a replay.
    pub fn replayed(&self) -> bool {
        self.replayed
    }

    /// What is asked of the checkpoints that receipts answer.
    pub fn challenge(&self) -> &[Asked] {
        &self.challenge
    }

    /// Whether any cosignature is asked for.
    pub(crate) fn asks_for_cosignatures(&self) -> bool {
        self.witnesses.as_ref().is_some_and(tlog::policy::Policy::asks_for_cosignatures)
    }

    /// The witnesses and the quorum, if a policy file says any.
    pub fn witnesses(&self) -> Option<&tlog::policy::Policy> {
        self.witnesses.as_ref()
    }

    /// How many witnesses may be wrong about the time.
    pub fn faulty(&self) -> usize {
        self.faulty
    }

    pub(crate) fn witness_keys(&self) -> Vec<CosignerKey> {
        self.witnesses.as_ref().map(tlog::policy::Policy::witness_keys).unwrap_or_default()
    }
}

fn parse_keys(role: &'static str, texts: &[&str]) -> Result<Vec<PublicKey>, PolicyError> {
    let parse = |text: &&str| text.trim().parse().map_err(|source| PolicyError::Key { role, source });
    texts.iter().map(parse).collect()
}
