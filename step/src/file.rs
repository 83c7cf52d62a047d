//! Opening what has to be a file.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a regular file. Asked before it is opened: a pipe would wait for a writer, a device might never end.
pub fn open_file(path: &Path) -> io::Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    let found = match () {
        () if kind.is_file() => return File::open(path),
        () if kind.is_dir() => "a folder",
        () => "a pipe, a socket or a device",
    };
    Err(io::Error::other(format!("expected a regular file, found {found}")))
}
