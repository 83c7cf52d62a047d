//! Receipt bodies that follow from the prediction (docs/spec/bundle.md, "Implied bodies"): a bundle leaves them out.
//!
//! What a device records is, if all is well, what was predicted, but for the folds of its sums. Of these all devices
//! together have few different ones.

use schemas::digest::{Checksum, RunId};
use schemas::fold::Fold;
use schemas::prediction::PredictionBody;
use schemas::receipt::{DeviceOutcome, DeviceRecord, Exchange, Receipt, ReceiptBody, Sum};
use schemas::record::{Outcome, StepRecord};
use schemas::run::Run;
use std::ops::Range;

/// No fold: for sums that no implied body has.
const NONE: Fold = Fold { a: 0, b: 0 };

/// What bodies are implied by.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its id.
    pub id: RunId,
    /// The opened prediction, which fits the run.
    pub body: &'a PredictionBody,
    /// How many devices shared each step.
    pub devices: u64,
}

impl Terms<'_> {
    /// How many folds a step has: of the nodes where devices meet, of the reduced gradient and of the parameters.
    fn width(&self) -> usize {
        2 * self.devices as usize + 1
    }

    /// How many folds there are.
    fn count(&self) -> usize {
        self.body.records.iter().filter(|record| record.outcome.is_some()).count() * self.width()
    }

    /// Where the folds of a device's sums are among a step's: the partial, each level's received and sum, the reduced
    /// gradient, the parameters.
    fn places(&self, rank: u64) -> Vec<usize> {
        let node = |width: u64, index: u64| (2 * self.devices - 2 * width + index) as usize;
        let mut places = vec![node(self.devices, rank)];
        for level in 0..self.devices.ilog2() {
            places.push(node(self.devices >> level, (rank >> level) ^ 1));
            places.push(node(self.devices >> (level + 1), rank >> (level + 1)));
        }
        let width = self.width();
        places.extend([width - 2, width - 1]);
        places
    }

    /// The predicted checksum of such a place.
    fn checksum(&self, outcome: &Outcome, place: usize) -> Option<Checksum> {
        match self.width() - place {
            1 => Some(outcome.parameters),
            2 => Some(outcome.reduced),
            _ => {
                let skipped = 2 * self.run.devices_max.checked_sub(self.devices)? as usize;
                outcome.nodes.get(skipped + place).copied()
            }
        }
    }

    /// Whether a list of `count` folds can imply the body of a device.
    fn can_imply(&self, rank: u64, count: usize) -> bool {
        count == self.count() && rank < self.devices && self.devices <= self.run.devices_max
    }

    /// The body of a device whose every record is as predicted. None if the list is not of this form.
    pub fn body(&self, rank: u64, folds: &[Fold]) -> Option<ReceiptBody> {
        let records: Vec<DeviceRecord> = self.records(rank, folds)?.collect();
        let all = records.len() == self.body.records.len();
        all.then_some(ReceiptBody { run: self.id, rank, records })
    }

    /// The records of that body, one after the other.
    pub(crate) fn records<'b>(
        &'b self,
        rank: u64,
        folds: &'b [Fold],
    ) -> Option<impl Iterator<Item = DeviceRecord> + 'b> {
        if !self.can_imply(rank, folds.len()) {
            return None;
        }
        let places = self.places(rank);
        let mut at = 0;
        Some((self.body.first..).zip(&self.body.records).map_while(move |(step, predicted)| {
            let own = &folds[at..];
            if predicted.outcome.is_some() {
                at += self.width();
            }
            self.record(rank, &places, step, predicted, |place| own[place])
        }))
    }

    /// One of them. None if the predicted one is not of the run's form.
    fn record(
        &self,
        rank: u64,
        places: &[usize],
        step: u64,
        predicted: &StepRecord,
        fold: impl Fn(usize) -> Fold,
    ) -> Option<DeviceRecord> {
        let own = self.leaves_of(rank);
        let outcome = match &predicted.outcome {
            None => None,
            Some(outcome) => {
                let sum = |&place: &usize| {
                    Some(Sum { checksum: self.checksum(outcome, place)?, fold: fold(place) })
                };
                Some(outcome_of(outcome, &places.iter().map(sum).collect::<Option<Vec<Sum>>>()?)?)
            }
        };
        Some(DeviceRecord {
            step,
            traces: predicted.traces.get(own.clone())?.to_vec(),
            losses: predicted.losses.get(own)?.to_vec(),
            outcome,
            non_finite: predicted.non_finite,
        })
    }

    fn leaves_of(&self, rank: u64) -> Range<usize> {
        let each = (self.run.leaves / self.devices) as usize;
        rank as usize * each..(rank as usize + 1) * each
    }

    /// Marks which folds of the list that body has.
    pub(crate) fn mark(&self, rank: u64, used: &mut [bool]) {
        if !self.can_imply(rank, used.len()) {
            return;
        }
        let places = self.places(rank);
        for step in used.chunks_exact_mut(self.width()) {
            places.iter().for_each(|&place| step[place] = true);
        }
    }

    /// The folds by which as many of these bodies as can be are implied, and which they are.
    pub fn folds(&self, bodies: &[&ReceiptBody]) -> (Vec<Fold>, Vec<bool>) {
        let all = self.collect(bodies.iter().copied());
        let implied = |folds: &[Fold], body: &ReceiptBody| {
            self.body(body.rank, folds).is_some_and(|implied| implied == *body)
        };
        let which: Vec<bool> = bodies.iter().map(|body| implied(&all, body)).collect();
        if !which.contains(&true) {
            return (Vec::new(), which);
        }
        let kept = bodies.iter().zip(&which).filter(|(_, implied)| **implied);
        (self.collect(kept.map(|(body, _)| *body)), which)
    }

    /// The folds that these bodies state for sums that are as predicted.
    fn collect<'a>(&self, bodies: impl Iterator<Item = &'a ReceiptBody>) -> Vec<Fold> {
        let mut folds = vec![NONE; self.count()];
        for body in bodies.filter(|body| body.rank < self.devices) {
            let places = self.places(body.rank);
            let mut at = 0;
            for (step, predicted) in (self.body.first..).zip(&self.body.records) {
                let Some(outcome) = &predicted.outcome else { continue };
                let found = body.record(step).and_then(|record| record.outcome.as_ref());
                for (place, sum) in places.iter().zip(found.into_iter().flat_map(sums_of)) {
                    if self.checksum(outcome, *place) == Some(sum.checksum) && folds[at + place] == NONE {
                        folds[at + place] = sum.fold;
                    }
                }
                at += self.width();
            }
        }
        folds
    }
}

/// The record of a device that did in `step` as predicted, without the folds of its sums.
pub(crate) fn record_of(
    run: &Run,
    receipt: &Receipt,
    step: u64,
    predicted: &StepRecord,
) -> Option<DeviceRecord> {
    let none = &PredictionBody { run: receipt.run, first: step, records: Vec::new() };
    let terms = Terms { run, id: receipt.run, body: none, devices: receipt.devices };
    terms.record(receipt.rank, &terms.places(receipt.rank), step, predicted, |_| NONE)
}

/// Whether a record says what was predicted, in everything that is compared.
pub(crate) fn is_as_predicted(
    run: &Run,
    receipt: &Receipt,
    predicted: &StepRecord,
    found: &DeviceRecord,
) -> bool {
    record_of(run, receipt, found.step, predicted).is_some_and(|mut expected| {
        // Folds of sums are not compared: they are looked at where a checksum differs.
        let mut bare = found.clone();
        for outcome in [&mut expected.outcome, &mut bare.outcome].into_iter().flatten() {
            sums_of_mut(outcome).for_each(|sum| sum.fold = NONE);
        }
        expected == bare
    })
}

/// Whether folds that no implied body has are there: nothing would speak for them.
pub(crate) fn has_unused(folds: &[Fold], used: &[bool]) -> bool {
    folds.iter().zip(used).any(|(fold, used)| !used && *fold != NONE)
}

fn outcome_of(outcome: &Outcome, sums: &[Sum]) -> Option<DeviceOutcome> {
    let [partial, exchanges @ .., reduced, parameters] = sums else { return None };
    Some(DeviceOutcome {
        partial: *partial,
        exchanges: exchanges
            .as_chunks::<2>()
            .0
            .iter()
            .map(|[received, sum]| Exchange { received: *received, sum: *sum })
            .collect(),
        reduced: *reduced,
        norm: outcome.norm,
        parameters: *parameters,
        first_moment: outcome.first_moment,
        second_moment: outcome.second_moment,
    })
}

fn sums_of(outcome: &DeviceOutcome) -> Vec<Sum> {
    let exchanges = outcome.exchanges.iter().flat_map(|exchange| [exchange.received, exchange.sum]);
    let ends = [outcome.reduced, outcome.parameters];
    std::iter::once(outcome.partial).chain(exchanges).chain(ends).collect()
}

fn sums_of_mut(outcome: &mut DeviceOutcome) -> impl Iterator<Item = &mut Sum> {
    let exchanges = outcome.exchanges.iter_mut().flat_map(|pair| [&mut pair.received, &mut pair.sum]);
    [&mut outcome.partial, &mut outcome.reduced, &mut outcome.parameters].into_iter().chain(exchanges)
}
