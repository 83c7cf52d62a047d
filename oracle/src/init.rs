//! `oracle init`: a run.toml in which every key is explained.

use client::output::{Hinted, result};
use client::{atomic, keyfile};
use std::path::Path;

/// The template; a test reads it as a config.
pub const TEMPLATE: &str = include_str!("template.toml");

/// Writes the template to `file`, never over an existing one.
pub fn write(file: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(
        !keyfile::is_there(file),
        Hinted::new(
            format!("{} exists and is left alone", file.display()),
            "give another name: `oracle init NAME`"
        )
    );
    atomic::write_new(file, TEMPLATE.as_bytes(), atomic::PUBLIC)?;
    result(&format!("wrote {}\n", file.display()));
    eprintln!("oracle: hint: set data.files, then `oracle plan --run {}`", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_a_valid_config() {
        schemas::config::Config::from_toml(TEMPLATE).unwrap();
    }

    #[test]
    fn an_existing_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.toml");
        std::fs::write(&file, "mine").unwrap();
        assert!(write(&file).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    }
}
