//! How entries get their place: the index of what is there, what is admitted, the commit, and who calls it.

pub mod rows;
pub mod registers;
pub mod index;
pub mod admission;
pub mod verifiers;
pub mod commit;
pub mod recover;
pub mod sequencer;
