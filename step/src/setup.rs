//! From run.toml to everything a session needs: config, tokens, plan, first state, run.

use crate::checksum::checksum_u32;
use crate::init;
use crate::plan::{self, PlanError};
use crate::snapshot::{self, SnapshotError};
use crate::state::State;
use crate::tokens::{Format, TokensError, read_files};
use schemas::config::{Config, ConfigError, TOML_BYTES_MAX};
use schemas::plan::Plan;
use schemas::profile::F32_FMA;
use schemas::run::Run;
use std::io::Read;
use std::path::{Path, PathBuf};

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
        let config = read_config(path)?;
        let base = path.parent().unwrap_or(Path::new(""));
        let format = Format::from_name(&config.data.format);
        let format = format.expect("setup: config lets no other data format pass");
        let files: Vec<PathBuf> = config.data.files.iter().map(|file| base.join(file)).collect();
        let tokens = read_files(format, &files, config.model.vocab_size as u32)?;
        let dataset = checksum_u32(&[tokens.len() as u64], &tokens);
        let plan = plan::derive(&config, tokens.len() as u64, dataset)
            .map_err(|source| SetupError::Plan { path: path.to_owned(), source })?;
        let state = first_state(&config, &plan, base)?;
        let run = Run {
            name: config.name.clone(),
            profile: config.profile.clone(),
            profile_digest: F32_FMA.digest(),
            config: config.digest(),
            plan: plan.digest(),
            state: state.digest(),
            dataset,
            steps: config.steps,
            leaves: config.leaves,
            devices_max: config.devices_max,
        };
        Ok(Setup { config, tokens, plan, state, run })
    }
}

fn read_config(path: &Path) -> Result<Config, SetupError> {
    let unreadable = |source| SetupError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    // One byte more than allowed is enough to know that it is too long.
    file.take(TOML_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(unreadable)?;
    Config::from_toml(&text).map_err(|source| SetupError::Config { path: path.to_owned(), source })
}

fn first_state(config: &Config, plan: &Plan, base: &Path) -> Result<State, SetupError> {
    let Some(file) = &config.state.snapshot else {
        let seed = config.state.seed.expect("setup: config lets no state without seed and snapshot pass");
        return Ok(State::fresh(init::initial_parameters(plan, seed, config.model.initializer_range)));
    };
    let path = base.join(file);
    let state = snapshot::read(&path, &plan.parameters)?;
    match state.step {
        0 => Ok(state),
        found => Err(SetupError::NotFirst { path, found }),
    }
}
