//! Which configurations give what a device folded (docs/spec/variants.md).
//!
//! Equal folds of 128 bits are what is looked for, so a variant that changes no bit of the prediction explains nothing:
//! what is to be explained differs from it.

use super::VARIANTS;
use super::drill::Capture;
use crate::execute::Leaf;
use crate::session::Session;
use crate::state::State;
use schemas::fold::Fold;
use schemas::plan::Kind;

/// Most leaves whose windows are compared with the ones that a device read.
const WINDOWS_MAX: u64 = 1 << 16;

/// A leaf computed again, and the configurations in which one of its operations gives what was found.
pub struct Explained {
    /// The leaf.
    pub leaf: Leaf,
    /// Names of configurations, in the order of their page.
    pub names: Vec<String>,
}

/// Computes a leaf on `parameters` and then the operation of its tap `tap` under every variant, against `found`.
pub fn tap(
    session: &Session,
    step: u64,
    leaf: u64,
    parameters: &[f32],
    tap: usize,
    found: Fold,
) -> Explained {
    let plan = session.plan();
    let at = plan.taps().nth(tap).expect("explain: a tap of the plan").operation;
    let first = plan.taps().take_while(|tap| tap.operation < at).count();
    let kind = plan.operations[at].kind;
    if kind == Kind::Window {
        let leaf_run = session.leaf(step, leaf, parameters, &mut |_, _| ());
        return Explained { leaf: leaf_run, names: window(session, step, leaf, tap, found) };
    }
    let mut capture = Capture::new(plan, at);
    let (tokens, targets) = session.window(step, leaf);
    let leaf = session.leaf(step, leaf, parameters, &mut |tap, words| capture.see(tap, words));
    let mut names = Vec::new();
    // An operation that the prediction did not reach has no inputs.
    if leaf.folds.len() >= first {
        let call = capture.call(parameters, (&tokens, &targets));
        for variant in VARIANTS.iter().filter(|variant| variant.reaches(kind)) {
            let outputs = capture.outputs(variant, &call);
            if session.folds().fold(&outputs[tap - first]).fold == found {
                names.push(variant.name.into());
            }
        }
    }
    Explained { leaf, names }
}

/// Whose windows a device read: another leaf's, of the same step first; or those that come in the file's own order.
fn window(session: &Session, step: u64, leaf: u64, tap: usize, found: Fold) -> Vec<String> {
    let plan = session.plan();
    let fold = |(tokens, targets): (Vec<u32>, Vec<u32>)| {
        session.folds().fold_u32(if tap == 0 { &tokens } else { &targets })
    };
    let steps = (plan.update.steps() as u64).min(WINDOWS_MAX / plan.leaves);
    let mut names = Vec::new();
    if fold(session.window_in_file_order(step, leaf)) == found {
        names.push("data-in-file-order".into());
    }
    for step in std::iter::once(step).chain((0..steps).filter(|other| *other != step)) {
        for leaf in 0..plan.leaves {
            if fold(session.window(step, leaf)) == found {
                names.push(format!("data-of-step-{step}-leaf-{leaf}"));
                return names;
            }
        }
    }
    names
}

/// What an update leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vector {
    /// The first moment.
    First,
    /// The second moment.
    Second,
    /// The parameters.
    Parameters,
}

/// The configurations of the optimizer that give what was found, from the state before it and the reduced gradient.
pub fn update(
    session: &Session,
    before: &State,
    gradient: &[f32],
    norm: f32,
    (which, found): (Vector, Fold),
) -> Vec<String> {
    let mut names = Vec::new();
    for variant in VARIANTS.iter().filter(|variant| variant.reaches_update()) {
        let mut state = before.clone();
        variant.update(session.plan(), gradient, norm, &mut state);
        let words = match which {
            Vector::First => &state.first_moment,
            Vector::Second => &state.second_moment,
            Vector::Parameters => &state.parameters,
        };
        if session.folds().fold(words).fold == found {
            names.push(variant.name.into());
        }
    }
    names
}

/// The configurations of the global norm that give the bits found.
pub fn norm(session: &Session, gradient: &[f32], found: u32) -> Vec<String> {
    let reaching = VARIANTS.iter().filter(|variant| variant.reaches_update());
    let equal = reaching.filter(|variant| variant.norm(session.plan(), gradient).to_bits() == found);
    equal.map(|variant| variant.name.into()).collect()
}
