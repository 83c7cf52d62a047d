//! The log's signing key: made on the first start, kept in a file that only its owner may read.

use std::os::unix::fs::PermissionsExt;

use tlog::note::{KeyName, SigningKey, Verifier as _};

use crate::durable::read_optional;
use crate::error::LogError;
use crate::store::Store;

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

fn open_secret(store: &Store, origin: Option<&str>) -> Result<SigningKey, LogError> {
    let path = store.path("log.key");
    let wrong = |source| LogError::Key { path: path.clone(), source };
    if let Some(bytes) = read_optional(&path).map_err(LogError::io(&path))? {
        let key = SigningKey::parse_secret_text(&String::from_utf8_lossy(&bytes)).map_err(wrong)?;
        let found = key.verifier().name().as_str();
        if let Some(expected) = origin.filter(|expected| *expected != found) {
            return Err(LogError::OriginMismatch { expected: expected.to_owned(), found: found.to_owned() });
        }
        let mode = std::fs::metadata(&path).map_err(LogError::io(&path))?.permissions().mode();
        if mode & 0o077 != 0 {
            tracing::warn!(
                "{} can be read by others (mode {:o}); expected 600",
                path.display(),
                mode & 0o777
            );
        }
        return Ok(key);
    }
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
