//! What a run's entries come to: each prediction sealed, opened or unopened; each receipt in time or not; what is next.

use crate::deadline;
use crate::ledger::{Ledger, LedgerError, SignedHead};
use crate::open::missing;
use crate::output::Hinted;
use crate::status::Asked;
use crate::status::gather::{Found, Seen};
use schemas::attachment::AttachmentName;
use schemas::digest::RunId;
use schemas::opening::Opening;
use schemas::prediction::{OpenBody, Prediction};
use schemas::receipt::Receipt;
use schemas::run::Run;
use schemas::verdict::Verdict;
use verify::prediction::read_body;

/// Most bytes of bodies that are fetched to be held against seals.
const BODIES_BYTES_MAX: u64 = 256 << 20;

/// How a prediction stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It shows its body itself.
    Openly(Body),
    /// Sealed, and there is time left.
    Sealed,
    /// Sealed, and its time has passed: a failure in its own right.
    Unopened,
    /// Opened by this entry of its signer's.
    Opened(u64, Body),
}

/// Whether an opening opens anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// The server has the body, and it is the one sealed.
    Sealed,
    /// The server does not have it: in words.
    NotThere(String),
    /// It is another: why, in words.
    Other(String),
    /// The bodies before it were large.
    NotLookedAt,
}

impl State {
    /// The word for it, which the site and the specification have too.
    pub(super) fn word(&self) -> &'static str {
        match self {
            State::Openly(_) => "made openly",
            State::Sealed => "sealed",
            State::Unopened => "unopened",
            State::Opened(..) => "opened",
        }
    }

    pub(super) fn body(&self) -> Option<&Body> {
        match self {
            State::Openly(body) | State::Opened(_, body) => Some(body),
            State::Sealed | State::Unopened => None,
        }
    }

    fn is_wrong(&self) -> bool {
        *self == State::Unopened || matches!(self.body(), Some(Body::NotThere(_) | Body::Other(_)))
    }
}

/// When a receipt came, seen from a prediction of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    BeforePrediction,
    AfterOpenPrediction,
    WhileSealed,
    BeforeOpening,
    AfterOpening,
}

impl Came {
    pub(super) fn words(self) -> &'static str {
        match self {
            Came::BeforePrediction => "before the prediction, so it is not judged",
            Came::AfterOpenPrediction => "after the prediction, which it could have been copied from",
            Came::WhileSealed => "while the prediction is sealed",
            Came::BeforeOpening => "before the opening",
            Came::AfterOpening => "after the opening, so it is not judged",
        }
    }
}

/// A receipt, and when it came: for each prediction of its steps that counts, by leaf index.
pub(super) struct Placed {
    pub(super) receipt: Seen<Receipt>,
    pub(super) came: Vec<(u64, Came)>,
}

/// How a run stands.
pub(super) struct Standing {
    pub(super) id: RunId,
    pub(super) origin: String,
    pub(super) signed: SignedHead,
    pub(super) now_unix_s: u64,
    pub(super) run: Seen<Run>,
    /// Those that count.
    pub(super) predictions: Vec<(Seen<Prediction>, State)>,
    /// Those of others, by leaf index.
    pub(super) others: Vec<u64>,
    pub(super) receipts: Vec<Placed>,
    /// Verdicts over predictions that count, and the leaf index of each one's prediction.
    pub(super) verdicts: Vec<(Seen<Verdict>, u64)>,
    pub(super) notes: Vec<String>,
    pub(super) register_fails: Option<String>,
    pub(super) next: Option<String>,
}

impl Standing {
    /// Whether something that counts is overdue, or wrong.
    pub(super) fn is_wrong(&self) -> bool {
        self.register_fails.is_some() || self.predictions.iter().any(|(_, state)| state.is_wrong())
    }
}

/// Judges what was found by the time `now_unix_s`.
pub(super) fn judge(
    ledger: &Ledger,
    found: Found,
    asked: &Asked,
    now_unix_s: u64,
) -> anyhow::Result<Standing> {
    let counts = |prediction: &Seen<Prediction>| {
        asked.predictors.is_empty() || asked.predictors.contains(&prediction.signer)
    };
    let (own, others): (Vec<_>, Vec<_>) = found.predictions.into_iter().partition(counts);
    let mut left = BODIES_BYTES_MAX;
    let mut predictions = Vec::new();
    for prediction in own {
        let opening = found.openings.iter().find(|opening| opens(opening, &prediction));
        let look = |open: &OpenBody, left: &mut u64| body(ledger, &found.run.object, &prediction, open, left);
        let state = match (&prediction.object.open, opening) {
            (Some(open), _) => State::Openly(look(open, &mut left)?),
            (None, Some(opening)) => State::Opened(opening.index, look(&opening.object.open, &mut left)?),
            (None, None) => sealed(&prediction, found.complete, now_unix_s)?,
        };
        predictions.push((prediction, state));
    }
    let receipts: Vec<Placed> =
        found.receipts.into_iter().map(|receipt| placed(receipt, &predictions)).collect();
    let of = |verdict: &Seen<Verdict>| {
        predictions.iter().find(|(own, _)| own.digest == verdict.object.prediction).map(|(own, _)| own.index)
    };
    let verdicts =
        found.verdicts.into_iter().filter_map(|verdict| of(&verdict).map(|index| (verdict, index)));
    let verdicts = verdicts.collect();
    let mut notes = found.notes;
    if let Some(own) = asked.own.filter(|own| predictions.iter().all(|(there, _)| there.digest != *own)) {
        notes.push(format!("the folder's own prediction {own} is not in the log"));
    }
    let mut standing = Standing {
        id: found.id,
        origin: found.origin,
        signed: found.signed,
        now_unix_s,
        run: found.run,
        predictions,
        others: others.iter().map(|other| other.index).collect(),
        receipts,
        verdicts,
        notes,
        register_fails: found.register_fails,
        next: None,
    };
    standing.next = next(&standing);
    Ok(standing)
}

/// How a prediction stands of which no opening is listed: of a list that is cut, nobody knows.
fn sealed(prediction: &Seen<Prediction>, complete: bool, now_unix_s: u64) -> anyhow::Result<State> {
    if !complete {
        let message = format!(
            "the server lists only a part of the run's entries, in which there is no opening of entry {}: whether it \
             is opened is not known",
            prediction.index
        );
        let hint = "--predictor-key asks about one predictor alone; `client monitor` reads the whole log, and tells of \
                    each prediction that is overdue";
        return Err(Hinted::new(message, hint).into());
    }
    Ok(match deadline::is_over(prediction.object.reveal_by, now_unix_s) {
        true => State::Unopened,
        false => State::Sealed,
    })
}

/// Only its own signer's opening counts.
fn opens(opening: &Seen<Opening>, prediction: &Seen<Prediction>) -> bool {
    opening.object.prediction == prediction.digest && opening.signer == prediction.signer
}

/// Holds the body that an opening names against the seal, if the server has it.
fn body(
    ledger: &Ledger,
    run: &Run,
    prediction: &Seen<Prediction>,
    open: &OpenBody,
    left: &mut u64,
) -> anyhow::Result<Body> {
    let AttachmentName { bytes, sha256 } = open.body;
    let Some(rest) = left.checked_sub(bytes) else { return Ok(Body::NotLookedAt) };
    *left = rest;
    let bytes = match ledger.attachment(open.body) {
        Err(LedgerError::Http(error)) if error.status() == Some(404) => {
            return Ok(Body::NotThere(format!("its body {sha256} is not on this server")));
        }
        other => other?,
    };
    let read = read_body(prediction.object.run, run, &prediction.object, open.salt, &bytes);
    Ok(read.map_or_else(|error| Body::Other(error.to_string()), |_| Body::Sealed))
}

/// A receipt, seen from each prediction of its steps.
fn placed(receipt: Seen<Receipt>, predictions: &[(Seen<Prediction>, State)]) -> Placed {
    let of_its_steps = predictions.iter().filter(|(own, _)| own.object.steps.overlaps(receipt.object.steps));
    let came = of_its_steps.map(|(own, state)| (own.index, came(receipt.index, own.index, state))).collect();
    Placed { receipt, came }
}

fn came(receipt: u64, prediction: u64, state: &State) -> Came {
    match state {
        _ if receipt < prediction => Came::BeforePrediction,
        State::Openly(_) => Came::AfterOpenPrediction,
        State::Sealed | State::Unopened => Came::WhileSealed,
        State::Opened(opening, _) if receipt < *opening => Came::BeforeOpening,
        State::Opened(..) => Came::AfterOpening,
    }
}

/// What the reader can do, of the prediction that most needs it.
fn next(standing: &Standing) -> Option<String> {
    let by_need = |(own, state): &&(Seen<Prediction>, State)| match (state, state.body()) {
        (_, Some(Body::NotThere(_) | Body::Other(_))) => 0,
        (State::Unopened, _) => 1,
        (State::Sealed, _) => 2,
        _ if standing
            .verdicts
            .iter()
            .all(|(verdict, of)| (*of, verdict.signer) != (own.index, own.signer)) =>
        {
            3
        }
        _ => 4,
    };
    let Some(first) = standing.predictions.iter().min_by_key(by_need) else {
        return Some("`oracle predict --commit` puts a prediction into the log".into());
    };
    let (own, state) = first;
    let entry = own.index;
    let in_time: Vec<Receipt> = standing
        .receipts
        .iter()
        .filter(|placed| placed.came.iter().any(|(of, came)| *of == entry && *came != Came::BeforePrediction))
        .map(|placed| placed.receipt.object.clone())
        .collect();
    let wanting = missing(&in_time, own.object.steps);
    let by = schemas::time::utc(own.object.reveal_by);
    Some(match (by_need(&first), wanting) {
        (0, _) if matches!(state.body(), Some(Body::Other(_))) => {
            format!("nothing mends the opening of entry {entry}: a key has one opening of a prediction")
        }
        (0, _) => format!("the predictor runs `client open` again, which sends the body of entry {entry}"),
        (1, _) => format!("the predictor opens entry {entry}, late: `client reconcile`, or `client open`"),
        (2, None) => format!("`client reconcile` opens entry {entry} and logs the verdict; by {by}"),
        (2, Some(why)) => format!(
            "{why}: `client challenge` and `device run` make them, and `client reconcile` logs them and opens entry \
             {entry}, by {by}; or `client open --without-receipts`"
        ),
        (3, _) if matches!(state, State::Openly(_)) => {
            "`client reconcile` logs receipts and the verdict".into()
        }
        (3, _) => "`client reconcile` logs the verdict over the receipts that came before the opening".into(),
        _ => "whoever reconciled has the bundle: `client verify run.tally` checks it offline".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output;
    use schemas::digest::EntryDigest;
    use schemas::key::SecretKey;
    use schemas::object::Object as _;
    use schemas::run::Steps;

    #[test]
    fn a_prediction_without_an_opening_is_sealed_or_unopened_only_if_all_is_listed() {
        let object = Prediction::decode(include_bytes!("../../../fixtures/prediction/sealed.cbor")).unwrap();
        let by = object.reveal_by;
        let signer = SecretKey::from_seed([1; 32]).public();
        let prediction = Seen { index: 7, digest: EntryDigest([2; 32]), signer, object };
        assert_eq!(sealed(&prediction, true, by).unwrap(), State::Sealed);
        assert_eq!(sealed(&prediction, true, by + 1).unwrap(), State::Unopened);
        for now_unix_s in [by, by + 1] {
            let error = sealed(&prediction, false, now_unix_s).unwrap_err();
            let whole =
                "the server lists only a part of the run's entries, in which there is no opening of entry 7";
            assert!(error.to_string().starts_with(whole), "{error}");
            assert!(output::hint_of(&error).unwrap().starts_with("--predictor-key asks about one"));
        }
    }

    #[test]
    fn when_a_receipt_came_is_told_of_each_prediction_of_its_steps_and_of_no_other() {
        let signer = SecretKey::from_seed([1; 32]).public();
        let digest = EntryDigest([2; 32]);
        let object = Prediction::decode(include_bytes!("../../../fixtures/prediction/sealed.cbor")).unwrap();
        let of = |index, steps: (u64, u64), state| {
            let steps = Steps { first: steps.0, end: steps.1 };
            (Seen { index, digest, signer, object: Prediction { steps, ..object.clone() } }, state)
        };
        let predictions = [
            of(2, (0, 3), State::Sealed),
            of(3, (3, 6), State::Opened(6, Body::Sealed)),
            of(4, (5, 9), State::Openly(Body::Sealed)),
            of(5, (5, 6), State::Unopened),
            of(8, (5, 6), State::Sealed),
        ];
        let receipt = Receipt::decode(include_bytes!("../../../fixtures/receipt/receipt.cbor")).unwrap();
        let came = |index, first, end| {
            let object = Receipt { steps: Steps { first, end }, ..receipt.clone() };
            placed(Seen { index, digest, signer, object }, &predictions).came
        };
        assert_eq!(came(7, 0, 3), [(2, Came::WhileSealed)]);
        assert_eq!(came(5, 3, 5), [(3, Came::BeforeOpening)]);
        assert_eq!(came(7, 2, 4), [(2, Came::WhileSealed), (3, Came::AfterOpening)]);
        let of_step_5 = [
            (3, Came::AfterOpening),
            (4, Came::AfterOpenPrediction),
            (5, Came::WhileSealed),
            (8, Came::BeforePrediction),
        ];
        assert_eq!(came(7, 5, 6), of_step_5);
        assert_eq!(came(7, 9, 10), []);
    }
}
