//! Checking: is it genuine (`verify`), and do prediction and receipts agree (`reconcile`).
//!
//! Everything here is a pure function of its arguments: no files, no network, no clock, no randomness. The same
//! code runs in the command and in the browser. What is found to disagree is a value ([`case::Decision`],
//! [`report::Report`]); an `Err` means that the inputs could not be compared at all.
//!
//! | stage | question | module |
//! | --- | --- | --- |
//! | 4 checksum | does the leaf read these tokens, and are they committed? | [`window`] |
//! | 5 predict | does the opening fit the seal, the plan the run? | [`prediction`] |
//! | 8 run | may this receipt be judged? | [`receipt`] |
//! | 9 reconcile | do they agree, if not, where? | [`evidence`], [`locate`], [`pinpoint`], [`case`], [`reconcile`] |
//! | 10 bundle | does the whole argument stand? | [`policy`], [`policy_file`], [`bundle`], [`report`], [`json`] |
//! | 10 bundle | which receipt bodies follow from the prediction? | [`implied`] |
//! | 10 bundle | when was it? | [`times`] |
//! | 10 bundle | which checkpoint was answered, and could another have been? | [`answered`] |
//! | 10 bundle | is there no second prediction? | [`completeness`] |
//! | 10 bundle | is this one step the sealed one? | [`opened`] |
//! | 6 log | is this entry in that tree, in the form that others read? | [`cose_receipt`] |

pub mod window;
pub mod prediction;
pub mod receipt;
pub mod evidence;
pub mod locate;
pub mod pinpoint;
pub mod case;
mod leaf;
mod meet;
mod update;
mod answer;
pub mod reconcile;
pub mod policy_file;
pub mod policy;
pub mod times;
mod entries;
mod covers;
pub mod answered;
pub mod implied;
mod attached;
pub mod bundle;
pub mod report;
pub mod completeness;
pub mod opened;
pub mod cose_receipt;
pub mod json;
