//! The command that submits, compares and checks; and the parts of it that other commands use.
//!
//! [`keyfile`], [`atomic`] and [`ledger`] are for any command that signs statements, writes files or talks to a
//! log. The rest belongs to the commands of `client`, in path order.

pub mod atomic;
pub mod keyfile;
pub mod http;
pub mod ledger;

pub mod cli;
pub mod output;
pub mod progress;
pub mod folder;
pub mod deadline;
pub mod steps;
pub mod submit;
pub mod challenge;
pub mod receipts;
pub mod open;
pub mod open_step;
pub mod replay;
pub mod evidence;
pub mod cause;
pub mod pinpoint;
pub mod reconcile;
pub mod assemble;
pub mod account;
pub mod stored;
pub mod check;
pub mod export;
pub mod bundle;
pub mod show;
pub mod completeness;
pub mod status;
pub mod monitor;
