//! The simulated backend: the oracle's own arithmetic, so that a run can be rehearsed on any machine.
//!
//! The one file of this crate that names `step`. Two executions by one code prove nothing to each other, which is why
//! every receipt and every verdict over such receipts says `simulated`.

use crate::backend::{Backend, BackendError, Candidate, Device, Given, Leaf, Moments, Spoil, Which};
use crate::checksum::{Coefficients, Digested, all_finite};
use crate::link::{from_bytes, to_bytes};
use crate::snapshot;
use schemas::digest::Challenge;
use schemas::fold::{Fold, FoldKey};
use schemas::plan::Plan;
use schemas::receipt::DeviceFacts;
use std::ops::Range;
use std::path::Path;
use step::buffer::Flat;
use step::dispatch;
use step::session::Session;
use step::setup::Setup;
use step::state::State;
use step::tree::Accumulator;
use step::update;
use step::variants::{Variant, drill};

/// Runs plans on this machine's processor.
pub struct Simulated {
    kernels: dispatch::Backend,
    drill: Option<Misconfigured>,
}

/// One operation of one device computed in a known wrong configuration (docs/spec/variants.md), in every step and leaf:
/// a drill, to see a verdict name it.
struct Misconfigured {
    rank: u64,
    operation: String,
    variant: Variant,
}

impl Simulated {
    /// With the fastest kernels this machine can run; all give the same bits.
    pub fn detect() -> Simulated {
        Simulated { kernels: dispatch::Backend::detect(), drill: None }
    }

    /// With a drill, RANK:OPERATION:VARIANT; the operation is one of the plan's, or `norm` or `adamw`.
    pub fn misconfigured(text: &str) -> Result<Simulated, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let [rank, operation, variant] = parts[..] else {
            return Err(format!("misconfigured: expected RANK:OPERATION:VARIANT, found {text:?}"));
        };
        let rank = rank.parse().map_err(|_| format!("misconfigured: expected a rank, found {rank:?}"))?;
        let variant = Variant::named(variant).map_err(|error| error.to_string())?;
        let drill = Some(Misconfigured { rank, operation: operation.to_owned(), variant });
        Ok(Simulated { drill, ..Simulated::detect() })
    }

    /// The drill of a device, if it is the one.
    fn drill(&self, given: &Given) -> Result<Drill, BackendError> {
        let Some(drill) = self.drill.as_ref().filter(|drill| drill.rank == given.rank) else {
            return Ok(Drill::None);
        };
        let variant = drill.variant;
        match drill.operation.as_str() {
            "norm" => return Ok(Drill::Norm(variant)),
            "adamw" => return Ok(Drill::Update(variant)),
            _ => {}
        }
        let named = given.plan.operations.iter().position(|operation| operation.name == drill.operation);
        match named.filter(|operation| variant.reaches(given.plan.operations[*operation].kind)) {
            Some(operation) => Ok(Drill::Operation(drill::Drill { operation, variant })),
            None => Err(BackendError(format!(
                "misconfigured: expected an operation of the plan that {variant:?} reaches, found {:?}",
                drill.operation
            ))),
        }
    }
}

impl Backend for Simulated {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn description(&self) -> String {
        format!("the oracle's own arithmetic on this processor ({} kernels)", self.kernels.name())
    }

    fn simulated(&self) -> bool {
        true
    }

    fn facts(&self, _: u64) -> DeviceFacts {
        DeviceFacts {
            name: "simulated device".into(),
            architecture: std::env::consts::ARCH.into(),
            driver: format!("{} kernels", self.kernels.name()),
            units: std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64),
            kernels: concat!("simulated ", env!("CARGO_PKG_VERSION")).into(),
        }
    }

    fn devices(&self) -> Vec<Candidate> {
        vec![Candidate { facts: Some(self.facts(0)), refused: None }]
    }

    fn open<'a>(&self, given: Given<'a>) -> Result<Box<dyn Device + 'a>, BackendError> {
        let session = Session::new(given.plan, given.tokens, self.kernels);
        let session = session.map_err(|error| BackendError(error.to_string()))?;
        let state = State {
            step: 0,
            parameters: Flat::copied(&given.state.parameters),
            first_moment: Flat::copied(&given.state.first_moment),
            second_moment: Flat::copied(&given.state.second_moment),
        };
        let coefficients =
            Coefficients::new(FoldKey::from(given.plan.digest()), given.plan.parameter_count());
        let drill = self.drill(&given)?;
        Ok(Box::new(SimulatedDevice { session, drill, state, coefficients, node: vec![], arrived: vec![] }))
    }
}

/// A run as the oracle sets it up, to compare devices by.
pub struct Rehearsal {
    /// The step as data.
    pub plan: Plan,
    /// The token stream.
    pub tokens: Vec<u32>,
    /// The state before step 0.
    pub state: snapshot::State,
}

impl Rehearsal {
    /// From a run.toml and the files that it names.
    pub fn load(path: &Path) -> Result<Rehearsal, String> {
        let Setup { plan, tokens, state, .. } = Setup::load(path).map_err(|error| error.to_string())?;
        Ok(Rehearsal { plan, tokens, state: copy(&state) })
    }
}

/// What a device computes in a wrong configuration.
enum Drill {
    None,
    Operation(drill::Drill),
    Norm(Variant),
    Update(Variant),
}

struct SimulatedDevice<'a> {
    session: Session<'a>,
    drill: Drill,
    state: State,
    /// Under the plan's key.
    coefficients: Coefficients,
    /// The node, later the reduced gradient.
    node: Vec<f32>,
    arrived: Vec<f32>,
}

impl SimulatedDevice<'_> {
    fn vector(&mut self, which: Which) -> &mut [f32] {
        match which {
            Which::Node | Which::Reduced => &mut self.node,
            Which::Arrived => &mut self.arrived,
            Which::Parameters => &mut self.state.parameters,
            Which::FirstMoment => &mut self.state.first_moment,
            Which::SecondMoment => &mut self.state.second_moment,
        }
    }
}

impl Device for SimulatedDevice<'_> {
    fn leaves(
        &mut self,
        step: u64,
        leaves: Range<u64>,
        spoil: &dyn Spoil,
    ) -> Result<Vec<Leaf>, BackendError> {
        let mut reports = Vec::new();
        let mut tree = Some(Accumulator::new(self.session.backend(), leaves.clone()));
        for leaf in leaves {
            let mut on_tap = |tap: usize, words: &mut [f32]| {
                if spoil.wants(leaf, tap) {
                    spoil.spoil(leaf, tap, words);
                }
            };
            let (parameters, data) = (&self.state.parameters, spoil.data_of(leaf));
            let done = match &self.drill {
                Drill::Operation(drill) => drill.leaf(&self.session, step, data, parameters, &mut on_tap),
                _ => self.session.leaf(step, data, parameters, &mut on_tap),
            };
            match (done.gradient, &mut tree) {
                (Some(gradient), Some(tree)) => tree.push(gradient, |_, _| ()),
                // There is no sum any more; the leaves that follow only leave their traces.
                _ => tree = None,
            }
            let finite = done.non_finite.is_none();
            reports.push(Leaf { folds: done.folds, finite, loss: done.loss.to_bits() });
        }
        self.node = tree.map(|tree| tree.finish().into_vec()).unwrap_or_default();
        Ok(reports)
    }

    fn digest(&mut self, which: Which) -> Result<Digested, BackendError> {
        let words: &[f32] = match which {
            Which::Node | Which::Reduced => &self.node,
            Which::Arrived => &self.arrived,
            Which::Parameters => &self.state.parameters,
            Which::FirstMoment => &self.state.first_moment,
            Which::SecondMoment => &self.state.second_moment,
        };
        Ok(self.coefficients.digest(words))
    }

    fn node_bytes(&mut self) -> Result<Vec<u8>, BackendError> {
        Ok(to_bytes(&self.node))
    }

    fn arrive(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        self.arrived = from_bytes(bytes);
        Ok(())
    }

    fn join(&mut self, _: bool) -> Result<(), BackendError> {
        assert_eq!(self.node.len(), self.arrived.len(), "simulated: nodes of one tree have one length");
        // Which of the two is left changes no bit of a sum but a NaN's, and all NaNs are one word in digests.
        self.node.iter_mut().zip(&self.arrived[..]).for_each(|(mine, its)| *mine += *its);
        Ok(())
    }

    fn reduce(&mut self) -> Result<(), BackendError> {
        let inverse = f32::from_bits(self.session.plan().update.inverse_leaves);
        self.node.iter_mut().for_each(|word| *word *= inverse);
        Ok(())
    }

    fn norm(&mut self) -> Result<f32, BackendError> {
        Ok(match &self.drill {
            Drill::Norm(variant) => variant.norm(self.session.plan(), &self.node),
            _ => update::global_norm(self.session.backend(), self.session.plan(), &self.node),
        })
    }

    fn update(&mut self, step: u64) -> Result<(), BackendError> {
        // A skipped update leaves the state's own count behind; the constants are those of the step that runs.
        self.state.step = step;
        let (backend, plan) = (self.session.backend(), self.session.plan());
        match &self.drill {
            Drill::Update(variant) => {
                let norm = update::global_norm(backend, plan, &self.node);
                variant.update(plan, &self.node, norm, &mut self.state);
            }
            _ => drop(update::apply(backend, plan, &self.node, &mut self.state)),
        }
        Ok(())
    }

    fn moments(&mut self) -> Result<Moments, BackendError> {
        let (first, second) = (&self.state.first_moment, &self.state.second_moment);
        Ok(Moments {
            first: self.coefficients.fold(first),
            second: self.coefficients.fold(second),
            finite: all_finite(first) && all_finite(second),
        })
    }

    fn keyed(&mut self, challenge: Challenge) -> Result<[Fold; 2], BackendError> {
        let words = self.session.plan().parameter_count();
        let keyed = Coefficients::new(FoldKey::from(challenge), words);
        Ok([keyed.fold(&self.node), keyed.fold(&self.state.parameters)])
    }

    fn flip(&mut self, which: Which, element: u64, bit: u32) -> Result<(), BackendError> {
        let word = &mut self.vector(which)[element as usize];
        *word = f32::from_bits(word.to_bits() ^ (1 << bit));
        Ok(())
    }

    fn state(&mut self) -> Result<snapshot::State, BackendError> {
        Ok(copy(&self.state))
    }
}

/// The oracle's state as this crate's.
fn copy(state: &State) -> snapshot::State {
    let [parameters, first_moment, second_moment] =
        [&state.parameters, &state.first_moment, &state.second_moment].map(|words| words.to_vec());
    snapshot::State { parameters, first_moment, second_moment }
}
