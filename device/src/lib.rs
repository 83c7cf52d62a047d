//! The devices' side of a run: walk the plan, exchange gradients, and say in a signed receipt what was computed.
//!
//! Written from the specification and apart from the oracle: it shares `schemas` with it and nothing else, except
//! that [`simulated`], the backend for rehearsals, calls the oracle's arithmetic and says so in every receipt. To
//! read one step of one device from its leaves to its record, start at [`rank`].

pub mod snapshot;
pub mod job;
pub mod checkpoint;

pub mod backend;
pub mod machine;
pub mod kernels;
pub mod places;
pub mod order;
pub mod launches;
pub mod executor;
pub mod selftest;
pub mod devices;
pub mod opencl;
pub mod nvrtc;
pub mod cuda;
pub mod simulated;

pub mod checksum;
pub mod link;
pub mod fault;
pub mod journal;
pub mod rank;

pub mod keyfile;
pub mod staging;
pub mod run;

pub mod check;
pub mod bench;

pub mod estimate;
pub mod measure;
pub mod progress;
pub mod plot;
pub mod logbook;
pub mod report;
pub mod cli;
