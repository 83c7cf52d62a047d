//! A temporary folder in which the command runs.

// Every test file uses its own part of it.
#![allow(dead_code)]

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// What a test varies of a GPT-2.
#[derive(Clone, Copy)]
pub struct Size {
    pub steps: u64,
    pub leaves: u64,
    pub layers: u64,
    pub channels: u64,
    pub vocabulary: u64,
    pub sequences: u64,
    pub length: u64,
}

/// 12 thousand parameters.
pub const TINY: Size =
    Size { steps: 24, leaves: 2, layers: 1, channels: 24, vocabulary: 256, sequences: 1, length: 12 };

/// A folder with a run.toml and its data.
pub struct Shop {
    folder: TempDir,
}

impl Shop {
    /// A folder with `run.toml` of that size; `state` is the line under `[state]`.
    pub fn open(size: Size, state: &str) -> Shop {
        let shop = Shop { folder: tempfile::tempdir().unwrap() };
        std::fs::write(shop.path("corpus.txt"), "All that is gold does not glitter, and so on. ".repeat(200))
            .unwrap();
        shop.write_run(size, state);
        shop
    }

    pub fn write_run(&self, size: Size, state: &str) {
        let Size { steps, leaves, layers, channels, vocabulary, sequences, length } = size;
        let text = format!(
            "name = \"shop\"\nprofile = \"f32-fma\"\nsteps = {steps}\nleaves = {leaves}\ndevices_max = 1\n\
             [model]\nmodel_type = \"gpt2\"\nvocab_size = {vocabulary}\nn_positions = {length}\n\
             n_embd = {channels}\nn_layer = {layers}\nn_head = {}\nlayer_norm_epsilon = 1e-5\n\
             activation_function = \"gelu_new\"\ninitializer_range = 0.02\n[state]\n{state}\n[data]\n\
             format = \"text\"\ntokenizer = \"bytes\"\nfiles = [\"corpus.txt\"]\nsequences = {sequences}\n\
             length = {length}\nseed = 7\n[optimizer]\nkind = \"adamw\"\nlearning_rate = 1e-3\nbeta1 = 0.9\n\
             beta2 = 0.95\nepsilon = 1e-8\nweight_decay = 0.1\nclip = 1.0\nschedule = \"cosine\"\n\
             warmup_steps = 1\nfinal_fraction = 0.1\n",
            channels / 12
        );
        std::fs::write(self.path("run.toml"), text).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command, arguments split at spaces, in this folder.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oracle"));
        command.args(arguments.split_whitespace()).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What the command says on stdout.
    #[track_caller]
    pub fn done(&self, arguments: &str) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The one JSON object it prints.
    #[track_caller]
    pub fn json(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.done(arguments)).unwrap()
    }

    /// What it says when it refuses.
    #[track_caller]
    pub fn refused(&self, arguments: &str) -> String {
        let output = self.command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", stderr(&output));
        stderr(&output)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Every file below a folder, sorted.
    pub fn files(&self, name: &str) -> Vec<String> {
        let mut found = vec![];
        let mut folders = vec![self.path(name)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                match entry.file_type().unwrap().is_dir() {
                    true => folders.push(entry.path()),
                    false => {
                        let path = entry.path();
                        let below = path.strip_prefix(self.path(name)).unwrap();
                        found.push(below.to_str().unwrap().to_owned());
                    }
                }
            }
        }
        found.sort();
        found
    }
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
