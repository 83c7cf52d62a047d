//! The campaign's count, by form of fault and in all.

use crate::draw::Draw;
use crate::judge::Marks;
use crate::scene::Located;
use schemas::verdict::Outcome;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Counts of runs. Of operation and element also to how many they apply.
#[derive(Default)]
struct Count {
    faulty: u64,
    detected: u64,
    device: u64,
    step: u64,
    phase: u64,
    operation: (u64, u64),
    element: (u64, u64),
    cause: (u64, u64),
}

impl Count {
    fn add(&mut self, marks: &Marks) {
        self.faulty += 1;
        self.detected += u64::from(marks.detected);
        self.device += u64::from(marks.device);
        self.step += u64::from(marks.step);
        self.phase += u64::from(marks.phase);
        let each = [
            (&mut self.operation, marks.operation),
            (&mut self.element, marks.element),
            (&mut self.cause, marks.cause),
        ];
        for (count, mark) in each {
            count.0 += u64::from(mark == Some(true));
            count.1 += u64::from(mark.is_some());
        }
    }
}

/// All counts.
#[derive(Default)]
pub struct Tally {
    all: Count,
    leaf: Count,
    forms: BTreeMap<String, Count>,
    without_effect: BTreeMap<String, u64>,
    clean: u64,
    false_alarms: u64,
}

impl Tally {
    /// A run without a fault.
    pub fn clean(&mut self, located: &Located) {
        self.clean += 1;
        let agree = located.decision.outcome == Outcome::Agree && located.unchanged;
        self.false_alarms += u64::from(!agree);
    }

    /// A run with a fault.
    pub fn faulty(&mut self, draws: &[Draw], marks: &Marks) {
        self.all.add(marks);
        if draws.iter().all(Draw::in_leaf) {
            self.leaf.add(marks);
        }
        self.forms.entry(form(draws)).or_default().add(marks);
    }

    /// A run whose fault changed no bit of any record: there was nothing to detect, and another is drawn.
    pub fn without_effect(&mut self, draws: &[Draw]) {
        *self.without_effect.entry(form(draws)).or_default() += 1;
    }

    /// Whether nothing was missed.
    pub fn perfect(&self) -> bool {
        let Count { faulty, detected, device, step, phase, operation, element, cause } = self.all;
        self.false_alarms == 0
            && [detected, device, step, phase].iter().all(|right| *right == faulty)
            && operation.0 == operation.1
            && element.0 == element.1
            && cause.0 == cause.1
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<16}{:>7}{:>10}{:>8}{:>7}{:>7}{:>14}{:>14}{:>14}{:>11}\n",
            "form",
            "faulty",
            "detected",
            "device",
            "step",
            "phase",
            "operation",
            "element",
            "cause",
            "no effect"
        );
        let rows = self.forms.iter().map(|(form, count)| (form.as_str(), count));
        for (form, count) in rows.chain([("in a leaf", &self.leaf), ("all", &self.all)]) {
            let of = |(right, all): (u64, u64)| format!("{right} of {all}");
            let none = self.without_effect.get(form).copied().unwrap_or(0);
            let none = if form == "all" { self.without_effect.values().sum() } else { none };
            writeln!(
                text,
                "{form:<16}{:>7}{:>10}{:>8}{:>7}{:>7}{:>14}{:>14}{:>14}{none:>11}",
                count.faulty,
                count.detected,
                count.device,
                count.step,
                count.phase,
                of(count.operation),
                of(count.element),
                of(count.cause),
            )
            .expect("tally: writing to a text does not fail");
        }
        write!(text, "clean runs: {}, false alarms: {}", self.clean, self.false_alarms)
            .expect("tally: writing to a text does not fail");
        text
    }

    /// For machines.
    pub fn json(&self, seed: u64) -> serde_json::Value {
        let all = &self.all;
        serde_json::json!({
            "faulty": all.faulty,
            "detected": all.detected,
            "device_right": all.device,
            "step_right": all.step,
            "phase_right": all.phase,
            "operation_right": all.operation.0,
            "operation_of": all.operation.1,
            "leaf_operation_right": self.leaf.operation.0,
            "leaf_operation_of": self.leaf.operation.1,
            "element_right": all.element.0,
            "element_of": all.element.1,
            "cause_right": all.cause.0,
            "cause_of": all.cause.1,
            "without_effect": self.without_effect.values().sum::<u64>(),
            "clean": self.clean,
            "false_alarms": self.false_alarms,
            "seed": seed,
        })
    }
}

fn form(draws: &[Draw]) -> String {
    match draws {
        [one] => one.form.to_owned(),
        many => format!("{} bit-flips", many.len()),
    }
}
