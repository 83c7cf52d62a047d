//! The constants of each step: learning rate, decay and bias corrections, as committed bits.
//!
//! Source: docs/spec/plan.md#schedule.
//! Everything is f64 with add, mul and div alone and rounded to f32 once, at the
//! end. Powers of beta are a running product and the cosine is a fixed polynomial: a library's pow or cos may
//! differ in the last place between machines, and a step derived on one could then not be derived on the
//! other.

use schemas::config::optimizer::Optimizer;
use schemas::plan::{Corrections, GroupStep};

/// Coefficients of cos(pi/2 y) in powers of y^2: (-1)^k (pi/2)^(2k) / (2k)!. The first left out is below
/// 2e-17.
const COSINE: [f64; 11] = [
    1.0,
    -1.2337005501361697,
    0.25366950790104803,
    -0.02086348076335296,
    0.0009192602748394266,
    -2.5202042373060607e-5,
    4.710874778818172e-7,
    -6.386603083791852e-9,
    6.565963114979473e-11,
    -5.294400200734623e-13,
    3.437739179098607e-15,
];

/// cos(pi x) for x in [0, 1], by the same operations everywhere.
fn cosine_of_pi(x: f64) -> f64 {
    // cos(pi x) = 2 cos(pi/2 x)^2 - 1.
    let square = x * x;
    let half = COSINE.iter().rev().fold(0.0, |sum, coefficient| sum * square + coefficient);
    2.0 * (half * half) - 1.0
}

/// The learning rate of `step`: while warming up, (step + 1) / warmup of the highest; after that the schedule
/// at progress (step - warmup) / (steps - warmup), which would reach its end at `steps`.
pub fn learning_rate(optimizer: &Optimizer, step: u64, steps: u64) -> f64 {
    let (highest, warmup) = (optimizer.learning_rate, optimizer.warmup_steps);
    if step < warmup {
        return highest * ((step + 1) as f64 / warmup as f64);
    }
    let progress = (step - warmup) as f64 / (steps - warmup) as f64;
    let remaining = match optimizer.schedule.as_str() {
        "constant" => return highest,
        "linear" => 1.0 - progress,
        "cosine" => 0.5 * (1.0 + cosine_of_pi(progress)),
        other => unreachable!("schedule: {other} is not a schedule of a checked config"),
    };
    highest * (optimizer.final_fraction + (1.0 - optimizer.final_fraction) * remaining)
}

/// What a group of parameters has of its own.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Multiplies the learning rate.
    pub factor: f64,
    /// Weight decay.
    pub weight_decay: f64,
}

fn bits(value: f64) -> u32 {
    (value as f32).to_bits()
}

/// A group's constants of steps 0 to `steps` - 1. AdamW's decay is a factor of the parameter, SGD's one of what joins
/// the gradient.
pub fn group_steps(optimizer: &Optimizer, group: Settings, steps: u64) -> Vec<GroupStep> {
    let decoupled = optimizer.kind == "adamw";
    let at = |step| {
        let rate = learning_rate(optimizer, step, steps) * group.factor;
        let decay = if decoupled { 1.0 - rate * group.weight_decay } else { group.weight_decay };
        GroupStep { learning_rate: bits(rate), decay: bits(decay) }
    };
    (0..steps).map(at).collect()
}

/// The bias corrections of steps 0 to `steps` - 1.
pub fn corrections(beta1: f64, beta2: f64, steps: u64) -> Vec<Corrections> {
    let (mut power1, mut power2) = (1.0_f64, 1.0_f64);
    (0..steps)
        .map(|_| {
            power1 *= beta1;
            power2 *= beta2;
            Corrections { first: bits(1.0 / (1.0 - power1)), second: bits(1.0 / (1.0 - power2)) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn optimizer(schedule: &str) -> Optimizer {
        Optimizer {
            kind: "adamw".into(),
            learning_rate: 1.0,
            beta1: Some(0.9),
            beta2: Some(0.95),
            epsilon: Some(1e-8),
            momentum: None,
            nesterov: None,
            weight_decay: 0.1,
            clip: None,
            schedule: schedule.into(),
            warmup_steps: 4,
            final_fraction: 0.1,
            groups: vec![],
        }
    }

    #[test]
    fn the_cosine_is_right_to_the_last_bits_of_an_f64() {
        for i in 0..=1000 {
            let x = f64::from(i) / 1000.0;
            let error = (cosine_of_pi(x) - (std::f64::consts::PI * x).cos()).abs();
            assert!(error < 1e-15, "{x}: {error:e}");
        }
    }

    #[test]
    fn rates_rise_then_follow_the_schedule() {
        let rates =
            |schedule| (0..8).map(|step| learning_rate(&optimizer(schedule), step, 8)).collect::<Vec<_>>();
        assert_eq!(rates("constant"), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]);
        let linear = rates("linear");
        assert_eq!(linear[..5], [0.25, 0.5, 0.75, 1.0, 1.0]);
        assert_eq!((linear[6] as f32).to_bits(), 0.55_f32.to_bits());
        let cosine = rates("cosine");
        assert_eq!(cosine[4].to_bits(), 1.0_f64.to_bits());
        assert_eq!((cosine[6] as f32).to_bits(), 0.55_f32.to_bits());
    }

    #[test]
    fn corrections_follow_the_powers_over_many_steps() {
        for (step, constants) in corrections(0.9, 0.95, 300).iter().enumerate() {
            let exact = 1.0 / (1.0 - 0.95_f64.powi(step as i32 + 1));
            assert_eq!(constants.second, (exact as f32).to_bits(), "step {step}");
        }
    }
}
