//! The log server: admits statements, puts them in an order, and serves the log as tiles, proofs and pages.
//!
//! In scope: durability, order, the C2SP read side, attachments. Out of scope: judging. The server checks that an
//! entry is a well-formed signed statement that names a known run, and nothing else (see [`order::admission`]).

// In path order: the folder, how entries get in, how they are read, who vouches for it, how fast, how it is checked,
// and what is said about it.
pub mod error;
pub mod argument;
pub mod metrics;
pub mod disk;
pub mod order;
pub mod log;
pub mod reindex;
pub mod http;
pub mod call;
pub mod witness;
pub mod bench;
pub mod fsck;
pub mod hint;
pub mod say;
