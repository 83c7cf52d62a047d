//! Folds: two sums over a tensor's words, under a key.

use crate::dispatch::{self, Backend};
use crate::number::elementary::NAN_BITS;
use crate::reference::fold::Sums;
use rayon::prelude::*;
use schemas::fold::{BLOCK_WORDS, Fold, FoldKey, NAN_WORD};

// The reference names nothing but numbers; its two are those of the specification.
const _: () = assert!(NAN_BITS == NAN_WORD && crate::reference::fold::BLOCK_WORDS == BLOCK_WORDS);

/// Blocks that one task folds, unless the tensor is small.
const TASK_BLOCKS: usize = 64;

/// The coefficients of one key, up to a number of words.
pub struct FoldTables {
    backend: Backend,
    /// t_j of every place in a block.
    t: Vec<u64>,
    /// t'_j of every place in a block.
    t_square: Vec<u64>,
    /// f and f' of every block.
    factors: Vec<(u64, u64)>,
}

/// A fold, and whether every word was a finite number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folded {
    /// The two sums.
    pub fold: Fold,
    /// False if a word was a NaN or an infinity.
    pub finite: bool,
}

impl FoldTables {
    /// The tables of `key` for tensors of at most `words_max` words.
    pub fn new(backend: Backend, key: FoldKey, words_max: usize) -> FoldTables {
        let blocks = words_max.div_ceil(BLOCK_WORDS) as u64;
        let (t, t_square) = (0..BLOCK_WORDS as u64).map(|j| key.table(j)).unzip();
        let factors = (0..blocks).into_par_iter().map(|block| key.factor(block)).collect();
        FoldTables { backend, t, t_square, factors }
    }

    /// Folds an f32 tensor.
    pub fn fold(&self, words: &[f32]) -> Folded {
        self.blocks(words, |words, factors| {
            dispatch::fold_f32(self.backend, words, &self.t, &self.t_square, factors)
        })
    }

    /// Folds a u32 tensor, such as the tokens of a leaf.
    pub fn fold_u32(&self, words: &[u32]) -> Fold {
        let sums = |words: &[u32], factors: &[(u64, u64)]| {
            dispatch::fold_u32(self.backend, words, &self.t, &self.t_square, factors)
        };
        self.blocks(words, sums).fold
    }

    /// The sums are of integers and have no order, so blocks may go to any thread.
    fn blocks<W: Sync>(&self, words: &[W], sums: impl Fn(&[W], &[(u64, u64)]) -> Sums + Sync) -> Folded {
        assert!(words.len() <= self.factors.len() * BLOCK_WORDS, "fold: tensor longer than the tables");
        let tasks = words.par_chunks(TASK_BLOCKS * BLOCK_WORDS).zip(self.factors.par_chunks(TASK_BLOCKS));
        let nothing = || Sums { a: 0, b: 0, finite: true };
        let sums = tasks.map(|(words, factors)| sums(words, factors)).reduce(nothing, |one, other| Sums {
            a: one.a.wrapping_add(other.a),
            b: one.b.wrapping_add(other.b),
            finite: one.finite && other.finite,
        });
        Folded { fold: Fold { a: sums.a, b: sums.b }, finite: sums.finite }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of every size, NaNs, infinities and zeros of both signs among them if `finite` is false.
    fn painted(count: usize, finite: bool) -> Vec<f32> {
        let nasty = [0x7fc0_0000, 0xffc1_2345, 0x7f80_0001, 0x7f80_0000, 0xff80_0000, 0x8000_0000, 0, 1];
        let word = |i: usize| (i as u32 + 1).wrapping_mul(2_654_435_761);
        let pick = |i: usize| match finite {
            true => word(i) & 0xff7f_ffff,
            false if word(i) >> 29 == 0 => nasty[i % nasty.len()],
            false => word(i),
        };
        (0..count).map(|i| f32::from_bits(pick(i))).collect()
    }

    /// The two sums as the specification writes them.
    fn plain(key: FoldKey, words: &[u32]) -> Fold {
        let places: Vec<(u64, u64)> = (0..1024).map(|j| key.table(j)).collect();
        let blocks: Vec<(u64, u64)> =
            (0..words.len() as u64 / 1024 + 1).map(|block| key.factor(block)).collect();
        let (mut a, mut b) = (0_u64, 0_u64);
        for (i, word) in words.iter().enumerate() {
            let ((t, t2), (f, f2)) = (places[i % 1024], blocks[i / 1024]);
            let word = u64::from(*word);
            a = a.wrapping_add(word.wrapping_mul(t.wrapping_mul(f)));
            b = b.wrapping_add(word.wrapping_mul(word).wrapping_mul(t2.wrapping_mul(f2)));
        }
        Fold { a, b }
    }

    #[test]
    fn a_fold_is_the_two_sums_of_the_specification() {
        let key = FoldKey([7; 32]);
        let counts =
            [0, 1, 7, 8, 15, 16, 17, 31, 33, 1009, 1023, 1024, 1025, 1040, 3000, 65_536, 65_537, 131_071];
        for backend in Backend::all() {
            let tables = FoldTables::new(backend, key, 131_072);
            for (count, finite) in counts.into_iter().flat_map(|count| [(count, true), (count, false)]) {
                let words = painted(count, finite);
                let bits: Vec<u32> = words.iter().map(|word| word.to_bits()).collect();
                let canonical: Vec<u32> =
                    words.iter().map(|word| if word.is_nan() { NAN_WORD } else { word.to_bits() }).collect();
                let finite = words.iter().all(|word| word.is_finite());
                let expected = Folded { fold: plain(key, &canonical), finite };
                assert_eq!(tables.fold(&words), expected, "{backend}: {count} words");
                assert_eq!(tables.fold_u32(&bits), plain(key, &bits), "{backend}: {count} u32");
            }
        }
    }

    #[test]
    fn a_word_that_is_not_finite_is_reported_wherever_it_stands() {
        for backend in Backend::all() {
            let tables = FoldTables::new(backend, FoldKey([7; 32]), 2100);
            let mut words = painted(2100, true);
            for at in (0..2100).step_by(13).chain([15, 16, 1023, 1024, 2047, 2099]) {
                for word in [0x7fc0_0000, 0x7f80_0000, 0xff80_0000, 0xff80_0001] {
                    let kept = std::mem::replace(&mut words[at], f32::from_bits(word));
                    assert!(!tables.fold(&words).finite, "{backend}: {word:#x} at {at}");
                    words[at] = kept;
                }
            }
            assert!(tables.fold(&words).finite, "{backend}");
        }
    }

    #[test]
    fn every_nan_folds_as_one_word_and_is_reported() {
        let tables = FoldTables::new(Backend::detect(), FoldKey([1; 32]), 3);
        let fold = |word: u32| tables.fold(&[1.0, f32::from_bits(word), 2.0]);
        assert_eq!(fold(0xffc1_2345), fold(0x7f80_0001));
        assert_eq!(fold(0x7fc0_0000), fold(0x7f80_0001));
        assert!(!fold(0x7fc0_0000).finite && !fold(0x7f80_0000).finite && !fold(0xff80_0000).finite);
        assert!(fold(0x7f7f_ffff).finite);
        assert_ne!(fold(0x7f80_0000).fold, fold(0x7fc0_0000).fold, "an infinity is not a NaN");
    }

    #[test]
    fn a_fold_of_integers_keeps_words_that_would_be_nan() {
        let tables = FoldTables::new(Backend::detect(), FoldKey([1; 32]), 2);
        assert_ne!(tables.fold_u32(&[5, 0xffc1_2345]), tables.fold_u32(&[5, NAN_WORD]));
        assert_eq!(tables.fold_u32(&[5, 6]), tables.fold(&[5, 6].map(f32::from_bits)).fold);
    }
}
