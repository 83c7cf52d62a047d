//! The index, held against the entries: each page against its check, and every row against those of an index that is
//! made anew among the system's temporary files.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tlog::tree::TreeSize;

use crate::bench::folder::Folder as Temporary;
use crate::disk::store::Store;
use crate::error::LogError;
use crate::fsck::finding::{Finding, Kind};
use crate::log::catch_up;
use crate::order::index::Index;
use crate::order::rows::Difference;

/// The index's file.
pub const INDEX: &str = "index.redb";

/// What is wrong with the index of a tree of `size` entries; nothing in the log's folder is changed. Its rows are
/// compared only if the entries are known to be right.
pub fn check_index(store: &Store, size: TreeSize, entries_right: bool) -> Result<Option<Finding>, LogError> {
    let of_file = |kind, what: &str| Ok(Some(Finding::of_file(kind, INDEX, what)));
    let path = store.path(INDEX);
    match fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return of_file(Kind::Missing, "the file is not there");
        }
        Err(error) => return Err(LogError::Io { path, source: error }),
        Ok(found) if found.len() == 0 => return of_file(Kind::Truncated, "the file is empty"),
        Ok(_) => {}
    }
    let temporary = Temporary::open(None).map_err(LogError::io(std::env::temp_dir()))?;
    let (copy, anew) = (temporary.log().with_extension("copy"), temporary.log().with_extension("anew"));
    // Opening a file of this kind writes to it.
    fs::copy(&path, &copy).map_err(LogError::io(&path))?;
    let attempt = || -> Result<Option<Finding>, LogError> {
        let found = Index::open(&copy)?;
        let indexed = found.size()?;
        // Fewer is what a kill leaves: the next start adds the others.
        if indexed > size.0 {
            let what = format!("it has {indexed} entries, expected those of a tree of {size}");
            return of_file(Kind::Wrong, &what);
        }
        if !entries_right {
            return Ok(None);
        }
        let expected = Index::open(&anew)?;
        catch_up(store, &expected, TreeSize(indexed))?;
        expected.sync()?;
        Ok(found.difference(&expected)?.map(|difference| of_row(&difference)))
    };
    match catch_unwind(AssertUnwindSafe(attempt)) {
        Ok(Err(LogError::IndexDamaged)) | Err(_) => of_file(Kind::Wrong, "a page of it is damaged"),
        Ok(Err(error @ LogError::Index(_))) => of_file(Kind::Wrong, &error.to_string()),
        Ok(other) => other,
    }
}

fn of_row(difference: &Difference) -> Finding {
    let Difference { table, key, found, expected } = difference;
    let value = |value: &Option<Vec<u8>>| match value {
        Some(value) => format!("\"{}\"", hex::encode(value)),
        None => "no such row".to_owned(),
    };
    let (found, expected) = (value(found), value(expected));
    let key = hex::encode(key);
    let what = format!("table {table:?}, row {key}: {found}, the entries call for {expected}");
    Finding::of_file(Kind::Wrong, INDEX, what)
}
