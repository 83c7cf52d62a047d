//! Calling other servers over HTTP: witnesses, and logs that are checked from afar.

pub mod url;
pub mod client;
