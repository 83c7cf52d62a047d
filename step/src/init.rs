//! Initial parameters from a seed.
//!
//! Source: docs/spec/profile.md#init.
//! Element i of parameter tensor j takes the Philox4x32-10 block at counter
//! (i low, i high, j, 0x696e6974) under the seed; the sum of its eight 16-bit halves, less its mean 262140,
//! times a constant, is close to normal. Integers and one multiply: no logarithm, no cosine.

use crate::number::philox::{key_of_seed, philox4x32_10};
use rayon::prelude::*;
use schemas::plan::{Parameter, Plan};

/// Last counter word, so that no block is one of the data order's ("init" in ASCII).
const COUNTER_DOMAIN: u32 = 0x696e_6974;
/// Mean of the sum of eight uniform 16-bit numbers.
const HALVES_MEAN: i32 = 262_140;

/// Flat parameters of `plan`: gains 1, biases 0, tables and weights normal with standard deviation `stddev`,
/// the weights of projections back into the residual stream with `stddev` / sqrt(2 L).
pub fn initial_parameters(plan: &Plan, seed: u64, stddev: f64) -> Vec<f32> {
    let narrow = stddev / (2.0 * plan.dimensions.layers as f64).sqrt();
    let mut flat = Vec::with_capacity(plan.parameter_count() as usize);
    for (tensor, parameter) in plan.parameters.iter().enumerate() {
        let elements = parameter.shape.iter().product::<u64>();
        match parameter {
            Parameter { shape, name, .. } if shape.len() == 2 => {
                let stddev = if name.ends_with(".c_proj.weight") { narrow } else { stddev };
                flat.par_extend(normal(seed, tensor as u32, elements, stddev));
            }
            Parameter { name, .. } if name.ends_with(".weight") => {
                flat.extend((0..elements).map(|_| 1.0_f32))
            }
            _ => flat.extend((0..elements).map(|_| 0.0_f32)),
        }
    }
    flat
}

/// The elements of one tensor.
fn normal(seed: u64, tensor: u32, elements: u64, stddev: f64) -> impl IndexedParallelIterator<Item = f32> {
    // Eight uniform numbers below 2^16 have variance 8 (2^32 - 1) / 12; the square root and the division are
    // IEEE.
    let factor = (stddev / (8.0 * 4_294_967_295.0_f64 / 12.0).sqrt()) as f32;
    let key = key_of_seed(seed);
    (0..elements as usize).into_par_iter().map(move |i| centred(key, tensor, i as u64) as f32 * factor)
}

/// The sum of eight halves for element `i` of a tensor, less its mean.
fn centred(key: [u32; 2], tensor: u32, i: u64) -> i32 {
    let words = philox4x32_10([i as u32, (i >> 32) as u32, tensor, COUNTER_DOMAIN], key);
    let sum: u32 = words.iter().map(|word| (word & 0xffff) + (word >> 16)).sum();
    sum as i32 - HALVES_MEAN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_mean_and_the_spread_asked_for() {
        let values: Vec<f32> = normal(7, 3, 200_000, 0.02).collect();
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / values.len() as f64;
        let square = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 2e-4, "{mean}");
        assert!((square.sqrt() - 0.02).abs() < 1e-4, "{}", square.sqrt());
    }

    /// The variance is of numbers below 2^16, not of all between 0 and 1: with this spread an f32 shows it.
    #[test]
    fn the_factor_is_the_one_of_the_page() {
        let value = normal(1, 1, 1, 0.01011).collect::<Vec<f32>>()[0];
        let factor = f32::from_bits(0x344a_de97);
        assert_eq!(value.to_bits(), (centred(key_of_seed(1), 1, 0) as f32 * factor).to_bits());
    }

    #[test]
    fn seed_tensor_and_index_each_change_a_value() {
        let first = |seed, tensor| normal(seed, tensor, 2, 1.0).collect::<Vec<f32>>();
        let base = first(1, 1);
        assert_ne!(base[0].to_bits(), base[1].to_bits());
        assert_ne!(base, first(1 << 32 | 1, 1));
        assert_ne!(base, first(1, 2));
        let key = key_of_seed(1);
        assert_ne!(centred(key, 1, 1 << 32), centred(key, 1, 0), "a tensor may be longer than 2^32");
    }
}
