//! One wrong word, solved for from the differences of two folds (docs/spec/checksum.md, "Folds").
//!
//! If word i of a tensor changed from w to w' and no other did, then modulo 2^64
//! `a' - a = (w' - w) k_i` and `b' - b = (w'^2 - w^2) k'_i`. All coefficients are odd, hence have inverses. For a
//! wrong place i the first quotient is as good as random, and one in 2^31 random numbers lies within the
//! difference of two 32-bit words; the second equation then has to give the exact sum of the two words as well.

use schemas::fold::{BLOCK_WORDS, Fold, FoldKey};
use schemas::verdict::WrongWord;

/// The one wrong word that turns `predicted` into `found`, in a tensor of `words` words.
///
/// `None` if the folds are equal, if no single word explains both differences, or if several could.
/// Takes one multiplication per word and one hash per block of 1024.
pub fn locate(predicted: Fold, found: Fold, key: FoldKey, words: u64) -> Option<WrongWord> {
    let (d1, d2) = (found.a.wrapping_sub(predicted.a), found.b.wrapping_sub(predicted.b));
    // Distinct words have a nonzero difference, and an odd coefficient keeps it nonzero.
    if d1 == 0 || d2 == 0 {
        return None;
    }
    let entries: Vec<(u64, u64)> =
        (0..words.min(BLOCK_WORDS as u64)).map(|j| inverses(key.table(j))).collect();
    let factors = (0..words.div_ceil(BLOCK_WORDS as u64)).map(|block| inverses(key.factor(block)));
    search((d1, d2), words, &entries, factors)
}

/// Looks through all words for those that explain both differences. `entries` are the inverses of the table's, one
/// for each place in a block, `factors` those of the blocks'.
fn search(
    (d1, d2): (u64, u64),
    words: u64,
    entries: &[(u64, u64)],
    factors: impl Iterator<Item = (u64, u64)>,
) -> Option<WrongWord> {
    let mut only = None;
    let mut first = 0;
    for (f, f2) in factors {
        let (q1, q2) = (d1.wrapping_mul(f), d2.wrapping_mul(f2));
        for (element, (t, t2)) in (first..words).zip(entries) {
            let delta = q1.wrapping_mul(*t) as i64;
            if delta.unsigned_abs() >> 32 != 0 {
                continue;
            }
            let Some((expected, found)) = words_from(delta, q2.wrapping_mul(*t2)) else { continue };
            if only.is_some() {
                return None;
            }
            only = Some(WrongWord { element, expected, found });
        }
        first += BLOCK_WORDS as u64;
    }
    only
}

fn inverses((k, k2): (u64, u64)) -> (u64, u64) {
    (inverse_of_odd(k), inverse_of_odd(k2))
}

/// The words (w, w') with `w' - w = delta` and `w'^2 - w^2 = squares` modulo 2^64.
fn words_from(delta: i64, squares: u64) -> Option<(u32, u32)> {
    // |w'^2 - w^2| < 2^64, so its sign, which is delta's, makes the residue the number itself.
    let magnitude = if delta < 0 { squares.wrapping_neg() } else { squares };
    let distance = delta.unsigned_abs();
    if distance == 0 || !magnitude.is_multiple_of(distance) {
        return None;
    }
    let sum = magnitude / distance;
    if sum < distance || !(sum - distance).is_multiple_of(2) {
        return None;
    }
    let smaller = u32::try_from((sum - distance) / 2).ok()?;
    let larger = u32::try_from(u64::from(smaller) + distance).ok()?;
    Some(if delta < 0 { (larger, smaller) } else { (smaller, larger) })
}

/// The inverse of an odd number modulo 2^64, by Newton's iteration.
fn inverse_of_odd(odd: u64) -> u64 {
    assert!(odd & 1 == 1, "locate: coefficient {odd} is even");
    // An odd x is its own inverse modulo 8, and each round doubles the number of right bits: 3, 6, 12, 24, 48, 96.
    let mut inverse = odd;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
    }
    assert_eq!(odd.wrapping_mul(inverse), 1, "locate: inverse of {odd}");
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: FoldKey = FoldKey([7; 32]);

    /// The fold by its definition, one hash per coefficient.
    fn fold(words: &[u32]) -> Fold {
        let mut fold = Fold::default();
        for (block, row) in words.chunks(BLOCK_WORDS).enumerate() {
            let (f, f2) = KEY.factor(block as u64);
            for (j, &word) in row.iter().enumerate() {
                let (t, t2) = KEY.table(j as u64);
                let word = u64::from(word);
                fold.a = fold.a.wrapping_add(word.wrapping_mul(t.wrapping_mul(f)));
                fold.b = fold.b.wrapping_add(word.wrapping_mul(word).wrapping_mul(t2.wrapping_mul(f2)));
            }
        }
        fold
    }

    /// What one word adds to a fold.
    fn term(element: usize, word: u32) -> Fold {
        let (t, t2) = KEY.table((element % BLOCK_WORDS) as u64);
        let (f, f2) = KEY.factor((element / BLOCK_WORDS) as u64);
        let word = u64::from(word);
        let square = word.wrapping_mul(word);
        Fold { a: word.wrapping_mul(t.wrapping_mul(f)), b: square.wrapping_mul(t2.wrapping_mul(f2)) }
    }

    fn replaced(whole: Fold, element: usize, old: u32, new: u32) -> Fold {
        let (minus, plus) = (term(element, old), term(element, new));
        Fold {
            a: whole.a.wrapping_sub(minus.a).wrapping_add(plus.a),
            b: whole.b.wrapping_sub(minus.b).wrapping_add(plus.b),
        }
    }

    fn xorshift(state: &mut u64) -> u32 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 32) as u32
    }

    fn tensor(count: usize) -> Vec<u32> {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        (0..count).map(|_| xorshift(&mut state)).collect()
    }

    #[test]
    fn a_wrong_word_is_found_at_every_position() {
        let words = tensor(2 * BLOCK_WORDS + 17);
        let whole = fold(&words);
        let mut state = 99;
        for (element, &expected) in words.iter().enumerate() {
            let found = loop {
                let word = xorshift(&mut state);
                if word != expected {
                    break word;
                }
            };
            let wrong = replaced(whole, element, expected, found);
            let located = locate(whole, wrong, KEY, words.len() as u64);
            assert_eq!(located, Some(WrongWord { element: element as u64, expected, found }));
        }
    }

    #[test]
    fn the_difference_of_terms_is_the_difference_of_folds() {
        let mut words = tensor(BLOCK_WORDS + 3);
        let whole = fold(&words);
        let old = words[BLOCK_WORDS + 1];
        words[BLOCK_WORDS + 1] ^= 0x8000_0001;
        assert_eq!(fold(&words), replaced(whole, BLOCK_WORDS + 1, old, old ^ 0x8000_0001));
    }

    #[test]
    fn extreme_words_are_found_exactly() {
        let words = tensor(1100);
        let extremes =
            [0, 1, 2, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff, 0x7fc0_0000, 0x3f80_0000];
        for element in [0, 1023, 1024, 1099] {
            for expected in extremes {
                for found in extremes.into_iter().filter(|&found| found != expected) {
                    let base = replaced(fold(&words), element, words[element], expected);
                    let wrong = replaced(base, element, expected, found);
                    let located = locate(base, wrong, KEY, 1100);
                    assert_eq!(located, Some(WrongWord { element: element as u64, expected, found }));
                }
            }
        }
    }

    #[test]
    fn every_single_flipped_bit_is_found() {
        let words = tensor(70);
        let whole = fold(&words);
        for (element, &expected) in words.iter().enumerate() {
            for bit in 0..32 {
                let found = expected ^ (1 << bit);
                let located = locate(whole, replaced(whole, element, expected, found), KEY, 70);
                assert_eq!(located, Some(WrongWord { element: element as u64, expected, found }));
            }
        }
    }

    #[test]
    fn a_difference_of_squares_that_no_two_words_have_explains_nothing() {
        let extremes = [0, 1, 2, 3, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff];
        for old in extremes {
            for new in extremes.into_iter().filter(|&new| new != old) {
                let (w, v) = (u64::from(old), u64::from(new));
                let delta = new as i64 - old as i64;
                let squares = v.wrapping_mul(v).wrapping_sub(w.wrapping_mul(w));
                assert_eq!(words_from(delta, squares), Some((old, new)));
                // Neither a sum that is no whole number, nor one of another parity than the difference.
                let nearest = squares.wrapping_add(if delta < 0 { u64::MAX } else { 1 });
                let odd = squares.wrapping_add(delta as u64);
                let not_whole = delta.unsigned_abs() > 1;
                assert!(!not_whole || words_from(delta, nearest).is_none(), "{old} {new}");
                assert_eq!(words_from(delta, odd), None, "{old} {new}");
            }
        }
    }

    #[test]
    fn two_wrong_words_are_not_mistaken_for_one() {
        let words = tensor(3 * BLOCK_WORDS);
        let whole = fold(&words);
        let mut state = 5;
        for _ in 0..300 {
            let first = xorshift(&mut state) as usize % words.len();
            let second = xorshift(&mut state) as usize % words.len();
            if first == second {
                continue;
            }
            let once = replaced(whole, first, words[first], words[first] ^ (xorshift(&mut state) | 1));
            let twice = replaced(once, second, words[second], words[second] ^ (xorshift(&mut state) | 1));
            assert_eq!(locate(whole, twice, KEY, words.len() as u64), None);
        }
    }

    #[test]
    fn a_difference_that_two_places_explain_is_not_located() {
        // No key in use gives two places one pair of coefficients; here two blocks have one pair of factors.
        let words = tensor(2 * BLOCK_WORDS);
        let whole = fold(&words);
        let wrong = replaced(whole, 5, words[5], !words[5]);
        let differences = (wrong.a.wrapping_sub(whole.a), wrong.b.wrapping_sub(whole.b));
        let entries: Vec<(u64, u64)> = (0..BLOCK_WORDS as u64).map(|j| inverses(KEY.table(j))).collect();
        let factors = [KEY.factor(0), KEY.factor(1)].map(inverses);
        let look = |factors: [(u64, u64); 2]| search(differences, 2048, &entries, factors.into_iter());
        assert_eq!(look(factors).map(|word| word.element), Some(5));
        assert_eq!(look([factors[0]; 2]), None);
        assert_eq!(look([factors[1]; 2]), None);
    }

    #[test]
    fn a_word_beyond_the_tensor_and_equal_folds_are_not_located() {
        let words = tensor(1030);
        let whole = fold(&words);
        let wrong = replaced(whole, 1029, words[1029], !words[1029]);
        assert_eq!(locate(whole, wrong, KEY, 1029), None);
        assert!(locate(whole, wrong, KEY, 1030).is_some());
        assert_eq!(locate(whole, whole, KEY, 1030), None);
        assert_eq!(locate(whole, wrong, KEY, 0), None);
        let other_key = FoldKey([8; 32]);
        assert_eq!(locate(whole, wrong, other_key, 1030), None);
    }
}
