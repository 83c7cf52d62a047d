//! When things happened, as far as witnesses' cosignatures prove it (docs/spec/bundle.md, "Times").

use schemas::time::utc;
use tlog::checkpoint::Checkpoint;
use tlog::cosignature::Cosignature;
use tlog::note::{Verifier as _, VerifierKey};

use crate::policy::Policy;

/// What is proven of times, in POSIX seconds, if at most `faulty` of the policy's witnesses are wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    /// How many witnesses the policy names.
    pub witnesses: usize,
    /// How many of them may be wrong.
    pub faulty: usize,
    /// By then the prediction was in the log.
    pub prediction_by_s: Option<u64>,
    /// Then or later every receipt was signed.
    pub receipts_after_s: Option<u64>,
    /// By then the verdict was in the log.
    pub verdict_by_s: Option<u64>,
}

impl Times {
    /// Of a bundle whose checkpoints are known to be the log's and of one history: `covering` are the cosignatures on
    /// any that holds the prediction, `last` those on the bundle's own.
    pub(crate) fn of(
        policy: &Policy,
        log: &VerifierKey,
        mut covering: Vec<Cosignature>,
        last: &[Cosignature],
        receipts: &[&[u8]],
    ) -> Times {
        let faulty = policy.faulty();
        let mut times =
            Times { witnesses: 0, faulty, prediction_by_s: None, receipts_after_s: None, verdict_by_s: None };
        let Some(trust) = policy.witnesses() else { return times };
        times.witnesses = trust.witnesses().len();
        times.verdict_by_s = trust.proven_by(last, faulty);
        let mut since = Some(u64::MAX);
        for note in receipts {
            let cosignatures = in_receipt(policy, log, note);
            since = since.zip(trust.proven_since(&cosignatures, faulty)).map(|(one, other)| one.min(other));
            covering.extend(cosignatures);
        }
        times.receipts_after_s = since.filter(|_| !receipts.is_empty());
        covering.extend(last.iter().cloned());
        times.prediction_by_s = trust.proven_by(&covering, faulty);
        times
    }

    /// How many seconds are proven to lie between: the receipts were signed at least so much later than the prediction
    /// was in the log.
    pub fn lead_s(&self) -> Option<u64> {
        let (by, after) = self.prediction_by_s.zip(self.receipts_after_s)?;
        after.checked_sub(by).filter(|lead| *lead > 0)
    }

    /// In words, a line each.
    pub fn lines(&self) -> Vec<String> {
        if self.witnesses == 0 {
            return vec!["no time is proven: the policy names no witnesses".into()];
        }
        let (faulty, witnesses) = (self.faulty, self.witnesses);
        let enough = match faulty {
            0 => "no witness".to_owned(),
            _ => format!("no {} witnesses", faulty + 1),
        };
        let mut lines = vec![match self.prediction_by_s {
            Some(time_s) => format!(
                "the prediction was in the log by {}, if at most {faulty} of {witnesses} witnesses are wrong",
                utc(time_s)
            ),
            None => format!(
                "by when the prediction was in the log is not proven: {enough} of the policy cosigned a checkpoint \
                 here that holds it"
            ),
        }];
        lines.push(match self.receipts_after_s {
            Some(time_s) => format!("the receipts were signed at {} or later", utc(time_s)),
            None => format!(
                "after when the receipts were signed is not proven: there is one that holds the cosignatures of \
                 {enough} of the policy"
            ),
        });
        lines.push(match self.lead_s() {
            Some(lead_s) => {
                format!("lead: at least {lead_s} s from the prediction in the log to the receipts")
            }
            None => "lead: none is proven in seconds; the order is".into(),
        });
        lines
            .extend(self.verdict_by_s.map(|time_s| format!("the verdict was in the log by {}", utc(time_s))));
        lines
    }
}

/// The cosignatures within a receipt. A note in which a known witness's line fails is no cosigned one; it still is the
/// log's checkpoint, and the receipt still answers it.
fn in_receipt(policy: &Policy, log: &VerifierKey, note: &[u8]) -> Vec<Cosignature> {
    let opened = Checkpoint::open_cosigned(note, log.name().as_str(), log, &policy.witness_keys());
    opened.map(|(_, cosignatures)| cosignatures).unwrap_or_default()
}

/// Who cosigned a bundle's checkpoint and which witnesses of the policy did not, by their names in the policy.
pub(crate) fn names(policy: &Policy, cosignatures: &[Cosignature]) -> (String, String) {
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for witness in policy.witnesses().into_iter().flat_map(tlog::policy::Policy::witnesses) {
        let found = cosignatures.iter().any(|cosignature| cosignature.witness == witness.key);
        if found { &mut there } else { &mut missing }.push(witness.name.as_str());
    }
    let list = |names: Vec<&str>| if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
    (list(there), list(missing))
}
