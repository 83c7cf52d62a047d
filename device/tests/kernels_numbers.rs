//! The elementary functions on an OpenCL device over a dense sample of all bit patterns, and kernels whose order was
//! changed on purpose, which have to be found out.

#[path = "../../step/tests/inputs/mod.rs"]
mod inputs;
mod machine;

use device::kernels::source;
use device::machine::{Argument, Build, Launch, Machine};
use device::places::Place;
use inputs::adversarial;
use machine::{Example, Words, builds, open, read_u32, run, shapes};
use schemas::checksum::Dtype;
use schemas::plan::{Dimensions, Kind};
use step::number::elementary;

/// Words that one launch looks at.
const WORDS: u64 = 1 << 16;
/// From one word of the sample to the next: odd, so that all low bits are met. About 2.1 million words.
const STRIDE: u64 = 2039;

/// Applies an elementary function to words first, first + stride, ...
const PROBE: &str = "
KERNEL probe(TENSOR(uint, y), uint first, uint stride, uint which, ulong n) {
    AT(uint, y);
    for (ulong i = GROUP_X * ITEMS + ITEM; i < n; i += GROUPS_X * ITEMS) {
        const float x = float_of(first + (uint)i * stride);
        y[i] = bits_of(which == 0 ? exp_v1(x) : which == 1 ? log_v1(x) : which == 2 ? tanh_v1(x) : sigmoid_v1(x));
    }
}
";

#[test]
fn elementary_functions_give_the_bits_of_the_reference() {
    let sigmoid = |x: f32| 1.0 / (1.0 + elementary::exp(-x));
    let functions: [(&str, &dyn Fn(f32) -> f32); 4] = [
        ("exp", &elementary::exp),
        ("log", &elementary::log),
        ("tanh", &elementary::tanh),
        ("sigmoid", &sigmoid),
    ];
    for build in builds() {
        let mut machine = open(build, &format!("{}{PROBE}", source()));
        let buffer = machine.allocate(4 * WORDS).unwrap();
        for (which, (name, function)) in (0..).zip(&functions) {
            let mut hold = |first: u32, stride: u32| {
                let arguments = vec![
                    Argument::Tensor(buffer, 0),
                    Argument::U32(first),
                    Argument::U32(stride),
                    Argument::U32(which),
                    Argument::U64(WORDS),
                ];
                machine.launch(&Launch { kernel: "probe", groups: [64, 1], items: 32, arguments }).unwrap();
                let found = read_u32(&mut machine, Place { buffer, at: 0 }, WORDS as usize);
                for (i, found) in (0..).zip(found) {
                    let x = f32::from_bits(first.wrapping_add(stride.wrapping_mul(i)));
                    let expected = function(x);
                    let same =
                        found == expected.to_bits() || expected.is_nan() && f32::from_bits(found).is_nan();
                    assert!(same, "{name}({:#010x}) is {found:#010x}, expected {expected:e}", x.to_bits());
                }
            };
            // All of the line, and what lies next to the bounds of exp and to 1.
            (0..(1_u64 << 32) / (STRIDE * WORDS))
                .for_each(|part| hold((part * STRIDE * WORDS) as u32, STRIDE as u32));
            for near in [0x0000_0000_u32, 0x8000_0000, 0x42b0_0000, 0xc2ae_0000, 0x3f80_0000, 0x7f80_0000] {
                hold(near.wrapping_sub(WORDS as u32 / 2), 1);
            }
        }
    }
}

/// A product with factors that hurt.
fn product(kind: Kind) -> Example {
    let (rows, inner, columns) = (40, 70, 37);
    let values = adversarial(rows * inner + inner * columns, 31);
    let shape = |a: usize, b: usize| [a as u64, b as u64];
    let (left, right) = values.split_at(rows * inner);
    let right_shape = if kind == Kind::Project { shape(columns, inner) } else { shape(inner, columns) };
    let dimensions = Dimensions {
        batch: 1,
        time: rows as u64,
        channels: inner as u64,
        vocabulary: 2,
        layers: 1,
        heads: 1,
        positions: rows as u64,
        inner: columns as u64,
        kv_heads: 1,
        head_size: 1,
    };
    Example {
        kind,
        dimensions,
        constants: vec![],
        inputs: vec![Words::f32(&shape(rows, inner), left), Words::f32(&right_shape, right)],
        outputs: vec![(Dtype::F32, shape(rows, columns).to_vec())],
    }
}

/// How many elements come out otherwise when `from` in the kernels' text is replaced by `to`.
fn changed(build: Build, example: &Example, from: &str, to: &str) -> usize {
    let text = source();
    assert!(text.contains(from), "the kernels have {from:?}");
    let outputs = [text.clone(), text.replace(from, to)].map(|text| {
        let mut machine = open(build, &text);
        run(&mut machine, &build, &shapes(&build)[1], example, &[]).outputs.remove(0).words
    });
    outputs[0].iter().zip(&outputs[1]).filter(|(one, other)| one != other).count()
}

#[test]
fn a_product_in_another_order_is_found_out() {
    let [plain, staged] = builds();
    for kind in [Kind::Project, Kind::ProjectBackwardInput] {
        let example = product(kind);
        // Neighbouring k swapped, of 70 all.
        let (from, to) = (
            "GLOBAL const float *x = left + k * a_step;",
            "GLOBAL const float *x = left + (k ^ 1) * a_step;",
        );
        let row = (
            "GLOBAL const float *b_row = right + k * p.b_ld;",
            "GLOBAL const float *b_row = right + (k ^ 1) * p.b_ld;",
        );
        assert_eq!(changed(plain, &example, from, from), 0);
        assert!(changed(plain, &example, from, to) > 0, "one factor");
        let text = source().replace(from, to).replace(row.0, row.1);
        let mut machine = open(plain, &text);
        let swapped = run(&mut machine, &plain, &shapes(&plain)[1], &example, &[]).outputs.remove(0).words;
        let mut machine = open(plain, &source());
        let right = run(&mut machine, &plain, &shapes(&plain)[1], &example, &[]).outputs.remove(0).words;
        assert!(
            right.iter().zip(&swapped).any(|(one, other)| one != other),
            "both factors: an order of its own"
        );

        // Staged, k descending within a tile.
        let (from, to) = ("for (uint k = 0; k < TILE_K; k++) {", "for (uint k = TILE_K; k-- > 0;) {");
        assert!(changed(staged, &example, from, to) > 0, "staged");
    }
}
