//! What lies on disk: the folder of a log, files that survive a power cut, and the record of what was promised.

pub mod durable;
pub mod store;
pub mod journal;
pub mod lock;
pub mod history;
pub mod sync;
pub mod folder;
pub mod key;
