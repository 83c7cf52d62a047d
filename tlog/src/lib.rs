//! The log's mathematics and text formats: RFC 6962 trees and the C2SP pages signed-note, tlog-checkpoint,
//! tlog-tiles, tlog-proof, tlog-cosignature, tlog-policy and tlog-witness.
//!
//! In scope: hashes, trees, proofs, tiles, entry bundles, notes, checkpoints, proof files, cosignatures, policies, and
//! what a witness decides.
//! Out of scope: any I/O (storage comes in through [`tree::HashReader`] and [`tile::TileSource`]), time,
//! randomness (keys are made from a seed the caller supplies), and the meaning of an entry: the log carries bytes.
//!
//! Words (C2SP and RFC 6962): an *entry* is the bytes appended; its *leaf hash* is the hash of the entry; its
//! *leaf index* is its zero-based position; the *tree size* is the number of leaves; the *root hash* commits to
//! all of them; a *checkpoint* is a signed origin, tree size and root hash.

// In path order: hash, tree, proof, then how a tree is stored, then how it is published.
pub mod checkpoint;
pub mod compact;
pub mod cosignature;
pub mod edge;
pub mod entries;
pub mod hash;
pub mod note;
pub mod policy;
pub mod proof;
pub mod tile;
pub mod tlog_proof;
pub mod tree;
pub mod witness;
