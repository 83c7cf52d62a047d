//! What peers see: submissions, reads, pages, and the limits on all of them.

pub mod accept;
pub mod problem;
pub mod buckets;
pub mod submitters;
pub mod body;
pub mod submit;
pub mod read;
pub mod entry;
pub mod checked;
pub mod proof;
pub mod cose_receipt;
pub mod completeness;
pub mod bracket;
pub mod attachments;
pub mod pages;
pub mod app;
pub mod peers;
pub mod progress;
pub mod descriptors;
pub mod server;
pub mod signals;
