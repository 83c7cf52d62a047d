//! `oracle init`: a run.toml in which every key is explained.

use client::output::{Hinted, result};
use client::{atomic, keyfile};
use std::path::Path;

/// The template, of a GPT-2; a test reads it as a config.
pub const TEMPLATE: &str = include_str!("template.toml");
/// The part of it that a Llama has instead.
const LLAMA: &str = include_str!("template_llama.toml");

/// A model to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Start {
    /// LayerNorm, learned positions, GELU.
    Gpt2,
    /// RMSNorm, rotary positions, SwiGLU, grouped-query attention.
    Llama,
}

/// The template of a model.
pub fn template(model: Start) -> String {
    let (before, rest) = TEMPLATE.split_once("# The model, by").expect("init: the template has a model");
    let (_, after) = rest.split_once("# The first state:").expect("init: the template has a first state");
    match model {
        Start::Gpt2 => TEMPLATE.into(),
        Start::Llama => format!("{before}{LLAMA}# The first state:{after}"),
    }
}

/// Writes the template of `model` to `file`, never over an existing one.
pub fn write(file: &Path, model: Start) -> anyhow::Result<()> {
    anyhow::ensure!(
        !keyfile::is_there(file),
        Hinted::new(
            format!("{} exists and is left alone", file.display()),
            "give another name: `oracle init NAME`"
        )
    );
    atomic::write_new(file, template(model).as_bytes(), atomic::PUBLIC)?;
    result(&format!("wrote {}\n", file.display()));
    eprintln!("oracle: hint: set data.files, then `oracle plan --run {}`", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_valid_configs_also_with_every_key_in_use() {
        for (model, name) in [(Start::Gpt2, "gpt2"), (Start::Llama, "llama")] {
            let text = template(model);
            let config = schemas::config::Config::from_toml(&text).unwrap();
            assert_eq!(config.model.model_type(), name);
            // A key in a comment is a key of its own line.
            let is_key = |line: &str| {
                line.starts_with("# [[")
                    || line.strip_prefix("# ").is_some_and(|line| {
                        line.split_once(" = ")
                            .is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
                    })
            };
            let all: Vec<&str> =
                text.lines().map(|line| if is_key(line) { &line[2..] } else { line }).collect();
            let whole = schemas::config::Config::from_toml(&all.join("\n")).unwrap();
            assert_eq!(whole.optimizer.groups.len(), 1);
            assert_ne!(whole.model, config.model);
        }
    }

    #[test]
    fn an_existing_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.toml");
        std::fs::write(&file, "mine").unwrap();
        assert!(write(&file, Start::Llama).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    }
}
