//! Entries to submit, signed before anything is measured: `run` statements, each valid and none equal to another.

use schemas::digest::{Checksum, ConfigDigest, PlanDigest, ProfileDigest, StateDigest};
use schemas::key::SecretKey;
use schemas::run::Run;
use schemas::statement::{Payload, Statement};

/// How many keys sign them in turns.
const SIGNERS: u8 = 64;
/// Signed between two reports of progress.
const BLOCK_ENTRIES: u64 = 20_000;

/// Names the entries of one load, so that no entry is in the log from an earlier one.
#[derive(Debug, Clone, Copy)]
pub struct LoadId(pub [u8; 8]);

/// Signs entries number `first` up to, without, `end` on two threads and tells now and then how many are done.
pub fn sign(load: LoadId, first: u64, end: u64, mut progress: impl FnMut(u64)) -> Vec<Vec<u8>> {
    let mut entries = Vec::new();
    let mut next = first;
    while next < end {
        let block_end = end.min(next + BLOCK_ENTRIES);
        let middle = next + (block_end - next) / 2;
        let (lower, upper) = std::thread::scope(|scope| {
            let lower = scope.spawn(|| sign_block(load, next, middle));
            let upper = sign_block(load, middle, block_end);
            (lower.join().expect("bench: signing does not panic"), upper)
        });
        entries.extend(lower);
        entries.extend(upper);
        next = block_end;
        progress(next - first);
    }
    entries
}

fn sign_block(load: LoadId, first: u64, end: u64) -> Vec<Vec<u8>> {
    let keys: Vec<SecretKey> = (0..SIGNERS).map(|signer| SecretKey::from_seed([signer; 32])).collect();
    let statement = |number: u64| {
        let key = &keys[number as usize % keys.len()];
        Statement::sign(&Payload::Run(run(load, number)), key).expect("bench: a run within its limits")
    };
    (first..end).map(statement).collect()
}

/// Digits in a fixed number, so that all entries are of one length.
fn run(load: LoadId, number: u64) -> Run {
    Run {
        name: format!("load {} {number:012}", hex::encode(load.0)),
        profile: "f32-fma".to_owned(),
        profile_digest: ProfileDigest([1; 32]),
        config: ConfigDigest([2; 32]),
        plan: PlanDigest([3; 32]),
        state: StateDigest([4; 32]),
        dataset: Checksum([5; 32]),
        steps: 100,
        leaves: 4,
        devices_max: 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_different_valid_statements_of_one_length() {
        let mut told = Vec::new();
        let entries = sign(LoadId([7; 8]), 3, 70, |done| told.push(done));
        assert_eq!(told, [67]);
        let opened: Vec<Statement> = entries.iter().map(|entry| Statement::open(entry).unwrap()).collect();
        assert!(entries.iter().all(|entry| entry.len() == entries[0].len()));
        let mut digests: Vec<_> = opened.iter().map(|statement| statement.digest).collect();
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), 67);
        assert_ne!(opened[0].signer, opened[1].signer);
        assert_ne!(sign(LoadId([8; 8]), 3, 4, |_| ())[0], entries[0]);
    }
}
