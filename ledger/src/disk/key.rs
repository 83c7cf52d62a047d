//! The log's signing key: made on the first start, kept in a file that only its owner may read.

use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tlog::note::{KeyName, SigningKey, Verifier as _};

use crate::disk::durable::{open_file, read_optional};
use crate::disk::store::Store;
use crate::error::LogError;

/// Longest key file that is read; a key has some hundred bytes.
const KEY_BYTES_MAX: u64 = 4096;

/// Reads the log's key, or makes one.
///
/// The key's name is the log's origin. Without an origin a new log is named after random digits of its own, so that
/// two logs never share a name by neglect; an existing log refuses another origin than its own.
///
/// The public half stands beside it as `log.pub`, for whoever is to check this log.
pub fn open_key(store: &Store, origin: Option<&str>) -> Result<SigningKey, LogError> {
    let key = open_secret(store, origin)?;
    let path = store.path("log.pub");
    let text = format!("{}\n", key.verifier());
    if read_optional(&path).map_err(LogError::io(&path))?.as_deref() != Some(text.as_bytes()) {
        store.files.replace(&path, text.as_bytes()).map_err(LogError::io(&path))?;
    }
    Ok(key)
}

/// Reads the log's key, if there is one, and writes nothing.
///
/// A key that others can read is refused: whoever has read it can sign as this log.
pub fn read_key(store: &Store) -> Result<Option<SigningKey>, LogError> {
    let path = store.path("log.key");
    let Some(text) = read_secret(&path)? else { return Ok(None) };
    SigningKey::parse_secret_text(&text).map(Some).map_err(|source| LogError::Key { path, source })
}

/// Reads a key's file, if there is one, and refuses one that others can read.
pub fn read_secret(path: &Path) -> Result<Option<String>, LogError> {
    let file = match open_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(LogError::io(path))?,
    };
    let mode = file.metadata().map_err(LogError::io(path))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(LogError::KeyExposed { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.take(KEY_BYTES_MAX).read_to_end(&mut bytes).map_err(LogError::io(path))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn open_secret(store: &Store, origin: Option<&str>) -> Result<SigningKey, LogError> {
    if let Some(key) = read_key(store)? {
        let found = key.verifier().name().as_str();
        if let Some(expected) = origin.filter(|expected| *expected != found) {
            return Err(LogError::OriginMismatch { expected: expected.to_owned(), found: found.to_owned() });
        }
        return Ok(key);
    }
    let path = store.path("log.key");
    let wrong = |source| LogError::Key { path: path.clone(), source };
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(LogError::Random)?;
    let mut digits = [0; 6];
    getrandom::fill(&mut digits).map_err(LogError::Random)?;
    let name = origin.map_or_else(|| format!("tallystick.local/{}", hex::encode(digits)), str::to_owned);
    let key = SigningKey::from_seed(KeyName::new(&name).map_err(wrong)?, &seed);
    let text = format!("{}\n", key.to_secret_text());
    store.files.replace_secret(&path, text.as_bytes()).map_err(LogError::io(&path))?;
    Ok(key)
}

/// The log's first entry: a fixed text that names the log, so that no real entry stands in a tree of size 1 (a COSE
/// receipt cannot express the empty path of such a tree) and no two logs have the same tree.
///
/// `tallystick log v1` LF `origin <origin>` LF. It is not a statement, and no statement begins like it.
pub fn genesis_entry(origin: &str) -> Vec<u8> {
    format!("tallystick log v1\norigin {origin}\n").into_bytes()
}
