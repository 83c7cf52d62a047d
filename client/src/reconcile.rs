//! `client reconcile`: receipts into the log, the prediction opened, both compared, the verdict logged and bundled.

use crate::account;
use crate::assemble::{Parts, assemble, check_own};
use crate::atomic;
use crate::cli::ReconcileArgs;
use crate::evidence::{Located, case_of, locate};
use crate::folder::{Entries, Secrets, read_entries, read_secrets};
use crate::keyfile;
use crate::ledger::{Ledger, RunEntry};
use crate::output::{self, Hinted};
use crate::receipts::{Judged, Receipts, submit_all};
use crate::replay;
use crate::submit::{connect, find_prediction};
use anyhow::ensure;
use schemas::attachment::AttachmentName;
use schemas::key::SecretKey;
use schemas::opening::Opening;
use schemas::prediction::OpenBody;
use schemas::receipt::Answer;
use schemas::statement::{Payload, Statement};
use schemas::verdict::{Outcome, Verdict};
use std::path::Path;
use verify::case::Case;
use verify::evidence::Evidence;
use verify::receipt::{Admitted, Terms};

/// Runs the command. The order of its steps is the argument: receipts are logged while the prediction is sealed.
pub fn run(args: &ReconcileArgs) -> anyhow::Result<u8> {
    // Everything that can be refused without the log is refused first.
    let key = keyfile::load(&args.key)?;
    let entries = read_entries(&args.prediction)?;
    ensure!(
        key.public() == entries.predictor,
        "{}: expected the predictor's key {}, found {}",
        args.key.display(),
        entries.predictor,
        key.public()
    );
    let secrets = read_secrets(&entries)?;
    let out_folder = args.out.parent().filter(|folder| !folder.as_os_str().is_empty());
    let out_folder = out_folder.unwrap_or(Path::new("."));
    ensure!(out_folder.is_dir(), "--out {}: there is no folder {}", args.out.display(), out_folder.display());
    let ledger = connect(&args.ledger, Some(&args.log_key))?;
    let (logged, listed) = find_prediction(&ledger, &entries)?;
    let run_index = find_run(&ledger, &entries, &listed)?;
    let earlier = earlier_opening(&ledger, &entries, &listed)?;

    let terms = Terms {
        run: &entries.run,
        id: entries.id,
        log: ledger.key(),
        prediction_index: logged.index,
        opening_index: earlier.as_ref().map(|(_, index)| *index),
    };
    let receipts = submit_all(&ledger, &args.receipts, &terms)?;
    for why in &receipts.refused {
        output::note(&format!("not judged: {why}"));
    }
    let admitted: Vec<Admitted> = receipts.judged.iter().map(|judged| judged.admitted.clone()).collect();
    let none = Evidence::none();
    let case = case_of(&entries, &secrets, &admitted, &receipts.refused, &none, None);
    let mut located = locate(&case, &args.prediction, &receipts.judged)?;
    let mut answer = None;
    if located.decision.answers_judged {
        answer = expected_answer(args, &entries, &secrets, &receipts.judged)?;
        located = locate(&Case { answer, ..case }, &args.prediction, &receipts.judged)?;
    }

    // Point of no return: from here on anybody can read the prediction. All that can fail here has been done before.
    let opening = open(&ledger, &entries, &secrets, &key, earlier)?;

    let verdict = verdict_of(&entries, &opening, &receipts, &located, answer);
    for bytes in &located.evidence {
        ledger.attach(bytes)?;
    }
    let bytes = Statement::sign(&Payload::Verdict(Box::new(verdict.clone())), &key)?;
    let verdict_logged = ledger.submit(&bytes)?;
    let verdict_index = verdict_logged.index;
    let parts = Parts {
        entries: &entries,
        secrets: &secrets,
        run_index,
        prediction_index: logged.index,
        opening,
        judged: &receipts.judged,
        verdict: (bytes, verdict_logged),
        evidence: &located.evidence,
    };
    let bundle = assemble(&ledger, &parts)?;
    check_own(&bundle, &ledger, entries.predictor)?;
    atomic::write(&args.out, &bundle, atomic::PUBLIC)?;
    report(args, &verdict, located.decision.invalid_at.as_deref(), verdict_index, bundle.len());
    Ok(if verdict.outcome == Outcome::Agree { output::YES } else { output::NOT_SO })
}

fn find_run(ledger: &Ledger, entries: &Entries, listed: &[RunEntry]) -> anyhow::Result<u64> {
    let digest = schemas::digest::EntryDigest::of(&entries.run_bytes);
    let found = listed.iter().find(|entry| entry.digest == digest);
    let found = found.ok_or_else(|| {
        Hinted::new(
            format!("run statement {digest} is not in the log at {}", ledger.address()),
            "`client submit run.cose` puts it there",
        )
    })?;
    // The list is the server's word; the bundle needs the proof.
    Ok(ledger.proof(&entries.run_bytes, found.index, None)?.index)
}

/// The first opening of this prediction by its own predictor, if there is one.
fn earlier_opening(
    ledger: &Ledger,
    entries: &Entries,
    listed: &[RunEntry],
) -> anyhow::Result<Option<(Vec<u8>, u64)>> {
    for listed in listed.iter().filter(|entry| entry.kind == "opening") {
        let bytes = ledger.entry(listed.digest)?;
        let statement = Statement::open(&bytes)?;
        let ours = statement.signer == entries.predictor
            && matches!(&statement.payload, Payload::Opening(o) if o.prediction == entries.prediction_digest);
        if ours {
            let index = ledger.proof(&bytes, listed.index, None)?.index;
            return Ok(Some((bytes, index)));
        }
    }
    Ok(None)
}

/// Opens a sealed prediction: the body first, so that whoever sees the opening can have it.
fn open(
    ledger: &Ledger,
    entries: &Entries,
    secrets: &Secrets,
    key: &SecretKey,
    earlier: Option<(Vec<u8>, u64)>,
) -> anyhow::Result<Option<(Vec<u8>, u64)>> {
    ledger.attach(&secrets.body_bytes)?;
    if entries.prediction.open.is_some() {
        return Ok(None);
    }
    if earlier.is_some() {
        return Ok(earlier);
    }
    let open = OpenBody { salt: secrets.salt, body: AttachmentName::of(&secrets.body_bytes) };
    let opening = Opening { run: entries.id, prediction: entries.prediction_digest, open };
    let bytes = Statement::sign(&Payload::Opening(opening), key)?;
    let index = ledger.submit(&bytes)?.index;
    Ok(Some((bytes, index)))
}

/// The answer to the challenge by a replay, if one is wanted and there is one challenge to answer.
fn expected_answer(
    args: &ReconcileArgs,
    entries: &Entries,
    secrets: &Secrets,
    judged: &[Judged],
) -> anyhow::Result<Option<Answer>> {
    let Some(run_toml) = &args.replay else {
        output::note("the answers to the challenge are not held against a replay (--replay run.toml)");
        return Ok(None);
    };
    let mut challenges: Vec<_> = judged.iter().map(|judged| judged.admitted.receipt().challenge()).collect();
    challenges.sort();
    challenges.dedup();
    match challenges[..] {
        [challenge] => replay::expected_answer(entries, secrets, challenge, run_toml),
        [] => Ok(None),
        _ => {
            output::note(
                "the receipts answer different challenges: no replay, since a verdict holds one answer",
            );
            Ok(None)
        }
    }
}

fn verdict_of(
    entries: &Entries,
    opening: &Option<(Vec<u8>, u64)>,
    receipts: &Receipts,
    located: &Located,
    answer: Option<Answer>,
) -> Verdict {
    let decision = &located.decision;
    Verdict {
        run: entries.id,
        prediction: entries.prediction_digest,
        opening: opening.as_ref().map(|(bytes, _)| schemas::digest::EntryDigest::of(bytes)),
        receipts: receipts.judged.iter().map(|judged| judged.admitted.entry()).collect(),
        steps: entries.prediction.steps,
        outcome: decision.outcome,
        step: decision.step,
        findings: decision.findings.clone(),
        missing: decision.missing.clone(),
        simulated: decision.simulated,
        answer,
        evidence: located.evidence.iter().map(|bytes| AttachmentName::of(bytes)).collect(),
    }
}

fn report(
    args: &ReconcileArgs,
    verdict: &Verdict,
    invalid_at: Option<&str>,
    index: u64,
    bundle_bytes: usize,
) {
    if args.json {
        let mut value = account::to_json(verdict);
        value["verdict_index"] = index.into();
        value["invalid_at"] = invalid_at.into();
        value["bundle"] = args.out.display().to_string().into();
        output::result(&format!("{value}\n"));
        return;
    }
    let mut text = account::tell(verdict);
    if let Some(place) = invalid_at {
        text.push_str(&format!("first not finite: {place}\n"));
    }
    text.push_str(&format!(
        "verdict at index {index}; bundle {} ({bundle_bytes} bytes)\n",
        args.out.display()
    ));
    output::result(&text);
}
