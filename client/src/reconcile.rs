//! `client reconcile`: receipts into the log, the prediction opened, both compared, the verdict logged and bundled.

use crate::account;
use crate::assemble::{Parts, assemble, check_history, check_own};
use crate::atomic;
use crate::cause;
use crate::check::policy_file;
use crate::cli::ReconcileArgs;
use crate::deadline;
use crate::evidence::{Folders, Located, case_of, locate_or};
use crate::folder::{Entries, Secrets, read_entries, read_secrets};
use crate::ledger::Ledger;
use crate::open::{open, opening_of, predictors_key, sealed_note};
use crate::output::{self, Hinted};
use crate::receipts::{Judged, Receipts, submit_all};
use crate::replay::{self, Replay};
use crate::submit::{connect, find_prediction};
use anyhow::ensure;
use schemas::attachment::AttachmentName;
use schemas::key::SecretKey;
use schemas::receipt::Answer;
use schemas::statement::{Payload, Statement};
use schemas::verdict::{Cause, Finding, Outcome, Phase, Verdict};
use std::path::Path;
use step::setup::Setup;
use verify::answered::Answered;
use verify::case::{Case, Decision, Need};
use verify::evidence::Evidence;
use verify::policy::Policy;
use verify::receipt::{Admitted, Terms};
use verify::reconcile::{can_be_replayed, refused_of};
use verify::report::Report;
use verify::times::Times;

/// What is known, and found sound, before the log is asked for anything.
struct Ready {
    key: SecretKey,
    entries: Entries,
    secrets: Secrets,
    /// What a replay computes from, if one is wanted.
    replay: Option<Setup>,
    /// By whose witnesses times are told.
    policy: Option<Policy>,
}

/// Everything that can be refused without the log is refused first.
fn ready(args: &ReconcileArgs) -> anyhow::Result<Ready> {
    let entries = read_entries(&args.prediction)?;
    let key = predictors_key(&args.key, &entries)?;
    // Readers trust the predictor's key for run and prediction alike.
    ensure!(
        entries.run_signer == entries.predictor,
        Hinted::new(
            format!(
                "{}: expected a statement signed by the predictor {}, found one by {}",
                args.prediction.join("run.cose").display(),
                entries.predictor,
                entries.run_signer
            ),
            "take the run.cose that `oracle predict` wrote beside prediction.cose",
        )
    );
    let secrets = read_secrets(&entries)?;
    let out_folder = args.out.parent().filter(|folder| !folder.as_os_str().is_empty());
    let out_folder = out_folder.unwrap_or(Path::new("."));
    ensure!(out_folder.is_dir(), "--out {}: there is no folder {}", args.out.display(), out_folder.display());
    let replay = args.replay.as_deref().map(|run_toml| replay::load(&entries, run_toml)).transpose()?;
    let policy = args.policy.as_deref().map(policy_file).transpose()?;
    Ok(Ready { key, entries, secrets, replay, policy })
}

/// Runs the command. The order of its steps is the argument: receipts are logged while the prediction is sealed.
pub fn run(args: &ReconcileArgs) -> anyhow::Result<u8> {
    let Ready { key, entries, secrets, replay, policy } = ready(args)?;
    let ledger = connect(&args.ledger, Some(&args.log_key))?;
    let logged = find_prediction(&ledger, &entries)?;
    let run_index = find_run(&ledger, &entries, logged.index)?;
    let opening = opening_of(&entries, &secrets, &key)?;
    let earlier = match &opening {
        Some(bytes) => ledger.find(bytes)?.map(|logged| logged.index),
        None => None,
    };
    if opening.is_some() && earlier.is_none() {
        output::note(&sealed_note(&entries, deadline::now_unix_s()));
    }

    let terms = Terms {
        run: &entries.run,
        id: entries.id,
        log: ledger.key(),
        prediction_index: logged.index,
        opening_index: earlier,
    };
    let receipts = submit_all(&ledger, &args.receipts, &terms)?;
    for why in &receipts.refused {
        output::note(&format!("not judged: {why}"));
    }
    let admitted: Vec<Admitted> = receipts.judged.iter().map(|judged| judged.admitted.clone()).collect();
    let none = Evidence::none();
    let case = case_of(&entries, &secrets, &admitted, &receipts.refused, &none, None);
    let of = |judged: &Judged| (judged.admitted.receipt().rank, judged.folder.clone());
    // Of two receipts with one rank, which make the comparison incomplete, the first.
    let folders: Folders = receipts.judged.iter().rev().map(of).collect();
    let replay =
        replay.as_ref().map(|setup| Replay::new(&entries, &secrets, setup, output::note)).transpose()?;
    let recompute = |need| replay.as_ref().map_or(Ok(None), |replay| replay.evidence(need));
    let mut located = locate_or(&case, &args.prediction, &folders, &recompute)?;
    let mut answer = None;
    if located.decision.answers_judged {
        answer = expected_answer(replay.as_ref(), &receipts.judged)?;
        located = locate_or(&Case { answer, ..case }, &args.prediction, &folders, &recompute)?;
    }
    if let Some(replay) = &replay {
        let replayed = cause::replay(&located.decision, &case, &located.evidence, replay)?;
        let case = Case { answer, replayed: &replayed, ..case };
        located = locate_or(&case, &args.prediction, &folders, &recompute)?;
    }
    if entries.prediction.open.is_none() && earlier.is_none() && !args.accept_incomplete {
        stop_if_incomplete(&located.decision)?;
    }

    check_history(&ledger, &entries, logged.index, &receipts.judged)?;
    // Point of no return: from here on anybody can read the prediction. All that can fail here has been done before.
    let opening = open(&ledger, &secrets, opening)?;

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
    let own = check_own(&bundle, &ledger, entries.predictor, policy.as_ref())?;
    atomic::write(&args.out, &bundle, atomic::PUBLIC)?;
    report(args, &verdict, &located.decision, &own, (verdict_index, bundle.len()));
    Ok(if verdict.outcome == Outcome::Agree { output::YES } else { output::NOT_SO })
}

/// The place of the predictor's own run statement, which has to be before the prediction's.
fn find_run(ledger: &Ledger, entries: &Entries, prediction_index: u64) -> anyhow::Result<u64> {
    let found = ledger.find(&entries.run_bytes)?.map(|logged| logged.index);
    Ok(found.filter(|index| *index < prediction_index).ok_or_else(|| {
        let digest = schemas::digest::EntryDigest::of(&entries.run_bytes);
        let address = ledger.address();
        Hinted::new(
            format!("the predictor's run statement {digest} is not in the log at {address} before the prediction"),
            "another signer's statement of this run does not do: `oracle predict --commit` logs the predictor's own \
             before the prediction",
        )
    })?)
}

/// An opening cannot be taken back, and is good for nothing where something needed is missing.
fn stop_if_incomplete(decision: &Decision) -> anyhow::Result<()> {
    if decision.outcome != Outcome::Incomplete {
        return Ok(());
    }
    // Refusals have been told already.
    for missing in decision.missing.iter().filter(|line| refused_of(std::slice::from_ref(line)).is_empty()) {
        output::note(&format!("missing: {missing}"));
    }
    let message = "the verdict would be incomplete, for what the notes above say; nothing was opened";
    let hint = "fix it and run again, or give --accept-incomplete to open the prediction and log the verdict \
                `incomplete`";
    Err(Hinted::new(message, hint).into())
}

/// The answer to the challenge by a replay, if one is wanted and there is one challenge to answer.
fn expected_answer(replay: Option<&Replay>, judged: &[Judged]) -> anyhow::Result<Option<Answer>> {
    let Some(replay) = replay else {
        output::note("the answers to the challenge are not held against a replay (--replay run.toml)");
        return Ok(None);
    };
    let mut challenges: Vec<_> = judged.iter().map(|judged| judged.admitted.receipt().challenge()).collect();
    challenges.sort();
    challenges.dedup();
    match challenges[..] {
        [challenge] => replay.expected_answer(challenge),
        [] => Ok(None),
        // The comparison calls that incomplete: a verdict holds one answer.
        _ => Ok(None),
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
    decision: &Decision,
    own: &Report,
    (index, bundle_bytes): (u64, usize),
) {
    if let Some(hint) = traces_hint(decision) {
        output::hint(hint);
    }
    if args.replay.is_none() && decision.findings.iter().any(is_open) {
        output::hint("--replay run.toml tries every known configuration on the operation, to name the cause");
    }
    let invalid_at = decision.invalid_at.as_deref();
    if args.json {
        let mut value = verify::json::verdict(verdict);
        value["challenge"] = own.answered.as_ref().map(verify::json::answered).unwrap_or_default();
        value["times"] = own.times.as_ref().map(verify::json::times).unwrap_or_default();
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
    for line in own.answered.iter().flat_map(Answered::lines) {
        text.push_str(&format!("challenge: {line}\n"));
    }
    for line in own.times.iter().flat_map(Times::lines) {
        text.push_str(&format!("time: {line}\n"));
    }
    text.push_str(&format!(
        "verdict at index {index}; bundle {} ({bundle_bytes} bytes)\n",
        args.out.display()
    ));
    output::result(&output::printable(&text));
}

/// Whether a replay would say more of a finding.
fn is_open(finding: &Finding) -> bool {
    can_be_replayed(finding) && finding.cause == Cause::Undetermined
}

/// How to have what would have named the operation.
fn traces_hint(decision: &Decision) -> Option<&'static str> {
    let unnamed = |rank: &u64| {
        let of = decision.findings.iter().find(|finding| finding.rank == *rank);
        of.is_some_and(|finding| finding.phase == Phase::Leaf && finding.operation.is_none())
    };
    let lacking = |need: &Need| matches!(need, Need::DeviceTrace { rank, .. } if unnamed(rank));
    decision
        .needed
        .iter()
        .any(lacking)
        .then_some("`device run --traces` keeps the traces, by which a finding names the operation")
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::object::Object as _;

    fn decision(outcome: Outcome) -> Decision {
        Decision {
            outcome,
            step: None,
            findings: vec![],
            missing: vec!["device 1 of 2: no receipt".into(), "refused: receipt-1.cose: other run".into()],
            simulated: true,
            needed: vec![],
            answers_judged: false,
            invalid_at: None,
            causes_replayed: false,
        }
    }

    #[test]
    fn only_an_incomplete_decision_stops_before_the_opening() {
        let error = stop_if_incomplete(&decision(Outcome::Incomplete)).unwrap_err();
        assert!(error.to_string().ends_with("nothing was opened"), "{error}");
        assert!(output::hint_of(&error).unwrap().contains("--accept-incomplete"));
        for outcome in [Outcome::Agree, Outcome::Diverge, Outcome::Invalid] {
            assert!(stop_if_incomplete(&decision(outcome)).is_ok());
        }
    }

    #[test]
    fn the_option_that_keeps_traces_is_named_only_where_a_devices_trace_is_wanting() {
        let finding = Verdict::decode(include_bytes!("../../fixtures/verdict/diverge.cbor"))
            .unwrap()
            .findings
            .remove(1);
        assert_eq!((finding.rank, finding.phase), (1, Phase::Leaf));
        let told = |needed: &[Need], finding: Finding| {
            let mut decision = decision(Outcome::Diverge);
            (decision.needed, decision.findings) = (needed.to_vec(), vec![finding]);
            traces_hint(&decision)
        };
        let unnamed = Finding { operation: None, ..finding.clone() };
        let (predicted, device) =
            (Need::PredictedTrace { step: 1, leaf: 2 }, Need::DeviceTrace { step: 1, leaf: 2, rank: 1 });
        assert!(told(&[predicted, device], unnamed.clone()).unwrap().contains("--traces"));
        assert_eq!(told(&[Need::Meeting { step: 1 }, predicted], unnamed.clone()), None);
        // What its peers received says that the receipt lies, or another device is meant: its trace tells nothing.
        assert_eq!(told(&[device], Finding { phase: Phase::Receipt, ..unnamed.clone() }), None);
        assert_eq!(told(&[device], Finding { rank: 0, ..unnamed }), None);
    }
}
