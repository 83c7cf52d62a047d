//! The kernels that follow the leaves, on an OpenCL device, beside the oracle's arithmetic and this crate's checksums
//! on the host: sums of the tree, norm, optimizers, folds and checksums, each in three shapes of launches.

use device::backend::BackendError;
use device::checksum::Coefficients;
use device::executor::flat::{self, Flat};
use device::executor::update::{State, Update};
use device::launches::Shapes;
use device::machine::{Buffer, Build, Machine};
use device::opencl::OpenCl;
use device::places::Place;
use schemas::fold::FoldKey;
use schemas::plan::{Corrections, GroupStep, Parameter, Plan, Rule};
use step::dispatch::Backend;
use step::update::{apply, global_norm};

/// Both forms of the kernels, each in shapes of its own. None may change a bit.
fn every_shape(test: impl Fn(&mut dyn Machine, &Shapes, &Build)) {
    for staged in [false, true] {
        let build = Build { recorded: true, contracted: false, staged };
        for (items, blocks, rows) in [(1, 16, 16), (32, 1, 3), (if staged { 256 } else { 5 }, 2, 32)] {
            let shapes = Shapes { items, blocks, rows, ..Shapes::of(&build) };
            let mut machine = OpenCl::open(0, build).expect("an OpenCL device, such as PoCL's");
            test(&mut machine, &shapes, &build);
        }
    }
}

/// Words with every exponent in a range, both signs, zeros and subnormals, from a seed.
fn painted(count: u64, seed: u32, exponents: std::ops::Range<u32>) -> Vec<f32> {
    let mut word = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        word
    };
    let span = exponents.end - exponents.start;
    let float = |word: u32| match word % 61 {
        0 => 0.0,
        1 => -0.0,
        2 => f32::from_bits(word & 0x807f_ffff),
        _ => f32::from_bits(word & 0x807f_ffff | (exponents.start + (word >> 8) % span) << 23),
    };
    (0..count).map(|_| float(next())).collect()
}

fn bytes_of(words: &[f32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn bits_of(words: &[f32]) -> Vec<u32> {
    words.iter().map(|word| if word.is_nan() { 0x7fc0_0000 } else { word.to_bits() }).collect()
}

fn filled(machine: &mut dyn Machine, words: &[f32]) -> Buffer {
    let buffer = machine.allocate(4 * words.len() as u64).unwrap();
    machine.write(buffer, 0, &bytes_of(words)).unwrap();
    buffer
}

fn floats(machine: &mut dyn Machine, buffer: Buffer, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; 4 * count];
    machine.read(buffer, 0, &mut bytes).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

/// A plan with parameters of such shapes, in two groups, for one step.
fn plan(shapes: &[&[u64]], rule: Rule, clip: f32) -> Plan {
    let bytes = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/plan/small.cbor")).unwrap();
    let mut plan = <Plan as schemas::object::Object>::decode(&bytes).unwrap();
    let parameter = |(index, shape): (usize, &&[u64])| Parameter {
        name: format!("p{index}"),
        group: index % 2,
        shape: shape.to_vec(),
    };
    plan.parameters = shapes.iter().enumerate().map(parameter).collect();
    let bits = f32::to_bits;
    let group = |rate: f32, decay: f32| vec![GroupStep { learning_rate: bits(rate), decay: bits(decay) }];
    plan.update.groups = vec![group(0.0123, 0.9987), group(0.0321, 1.0)];
    plan.update.rule = rule;
    plan.update.clip = bits(clip);
    plan.update.inverse_leaves = bits(1.0 / 3.0);
    plan
}

fn adamw() -> Rule {
    let bits = f32::to_bits;
    Rule::Adamw {
        beta1: bits(0.9),
        one_minus_beta1: bits(0.1),
        beta2: bits(0.95),
        one_minus_beta2: bits(0.05),
        epsilon: bits(1e-8),
        corrections: vec![Corrections { first: bits(1.0 / 0.19), second: bits(1.0 / 0.0975) }],
    }
}

const SHAPES: &[&[u64]] = &[
    &[1],
    &[31],
    &[32],
    &[33],
    &[1, 1],
    &[7, 1],
    &[2500, 3],
    &[1023, 31],
    &[1024, 33],
    &[1025, 2],
    &[37, 1024],
    &[3, 1025],
    &[4099],
];

#[test]
fn sums_of_the_tree_and_the_reduced_gradient_are_one_operation_each() {
    every_shape(|machine, shapes, _| {
        let plan = plan(SHAPES, adamw(), 1.0);
        let count = plan.parameter_count();
        let (left, right) = (painted(count, 1, 100..140), painted(count, 2, 100..140));
        let update = Update::new(machine, &plan, shapes).unwrap();
        for node_is_left in [true, false] {
            let (node, other) = (filled(machine, &left), filled(machine, &right));
            machine.launch(&update.add(node, other, node_is_left)).unwrap();
            let sum: Vec<f32> = left.iter().zip(&right).map(|(left, right)| left + right).collect();
            assert_eq!(bits_of(&floats(machine, node, count as usize)), bits_of(&sum), "{shapes:?}");
            machine.launch(&update.reduce(node)).unwrap();
            let third = f32::from_bits(plan.update.inverse_leaves);
            let reduced: Vec<f32> = sum.iter().map(|sum| sum * third).collect();
            assert_eq!(bits_of(&floats(machine, node, count as usize)), bits_of(&reduced), "{shapes:?}");
            assert_eq!(bits_of(&floats(machine, other, count as usize)), bits_of(&right), "only read");
        }
    });
}

/// Norm and optimizer on the machine, and by the oracle.
fn updates_alike(machine: &mut dyn Machine, shapes: &Shapes, plan: &Plan, gradient: &[f32]) {
    let count = plan.parameter_count();
    let parameters = painted(count, 3, 110..130);
    let first_moment = painted(count, 4, 90..125);
    let second_moment: Vec<f32> = painted(count, 5, 80..120).iter().map(|word| word.abs()).collect();
    let mut expected = step::state::State {
        step: 0,
        parameters: parameters.into(),
        first_moment: first_moment.into(),
        second_moment: second_moment.into(),
    };
    let state = State {
        parameters: filled(machine, &expected.parameters),
        first_moment: filled(machine, &expected.first_moment),
        second_moment: filled(machine, &expected.second_moment),
    };
    let update = Update::new(machine, plan, shapes).unwrap();
    let reduced = filled(machine, gradient);
    let norm = update.norm(machine, reduced).unwrap();
    assert_eq!(norm.to_bits(), global_norm(Backend::REFERENCE, plan, gradient).to_bits(), "{shapes:?}");
    update.optimize(machine, 0, reduced, &state).unwrap();
    apply(Backend::REFERENCE, plan, gradient, &mut expected);
    for (name, buffer, expected) in [
        ("parameters", state.parameters, &expected.parameters),
        ("first moment", state.first_moment, &expected.first_moment),
        ("second moment", state.second_moment, &expected.second_moment),
    ] {
        let found = bits_of(&floats(machine, buffer, count as usize));
        let differ = found.iter().zip(bits_of(expected)).position(|(found, expected)| *found != expected);
        assert_eq!(differ, None, "{name} in {shapes:?}");
    }
}

#[test]
fn norm_and_adamw_are_the_oracles_clipped_or_not() {
    every_shape(|machine, shapes, _| {
        for clip in [1.0, f32::INFINITY] {
            let plan = plan(SHAPES, adamw(), clip);
            let gradient = painted(plan.parameter_count(), 6, 100..128);
            updates_alike(machine, shapes, &plan, &gradient);
        }
    });
}

#[test]
fn norm_and_sgd_are_the_oracles_with_and_without_nesterov() {
    every_shape(|machine, shapes, _| {
        for nesterov in [false, true] {
            let rule = Rule::Sgd { momentum: 0.9_f32.to_bits(), nesterov };
            let plan = plan(SHAPES, rule, 2.0);
            let gradient = painted(plan.parameter_count(), 7, 100..128);
            updates_alike(machine, shapes, &plan, &gradient);
        }
    });
}

#[test]
fn folds_and_checksums_are_those_of_the_host_at_every_length() {
    let key = FoldKey([9; 32]);
    let lengths =
        [1, 2, 13, 14, 15, 16, 29, 30, 31, 1022, 1023, 1024, 1025, 2047, 2048, 2049, 5000, 17 * 1024, 40_961];
    every_shape(|machine, shapes, build| {
        for words in lengths {
            let host = Coefficients::new(key, words);
            let coefficients = flat::coefficients(key, words);
            let key = machine.allocate(coefficients.len() as u64).unwrap();
            machine.write(key, 0, &coefficients).unwrap();
            // Not at the beginning of its memory.
            let vector = painted(words + 3, words as u32, 1..255);
            let buffer = filled(machine, &vector);
            let flat = Flat::new(machine, words, shapes, build).unwrap();
            let place = Place { buffer, at: 3 };
            let expected = host.digest(&vector[3..]);
            assert_eq!(flat.digest(machine, place, key), Ok(expected), "{words} words in {shapes:?}");
            let fold = (expected.sum.fold, expected.finite);
            assert_eq!(flat.fold(machine, place, key), Ok(fold), "{words} words in {shapes:?}");
        }
    });
}

#[test]
fn words_that_are_not_finite_are_seen_and_every_nan_is_one_word() -> Result<(), BackendError> {
    let key = FoldKey([1; 32]);
    let build = Build { recorded: true, contracted: false, staged: false };
    let mut machine = OpenCl::open(0, build)?;
    let shapes = Shapes::of(&build);
    let coefficients = flat::coefficients(key, 3000);
    let flat = Flat::new(&mut machine, 3000, &shapes, &build)?;
    let memory = machine.allocate(coefficients.len() as u64)?;
    machine.write(memory, 0, &coefficients)?;
    let host = Coefficients::new(key, 3000);
    for (place, bits) in
        [(0, 0x7f80_0000), (1023, 0xff80_0000), (1024, 0xffc1_2345), (2999, 0x7f80_0001), (2, 0x7f7f_ffff)]
    {
        let mut words = painted(3000, 8, 1..255);
        words[place] = f32::from_bits(bits);
        let buffer = filled(&mut machine, &words);
        let digested = flat.digest(&mut machine, Place { buffer, at: 0 }, memory)?;
        assert_eq!(digested, host.digest(&words), "{bits:08x} at {place}");
        assert_eq!(digested.finite, bits == 0x7f7f_ffff);
    }
    Ok(())
}

/// A test that cannot fail is no test: the same sums in another order are other bits, and are seen.
#[test]
fn kernels_in_another_order_are_seen() {
    let build = Build { recorded: true, contracted: false, staged: false };
    let plan = plan(SHAPES, adamw(), 1.0);
    // The root hides half of the differences of a sum, so there are several.
    let gradients: Vec<_> = (1..9).map(|seed| painted(plan.parameter_count(), seed, 118..128)).collect();
    let by_oracle = |gradient: &Vec<f32>| global_norm(Backend::REFERENCE, &plan, gradient).to_bits();
    let expected: Vec<u32> = gradients.iter().map(by_oracle).collect();
    let norm = |from: &str, to: &str| {
        let source = device::kernels::source();
        assert!(source.contains(from), "{from}");
        let mut machine = OpenCl::with_source(0, build, &source.replace(from, to)).expect("OpenCL");
        let update = Update::new(&mut machine, &plan, &Shapes::of(&build)).unwrap();
        let norm = |gradient: &Vec<f32>| {
            let reduced = filled(&mut machine, gradient);
            update.norm(&mut machine, reduced).unwrap().to_bits()
        };
        gradients.iter().map(norm).collect::<Vec<u32>>()
    };
    assert_eq!(norm("acc = f_add(acc, sums[first + r]);", "acc = f_add(acc, sums[first + r]);"), expected);
    assert_ne!(
        norm("acc = f_add(acc, sums[first + r]);", "acc = f_add(acc, sums[first + rows - 1 - r]);"),
        expected
    );
    assert_ne!(
        norm("tensor = f_add(tensor, sums[chunk++])", "whole = f_add(whole, sums[chunk++])"),
        expected
    );
    let lanes = "lanes[l] = f_fma(row[i + l], row[i + l], lanes[l])";
    assert_ne!(norm(lanes, "lanes[l] = f_add(f_mul(row[i + l], row[i + l]), lanes[l])"), expected);
}
