//! How much each of many may do in a time: a bucket for each, in bounded memory.
//!
//! A bucket holds so much at once and empties evenly. Whoever's bucket is empty is not remembered, so there are no more
//! buckets than were filled lately. When even these are too many, whoever has none shares one with all others like it:
//! coming under ever new names does not get around the limit.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Most buckets; with a map's overhead about 10 MiB.
const BUCKETS_MAX: usize = 1 << 16;
/// How long after a search for empty buckets the next one may be made.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// So much in a time, and at most so much at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How much; never zero.
    pub amount: u64,
    /// In which time.
    pub period: Duration,
    /// How much at once.
    pub burst: u64,
}

/// Buckets by name.
#[derive(Debug)]
pub struct Buckets<K> {
    rate: Rate,
    started: Instant,
    levels: Mutex<Levels<K>>,
}

/// When each bucket will be empty, in nanoseconds since the start, times the rate's amount: then all is whole numbers.
#[derive(Debug)]
struct Levels<K> {
    empty_at: HashMap<K, u128>,
    shared: u128,
    swept: Option<Duration>,
}

impl<K: Eq + Hash> Buckets<K> {
    /// No bucket, all of one rate.
    pub fn new(rate: Rate) -> Buckets<K> {
        let levels = Levels { empty_at: HashMap::new(), shared: 0, swept: None };
        Buckets { rate, started: Instant::now(), levels: Mutex::new(levels) }
    }

    /// The rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Puts `amount` into a bucket, or says when it will fit.
    pub fn fill(&self, name: K, amount: u64) -> Result<(), Duration> {
        self.fill_at(self.started.elapsed(), name, amount)
    }

    /// Takes `amount` out again: what it was for has not happened.
    pub fn give_back(&self, name: &K, amount: u64) {
        let cost = self.cost(amount);
        let mut levels = self.levels();
        let levels = &mut *levels;
        let all = levels.empty_at.len() >= BUCKETS_MAX;
        // Whose bucket is gone had it empty.
        if let Some(bucket) = levels.empty_at.get_mut(name).or(all.then_some(&mut levels.shared)) {
            *bucket = bucket.saturating_sub(cost);
        }
    }

    fn fill_at(&self, now: Duration, name: K, amount: u64) -> Result<(), Duration> {
        let (cost, room, time) = (self.cost(amount), self.cost(self.rate.burst), self.time(now));
        let mut levels = self.levels();
        if levels.empty_at.len() >= BUCKETS_MAX && !levels.empty_at.contains_key(&name) {
            let lately = levels.swept.is_some_and(|swept| now < swept + SWEEP_PAUSE);
            if !lately {
                levels.empty_at.retain(|_, empty_at| *empty_at > time);
                levels.swept = Some(now);
            }
        }
        let levels = &mut *levels;
        let known = levels.empty_at.len() < BUCKETS_MAX || levels.empty_at.contains_key(&name);
        let empty_at = levels.empty_at.get(&name).copied().unwrap_or(if known { 0 } else { levels.shared });
        let filled = empty_at.max(time) + cost;
        let too_much = (filled - time).saturating_sub(room);
        if too_much > 0 {
            let wait = too_much.div_ceil(u128::from(self.rate.amount));
            return Err(Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)));
        }
        match known {
            true => drop(levels.empty_at.insert(name, filled)),
            false => levels.shared = filled,
        }
        Ok(())
    }

    fn cost(&self, amount: u64) -> u128 {
        u128::from(amount) * self.rate.period.as_nanos()
    }

    fn time(&self, now: Duration) -> u128 {
        now.as_nanos() * u128::from(self.rate.amount)
    }

    fn levels(&self) -> MutexGuard<'_, Levels<K>> {
        // Nothing between taking and releasing it can leave a level half changed.
        self.levels.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn three_a_second() -> Buckets<u64> {
        Buckets::new(Rate { amount: 3, period: SECOND, burst: 6 })
    }

    #[test]
    fn a_bucket_takes_its_burst_and_then_its_rate() {
        let buckets = three_a_second();
        let mut taken = [0; 10];
        for (second, count) in taken.iter_mut().enumerate() {
            let now = SECOND * second as u32;
            while buckets.fill_at(now, 1, 1).is_ok() {
                *count += 1;
            }
        }
        assert_eq!(taken, [6, 3, 3, 3, 3, 3, 3, 3, 3, 3]);
        assert_eq!(buckets.fill_at(SECOND * 9, 2, 6), Ok(()), "another's bucket is its own");
        assert_eq!(
            buckets.fill_at(SECOND * 9, 3, 7),
            Err(Duration::from_nanos(333_333_334)),
            "more than ever fits at once"
        );
    }

    #[test]
    fn the_wait_that_is_told_is_enough_and_no_longer_than_needed() {
        let buckets = three_a_second();
        assert_eq!(buckets.fill_at(SECOND, 1, 6), Ok(()));
        let wait = buckets.fill_at(SECOND, 1, 2).unwrap_err();
        let soon = SECOND + wait - Duration::from_nanos(1);
        assert!(buckets.fill_at(soon, 1, 2).is_err());
        assert_eq!(buckets.fill_at(SECOND + wait, 1, 2), Ok(()));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let buckets = three_a_second();
        assert_eq!(buckets.fill_at(Duration::ZERO, 1, 6), Ok(()));
        buckets.give_back(&1, 6);
        assert_eq!(buckets.fill_at(Duration::ZERO, 1, 6), Ok(()));
        assert!(buckets.fill_at(Duration::ZERO, 1, 1).is_err());
    }

    #[test]
    fn ever_new_names_share_one_bucket_once_there_are_too_many_and_old_ones_are_forgotten() {
        let buckets = three_a_second();
        for name in 0..BUCKETS_MAX as u64 {
            assert_eq!(buckets.fill_at(Duration::ZERO, name, 1), Ok(()));
        }
        let more = (0..100).filter(|name| buckets.fill_at(Duration::ZERO, 1 << 40 | name, 1).is_ok()).count();
        assert_eq!(more, 6, "as many as one bucket takes");
        assert_eq!(buckets.levels().empty_at.len(), BUCKETS_MAX);
        assert_eq!(buckets.fill_at(Duration::ZERO, 0, 5), Ok(()), "who has a bucket keeps it");
        assert_eq!(buckets.fill_at(SECOND * 3, 1 << 50, 6), Ok(()));
        assert_eq!(buckets.levels().empty_at.len(), 1, "all others are empty by now");
    }
}
