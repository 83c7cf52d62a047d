//! The bundle: proofs fetched, parts put together, checked before anyone sees it.

use crate::folder::{Entries, Secrets};
use crate::ledger::{Ledger, LedgerError, Logged, SignedHead};
use crate::output::{self, Hinted};
use crate::receipts::Judged;
use anyhow::ensure;
use schemas::bundle::{BUNDLE_VERSION, Bundle, Cover, ProvenEntry};
use schemas::completeness::Completeness;
use schemas::digest::AttachmentDigest;
use schemas::fold::Fold;
use schemas::key::PublicKey;
use schemas::object::Object as _;
use std::collections::BTreeMap;
use tlog::checkpoint::Checkpoint;
use tlog::hash::Hash;
use tlog::note::Verifier as _;
use tlog::tree::TreeHead;
use verify::implied::Terms;
use verify::policy::Policy;
use verify::report::{Class, Report};

/// Everything a bundle is made of.
pub struct Parts<'a> {
    /// Run and prediction.
    pub entries: &'a Entries,
    /// What opens the prediction.
    pub secrets: &'a Secrets,
    /// Leaf index of the run.
    pub run_index: u64,
    /// Leaf index of the prediction.
    pub prediction_index: u64,
    /// The opening's bytes and leaf index, if the prediction was sealed.
    pub opening: Option<(Vec<u8>, u64)>,
    /// Receipts by rank.
    pub judged: &'a [Judged],
    /// The verdict's bytes and place; the bundle's checkpoint is the one that covers it.
    pub verdict: (Vec<u8>, Logged),
    /// Traces and meetings.
    pub evidence: &'a [Vec<u8>],
}

/// Fetches proofs in the tree of the first cosigned checkpoint that covers the verdict, or of the verdict's own, and
/// encodes the bundle.
pub fn assemble(ledger: &Ledger, parts: &Parts) -> anyhow::Result<Vec<u8>> {
    let last = &last_of(ledger, parts)?;
    let size = last.head.size.0;
    let mut entries = Vec::new();
    let mut prove = |bytes: &[u8], index: u64| -> anyhow::Result<()> {
        entries.push(proven(ledger, bytes, index, size)?);
        Ok(())
    };
    prove(&parts.entries.run_bytes, parts.run_index)?;
    prove(&parts.entries.prediction_bytes, parts.prediction_index)?;
    if let Some((bytes, index)) = &parts.opening {
        prove(bytes, *index)?;
    }
    for judged in parts.judged {
        prove(&judged.bytes, judged.logged.index)?;
    }
    prove(&parts.verdict.0, parts.verdict.1.index)?;
    let completeness = completeness(ledger, parts, last)?;
    if completeness.is_none() {
        output::note(
            "the log gave no register of this run: the bundle does not show that the prediction is the only one",
        );
    }
    let (folds, attachments) = attachments(parts);
    let bundle = Bundle {
        version: BUNDLE_VERSION,
        checkpoint: last.note.clone(),
        entries,
        covers: covers(
            ledger,
            (&parts.entries.prediction_bytes, parts.prediction_index),
            parts.judged,
            last,
        )?,
        plan: parts.secrets.plan_bytes.clone(),
        attachments,
        folds,
        completeness,
    };
    Ok(bundle.encode())
}

fn proven(ledger: &Ledger, bytes: &[u8], index: u64, size: u64) -> anyhow::Result<ProvenEntry> {
    let logged = ledger.proof(bytes, index, size)?;
    Ok(ProvenEntry { index, bytes: bytes.to_vec(), proof: raw(&logged.proof.inclusion.0) })
}

/// The bundle's checkpoint. A log that has witnesses is given some time: they ask for no more than the latest tree, and
/// the verdict has only just come into it.
fn last_of(ledger: &Ledger, parts: &Parts) -> anyhow::Result<SignedHead> {
    let (bytes, logged) = &parts.verdict;
    if !ledger.is_witnessed()? {
        output::note("the log has no witnesses: nothing in the bundle proves a time");
        return Ok(logged.signed.clone());
    }
    if let Some(first) = ledger.cosigned(bytes, logged.index)? {
        return Ok(first);
    }
    output::note(
        "the log's witnesses have not cosigned the verdict's checkpoint in time: run this again later",
    );
    Ok(logged.signed.clone())
}

/// Whether the checkpoints that the receipts answer are of the log's history: asked while the prediction is sealed.
pub fn check_history(
    ledger: &Ledger,
    entries: &Entries,
    prediction_index: u64,
    judged: &[Judged],
) -> anyhow::Result<()> {
    let last = ledger.checkpoint()?;
    covers(ledger, (&entries.prediction_bytes, prediction_index), judged, &last).map(|_| ())
}

/// One cover for each different tree that a receipt's challenge stands on, and one for the first tree with the
/// prediction that witnesses have cosigned.
fn covers(
    ledger: &Ledger,
    (bytes, prediction_index): (&[u8], u64),
    judged: &[Judged],
    last: &SignedHead,
) -> anyhow::Result<Vec<Cover>> {
    let mut heads: BTreeMap<u64, (TreeHead, Option<Vec<u8>>)> = BTreeMap::new();
    for judged in judged {
        let note = &judged.admitted.receipt().checkpoint;
        let head = Checkpoint::open(note, ledger.key().name().as_str(), ledger.key())?.head;
        heads.insert(head.size.0, (head, None));
    }
    let first = ledger.first_proof(bytes, prediction_index)?.signed;
    if first.is_cosigned() && first.head.size <= last.head.size {
        heads.entry(first.head.size.0).or_insert((first.head, None)).1 = Some(first.note);
    }
    let mut covers = Vec::new();
    for (tree_size, (head, checkpoint)) in heads {
        let logged = ledger.proof(bytes, prediction_index, tree_size)?;
        ensure!(
            logged.signed.head == head,
            Hinted::new(
                format!(
                    "the log signed two trees of size {tree_size}: root {} in a receipt, root {} now",
                    head.root, logged.signed.head.root
                ),
                "keep the receipt and the server's answer: together they prove that the log was forked",
            )
        );
        let consistency = ledger.consistency(head, last.head)?;
        let inclusion = raw(&logged.proof.inclusion.0);
        covers.push(Cover { tree_size, inclusion, consistency: raw(&consistency.0), checkpoint });
    }
    Ok(covers)
}

/// The newest register of the run in the bundle's tree, and the predictions it lists.
fn completeness(ledger: &Ledger, parts: &Parts, last: &SignedHead) -> anyhow::Result<Option<Completeness>> {
    let newest = match ledger.completeness(parts.entries.id, false) {
        Ok(bytes) => Completeness::decode(&bytes)?,
        Err(LedgerError::Http(error)) if error.status() == Some(404) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let size = last.head.size.0;
    let mut register = (newest.register.index, newest.register.bytes);
    if register.0 >= size {
        // Others' openings and verdicts have been logged since. Lists only grow: an older register's is a beginning.
        let listed = ledger.run_entries(parts.entries.id)?;
        let older = listed.iter().filter(|entry| entry.kind == "register" && entry.index < size);
        let Some(older) = older.max_by_key(|entry| entry.index) else { return Ok(None) };
        register = (older.index, ledger.entry(older.digest)?);
    }
    let (index, bytes) = register;
    let predictions = newest.predictions.into_iter().filter(|leaf| leaf.index < index).collect();
    let register = proven(ledger, &bytes, index, size)?;
    Ok(Some(Completeness { checkpoint: last.note.clone(), register, predictions, entries: None }))
}

/// What the entries name, but for bodies of receipts that follow from the prediction and these folds.
fn attachments(parts: &Parts) -> (Vec<Fold>, Vec<Vec<u8>>) {
    let bodies: Vec<_> = parts.judged.iter().map(|judged| judged.admitted.body()).collect();
    let devices = parts.judged.first().map_or(1, |judged| judged.admitted.receipt().devices);
    let terms = Terms { run: &parts.entries.run, id: parts.entries.id, body: &parts.secrets.body, devices };
    let (folds, mut implied) = terms.folds(&bodies);
    let mut attachments = vec![parts.secrets.body_bytes.clone()];
    for (judged, implied) in parts.judged.iter().zip(&mut implied) {
        // Receipts of different numbers of devices are not judged further: only the first's number counts here.
        *implied &= judged.admitted.receipt().devices == devices;
        if !*implied {
            attachments.push(judged.body.clone());
        }
    }
    attachments.extend(parts.evidence.iter().cloned());
    (folds, in_order(attachments))
}

/// By digest, each once: a bundle is of one form.
fn in_order(mut attachments: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    attachments.sort_by_key(|bytes| AttachmentDigest::of(bytes));
    attachments.dedup();
    attachments
}

fn raw(hashes: &[Hash]) -> Vec<[u8; 32]> {
    hashes.iter().map(|hash| *hash.as_bytes()).collect()
}

/// Checks a bundle as its reader will, with any device. A bundle that only its verdict keeps from verifying is sound.
/// With a policy, what its witnesses prove of times is in the report, if the bundle meets it.
pub fn check_own(
    bytes: &[u8],
    ledger: &Ledger,
    predictor: PublicKey,
    policy: Option<&Policy>,
) -> anyhow::Result<Report> {
    let own = Policy::new(ledger.key().clone(), vec![predictor], vec![], vec![])?;
    let report = verify::bundle::check(bytes, &own);
    let sound = report.class == Class::Agreeing || report.verdict.is_some();
    ensure!(sound, "the bundle does not stand its own check: {}", report.summary());
    let Some(policy) = policy else { return Ok(report) };
    let asked = verify::bundle::check(bytes, policy);
    if asked.class != Class::Agreeing {
        output::note(&format!("by the policy this bundle is {}", asked.summary()));
    }
    Ok(if asked.times.is_some() { asked } else { report })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_are_in_the_order_of_their_digests_and_each_is_there_once() {
        let of = |numbers: &[u8]| numbers.iter().map(|number| vec![*number; 3]).collect::<Vec<_>>();
        let found = in_order(of(&[1, 2, 3, 2, 1, 4, 2]));
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found.is_sorted_by_key(|bytes| AttachmentDigest::of(bytes)), "{found:?}");
        assert_eq!(found, in_order(of(&[4, 3, 2, 1])));
    }
}
