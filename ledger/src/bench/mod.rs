//! `ledger bench`: how many entries a second a real server takes in, and how long each waits.
//!
//! A server is started as a process of its own and loaded over HTTP on loopback, from one thread. What counts is an
//! acknowledgement that holds: status 201 with a proof that this very entry stands under a checkpoint with the log's
//! signature. See docs/PERFORMANCE.md for what the figures are.

// In path order: what is submitted, to whom, how, what counts, and what is told of it.
pub mod entries;
pub mod folder;
pub mod server;
pub mod connection;
pub mod acknowledged;
pub mod load;
pub mod report;
pub mod run;
