//! Buffers are used again and again; what was left in them must not reach a result, nor may tensors share words that
//! are needed at the same time.

mod runs;

use runs::{SMALL, Size, first_state, run};
use schemas::checksum::Dtype;
use schemas::config::Config;
use schemas::plan::{Operand, Plan};
use step::checksum::checksum_u32;
use step::dispatch::Backend;
use step::memory::{Layout, Needs, lives};
use step::plan::derive;
use step::session::Session;

const ONE_LEAF: Size =
    Size { layers: 3, heads: 2, channels: 20, length: 13, sequences: 3, leaves: 1, devices_max: 1 };

/// The Llama of the fixtures: tables, tensors of other kinds, SGD.
fn llama() -> (Plan, Vec<u32>) {
    let config =
        Config::from_toml(include_str!("../../fixtures/config/llama.toml")).expect("the config is right");
    let tokens: Vec<u32> = (0..200_u32).map(|i| i * i % 11).collect();
    let dataset = checksum_u32(&[200], &tokens);
    (derive(&config, 200, dataset).expect("the config has a plan"), tokens)
}

#[test]
fn a_nan_left_in_every_output_before_it_is_computed_changes_no_record() {
    for (plan, tokens) in [run(SMALL), run(ONE_LEAF), llama()] {
        for backend in Backend::all() {
            let session = Session::new(&plan, &tokens, backend).expect("a session");
            let mut poisoned = Session::new(&plan, &tokens, backend).expect("a session");
            poisoned.poison();
            let (mut state, mut other) = (first_state(&plan), first_state(&plan));
            for _ in 0..3 {
                let (want, found) = (session.step(&mut state), poisoned.step(&mut other));
                let (want, found) = (want.expect("a step"), found.expect("a step"));
                assert_eq!(found.record, want.record, "{}", backend.name());
                assert_eq!(found.traces, want.traces, "{}", backend.name());
            }
            assert_eq!(other.digest(), state.digest());
        }
    }
}

#[test]
fn a_step_that_is_not_recorded_is_the_same_step() {
    for (plan, tokens) in [run(SMALL), run(ONE_LEAF), llama()] {
        let session = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
        let mut poisoned = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
        poisoned.poison();
        let (mut state, mut other) = (first_state(&plan), first_state(&plan));
        for _ in 0..3 {
            let recorded = session.step(&mut state).expect("a step").record;
            let plain = poisoned.step_unrecorded(&mut other).expect("a step");
            assert_eq!(plain.losses, recorded.losses);
            assert_eq!(plain.norm, recorded.outcome.expect("an outcome").norm);
        }
        assert_eq!(other.digest(), state.digest());
    }
}

#[test]
fn tensors_that_are_needed_at_the_same_time_lie_apart() {
    for (plan, _) in [run(SMALL), run(ONE_LEAF), run(Size { layers: 30, ..ONE_LEAF }), llama()] {
        let (layout, lives) = (Layout::of(&plan), lives(&plan));
        let mut live_most = 0;
        for index in 0..plan.operations.len() {
            let live: Vec<usize> = (0..plan.tensors.len())
                .filter(|tensor| lives[*tensor].contains(&index) && plan.tensors[*tensor].dtype == Dtype::F32)
                .collect();
            for (at, one) in live.iter().enumerate() {
                let (name, place) = (&plan.tensors[*one].name, &layout.places[*one]);
                assert_eq!(place.len() as u64, plan.elements(Operand::Tensor(*one)), "{name}");
                assert!(place.end <= layout.words && place.start.is_multiple_of(16), "{name}");
                for other in &live[at + 1..] {
                    let other_place = &layout.places[*other];
                    let apart = place.end <= other_place.start || other_place.end <= place.start;
                    assert!(apart, "{name} and {} in operation {index}", plan.tensors[*other].name);
                }
            }
            live_most = live_most.max(live.iter().map(|tensor| layout.places[*tensor].len()).sum());
        }
        // Planning cannot do better than what lives at one time.
        assert!(layout.words >= live_most && layout.words <= live_most + live_most / 8 + 1024, "{live_most}");
    }
}

#[test]
fn needs_grow_with_threads_only_where_leaves_run_side_by_side() {
    let (plan, _) = run(SMALL);
    let needs = |threads| Needs::of(&plan, threads);
    assert_eq!((1..=6).map(|threads| needs(threads).side_by_side).collect::<Vec<_>>(), [1, 2, 3, 4, 4, 4]);
    assert_eq!(needs(2).tensors, 2 * needs(1).tensors);
    let (plan, _) = run(ONE_LEAF);
    assert_eq!(Needs::of(&plan, 8).side_by_side, 1);
    assert_eq!(Needs::of(&plan, 8).gradients, 4 * plan.parameter_count());
}
