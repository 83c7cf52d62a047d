//! The devices' signing keys: `device-<rank>.key` (secret, mode 0600, made when absent) and `device-<rank>.pub`.

use crate::job::open_file;
use crate::staging::write_atomic;
use schemas::key::{KeyError, PublicKey, SecretKey};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    System {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A secret that others can read or change.
    #[error("{}: expected mode 0600, found {mode:04o}", path.display())]
    Mode {
        /// Which file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Not a key.
    #[error("{}: {source}", path.display())]
    Key {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: KeyError,
    },
    /// A public file that belongs to another secret, or to none.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Public {
        /// Which file.
        path: PathBuf,
        /// The secret's public half, or that there should be no such file.
        expected: String,
        /// What the file says.
        found: PublicKey,
    },
    /// No random numbers from the system.
    #[error("no random numbers from the system: {0}")]
    Random(getrandom::Error),
}

/// Longest key file, in bytes: any key's text is far shorter.
const KEY_BYTES_MAX: u64 = 4096;

/// The key of device `rank` in `folder`; made, with the folder, when absent.
pub fn load_or_create(folder: &Path, rank: u64) -> Result<SecretKey, KeyFileError> {
    let secret = folder.join(format!("device-{rank}.key"));
    let public = folder.join(format!("device-{rank}.pub"));
    let listed = read_public(&public)?;
    if secret.try_exists().map_err(system(&secret))? {
        let key = load(&secret)?;
        match listed {
            Some(found) if found != key.public() => {
                let expected = key.public().to_string();
                return Err(KeyFileError::Public { path: public, expected, found });
            }
            Some(_) => {}
            None => write_public(&public, &key)?,
        }
        return Ok(key);
    }
    if let Some(found) = listed {
        // A new secret would silently take over the name under which others know the old one.
        let expected = format!("no such file without {}", secret.display());
        return Err(KeyFileError::Public { path: public, expected, found });
    }
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(KeyFileError::Random)?;
    let key = SecretKey::from_seed(seed);
    std::fs::create_dir_all(folder).map_err(system(folder))?;
    write_atomic(&secret, key.to_text().as_bytes(), 0o600).map_err(system(&secret))?;
    write_public(&public, &key)?;
    Ok(key)
}

fn write_public(path: &Path, key: &SecretKey) -> Result<(), KeyFileError> {
    write_atomic(path, format!("{}\n", key.public()).as_bytes(), 0o644).map_err(system(path))
}

fn load(path: &Path) -> Result<SecretKey, KeyFileError> {
    let metadata = std::fs::metadata(path).map_err(system(path))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Mode { path: path.to_owned(), mode });
    }
    let wrong = |source| KeyFileError::Key { path: path.to_owned(), source };
    SecretKey::from_text(&read_text(path)?).map_err(wrong)
}

fn read_public(path: &Path) -> Result<Option<PublicKey>, KeyFileError> {
    if !path.try_exists().map_err(system(path))? {
        return Ok(None);
    }
    let text = read_text(path)?;
    let key = text.strip_suffix('\n').unwrap_or(&text).parse();
    key.map(Some).map_err(|source| KeyFileError::Key { path: path.to_owned(), source })
}

fn read_text(path: &Path) -> Result<String, KeyFileError> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = open_file(path).map_err(system(path))?;
    file.take(KEY_BYTES_MAX).read_to_string(&mut text).map_err(system(path))?;
    Ok(text)
}

fn system(path: &Path) -> impl Fn(std::io::Error) -> KeyFileError + use<> {
    let path = path.to_owned();
    move |source| KeyFileError::System { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_with_mode_0600_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys");
        let made = load_or_create(&keys, 3).unwrap();
        let mode = std::fs::metadata(keys.join("device-3.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(load_or_create(&keys, 3).unwrap().public(), made.public());
        assert_ne!(load_or_create(&keys, 4).unwrap().public(), made.public());
        let text = std::fs::read_to_string(keys.join("device-3.pub")).unwrap();
        assert_eq!(text, format!("{}\n", made.public()));
        assert_eq!(std::fs::read_dir(&keys).unwrap().count(), 4, "nothing but two keys of two files");
    }

    #[test]
    fn a_lost_public_file_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let made = load_or_create(folder.path(), 0).unwrap();
        let public = folder.path().join("device-0.pub");
        std::fs::remove_file(&public).unwrap();
        load_or_create(folder.path(), 0).unwrap();
        assert_eq!(std::fs::read_to_string(public).unwrap(), format!("{}\n", made.public()));
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        load_or_create(folder.path(), 0).unwrap();
        let secret = folder.path().join("device-0.key");
        for mode in [0o640, 0o604, 0o620, 0o777] {
            std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = load_or_create(folder.path(), 0).unwrap_err();
            assert!(matches!(error, KeyFileError::Mode { .. }), "{error}");
            assert!(error.to_string().contains(&format!("found {mode:04o}")), "{error}");
        }
    }

    #[test]
    fn a_public_file_of_another_key_is_refused_and_nothing_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        load_or_create(folder.path(), 0).unwrap();
        let other = load_or_create(folder.path(), 1).unwrap();
        std::fs::copy(folder.path().join("device-1.pub"), folder.path().join("device-0.pub")).unwrap();
        let error = load_or_create(folder.path(), 0).unwrap_err();
        assert!(matches!(error, KeyFileError::Public { found, .. } if found == other.public()), "{error}");
        std::fs::remove_file(folder.path().join("device-0.key")).unwrap();
        let error = load_or_create(folder.path(), 0).unwrap_err();
        assert!(error.to_string().contains("no such file without"), "{error}");
        assert!(!folder.path().join("device-0.key").exists());
    }

    #[test]
    fn a_malformed_secret_is_refused_without_being_shown() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("device-0.key");
        write_atomic(&secret, b"tallystick-secret-ed25519:5a5a5a\n", 0o600).unwrap();
        let error = load_or_create(folder.path(), 0).unwrap_err();
        assert!(matches!(error, KeyFileError::Key { .. }) && !error.to_string().contains("5a5a"), "{error}");
    }
}
