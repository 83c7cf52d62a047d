//! A dishonest party of each row of docs/VERIFY.md#threats, tried with the real commands against a real log, and what a
//! user sees of it. `tests/spec.rs` holds the page and these files to each other.

mod claimant;
mod faults;
mod forge;
mod hostile;
mod log;
#[path = "../../client/tests/lying/mod.rs"]
mod lying;
mod maker;
mod operator;
mod witness;
