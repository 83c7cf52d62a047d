//! Pages of a file, seen as memory.
//!
//! `unsafe` stands here because the system may change what a mapping shows: if somebody shortens the file while it
//! is mapped, the next word beyond its end ends the process (SIGBUS), and if somebody writes to it, the bytes change
//! under a shared reference. Three things keep that out. Only files of a prediction's own folder are mapped, which are
//! written beside their place, renamed, and never written to again; what a user names (`[state]` in run.toml) is read
//! instead. The file's length is looked at before each window is mapped. And a window lives for one copy: a process
//! that ends there has written nothing, and goes on from the same folder.

use memmap2::{Mmap, MmapOptions};
use std::fs::File;
use std::io;

/// `bytes` bytes of `file` from `start` on.
#[allow(unsafe_code)]
pub fn window(file: &File, start: u64, bytes: usize) -> io::Result<Mmap> {
    let found = file.metadata()?.len();
    if start.checked_add(bytes as u64).is_none_or(|end| end > found) {
        let text = format!("expected {bytes} bytes from byte {start} on, found a file of {found}");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    // Sound as long as nobody shortens or writes to the file while the window lives: see above.
    unsafe { MmapOptions::new().offset(start).len(bytes).map(file) }
}
