//! Training state: what a step starts from and ends with.

use crate::buffer::Flat;
use crate::checksum::checksum_f32;
use schemas::checksum::state_digest;
use schemas::digest::StateDigest;
use schemas::plan::Parameter;
use std::ops::Range;

/// Parameters and moments before step `step`. Their tensors lie one after the other, in the plan's order, on pages of
/// their own: an update walks through all of them at once, and small pages would be looked up again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The zero-based step that comes next.
    pub step: u64,
    /// Every parameter, flat: [P].
    pub parameters: Flat,
    /// AdamW's first moment, in the same order: [P].
    pub first_moment: Flat,
    /// AdamW's second moment, in the same order: [P].
    pub second_moment: Flat,
}

impl State {
    /// The state that training starts from: given parameters, no moments yet.
    pub fn fresh(parameters: Vec<f32>) -> State {
        let zeros = || Flat::zeros(parameters.len());
        State {
            step: 0,
            parameters: Flat::copied(&parameters),
            first_moment: zeros(),
            second_moment: zeros(),
        }
    }

    /// Identity of this state, of step and bits.
    pub fn digest(&self) -> StateDigest {
        let checksum = |words: &[f32]| checksum_f32(&[words.len() as u64], words);
        let [p, m, v] =
            [&self.parameters, &self.first_moment, &self.second_moment].map(|words| checksum(words));
        state_digest(self.step, p, m, v)
    }
}

/// How many words a parameter holds.
pub fn words_of(parameter: &Parameter) -> usize {
    parameter.shape.iter().product::<u64>() as usize
}

/// Words of a row of a parameter; a tensor with one dimension is one row.
pub fn columns(parameter: &Parameter) -> usize {
    *parameter.shape.last().expect("state: a parameter has dimensions") as usize
}

/// Every parameter tensor's place in a flat buffer, in registered order.
pub fn spans(layout: &[Parameter]) -> Vec<Range<usize>> {
    let mut end = 0;
    let next = |parameter| {
        let first = end;
        end += words_of(parameter);
        first..end
    };
    layout.iter().map(next).collect()
}
