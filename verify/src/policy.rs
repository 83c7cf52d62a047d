//! Whom the reader of a bundle trusts. A policy that exists is usable: every key in it has been parsed.

use schemas::key::PublicKey;
use tlog::note::VerifierKey;

/// The keys a bundle is checked against.
#[derive(Clone, Debug)]
pub struct Policy {
    log: VerifierKey,
    predictors: Vec<PublicKey>,
    devices: Vec<PublicKey>,
    verdict_signers: Vec<PublicKey>,
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
        if predictors.is_empty() {
            return Err(PolicyError::NoPredictor);
        }
        let verdict_signers = if verdict_signers.is_empty() { predictors.clone() } else { verdict_signers };
        Ok(Policy { log, predictors, devices, verdict_signers })
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

    /// The log's key; its name is the log's origin.
    pub fn log(&self) -> &VerifierKey {
        &self.log
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
}

fn parse_keys(role: &'static str, texts: &[&str]) -> Result<Vec<PublicKey>, PolicyError> {
    let parse = |text: &&str| text.trim().parse().map_err(|source| PolicyError::Key { role, source });
    texts.iter().map(parse).collect()
}
