//! The bundle: proofs fetched, parts put together, checked before anyone sees it.

use crate::folder::{Entries, Secrets};
use crate::ledger::{Ledger, Logged, SignedHead};
use crate::output::Hinted;
use crate::receipts::Judged;
use anyhow::ensure;
use schemas::bundle::{Bundle, Cover, ProvenEntry};
use schemas::digest::AttachmentDigest;
use schemas::key::PublicKey;
use schemas::object::Object as _;
use std::collections::BTreeMap;
use tlog::checkpoint::Checkpoint;
use tlog::hash::Hash;
use tlog::note::Verifier as _;
use tlog::tree::TreeHead;
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

/// Fetches proofs in the tree of the verdict's checkpoint and encodes the bundle.
pub fn assemble(ledger: &Ledger, parts: &Parts) -> anyhow::Result<Vec<u8>> {
    let last = &parts.verdict.1.signed;
    let size = last.head.size.0;
    let mut entries = Vec::new();
    let mut prove = |bytes: &[u8], index: u64| -> anyhow::Result<()> {
        let logged = ledger.proof(bytes, index, size)?;
        entries.push(ProvenEntry { index, bytes: bytes.to_vec(), proof: raw(&logged.proof.inclusion.0) });
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
    let bundle = Bundle {
        checkpoint: last.note.clone(),
        entries,
        covers: covers(ledger, parts, last)?,
        plan: parts.secrets.plan_bytes.clone(),
        attachments: attachments(parts),
    };
    Ok(bundle.encode())
}

/// One cover for each different tree that a receipt's challenge stands on.
fn covers(ledger: &Ledger, parts: &Parts, last: &SignedHead) -> anyhow::Result<Vec<Cover>> {
    let mut heads: BTreeMap<u64, TreeHead> = BTreeMap::new();
    for judged in parts.judged {
        let note = &judged.admitted.receipt().checkpoint;
        let head = Checkpoint::open(note, ledger.key().name().as_str(), ledger.key())?.head;
        heads.insert(head.size.0, head);
    }
    let mut covers = Vec::new();
    for (tree_size, head) in heads {
        let bytes = &parts.entries.prediction_bytes;
        let logged = ledger.proof(bytes, parts.prediction_index, tree_size)?;
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
        covers.push(Cover { tree_size, inclusion, consistency: raw(&consistency.0) });
    }
    Ok(covers)
}

fn attachments(parts: &Parts) -> Vec<Vec<u8>> {
    let mut attachments = vec![parts.secrets.body_bytes.clone()];
    attachments.extend(parts.judged.iter().map(|judged| judged.body.clone()));
    attachments.extend(parts.evidence.iter().cloned());
    attachments.sort_by_key(|bytes| AttachmentDigest::of(bytes));
    attachments.dedup();
    attachments
}

fn raw(hashes: &[Hash]) -> Vec<[u8; 32]> {
    hashes.iter().map(|hash| *hash.as_bytes()).collect()
}

/// Checks a bundle as its reader will, with any device. A bundle that only its verdict keeps from verifying is sound.
pub fn check_own(bytes: &[u8], ledger: &Ledger, predictor: PublicKey) -> anyhow::Result<Report> {
    let policy = Policy::new(ledger.key().clone(), vec![predictor], vec![], vec![])?;
    let report = verify::bundle::check(bytes, &policy);
    let sound = report.class == Class::Agreeing || report.verdict.is_some();
    ensure!(sound, "the bundle does not stand its own check: {}", report.summary());
    Ok(report)
}
