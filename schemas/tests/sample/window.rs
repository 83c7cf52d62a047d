//! What one leaf of the tiny run reads, opened, over a stream of its own: of three chunks, the last not whole.

use super::network;
use super::tensor::{checksum, words};
use super::tree;
use schemas::checksum::Dtype;
use schemas::config::Config;
use schemas::window::{Chunk, WindowProof};

/// Tokens of the stream.
const TOKENS: u64 = 2500;
/// Step and leaf.
const AT: (u64, u64) = (2, 3);
/// The windows of that leaf: by docs/spec/plan.md#order, as a test of the whole workspace holds them.
const WINDOWS: [u64; 2] = [112, 527];

/// The stream's bytes.
fn stream() -> Vec<u32> {
    words("tokens", TOKENS).into_iter().map(|word| word % 11).collect()
}

/// The proof.
pub fn proof() -> WindowProof {
    let tokens = stream();
    let config = Config::from_toml(network::TINY_TOML).unwrap();
    let plan = network::plan(&config, TOKENS, checksum(Dtype::U32, &[TOKENS], &tokens));
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    let chunks: Vec<&[u8]> = bytes.chunks(4096).collect();
    let mut needed: Vec<usize> = WINDOWS
        .iter()
        .flat_map(|window| [4 * window / 1024, (4 * window + 4) / 1024])
        .map(|n| n as usize)
        .collect();
    needed.sort_unstable();
    needed.dedup();
    let chunk = |index: usize| Chunk {
        index: index as u64,
        bytes: chunks[index].to_vec(),
        path: tree::inclusion(index, &chunks),
    };
    WindowProof {
        plan: plan.digest(),
        step: AT.0,
        leaf: AT.1,
        windows: WINDOWS.to_vec(),
        root: tree::root(&chunks),
        chunks: needed.into_iter().map(chunk).collect(),
    }
}

/// The same in form only, and short: rejected cases start from it.
pub fn short() -> WindowProof {
    let chunk = |index: u64| Chunk { index, bytes: vec![1, 0, 0, 0], path: vec![[3; 32]] };
    WindowProof { chunks: vec![chunk(4), chunk(7)], ..proof() }
}
