//! `oracle init`: a run.toml in which every key is explained.

use anyhow::Context;
use std::io::Write;
use std::path::Path;

/// The template; a test reads it as a config.
pub const TEMPLATE: &str = include_str!("template.toml");

/// Writes the template to `file`, never over an existing one.
pub fn write(file: &Path) -> anyhow::Result<()> {
    let mut out =
        std::fs::OpenOptions::new().write(true).create_new(true).open(file).with_context(|| {
            format!("could not create {} (an existing file is left alone)", file.display())
        })?;
    out.write_all(TEMPLATE.as_bytes()).with_context(|| format!("could not write {}", file.display()))?;
    println!("wrote {}", file.display());
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
