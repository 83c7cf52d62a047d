//! Making a window proof (docs/spec/window.md). The tree's mathematics is `tlog`'s.

use schemas::plan::Plan;
use schemas::window::{CHUNKS_MAX, Chunk, WindowProof};
use tlog::hash::leaf_hash;
use tlog::proof::prove_inclusion;
use tlog::tree::{LeafIndex, StoredHashes};
use verify::window::{CHUNK_TOKENS, chunks_of};

/// The proof that leaf `leaf` of step `step` reads `windows` of `tokens`, the stream that `plan` commits to.
pub fn prove(
    plan: &Plan,
    tokens: &[u32],
    step: u64,
    leaf: u64,
    windows: Vec<u64>,
) -> anyhow::Result<WindowProof> {
    let needed = chunks_of(&windows, plan.dimensions.time);
    anyhow::ensure!(
        needed.len() <= CHUNKS_MAX,
        "--proof: the leaf's windows lie in {} chunks of {CHUNK_TOKENS} tokens, a proof holds at most {CHUNKS_MAX}",
        needed.len()
    );
    let mut tree = StoredHashes::new();
    let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let chunks: Vec<&[u32]> = tokens.chunks(CHUNK_TOKENS as usize).collect();
    chunks.iter().for_each(|words| tree.push(leaf_hash(&bytes(words))));
    let mut opened = Vec::new();
    for index in needed {
        let path = prove_inclusion(LeafIndex(index), tree.size(), &tree)?;
        let path = path.0.iter().map(|hash| *hash.as_bytes()).collect();
        opened.push(Chunk { index, bytes: bytes(chunks[index as usize]), path });
    }
    let root = *tree.root(tree.size()).as_bytes();
    Ok(WindowProof { plan: plan.digest(), step, leaf, windows, root, chunks: opened })
}
