//! The oracle: plans a run, states beforehand what each step must produce, and commits that to a log.
//!
//! The arithmetic is `step`'s and the network is `client`'s; this crate reads run.toml and keeps the two folders that
//! come of it: `job/` for the operator of the devices, `prediction/` to be kept secret until the devices have answered.

pub mod cli;
pub mod bench;
pub mod init;
pub mod data;
pub mod explain;
pub mod folder;
pub mod predict;
pub mod commit;
pub mod weights;
