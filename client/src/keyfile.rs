//! Key files: a secret key in a file that only its owner may read, its public key in a
//! `.pub` beside it ([`public_path`]).

use crate::atomic::{self, WriteError};
use schemas::key::{KeyError, PublicKey, SecretKey};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use tlog::note::VerifierKey;

/// Longest key file, secret or public, that is read.
const KEY_FILE_BYTES_MAX: u64 = 4096;
/// What every text of a secret key starts with; such a text is never shown.
const SECRET_MARKS: [&str; 2] = ["tallystick-secret-", "PRIVATE+KEY+"];

/// Why a key could not be had.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file could not be read.
    #[error("cannot read key file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Too long, not a file, or not text.
    #[error("key file {}: expected a text file of at most {KEY_FILE_BYTES_MAX} bytes", path.display())]
    NotAKeyFile {
        /// The file.
        path: PathBuf,
    },
    /// Others could read the secret.
    #[error("key file {} has mode {mode:04o}, expected 0600", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A public key where a secret one belongs.
    #[error("key file {}: that is a public key; the secret one is {}", path.display(), secret.display())]
    PublicGiven {
        /// The file.
        path: PathBuf,
        /// Where the secret key should be.
        secret: PathBuf,
    },
    /// The text is not a key of ours.
    #[error("key file {}: {source}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: KeyError,
    },
    /// An argument that is neither a key nor a file with one.
    #[error("expected {expected} or a file that holds one, found {found:?}: {why}")]
    Argument {
        /// What kind of key.
        expected: &'static str,
        /// The argument, cut after 80 characters.
        found: String,
        /// What is wrong with it.
        why: String,
    },
    /// A secret key where a public one belongs.
    #[error("expected {expected}, found a secret key")]
    SecretGiven {
        /// What kind of key.
        expected: &'static str,
    },
    /// The key files could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The system gave no random numbers.
    #[error("the system gave no random numbers: {0}")]
    Random(String),
}

impl KeyFileError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            KeyFileError::Open { path, .. } => {
                Some(format!("if nobody else has read it, run chmod 600 {}", path.display()))
            }
            KeyFileError::Write(error) if error.source.kind() == io::ErrorKind::AlreadyExists => {
                Some("a key file is never overwritten; choose another name".into())
            }
            KeyFileError::Write(error) => error.hint(),
            KeyFileError::SecretGiven { .. } => Some("public keys are in the file that ends in .pub".into()),
            KeyFileError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("client keygen FILE makes a key".into())
            }
            _ => None,
        }
    }
}

/// The name of the public key's file: `NAME.pub` for `NAME.key`, otherwise the whole name and `.pub`.
pub fn public_path(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|extension| extension == "key") {
        return path.with_extension("pub");
    }
    let mut name = OsString::from(path);
    name.push(".pub");
    PathBuf::from(name)
}

/// The name of the secret key's file for a public key's: the other way round.
fn secret_path(path: &Path) -> PathBuf {
    let bare = path.with_extension("");
    match path.extension() {
        Some(extension) if extension == "pub" && is_there(&bare) => bare,
        _ => path.with_extension("key"),
    }
}

/// Makes a new key, writes both files, and returns the key. Neither file is overwritten.
pub fn create(path: &Path) -> Result<SecretKey, KeyFileError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| KeyFileError::Random(error.to_string()))?;
    let key = SecretKey::from_seed(seed);
    // The secret first: a public key without its secret would promise what cannot be signed.
    atomic::write_new(path, key.to_text().as_bytes(), atomic::SECRET)?;
    write_public(path, &key)?;
    Ok(key)
}

/// Writes the public half of the key at `path` beside it. A file that is there is left alone, and is an error only if
/// it holds anything else.
pub fn write_public(path: &Path, key: &SecretKey) -> Result<(), KeyFileError> {
    let (path, text) = (public_path(path), format!("{}\n", key.public()));
    match atomic::write_new(&path, text.as_bytes(), atomic::PUBLIC) {
        // Two commands that use one key may make it again at the same time.
        Err(error)
            if error.source.kind() == io::ErrorKind::AlreadyExists
                && read_text(&path).is_ok_and(|(found, _)| found == text) =>
        {
            Ok(())
        }
        written => Ok(written?),
    }
}

/// Reads a secret key. A file that its group or others may read is refused.
pub fn load(path: &Path) -> Result<SecretKey, KeyFileError> {
    let (text, mode) = read_text(path)?;
    // Before the mode: that others may read a public key is no fault.
    if text.trim().parse::<PublicKey>().is_ok() {
        return Err(KeyFileError::PublicGiven { path: path.to_owned(), secret: secret_path(path) });
    }
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Open { path: path.to_owned(), mode });
    }
    SecretKey::from_text(&text).map_err(|source| KeyFileError::Key { path: path.to_owned(), source })
}

/// A public key from an argument: its text, or a file that holds it.
pub fn public_key(argument: &str) -> Result<PublicKey, KeyFileError> {
    from_argument("a public key", "ed25519:", argument, |text| {
        text.parse().map_err(|error: KeyError| error.to_string())
    })
}

/// A log's key from an argument: its vkey, or a file that holds it.
pub fn log_key(argument: &str) -> Result<VerifierKey, KeyFileError> {
    from_argument("a log's vkey", "+", argument, |text| {
        VerifierKey::parse(text).map_err(|error| error.to_string())
    })
}

/// `mark` is in the text of every such key: an argument without it was meant as a file's name.
fn from_argument<T>(
    expected: &'static str,
    mark: &str,
    argument: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, KeyFileError> {
    let secret = |text: &str| SECRET_MARKS.iter().any(|mark| text.contains(mark));
    if secret(argument) {
        return Err(KeyFileError::SecretGiven { expected });
    }
    let why = match parse(argument.trim()) {
        Ok(key) => return Ok(key),
        Err(why) => why,
    };
    let path = Path::new(argument);
    if !path.exists() {
        let found = argument.chars().take(80).collect();
        let why = if argument.contains(mark) { why } else { "there is no such file".into() };
        return Err(KeyFileError::Argument { expected, found, why });
    }
    let (text, _) = read_text(path)?;
    if secret(&text) {
        return Err(KeyFileError::SecretGiven { expected });
    }
    parse(text.trim()).map_err(|why| {
        let found = argument.chars().take(80).collect();
        KeyFileError::Argument { expected, found, why }
    })
}

/// The text of a key file, and the file's mode.
fn read_text(path: &Path) -> Result<(String, u32), KeyFileError> {
    let reading = |source| KeyFileError::Read { path: path.to_owned(), source };
    let unfit = || KeyFileError::NotAKeyFile { path: path.to_owned() };
    // Asked before it is opened: a pipe would wait for a writer.
    if !fs::metadata(path).map_err(reading)?.is_file() {
        return Err(unfit());
    }
    let file = File::open(path).map_err(reading)?;
    // Of the file that was opened, not of what the path may name by now.
    let metadata = file.metadata().map_err(reading)?;
    if metadata.len() > KEY_FILE_BYTES_MAX {
        return Err(unfit());
    }
    let mode = metadata.mode() & 0o7777;
    let mut bytes = Vec::new();
    file.take(KEY_FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(reading)?;
    let text = String::from_utf8(bytes).map_err(|_| unfit())?;
    Ok((text, mode))
}

/// Whether `path` is there; for messages before anything is done.
pub fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_created_key_loads_again_and_its_public_key_stands_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("predictor.key");
        let made = create(&path).unwrap();
        assert_eq!(load(&path).unwrap().public(), made.public());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let beside = public_path(&path);
        assert_eq!(beside.file_name().unwrap(), "predictor.pub");
        assert_eq!(public_path(Path::new("a/key")), Path::new("a/key.pub"));
        assert_eq!(fs::read_to_string(&beside).unwrap(), format!("{}\n", made.public()));
        assert_eq!(public_key(beside.to_str().unwrap()).unwrap(), made.public());
        assert_eq!(public_key(&made.public().to_string()).unwrap(), made.public());
    }

    #[test]
    fn an_existing_key_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.key");
        let first = create(&path).unwrap().public();
        let error = create(&path).unwrap_err();
        assert!(error.hint().unwrap().contains("never overwritten"), "{error}");
        assert_eq!(load(&path).unwrap().public(), first);
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.key");
        create(&path).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = load(&path).unwrap_err();
            assert!(error.to_string().ends_with(&format!("has mode {mode:04o}, expected 0600")), "{error}");
            assert!(error.hint().unwrap().contains("chmod 600"));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert!(load(&path).is_ok());
    }

    #[test]
    fn a_public_key_in_place_of_a_secret_one_is_named_before_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        for (name, public) in [("a.key", "a.pub"), ("bare", "bare.pub")] {
            create(&folder.path().join(name)).unwrap();
            let error = load(&folder.path().join(public)).unwrap_err().to_string();
            let secret = folder.path().join(name);
            let told = format!("that is a public key; the secret one is {}", secret.display());
            assert!(error.ends_with(&told), "{error}");
        }
    }

    #[test]
    fn a_secret_is_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.key");
        let secret = create(&path).unwrap().to_text();
        let digits = secret.trim().rsplit(':').next().unwrap().to_owned();
        for argument in [path.to_str().unwrap(), secret.trim()] {
            for error in [public_key(argument).unwrap_err(), log_key(argument).unwrap_err()] {
                assert!(matches!(error, KeyFileError::SecretGiven { .. }));
                assert!(!format!("{error} {error:?} {:?}", error.hint()).contains(&digits[..8]));
            }
        }
        fs::write(&path, &secret[..secret.len() - 2]).unwrap();
        let error = load(&path).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(&digits[..8]), "{error}");
    }

    #[test]
    fn what_is_no_key_and_no_file_is_named_with_both_expectations() {
        let error = public_key("predictor").unwrap_err();
        let expected =
            "expected a public key or a file that holds one, found \"predictor\": there is no such file";
        assert_eq!(error.to_string(), expected);
        let error = log_key("nofile").unwrap_err();
        let expected =
            "expected a log's vkey or a file that holds one, found \"nofile\": there is no such file";
        assert_eq!(error.to_string(), expected);
        // What looks like a key is told what is wrong with it as a key.
        for error in [public_key("ed25519:00").unwrap_err(), log_key("log+00+AA").unwrap_err()] {
            assert!(!error.to_string().contains("no such file"), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long.key");
        fs::write(&path, vec![b'a'; 5000]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(load(&path), Err(KeyFileError::NotAKeyFile { .. })));
        assert!(matches!(load(folder.path()), Err(KeyFileError::NotAKeyFile { .. })));
        assert!(load(&folder.path().join("absent")).unwrap_err().hint().unwrap().contains("keygen"));
    }
}
