//! Folds and checksums of flat vectors, computed where they lie: only sums and a root come to the host.

use crate::backend::BackendError;
use crate::checksum::Digested;
use crate::launches::Shapes;
use crate::machine::{Argument, Buffer, Build, Launch, Machine};
use crate::places::Place;
use schemas::checksum::{CHUNK_BYTES, Dtype, bind};
use schemas::fold::{BLOCK_WORDS, Fold, FoldKey};
use schemas::receipt::Sum;

/// Most groups of a launch of `fold_words`: their triples are added up on the host.
const GROUPS_MAX: u64 = 1024;
/// Messages that an item of an unstaged build hashes side by side: `HASHES` in checksum.cl.
const HASHES: u64 = 16;
/// Most items of a group that hashes.
const HASH_ITEMS_MAX: u32 = 32;
/// Words of a chunk, and of a block of a fold.
const BLOCK: u64 = BLOCK_WORDS as u64;

const _: () = assert!(CHUNK_BYTES == 4 * BLOCK_WORDS, "a chunk is a block");

/// What digests flat vectors of one length.
pub struct Flat {
    words: u64,
    shapes: Shapes,
    hashes_each: u64,
    sums: Buffer,
    /// Hashes of chunks, and those of the level above, in turn.
    hashes: [Buffer; 2],
}

/// The coefficients of a key for vectors of at most so many words, as kernels take them: 1024 of each of the two sums,
/// then the factors by pairs.
pub fn coefficients(key: FoldKey, words: u64) -> Vec<u8> {
    let table = (0..BLOCK).map(|j| key.table(j));
    let factors = (0..words.div_ceil(BLOCK)).map(|block| key.factor(block));
    let (first, second): (Vec<u64>, Vec<u64>) = table.unzip();
    let words = first.into_iter().chain(second).chain(factors.flat_map(|(a, b)| [a, b]));
    words.flat_map(u64::to_le_bytes).collect()
}

/// The sum of triples: a fold, and whether no word was not finite.
pub fn added(bytes: &[u8]) -> (Fold, bool) {
    let (mut sum, mut bad) = (Fold::default(), 0_u64);
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    for &[a, b, count] in words.as_chunks::<3>().0 {
        sum = Fold { a: sum.a.wrapping_add(a), b: sum.b.wrapping_add(b) };
        bad += count;
    }
    (sum, bad == 0)
}

/// A launch that folds `words` words at a place into triples from word `at` of `sums` on, one for each of its groups.
pub fn fold_words(
    place: Place,
    words: u64,
    key: Buffer,
    (sums, at): (Buffer, u64),
    blocks_each: u64,
    items: u32,
) -> Launch {
    let groups = words.div_ceil(BLOCK).div_ceil(blocks_each);
    let arguments = vec![
        Argument::Tensor(place.buffer, place.at),
        Argument::Tensor(key, 0),
        Argument::Tensor(sums, at),
        Argument::U64(words),
        Argument::U64(blocks_each),
    ];
    Launch { kernel: "fold_words", groups: [groups as u32, 1], items, arguments }
}

impl Flat {
    /// For vectors of so many words, one or more.
    pub fn new(
        machine: &mut dyn Machine,
        words: u64,
        shapes: &Shapes,
        build: &Build,
    ) -> Result<Flat, BackendError> {
        let chunks = words.div_ceil(BLOCK);
        Ok(Flat {
            words,
            shapes: *shapes,
            hashes_each: if build.staged { 1 } else { HASHES },
            sums: machine.allocate(24 * GROUPS_MAX)?,
            hashes: [machine.allocate(32 * chunks)?, machine.allocate(32 * chunks.div_ceil(2))?],
        })
    }

    /// The fold of a vector under a key whose coefficients lie in memory, and whether all its words are finite.
    pub fn fold(
        &self,
        machine: &mut dyn Machine,
        at: Place,
        key: Buffer,
    ) -> Result<(Fold, bool), BackendError> {
        let least = self.words.div_ceil(BLOCK).div_ceil(GROUPS_MAX);
        let blocks_each = least.max(self.shapes.blocks.into());
        let launch = fold_words(at, self.words, key, (self.sums, 0), blocks_each, self.shapes.items);
        machine.launch(&launch)?;
        let mut bytes = vec![0; 24 * launch.groups[0] as usize];
        machine.read(self.sums, 0, &mut bytes)?;
        Ok(added(&bytes))
    }

    /// Checksum (of shape `[words]`), fold, and whether all words are finite.
    pub fn digest(
        &self,
        machine: &mut dyn Machine,
        at: Place,
        key: Buffer,
    ) -> Result<Digested, BackendError> {
        let hashed = self.launch_hashes(machine, at)?;
        let (fold, finite) = self.fold(machine, at, key)?;
        let mut words = [0; 32];
        machine.read(hashed, 0, &mut words)?;
        // The root is the words' bytes, highest first.
        let mut root = [0; 32];
        for (to, from) in root.as_chunks_mut::<4>().0.iter_mut().zip(words.as_chunks::<4>().0) {
            *to = u32::from_le_bytes(*from).to_be_bytes();
        }
        let checksum = bind(Dtype::F32, &[self.words], &root);
        Ok(Digested { sum: Sum { checksum, fold }, finite })
    }

    /// Hashes the chunks, then level after level; says where the root is.
    fn launch_hashes(&self, machine: &mut dyn Machine, at: Place) -> Result<Buffer, BackendError> {
        let items = self.shapes.items.min(HASH_ITEMS_MAX);
        let groups = |messages: u64| {
            let groups = messages.div_ceil(self.hashes_each * u64::from(items));
            [groups as u32, 1]
        };
        let [mut below, mut above] = self.hashes;
        let (whole, rest) = (self.words / BLOCK, self.words % BLOCK);
        if whole > 0 {
            let arguments =
                vec![Argument::Tensor(at.buffer, at.at), Argument::Tensor(below, 0), Argument::U64(whole)];
            machine.launch(&Launch { kernel: "hash_chunks", groups: groups(whole), items, arguments })?;
        }
        if rest > 0 {
            let arguments = vec![
                Argument::Tensor(at.buffer, at.at + BLOCK * whole),
                Argument::Tensor(below, 8 * whole),
                Argument::U32(rest as u32),
            ];
            machine.launch(&Launch { kernel: "hash_last", groups: [1, 1], items: 1, arguments })?;
        }
        let mut n = self.words.div_ceil(BLOCK);
        while n > 1 {
            let arguments = vec![Argument::Tensor(below, 0), Argument::Tensor(above, 0), Argument::U64(n)];
            machine.launch(&Launch { kernel: "hash_pairs", groups: groups(n / 2), items, arguments })?;
            (below, above) = (above, below);
            n = n.div_ceil(2);
        }
        Ok(below)
    }
}
