//! Whole steps: the plan, its execution, the record and what may not change it.

mod runs;

use runs::{SMALL, Size, assert_slopes, config, first_state, run, stream};
use schemas::config::Config;
use schemas::config::model::{Gpt2, Model};
use schemas::digest::Checksum;
use schemas::object::Object;
use schemas::plan::{Operand, Plan};
use schemas::record::NonFinite;
use schemas::trace::Trace;
use step::buffer::Flat;
use step::dispatch::Backend;
use step::execute::{Leaf, no_hook};
use step::plan::{PlanError, derive};
use step::session::{Session, SessionError, Step};
use step::state::{State, spans};
use step::tree::{Accumulator, meeting_index};
use step::update;

const ONE_LAYER: Size =
    Size { layers: 1, heads: 2, channels: 16, length: 40, sequences: 1, leaves: 3, devices_max: 1 };

fn steps(session: &Session, state: &mut State, count: usize) -> Vec<Step> {
    (0..count).map(|_| session.step(state).expect("a step")).collect()
}

#[test]
fn a_plan_is_derived_the_same_twice_and_survives_its_encoding() {
    for size in [SMALL, ONE_LAYER] {
        let (plan, _) = run(size);
        assert_eq!(plan.digest(), run(size).0.digest());
        assert_eq!(Plan::decode(&plan.encode()).expect("a derived plan is well-formed"), plan);
        let names: Vec<&str> = plan.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        assert_eq!(names[..2], ["transformer.wte.weight", "transformer.wpe.weight"]);
        assert_eq!(names[names.len() - 2..], ["transformer.ln_f.weight", "transformer.ln_f.bias"]);
        assert_eq!(names.len() as u64, 2 + 12 * size.layers + 2);
    }
    assert_ne!(run(SMALL).0.digest(), run(ONE_LAYER).0.digest());
}

/// Each operation as a line of a plan that people read.
fn listing(plan: &Plan) -> String {
    let names = |operands: &[Operand]| {
        operands.iter().map(|operand| plan.operand_name(*operand)).collect::<Vec<_>>().join(", ")
    };
    let line = |operation: &schemas::plan::Operation| {
        let (inputs, outputs) = (names(&operation.inputs), names(&operation.outputs));
        format!("{} = {}({inputs}) -> {outputs}\n", operation.name, operation.kind.name())
    };
    plan.operations.iter().map(line).collect()
}

#[test]
fn the_plan_of_one_layer_is_the_list_that_stands_beside_this_test() {
    let (plan, _) = run(ONE_LAYER);
    let found = listing(&plan);
    assert_eq!(found, include_str!("plan_one_layer.txt"), "found:\n{found}");
}

#[test]
fn the_bits_of_the_first_and_the_third_state_have_not_moved() {
    let (plan, tokens) = run(SMALL);
    let session = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
    let mut state = first_state(&plan);
    let first = session.sum(&state.parameters).checksum.to_string();
    steps(&session, &mut state, 3);
    let [parameters, m, v] = [&state.parameters, &state.first_moment, &state.second_moment]
        .map(|words| session.sum(words).checksum.to_string());
    let want = [
        "c27c59f89ff6b2861c2eac7cdc2714d941b1404dd49a31cf0877aa71dccc05df",
        "8d584b71c0dff51d0a654ac42d63e276077fbb7e31bb693d4d90defc55a834eb",
        "35d1bf14210796e15d0081b892bf971585badee69e4b189b4578e4e7d9af8582",
        "e74b15de4a0c9f8bf53dd6c662aac541889a76ec93deb838bd2601920bc21280",
    ];
    assert_eq!([first, parameters, m, v], want);
}

#[test]
fn decay_shrinks_tensors_with_two_dimensions_and_no_others() {
    let (plan, _) = run(SMALL);
    let mut state = first_state(&plan);
    state.parameters.iter_mut().for_each(|p| *p += 1.0);
    let before = state.clone();
    // With no gradient and no moments nothing but decay moves a parameter.
    let zeros = vec![0.0; before.parameters.len()];
    assert_eq!(update::apply(Backend::detect(), &plan, &zeros, &mut state).to_bits(), 0);
    let decay = f32::from_bits(plan.update.groups[0][0].decay);
    assert!(decay < 1.0);
    for (parameter, span) in plan.parameters.iter().zip(spans(&plan.parameters)) {
        let factor = if parameter.shape.len() == 2 { decay } else { 1.0 };
        let pairs = state.parameters[span.clone()].iter().zip(&before.parameters[span]);
        assert!(pairs.clone().all(|(p, old)| p.to_bits() == (old * factor).to_bits()), "{}", parameter.name);
    }
}

fn gpt2(config: &mut Config) -> &mut Gpt2 {
    let Model::Gpt2(model) = &mut config.model else { panic!("not a GPT-2") };
    model
}

#[test]
fn the_largest_config_has_a_plan_and_impossible_ones_have_none() {
    let none = Checksum([0; 32]);
    let mut large = config(SMALL);
    (gpt2(&mut large).n_layer, large.steps, large.optimizer.warmup_steps) = (1024, 1000, 0);
    let plan = derive(&large, 10_000, none).expect("1024 layers");
    assert!(plan.operations.len() <= schemas::plan::OPERATIONS_MAX);
    assert!(plan.taps().count() <= schemas::trace::TAPS_MAX);
    Plan::decode(&plan.encode()).expect("a large plan is well-formed");

    let mut wide = config(SMALL);
    let model = gpt2(&mut wide);
    (model.n_embd, model.n_head, model.n_layer) = (1 << 16, 1 << 16, 1024);
    assert!(matches!(derive(&wide, 10_000, none), Err(PlanError::TooLarge { .. })));
    assert_eq!(derive(&config(SMALL), 11, none), Err(PlanError::TooFewTokens { length: 11, found: 11 }));
    let mut long = config(SMALL);
    long.steps = 1 << 21;
    assert_eq!(derive(&long, 10_000, none), Err(PlanError::TooManySteps { found: 1 << 21 }));
}

#[test]
fn a_tensor_has_as_many_elements_as_there_may_be_and_no_more() {
    // Sequences, length, vocabulary, channels, width of the MLP; the first is 2^38 elements or a little less.
    for (name, most, beyond) in [
        ("logits", [1 << 14, 1, 1 << 24, 1, 1], [(1 << 14) + 1, 1, 1 << 24, 1, 1]),
        ("qkv", [23, 60_787, 1, 1 << 16, 1], [2, 699_051, 1, 1 << 16, 1]),
        // One more than 2^38 is 5 x 229 x 457 x 525313.
        ("mlp", [4, 1 << 16, 1, 1, 1 << 20], [5, 229 * 457, 1, 1, 525_313]),
        ("all parameters", [1, 1, 1 << 24, 1 << 12, 1], [1, 1, 1 << 24, 1 << 13, 1]),
    ] {
        let of = |[sequences, length, vocabulary, channels, inner]: [u64; 5]| {
            let mut config = config(SMALL);
            (config.data.sequences, config.data.length) = (sequences, length);
            let model = gpt2(&mut config);
            (model.vocab_size, model.n_positions, model.n_embd) = (vocabulary, length, channels);
            (model.n_inner, model.n_head, model.n_layer) = (Some(inner), 1, 1);
            derive(&config, 1 << 21, Checksum([0; 32]))
        };
        assert!(of(most).is_ok(), "{name}: {:?}", of(most).unwrap_err());
        let refused = of(beyond).expect_err(name);
        assert!(matches!(&refused, PlanError::TooLarge { name: of, .. } if of == name), "{name}: {refused}");
    }
}

#[test]
fn training_lowers_the_loss_and_every_record_is_well_formed() {
    let (plan, tokens) = run(SMALL);
    let session = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
    let mut state = first_state(&plan);
    let mean = |step: &Step| step.record.losses.iter().map(|bits| f32::from_bits(*bits)).sum::<f32>() / 4.0;
    let steps = steps(&session, &mut state, 8);
    let (first, last) = (mean(&steps[0]), mean(&steps[7]));
    // ln 67 = 4.20: an untrained model knows nothing.
    assert!((4.0..4.4).contains(&first) && last < first - 0.3, "{first} to {last}");
    for (number, step) in steps.iter().enumerate() {
        assert_eq!(step.record.non_finite, None);
        assert_eq!(step.record.traces.len(), 4);
        assert_eq!(step.traces.iter().map(|trace| trace.root()).collect::<Vec<_>>(), step.record.traces);
        assert!(step.traces.iter().all(|trace| trace.folds.len() == plan.taps().count()));
        assert!(step.traces.iter().all(|trace| trace.step == number as u64));
        let outcome = step.record.outcome.as_ref().expect("an outcome");
        assert_eq!(outcome.nodes.len(), 7);
        assert_eq!(step.meeting.as_ref().map(|meeting| meeting.root()), Some(outcome.meeting));
        let again = schemas::record::StepRecord::from_value(step.record.to_value());
        assert_eq!(again.expect("a record is well-formed"), step.record);
    }
    assert_eq!(state.step, 8);
    let error = session.step(&mut state).expect_err("the plan has eight steps");
    assert_eq!(error, SessionError::PastEnd { steps: 8, found: 8 });
}

#[test]
fn neither_backend_nor_threads_nor_a_second_run_change_a_record() {
    for size in [SMALL, ONE_LAYER] {
        let (plan, tokens) = run(size);
        let records = |backend: Backend, threads: usize| {
            let pool =
                rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
            pool.install(|| {
                let session = Session::new(&plan, &tokens, backend).expect("a session");
                let mut state = first_state(&plan);
                let steps = steps(&session, &mut state, 3);
                (steps.into_iter().map(|step| step.record).collect::<Vec<_>>(), state.digest())
            })
        };
        let want = records(Backend::SCALAR, 1);
        for backend in Backend::all() {
            for threads in [1, 2, 3, 7] {
                assert_eq!(records(backend, threads), want, "{} on {threads} threads", backend.name());
            }
        }
    }
}

#[test]
fn the_gradient_is_the_slope_of_the_loss_for_every_parameter_tensor() {
    let (plan, tokens) = run(Size { leaves: 1, devices_max: 1, ..SMALL });
    let session = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
    let parameters = first_state(&plan).parameters;
    let leaf = session.leaf(0, 0, &parameters, &mut no_hook());
    let gradient = leaf.gradient.expect("a finite leaf");
    // A step along the tensor's own gradient that moves the loss by about 0.01 each way.
    assert_slopes(&plan, &session, &parameters, &gradient, |square| 0.01 / square);
}

#[test]
fn devices_that_share_a_step_reach_the_recorded_nodes_and_state() {
    let (plan, tokens) = run(SMALL);
    let session = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
    let mut state = first_state(&plan);
    let before = state.parameters.clone();
    let step = session.step(&mut state).expect("a step");
    let outcome = step.record.outcome.expect("an outcome");
    for devices in [1_u64, 2, 4] {
        let each = plan.leaves / devices;
        let mut partials: Vec<Vec<f32>> = (0..devices)
            .map(|rank| {
                let range = rank * each..(rank + 1) * each;
                let mut tree = Accumulator::new(session.backend(), range.clone());
                for leaf in range {
                    let done = session.leaf(0, leaf, &before, &mut no_hook());
                    assert_eq!(done.folds, step.traces[leaf as usize].folds);
                    tree.push(done.gradient.expect("a finite leaf"), |_, _| ());
                }
                tree.finish().into_vec()
            })
            .collect();
        // Recursive doubling, seen from the lower partner of each pair.
        let mut each = each;
        loop {
            for (rank, partial) in partials.iter().enumerate() {
                let range = rank as u64 * each..(rank as u64 + 1) * each;
                let index = meeting_index(&range, plan.leaves, plan.devices_max).expect("a meeting node");
                assert_eq!(
                    session.sum(partial).checksum,
                    outcome.nodes[index],
                    "{devices} devices, {range:?}"
                );
            }
            if partials.len() == 1 {
                break;
            }
            let add = |pair: &[Vec<f32>]| pair[0].iter().zip(&pair[1]).map(|(a, b)| a + b).collect();
            partials = partials.chunks(2).map(add).collect();
            each *= 2;
        }
        update::reduce(session.backend(), &plan, &mut partials[0]);
        assert_eq!(session.sum(&partials[0]).checksum, outcome.reduced);
    }
    assert_eq!(session.sum(&state.parameters).checksum, outcome.parameters);
}

#[test]
fn one_flipped_bit_in_any_tap_changes_that_fold_and_the_trace_root() {
    let (plan, tokens) = run(ONE_LAYER);
    let session = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
    let parameters = first_state(&plan).parameters;
    let honest = session.leaf(0, 1, &parameters, &mut no_hook());
    let root = |leaf: &Leaf| Trace { step: 0, leaf: 1, folds: leaf.folds.clone() }.root();
    for (tap, at) in plan.taps().enumerate() {
        if matches!(at.operand, Operand::Tensor(i) if plan.tensors[i].dtype == schemas::checksum::Dtype::U32)
        {
            continue;
        }
        let mut flip = |index: usize, words: &mut [f32]| {
            if index == tap {
                let word = &mut words[words.len() / 2];
                *word = f32::from_bits(word.to_bits() ^ 1);
            }
        };
        let faulty = session.leaf(0, 1, &parameters, &mut flip);
        let first = honest.folds.iter().zip(&faulty.folds).position(|(honest, faulty)| honest != faulty);
        assert_eq!(first, Some(tap), "{}", plan.operand_name(at.operand));
        assert_ne!(root(&honest), root(&faulty), "{}", plan.operand_name(at.operand));
    }
}

#[test]
fn a_step_ends_at_the_first_tap_of_the_lowest_leaf_that_is_not_finite() {
    let (plan, tokens) = run(SMALL);
    let session = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
    for bad in [f32::NAN, f32::INFINITY, f32::from_bits(0xffc1_2345)] {
        let mut state = first_state(&plan);
        let before = state.clone();
        let hook = |leaf: u64, tap: usize, words: &mut [f32]| {
            if (leaf == 1 && tap == 20) || (leaf == 2 && tap == 9) {
                words[3] = bad;
            }
        };
        let step = session.step_with(&mut state, &hook).expect("a step");
        assert_eq!(step.record.non_finite, Some(NonFinite::Tap { leaf: 1, tap: 20 }));
        assert!(step.record.outcome.is_none() && step.meeting.is_none() && step.reduced.is_none());
        let lengths: Vec<usize> = step.traces.iter().map(|trace| trace.folds.len()).collect();
        let whole = plan.taps().count();
        assert_eq!(lengths, [whole, 21, 10, whole]);
        assert_eq!(step.record.losses[1..3], [0x7fc0_0000; 2]);
        assert_eq!(state, before, "the state stays");
        schemas::record::StepRecord::from_value(step.record.to_value()).expect("a record is well-formed");
    }
}

#[test]
fn an_overflow_beyond_the_leaves_is_named_by_its_stage() {
    let (plan, tokens) = run(SMALL);
    let session = Session::new(&plan, &tokens, Backend::detect()).expect("a session");
    let last = plan.taps().count() - 1;
    let stage = |value: f32, change: fn(&mut State)| {
        let mut state = first_state(&plan);
        change(&mut state);
        let hook = |_: u64, tap: usize, words: &mut [f32]| {
            if tap == last {
                words[0] = value;
            }
        };
        let step = session.step_with(&mut state, &hook).expect("a step");
        assert!(step.record.outcome.is_some());
        schemas::record::StepRecord::from_value(step.record.to_value()).expect("a record is well-formed");
        step.record.non_finite
    };
    let at = |stage| Some(NonFinite::Update { stage });
    assert_eq!(stage(f32::MAX, |_| ()), at(0), "four leaves of the largest number overflow in the tree");
    assert_eq!(stage(1e30, |_| ()), at(1), "its square overflows in the norm");
    assert_eq!(stage(1.0, |state| state.second_moment[0] = -1e30), at(2), "a root of a negative number");
    assert_eq!(stage(1.0, |_| ()), None);
}

#[test]
fn other_data_and_other_states_are_refused() {
    let (plan, tokens) = run(SMALL);
    let open = |tokens: &[u32]| Session::new(&plan, tokens, Backend::SCALAR).err();
    let mut other = stream();
    other[77] ^= 1;
    assert!(matches!(open(&other), Some(SessionError::Dataset { found: 2000, .. })));
    assert!(matches!(open(&tokens[..1999]), Some(SessionError::Dataset { found: 1999, .. })));
    other[77] = 67;
    assert_eq!(open(&other), Some(SessionError::Vocabulary { vocabulary: 67, token: 67, index: 77 }));

    let session = Session::new(&plan, &tokens, Backend::SCALAR).expect("a session");
    let mut state = first_state(&plan);
    state.first_moment = Flat::copied(&state.first_moment[1..]);
    assert!(matches!(session.step(&mut state), Err(SessionError::StateSize { .. })));
}
