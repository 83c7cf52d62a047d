//! The arithmetic of a training step: plan, kernels, gradient tree, update and checksums.
//!
//! Pure computation: files and tokens come in as arguments, nothing here knows a network or a clock. To read
//! one step from top to bottom start at [`session`]; for what an operation computes, at
//! [`reference`](mod@reference).

// Shapes are written [n] and [rows, C], as in the papers; rustdoc takes the short ones for links.
#![allow(rustdoc::broken_intra_doc_links)]

// What the operations are.
pub mod number;
pub mod reference;

// How they are run here; neither changes a bit.
pub mod dispatch;
pub mod kernels;
mod simd;

// From a config to a plan.
pub mod layers;
pub mod plan;
pub mod schedule;

// What a run starts from.
pub mod init;
pub mod order;
pub mod tokens;

// One leaf.
pub mod file;
pub mod buffer;
pub mod execute;
pub mod memory;
pub mod operation;
pub mod tied;

// What is said of tensors, and the tensors that last.
pub mod checksum;
pub mod state;

// From leaves to the next state.
pub mod tree;
pub mod update;

// The whole step, and keeping its result.
pub mod session;
pub mod snapshot;
pub mod weights;

// Why a device's bits are others.
pub mod variants;

// From run.toml to all of the above.
pub mod setup;
