//! From run.toml to everything a session needs: config, tokens, plan, first state, run.

use crate::checksum::checksum_u32;
use crate::file::open_file;
use crate::init;
use crate::plan::{self, PlanError};
use crate::snapshot::{self, SnapshotError};
use crate::state::State;
use crate::tokens::wrong::TokensError;
use crate::tokens::{self, Progress, Stream};
use crate::weights::{self, WeightsError};
use schemas::config::huggingface::JSON_BYTES_MAX;
use schemas::config::{Config, ConfigError, TOML_BYTES_MAX};
use schemas::digest::Checksum;
use schemas::plan::{Parameter, Plan};
use schemas::profile::F32_FMA;
use schemas::run::Run;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What a run reads: all of it but the state.
#[derive(Debug)]
pub struct Data {
    /// The run.toml's values; a tokenizer.json stands in it by its hash.
    pub config: Config,
    /// The tokens, and where they come from.
    pub stream: Stream,
    /// The step as data.
    pub plan: Plan,
}

impl Data {
    /// Reads a run.toml and its data; `progress` is told how far.
    pub fn load(path: &Path, progress: Progress) -> Result<Data, SetupError> {
        let mut config = read_config(path)?;
        let base = path.parent().unwrap_or(Path::new(""));
        let stream = Stream::read(&config.data, base, config.model.vocabulary() as u32, progress)?;
        tokens::resolve(&mut config.data, &stream);
        let dataset = checksum_u32(&[stream.tokens.len() as u64], &stream.tokens);
        let plan = plan::derive(&config, stream.tokens.len() as u64, dataset)
            .map_err(|source| SetupError::Plan { path: path.to_owned(), source })?;
        Ok(Data { config, stream, plan })
    }
}

/// A run, ready to be computed.
#[derive(Debug)]
pub struct Setup {
    /// The run.toml's values.
    pub config: Config,
    /// The data.
    pub tokens: Vec<u32>,
    /// The step as data.
    pub plan: Plan,
    /// The state before step 0.
    pub state: State,
    /// What the log will call it.
    pub run: Run,
}

/// Why a run.toml cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The file cannot be read.
    #[error("could not read {}: {source}", path.display())]
    Read {
        /// The run.toml.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A value in it is refused.
    #[error("{}: {source}", path.display())]
    Config {
        /// The run.toml.
        path: PathBuf,
        /// Which, and what is supported.
        source: ConfigError,
    },
    /// The data cannot be read.
    #[error("data: {0}")]
    Tokens(#[from] TokensError),
    /// There is no plan for it.
    #[error("{}: {source}", path.display())]
    Plan {
        /// The run.toml.
        path: PathBuf,
        /// Why.
        source: PlanError,
    },
    /// The model is larger than the machine.
    #[error(
        "{}: parameters and moments need {needed} bytes, this machine has {available} to spare; use a smaller model",
        path.display()
    )]
    Memory {
        /// The run.toml.
        path: PathBuf,
        /// 12 bytes for each parameter.
        needed: u64,
        /// What the system says is available.
        available: u64,
    },
    /// The first weights cannot be read.
    #[error("state: {0}")]
    Weights(#[from] WeightsError),
    /// The first state cannot be read.
    #[error("state: {0}")]
    Snapshot(#[from] SnapshotError),
    /// The first state is a later one.
    #[error("{}: expected a state of step 0, where a run starts, found one of step {found}", path.display())]
    NotFirst {
        /// The snapshot.
        path: PathBuf,
        /// Its step.
        found: u64,
    },
}

impl Setup {
    /// Reads a run.toml and everything it names. Paths in it are relative to it.
    pub fn load(path: &Path) -> Result<Setup, SetupError> {
        Setup::load_telling(path, &mut |_, _| ())
    }

    /// The same; `progress` is told how much of the data has been read.
    pub fn load_telling(path: &Path, progress: Progress) -> Result<Setup, SetupError> {
        let Data { config, stream, plan } = Data::load(path, progress)?;
        let base = path.parent().unwrap_or(Path::new(""));
        let (needed, available) = (12 * plan.parameter_count(), crate::memory::available());
        if needed > available {
            return Err(SetupError::Memory { path: path.to_owned(), needed, available });
        }
        let state = first_state(&config, &plan, base)?;
        let run = Run {
            name: config.name.clone(),
            profile: config.profile.clone(),
            profile_digest: F32_FMA.digest(),
            config: config.digest(),
            plan: plan.digest(),
            state: state.digest(),
            dataset: plan.data.dataset,
            steps: config.steps,
            leaves: config.leaves,
            devices_max: config.devices_max,
        };
        Ok(Setup { config, tokens: stream.tokens, plan, state, run })
    }
}

fn read_config(path: &Path) -> Result<Config, SetupError> {
    let unreadable = |source| SetupError::Read { path: path.to_owned(), source };
    let file = open_file(path).map_err(unreadable)?;
    let mut text = String::new();
    // One byte more than allowed is enough to know that it is too long.
    file.take(TOML_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(unreadable)?;
    let base = path.parent().unwrap_or(Path::new(""));
    Config::from_toml_with(&text, |file| read_model(&base.join(file)))
        .map_err(|source| SetupError::Config { path: path.to_owned(), source })
}

/// The text of the config.json that a run.toml names.
fn read_model(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("could not read it: {error}");
    let file = open_file(path).map_err(cannot)?;
    let mut text = String::new();
    file.take(JSON_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}

fn first_state(config: &Config, plan: &Plan, base: &Path) -> Result<State, SetupError> {
    let schemas::config::State { seed, snapshot, weights } = &config.state;
    match (seed, snapshot, weights) {
        (Some(seed), None, None) => {
            Ok(State::fresh(init::initial_parameters(plan, *seed, config.model.initializer_range())))
        }
        (None, Some(file), None) => {
            let path = base.join(file);
            let state = snapshot::read(&path, &plan.parameters)?;
            let parts = [&state.parameters, &state.first_moment, &state.second_moment];
            let wrong = parts.into_iter().find_map(|part| weights::first_not_finite(&plan.parameters, part));
            match (wrong, state.step) {
                (Some(source), _) => Err(WeightsError { path, source }.into()),
                (None, 0) => Ok(state),
                (None, found) => Err(SetupError::NotFirst { path, found }),
            }
        }
        (None, None, Some(file)) => Ok(State::fresh(weights::read(&base.join(file), &plan.parameters)?)),
        _ => panic!("setup: config lets no state pass that is not one of seed, snapshot and weights"),
    }
}

/// The parameters of a run.toml's model: what a file of its weights holds. The data is not read.
pub fn parameters(path: &Path) -> Result<Vec<Parameter>, SetupError> {
    let config = read_config(path)?;
    // Which parameters there are does not depend on the data.
    let plan = plan::derive(&config, u64::from(u32::MAX), Checksum([0; 32]));
    Ok(plan.map_err(|source| SetupError::Plan { path: path.to_owned(), source })?.parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_larger_than_the_machine_is_refused_before_anything_is_allocated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        std::fs::write(folder.path().join("corpus.txt"), "a little text, more than sixteen bytes").unwrap();
        let text = |channels: u64, vocabulary: u64| {
            format!(
                "name = \"wide\"\nprofile = \"f32-fma\"\nsteps = 1\nleaves = 1\ndevices_max = 1\n\
                 [model]\nmodel_type = \"gpt2\"\nvocab_size = {vocabulary}\nn_positions = 16\n\
                 n_embd = {channels}\nn_layer = 1\nn_head = 1\nlayer_norm_epsilon = 1e-5\n\
                 activation_function = \"gelu_new\"\ninitializer_range = 0.02\n[state]\nseed = 1\n\
                 [data]\nformat = \"text\"\ntokenizer = \"bytes\"\nfiles = [\"corpus.txt\"]\n\
                 sequences = 1\nlength = 16\nseed = 1\n[optimizer]\nkind = \"adamw\"\n\
                 learning_rate = 1e-3\nbeta1 = 0.9\nbeta2 = 0.95\nepsilon = 1e-8\nweight_decay = 0.1\n\
                 schedule = \"constant\"\nwarmup_steps = 0\nfinal_fraction = 1.0\n"
            )
        };
        std::fs::write(&path, text(65_536, 1_000_000)).unwrap();
        let refused = Setup::load(&path).unwrap_err();
        assert!(matches!(refused, SetupError::Memory { .. }), "{refused}");
        std::fs::write(&path, text(8, 256)).unwrap();
        assert!(Setup::load(&path).is_ok());
        // A folder in the place of a file is told, not read.
        std::fs::write(&path, text(8, 256).replace("corpus.txt", ".")).unwrap();
        assert!(Setup::load(&path).unwrap_err().to_string().contains("expected a regular file"));
    }

    #[test]
    fn a_config_json_stands_for_the_models_keys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        std::fs::write(folder.path().join("corpus.txt"), "a little text, more than sixteen bytes").unwrap();
        let text = |model: &str| {
            format!(
                "name = \"named\"\nprofile = \"f32-fma\"\nsteps = 1\nleaves = 1\ndevices_max = 1\n\
                 [model]\n{model}\n[state]\nseed = 1\n[data]\nformat = \"text\"\ntokenizer = \"bytes\"\n\
                 files = [\"corpus.txt\"]\nsequences = 1\nlength = 16\nseed = 1\n[optimizer]\nkind = \"adamw\"\n\
                 learning_rate = 1e-3\nbeta1 = 0.9\nbeta2 = 0.95\nepsilon = 1e-8\nweight_decay = 0.1\n\
                 schedule = \"constant\"\nwarmup_steps = 0\nfinal_fraction = 1.0\n"
            )
        };
        let load = |model: &str| {
            std::fs::write(&path, text(model)).unwrap();
            Setup::load(&path)
        };
        let json = r#"{"model_type": "gpt2", "vocab_size": 256, "n_positions": 16, "n_embd": 8, "n_layer": 1,
            "n_head": 2,
            "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "initializer_range": 0.02,
            "resid_pdrop": 0.1, "bos_token_id": 0}"#;
        let refused = load("config = \"config.json\"").unwrap_err().to_string();
        assert!(refused.contains("model.config: config.json: could not read it"), "{refused}");
        std::fs::write(folder.path().join("config.json"), json).unwrap();
        let refused = load("config = \"config.json\"").unwrap_err().to_string();
        assert!(refused.contains("model.resid_pdrop: expected 0, or `dropout = \"off\"`"), "{refused}");

        let from_file = load("config = \"config.json\"\ndropout = \"off\"").unwrap();
        let written = load(
            "model_type = \"gpt2\"\nvocab_size = 256\nn_positions = 16\nn_embd = 8\nn_layer = 1\nn_head = 2\n\
             layer_norm_epsilon = 1e-5\nactivation_function = \"gelu_new\"\ninitializer_range = 0.02",
        );
        assert_eq!(from_file.run, written.unwrap().run, "the path is no part of the run");
    }
}
