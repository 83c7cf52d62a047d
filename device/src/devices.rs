//! The backends that run this crate's kernels: all devices of one kind that compute exactly as the profile says.

use crate::backend::{Backend, BackendError, Candidate, Device, Given};
use crate::executor::Executor;
use crate::launches::Shapes;
use crate::machine::{Build, Found, Machines};
use crate::selftest;
use schemas::receipt::DeviceFacts;
use std::sync::OnceLock;

/// A kind of devices, each asked once by the self-test.
pub struct Devices<M> {
    machines: M,
    description: &'static str,
    /// Whether kernels are built wrongly on purpose, to see the self-test refuse them.
    contracted: bool,
    tested: OnceLock<Result<Vec<Tested>, BackendError>>,
}

/// A device and why it was refused, if it was.
struct Tested {
    found: Found,
    refused: Option<String>,
}

impl<M: Machines> Devices<M> {
    /// All devices of a kind.
    pub fn new(machines: M, description: &'static str, contracted: bool) -> Devices<M> {
        Devices { machines, description, contracted, tested: OnceLock::new() }
    }

    fn build(&self, found: &Found) -> Build {
        Build { recorded: true, contracted: self.contracted, staged: found.staged }
    }

    fn tested(&self) -> Result<&[Tested], BackendError> {
        let test = |found: Found| {
            let machine = self.machines.open(found.place, self.build(&found));
            let passed = machine.and_then(|mut machine| selftest::check(&mut *machine));
            Tested { refused: passed.err().map(|error| error.0), found }
        };
        let test_all = || Ok(self.machines.devices()?.into_iter().map(test).collect());
        self.tested.get_or_init(test_all).as_deref().map_err(Clone::clone)
    }

    /// The device of a rank: ranks take the devices that passed in turn.
    fn of(&self, rank: u64) -> Result<&Found, BackendError> {
        let tested = self.tested()?;
        let passed: Vec<&Found> =
            tested.iter().filter(|one| one.refused.is_none()).map(|one| &one.found).collect();
        match passed.is_empty() {
            false => Ok(passed[(rank % passed.len() as u64) as usize]),
            true => {
                let why = tested.iter().map(|one| {
                    let why = one.refused.as_deref().unwrap_or_default();
                    format!("{} was refused: {why}", one.found.facts.name)
                });
                let why = why.collect::<Vec<_>>().join("; ");
                Err(BackendError(format!("expected a device that can run the profile exactly: {why}")))
            }
        }
    }
}

impl<M: Machines> Backend for Devices<M> {
    fn name(&self) -> &'static str {
        self.machines.name()
    }

    fn description(&self) -> String {
        self.description.into()
    }

    fn simulated(&self) -> bool {
        false
    }

    fn facts(&self, rank: u64) -> DeviceFacts {
        self.of(rank).expect("devices: facts are asked of a device that was opened").facts.clone()
    }

    fn devices(&self) -> Vec<Candidate> {
        match self.tested() {
            Ok(tested) => tested
                .iter()
                .map(|one| Candidate { facts: Some(one.found.facts.clone()), refused: one.refused.clone() })
                .collect(),
            Err(error) => vec![Candidate { facts: None, refused: Some(error.0) }],
        }
    }

    fn open<'a>(&self, given: Given<'a>) -> Result<Box<dyn Device + 'a>, BackendError> {
        let found = self.of(given.rank)?;
        let build = self.build(found);
        let machine = self.machines.open(found.place, build)?;
        Ok(Box::new(Executor::new(machine, given, Shapes::of(&build), build)?))
    }
}
