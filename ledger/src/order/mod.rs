//! How entries get their place: the index of what is there, what is admitted, the commit, and who calls it.

pub mod index;
pub mod admission;
pub mod verifiers;
pub mod commit;
pub mod sequencer;
