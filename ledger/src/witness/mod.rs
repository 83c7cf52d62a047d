//! Witnessing: a witness server, and the log's side, which asks witnesses and keeps what they cosigned.

// The witness: its key, what it cosigned, the server.
pub mod error;
pub mod key;
pub mod origins;
pub mod records;
pub mod server;
// The log: whom it asks, how, and what comes of it.
pub mod plan;
pub mod ask;
pub mod quorum;
pub mod witnessed;
pub mod counters;
