//! The log server: admits statements, puts them in an order, and serves the log as tiles, proofs and pages.
//!
//! In scope: durability, order, the C2SP read side, attachments. Out of scope: judging. The server checks that an
//! entry is a well-formed signed statement that names a known run, and nothing else (see [`admission`]).

// In path order: the folder, what is promised, how entries get in, how they are read.
pub mod durable;
pub mod error;
pub mod store;
pub mod stage;
pub mod lock;
pub mod folder;
pub mod key;
pub mod check;
pub mod commit;
pub mod index;
pub mod admission;
pub mod sequencer;
pub mod log;
pub mod problem;
pub mod body;
pub mod submit;
pub mod read;
pub mod attachments;
pub mod pages;
pub mod app;
pub mod peers;
pub mod progress;
pub mod server;
