//! Whether a device gives the recorded bits: every kind of operation, then whole steps of small runs.
//!
//! For a machine with a card and nothing but this program and the checkout: the expected values are in
//! `fixtures/step`, or are computed beside the device by the oracle's own arithmetic.

pub mod examples;
pub mod steps;

use crate::backend::{self, Backend, BackendError};
use crate::cuda::CudaDevices;
use crate::devices::Devices;
use crate::job::open_file;
use crate::machine::{Build, Found, Machine, Machines};
use crate::opencl::OpenClDevices;
use crate::selftest;
use clap::Args;
use serde_json::{Value, json};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Runs of a hundred steps, with a record of each beside them.
const RUNS: [&str; 4] = ["gpt2", "gpt2-long", "llama", "llama-long"];

/// Flags of `device check`.
#[derive(Debug, Args)]
pub struct Flags {
    /// What runs the arithmetic (see `device list`)
    #[arg(long, value_name = "NAME")]
    pub backend: String,
    /// Folder of worked examples and recorded runs
    #[arg(long, value_name = "DIR", default_value = "fixtures/step")]
    pub fixtures: PathBuf,
    /// Another run.toml, compared with the oracle's own arithmetic on this processor; may be repeated
    #[arg(long = "run", value_name = "FILE")]
    pub runs: Vec<PathBuf>,
    /// At most so many steps of each recorded run
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub steps: u64,
    /// At most so many steps of each other run
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub run_steps: u64,
    /// Build kernels for a card's shared memory, whatever the device is
    #[arg(long)]
    pub staged: bool,
    /// Also build kernels that contract a product and a sum, and see the self-test refuse them
    #[arg(long)]
    pub drill: bool,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// Devices whose kernels are built for a card, whatever they are.
struct Staged(Box<dyn Machines>);

impl Machines for Staged {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn devices(&self) -> Result<Vec<Found>, BackendError> {
        Ok(self.0.devices()?.into_iter().map(|found| Found { staged: true, ..found }).collect())
    }

    fn open(&self, place: usize, build: Build) -> Result<Box<dyn Machine>, BackendError> {
        self.0.open(place, build)
    }
}

/// Why it could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// No such backend.
    #[error("backend {found:?} is not in this build, expected {expected}")]
    Backend {
        /// Asked for.
        found: String,
        /// What there is.
        expected: String,
    },
    /// A device failed.
    #[error("{what}: {source}")]
    Device {
        /// In what.
        what: String,
        /// How.
        source: BackendError,
    },
    /// A file cannot be read.
    #[error("could not read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Form {
        /// Which.
        path: PathBuf,
        /// What should be there.
        expected: &'static str,
        /// What is.
        found: String,
    },
    /// A run cannot be set up.
    #[error("{0}")]
    Run(String),
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What.
    pub what: String,
    /// How much of it was equal.
    pub equal: String,
    /// The first difference.
    pub difference: Option<String>,
}

/// All kinds of devices that run kernels.
pub fn machines(name: &str) -> Option<Box<dyn Machines>> {
    let all: [Box<dyn Machines>; 2] = [Box::new(CudaDevices), Box::new(OpenClDevices)];
    all.into_iter().find(|machines| machines.name() == name)
}

/// The backend of a name.
pub fn named(name: &str) -> Result<Box<dyn Backend>, CheckError> {
    let expected = || backend::all(false).iter().map(|one| one.name()).collect::<Vec<_>>().join(" or ");
    backend::named(name, false)
        .ok_or_else(|| CheckError::Backend { found: name.into(), expected: expected() })
}

/// Checks everything; each line is told as soon as it is known. False if something differs.
pub fn check(flags: &Flags, tell: &mut dyn FnMut(&Line)) -> Result<bool, CheckError> {
    let of = || machines(&flags.backend).map(|all| if flags.staged { Box::new(Staged(all)) } else { all });
    let backend: Box<dyn Backend> = match of() {
        Some(all) => Box::new(Devices::new(all, "checked", false)),
        None => named(&flags.backend)?,
    };
    let mut all_equal = true;
    let mut say = |line: Line| {
        all_equal &= line.difference.is_none();
        tell(&line);
    };
    if let Some(machines) = of() {
        let wrong = |what: &str| {
            let what = what.to_owned();
            move |source| CheckError::Device { what, source }
        };
        let examples = examples::read(&flags.fixtures.join("operations.json"))?;
        for found in machines.devices().map_err(wrong("devices"))? {
            let facts = &found.facts;
            let name = format!("{} ({}, {} units)", facts.name, facts.architecture, facts.units);
            let build = Build { recorded: true, contracted: false, staged: found.staged };
            let mut machine = machines.open(found.place, build).map_err(wrong(&name))?;
            let tested = selftest::check(&mut *machine);
            let equal = "computes as the profile says".into();
            say(Line { what: name.clone(), equal, difference: tested.err().map(|error| error.0) });
            if flags.drill {
                let machine = machines.open(found.place, Build { contracted: true, ..build });
                let said = selftest::check(&mut *machine.map_err(wrong(&name))?);
                let (what, equal) = ("drill".into(), "a build that contracts is refused".into());
                let difference = said.is_ok().then(|| "expected a refusal, found none".into());
                say(Line { what, equal, difference });
            }
            for shapes in examples::shapes(&build) {
                say(examples::run(&mut *machine, &examples, &shapes, &build).map_err(wrong(&name))?);
            }
        }
    }
    for name in RUNS {
        let path = flags.fixtures.join(format!("{name}.toml"));
        say(steps::recorded(&*backend, name, &path, flags.steps)?);
    }
    for path in &flags.runs {
        say(steps::beside(&*backend, path, flags.run_steps)?);
    }
    Ok(all_equal)
}

/// A line for people.
pub fn text(line: &Line) -> String {
    match &line.difference {
        None => format!("{}: {}", line.what, line.equal),
        Some(difference) => format!("{}: DIFFERS: {difference}", line.what),
    }
}

/// The lines for machines.
pub fn json(backend: &str, lines: &[Line], equal: bool) -> Value {
    let line = |line: &Line| json!({"what": line.what, "equal": line.equal, "difference": line.difference});
    json!({"backend": backend, "equal": equal, "checks": lines.iter().map(line).collect::<Vec<_>>()})
}

/// A file's JSON.
fn read_json(path: &Path) -> Result<Value, CheckError> {
    let failed = |source| CheckError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    open_file(path).map_err(failed)?.read_to_end(&mut bytes).map_err(failed)?;
    let form = |error: serde_json::Error| CheckError::Form {
        path: path.to_owned(),
        expected: "JSON",
        found: error.to_string(),
    };
    serde_json::from_slice(&bytes).map_err(form)
}

/// Word `element` of two lists differs: said so that a person can look at both.
fn unequal(what: &str, element: usize, expected: u32, found: u32) -> String {
    format!(
        "{what}, element {element}: expected {expected:#010x} ({:e}), found {found:#010x} ({:e})",
        f32::from_bits(expected),
        f32::from_bits(found)
    )
}

/// The first place where two lists of words differ, all NaN being one word.
fn first_difference(expected: &[u32], found: &[u32]) -> Option<(usize, u32, u32)> {
    let nan = |word: u32| if f32::from_bits(word).is_nan() { schemas::fold::NAN_WORD } else { word };
    let mut pairs = expected.iter().zip(found).enumerate();
    pairs.find(|(_, (a, b))| nan(**a) != nan(**b)).map(|(element, (a, b))| (element, *a, *b))
}
