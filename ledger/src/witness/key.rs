//! A witness's signing key: made on the first start, kept in a file that only its owner may read.

use std::path::Path;

use tlog::cosignature::CosigningKey;
use tlog::note::{KeyName, Verifier as _};

use crate::disk::durable::{Files, ensure_folder, read_optional};
use crate::disk::key::read_secret;
use crate::error::LogError;
use crate::witness::error::WitnessError;
use crate::witness::origins::{ORIGINS, Origins};
use crate::witness::records::RECORDS;

/// Reads the witness's key, or makes one in a new folder.
///
/// Without a name a new witness is named after random digits of its own. A key belongs to the records of what was
/// cosigned with it: neither is made anew while the other is there.
pub fn open_key(base: &Path, name: Option<&str>, files: &Files) -> Result<CosigningKey, WitnessError> {
    let (path, records) = (base.join("witness.key"), base.join(RECORDS));
    let wrong = |source| LogError::Key { path: path.clone(), source };
    let key = match read_secret(&path)? {
        Some(text) => {
            if !records.is_dir() {
                return Err(WitnessError::RecordsMissing { path: records });
            }
            let key = CosigningKey::parse_secret_text(&text).map_err(wrong)?;
            let found = key.verifier().name().as_str();
            if let Some(expected) = name.filter(|expected| *expected != found) {
                return Err(WitnessError::NameMismatch {
                    expected: expected.to_owned(),
                    found: found.to_owned(),
                });
            }
            key
        }
        None => {
            let mut random = [0; 38];
            getrandom::fill(&mut random).map_err(LogError::Random)?;
            let (seed, digits) = random.split_first_chunk::<32>().expect("ledger: 32 of 38 bytes");
            let name = name
                .map_or_else(|| format!("tallystick.local/witness-{}", hex::encode(digits)), str::to_owned);
            let key = CosigningKey::from_seed(KeyName::new(&name).map_err(wrong)?, seed);
            // The key last: a crash before leaves no records and no key, which is a new witness.
            ensure_folder(&records).map_err(LogError::io(&records))?;
            Origins::create(base, files)?;
            let text = format!("{}\n", key.to_secret_text());
            files.replace_secret(&path, text.as_bytes()).map_err(LogError::io(&path))?;
            key
        }
    };
    let (path, text) = (base.join("witness.pub"), format!("{}\n", key.verifier()));
    if read_optional(&path).map_err(LogError::io(&path))?.as_deref() != Some(text.as_bytes()) {
        files.replace(&path, text.as_bytes()).map_err(LogError::io(&path))?;
    }
    Ok(key)
}

/// Refuses a folder that something else lives in, and one of a witness that has lost its key.
pub fn check_folder(base: &Path) -> Result<(), WitnessError> {
    let path = base.join("witness.key");
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    // What a first start that was interrupted may have made.
    let of_a_start = ["server.lock", RECORDS, ".origins.new", ORIGINS, ".witness.key.new"];
    let records = !crate::disk::folder::names(&base.join(RECORDS))?.is_empty() || Origins::any(base)?;
    if records || base.join("witness.pub").exists() {
        return Err(WitnessError::KeyMissing { path });
    }
    match crate::disk::folder::names(base)?.into_iter().find(|name| !of_a_start.contains(&name.as_str())) {
        Some(found) => Err(WitnessError::NotAWitness { path: base.to_owned(), found }),
        None => Ok(()),
    }
}
