//! A verifier key on the command line: the key itself, or a file that holds it.

use std::fs::File;
use std::io::Read as _;

use thiserror::Error;
use tlog::note::VerifierKey;

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 4096;
/// Longest part of an argument that is repeated.
const SHOWN_CHARS_MAX: usize = 80;
/// What a secret key begins with; such a text is never shown.
const SECRET_MARK: &str = "PRIVATE+KEY+";

/// Why an argument is no key.
#[derive(Debug, Error)]
pub enum ArgumentError {
    /// Neither a key nor a file with one.
    #[error("expected a verifier key or a file that holds one, found {found:?}: {why}")]
    NoKey {
        /// The argument, cut to a length.
        found: String,
        /// What is wrong with it.
        why: String,
    },
    /// A secret key where a public one belongs.
    #[error("expected a verifier key, found a secret key; the public one is in log.pub")]
    Secret,
}

/// The key that is given, or that is in the file that is named.
pub fn verifier_key(argument: &str) -> Result<VerifierKey, ArgumentError> {
    let no_key =
        |why: String| ArgumentError::NoKey { found: argument.chars().take(SHOWN_CHARS_MAX).collect(), why };
    let parse = |text: &str| {
        if text.contains(SECRET_MARK) {
            return Err(ArgumentError::Secret);
        }
        VerifierKey::parse(text).map_err(|error| no_key(error.to_string()))
    };
    let error = match parse(argument) {
        Err(error @ ArgumentError::NoKey { .. }) => error,
        other => return other,
    };
    // A key has plus signs, and so may a path; whatever there is a file of is one.
    let Ok(about) = std::fs::metadata(argument) else { return Err(error) };
    if !about.is_file() || about.len() > FILE_BYTES_MAX {
        return Err(no_key(format!("it is no file of at most {FILE_BYTES_MAX} bytes")));
    }
    let mut text = String::new();
    let file = File::open(argument).map_err(|error| no_key(error.to_string()))?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| no_key(error.to_string()))?;
    parse(text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlog::note::{KeyName, SigningKey};

    #[test]
    fn a_key_is_taken_as_it_is_or_from_a_file_and_a_secret_one_is_not_repeated() {
        let key = SigningKey::from_seed(KeyName::new("example.com/log").unwrap(), &[7; 32]);
        let (text, secret) = (key.verifier().to_string(), key.to_secret_text().to_string());
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("log.pub"), format!("{text}\n")).unwrap();
        std::fs::write(path("log.key"), format!("{secret}\n")).unwrap();
        std::fs::write(path("long"), "x".repeat(4097)).unwrap();
        for argument in [&text, &path("log.pub")] {
            assert_eq!(verifier_key(argument).unwrap(), *key.verifier());
        }
        for argument in [&secret, &path("log.key")] {
            assert!(matches!(verifier_key(argument), Err(ArgumentError::Secret)));
        }
        let why = |argument: &str| verifier_key(argument).unwrap_err().to_string();
        let expected = "expected a verifier key or a file that holds one, found ";
        assert!(why("nothing").starts_with(&format!("{expected}\"nothing\": ")), "{}", why("nothing"));
        for argument in [path("long"), path("")] {
            assert!(why(&argument).ends_with(": it is no file of at most 4096 bytes"), "{}", why(&argument));
        }
    }
}
