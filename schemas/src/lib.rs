//! The objects of Tallystick: what they are, how they are written down, and nothing else.
//!
//! Every object has one stem, the same in `docs/spec/<stem>.md`, `schemas/cddl/<stem>.cddl` and
//! `schemas/src/<stem>.rs`. Objects are deterministic CBOR read by a strict decoder: after decoding, an invalid
//! value cannot exist, and no second encoding of one value is accepted.
//!
//! | stage | object | module |
//! | --- | --- | --- |
//! | 1 configure | config | [`config`] |
//! | 2 plan | plan | [`plan`] |
//! | 4 checksum | checksum, fold, trace, window | [`checksum`], [`fold`], [`trace`], [`window`] |
//! | 5 predict | run, prediction, opening | [`run`], [`prediction`], [`opening`] |
//! | 6 log | entry = signed statement; what a log holds of a run | [`statement`], [`attachment`], [`register`] |
//! | 6 log | the log's word in the form of SCITT | [`cose_receipt`] |
//! | 8 run | receipt | [`challenge`], [`receipt`] |
//! | 9 reconcile | verdict | [`verdict`] |
//! | 10 bundle | bundle, completeness, opened step | [`bundle`], [`completeness`], [`opened`] |

pub mod cbor;
pub mod digest;
pub mod key;
pub mod layout;
pub mod object;
pub mod source;
pub mod time;
pub mod counted;

pub mod profile;
pub mod config;
pub mod plan;
pub mod plan_shapes;
pub mod checksum;
pub mod fold;
pub mod trace;
pub mod window;
pub mod run;
pub mod record;
pub mod prediction;
pub mod opening;
pub mod attachment;
pub mod statement;
pub mod register;
pub mod cose_receipt;
pub mod challenge;
pub mod receipt;
pub mod verdict;
pub mod bundle;
pub mod completeness;
pub mod opened;
