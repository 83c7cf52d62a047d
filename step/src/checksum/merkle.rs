//! The Merkle tree hash of RFC 6962 section 2.1 over chunks of a tensor's words.

use super::sha256::{Digest, Way, Word, plain};
use rayon::prelude::*;
use sha2::{Digest as _, Sha256};

/// Words of a chunk.
pub const CHUNK_WORDS: usize = schemas::checksum::CHUNK_BYTES / 4;
/// Prefix of a chunk's hash.
const LEAF_PREFIX: u8 = 0;
/// Prefix of a node's hash.
const NODE_PREFIX: u8 = 1;
/// Words of a node: two digests.
const NODE_WORDS: usize = 16;
/// Chunks hashed by one task, and nodes: several groups of every way to hash.
const TASK_CHUNKS: usize = 64;
const TASK_NODES: usize = 1024;

/// The root over chunks of 4096 little-endian bytes, the last of which may be shorter.
pub fn root<W: Word>(way: Way, words: &[W]) -> [u8; 32] {
    if words.is_empty() {
        return Sha256::digest([]).into();
    }
    let (whole, rest) = words.split_at(words.len() / CHUNK_WORDS * CHUNK_WORDS);
    let mut level = hash_all(way, LEAF_PREFIX, CHUNK_WORDS, whole, TASK_CHUNKS);
    if !rest.is_empty() {
        level.push(plain(LEAF_PREFIX, rest));
    }
    // Pairing neighbours level by level, an odd last node moving up as it is, is the split at the largest power of
    // two of RFC 6962.
    while level.len() > 1 {
        let (pairs, odd) = level.split_at(level.len() / 2 * 2);
        let mut above = hash_all(way, NODE_PREFIX, NODE_WORDS, pairs.as_flattened(), TASK_NODES);
        above.extend(odd);
        level = above;
    }
    let mut root = [0; 32];
    root.as_chunks_mut::<4>()
        .0
        .iter_mut()
        .zip(level[0])
        .for_each(|(bytes, word)| *bytes = word.to_le_bytes());
    root
}

/// The digests of all messages of `length` words, `task` messages to a thread at a time.
fn hash_all<W: Word>(way: Way, prefix: u8, length: usize, words: &[W], task: usize) -> Vec<Digest> {
    let mut digests = vec![[0; 8]; words.len() / length];
    let tasks = words.par_chunks(task * length).zip(digests.par_chunks_mut(task));
    tasks.for_each(|(words, digests)| way.hash(prefix, length, words, digests));
    digests
}
