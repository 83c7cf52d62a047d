//! Every kind of operation on an OpenCL device, in both builds and three shapes of launches: the worked examples of
//! `fixtures/step/operations.json`, and the reference's own results over shapes that go wrong first.

#[path = "../../step/tests/inputs/mod.rs"]
mod inputs;
mod machine;

use inputs::{both, tokens};
use machine::{Example, Words, assert_done, builds, fold, open, run, shapes};
use schemas::checksum::Dtype;
use schemas::plan::{Dimensions, Kind};
use serde_json::Value;
use step::dispatch::Backend;
use step::operation::{Call, Input};

/// Runs examples in every build and shape, and compares with what is expected of each.
fn hold(examples: &[(Example, Vec<Words>, String)]) {
    for build in builds() {
        for shapes in shapes(&build) {
            let mut machine = open(build, &device::kernels::source());
            for (example, expected, what) in examples {
                let done = run(&mut machine, &build, &shapes, example, &[]);
                assert_done(&done, expected, &format!("{what}, {shapes:?}, staged {}", build.staged));
            }
        }
    }
}

/// The reference's results for an example.
fn reference(example: Example, what: String) -> (Example, Vec<Words>, String) {
    let floats: Vec<Vec<f32>> = example.inputs.iter().map(Words::floats).collect();
    let inputs = example.inputs.iter().zip(&floats).map(|(words, floats)| match words.dtype {
        Dtype::F32 => Input::F32(floats),
        Dtype::U32 => Input::U32(&words.words),
    });
    let call = Call {
        backend: Backend::REFERENCE,
        dimensions: example.dimensions,
        inputs: inputs.collect(),
        constants: &example.constants,
    };
    let words = |shape: &[u64]| vec![0.0; shape.iter().product::<u64>() as usize];
    let mut outputs: Vec<Vec<f32>> = example.outputs.iter().map(|(_, shape)| words(shape)).collect();
    call.run(example.kind, &mut outputs.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    let shapes = example.outputs.iter().map(|(_, shape)| shape);
    let expected = shapes.zip(&outputs).map(|(shape, values)| Words::f32(shape, values)).collect();
    (example, expected, what)
}

fn words_of(value: &Value) -> Words {
    let list = |key: &str| value[key].as_array().unwrap().iter().map(|x| x.as_u64().unwrap()).collect();
    let dtype = if value["dtype"] == "u32" { Dtype::U32 } else { Dtype::F32 };
    Words { dtype, shape: list("shape"), words: hexadecimal(&value["words"]) }
}

fn hexadecimal(value: &Value) -> Vec<u32> {
    value.as_str().unwrap().split_whitespace().map(|word| u32::from_str_radix(word, 16).unwrap()).collect()
}

#[test]
fn the_worked_examples_of_every_kind_come_out_bit_by_bit() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/step/operations.json");
    let recorded: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let examples = recorded.iter().map(|value| {
        let (kind, name) =
            Kind::ALL.into_iter().find(|(_, name)| value["kind"] == *name).expect("a known kind");
        let d: Vec<u64> =
            value["dimensions"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap()).collect();
        let all = |key: &str| value[key].as_array().unwrap().iter().map(words_of).collect::<Vec<_>>();
        let expected = all("outputs");
        let example = Example {
            kind,
            dimensions: dimensions([d[0], d[1], d[2], d[3], d[5], d[6], d[7], d[8], d[9]]),
            constants: hexadecimal(&value["constants"]),
            inputs: all("inputs"),
            outputs: expected.iter().map(|words| (words.dtype, words.shape.clone())).collect(),
        };
        (example, expected, name.to_owned())
    });
    let examples: Vec<_> = examples.collect();
    for (kind, name) in Kind::ALL {
        // A window has a test of its own.
        let there = examples.iter().any(|(example, ..)| example.kind == kind);
        assert!(there || kind == Kind::Window, "no example of {name}");
    }
    hold(&examples);
}

/// B, T, C, V, NH, positions, I, KVH, HS.
fn dimensions(letters: [u64; 9]) -> Dimensions {
    let [batch, time, channels, vocabulary, heads, positions, inner, kv_heads, head_size] = letters;
    Dimensions { batch, time, channels, vocabulary, layers: 1, heads, positions, inner, kv_heads, head_size }
}

/// Makes examples of one set of dimensions and values.
struct Maker {
    dimensions: Dimensions,
    values: Vec<f32>,
    made: Vec<(Example, Vec<Words>, String)>,
}

impl Maker {
    /// For both kinds of values.
    fn both(letters: [u64; 9], seed: u32, make: fn(&mut Maker)) -> Vec<(Example, Vec<Words>, String)> {
        let makers = both(5000, seed).map(|values| {
            let mut maker = Maker { dimensions: dimensions(letters), values, made: vec![] };
            make(&mut maker);
            maker.made
        });
        makers.into_iter().flatten().collect()
    }

    fn tensor(&self, seed: usize, shape: &[u64]) -> Words {
        let values = self.values.iter().cycle().skip(97 * seed).copied();
        Words::f32(shape, &values.take(shape.iter().product::<u64>() as usize).collect::<Vec<_>>())
    }

    fn tokens(&self, seed: u32) -> Words {
        let rows = self.dimensions.rows() as usize;
        Words::u32(&tokens(rows, self.dimensions.vocabulary as u32, seed))
    }

    fn run(&mut self, kind: Kind, inputs: &[&Words], constants: &[f32], outputs: &[&[u64]]) -> Vec<Words> {
        let example = Example {
            kind,
            dimensions: self.dimensions,
            constants: constants.iter().map(|x| x.to_bits()).collect(),
            inputs: inputs.iter().map(|words| (*words).clone()).collect(),
            outputs: outputs.iter().map(|shape| (Dtype::F32, shape.to_vec())).collect(),
        };
        let what = format!("{} {:?}", kind.name(), self.dimensions);
        self.made.push(reference(example, what));
        self.made.last().unwrap().1.clone()
    }
}

fn products(maker: &mut Maker) {
    let (n, i, o) = (maker.dimensions.rows(), maker.dimensions.channels, maker.dimensions.inner);
    let (x, dy, bias) = (maker.tensor(0, &[n, i]), maker.tensor(1, &[n, o]), maker.tensor(2, &[o]));
    let (by_inputs, by_outputs) = (maker.tensor(3, &[i, o]), maker.tensor(3, &[o, i]));
    maker.run(Kind::Linear, &[&x, &by_inputs, &bias], &[], &[&[n, o]]);
    maker.run(Kind::LinearBackwardInput, &[&dy, &by_inputs], &[], &[&[n, i]]);
    maker.run(Kind::LinearBackwardWeight, &[&x, &dy], &[], &[&[i, o]]);
    maker.run(Kind::LinearBackwardBias, &[&dy], &[], &[&[o]]);
    maker.run(Kind::Project, &[&x, &by_outputs], &[], &[&[n, o]]);
    maker.run(Kind::ProjectBackwardInput, &[&dy, &by_outputs], &[], &[&[n, i]]);
    maker.run(Kind::ProjectBackwardWeight, &[&dy, &x], &[], &[&[o, i]]);
}

#[test]
fn products_of_every_shape_are_ascending_chains() {
    // Rows, inner and columns: 1, primes, and the sides of blocks and tiles -1, 0, +1.
    let shapes = [
        [1, 1, 1],
        [7, 31, 33],
        [8, 32, 32],
        [9, 33, 31],
        [17, 15, 65],
        [31, 16, 127],
        [33, 17, 64],
        [63, 47, 63],
        [65, 13, 129],
        [127, 8, 9],
        [129, 37, 5],
        [128, 64, 128],
        [1, 300, 2],
    ];
    let examples = shapes.into_iter().flat_map(|[rows, inner, columns]| {
        Maker::both([1, rows, inner, 5, 1, rows, columns, 1, 2], 21, products)
    });
    hold(&examples.collect::<Vec<_>>());
}

fn rows(maker: &mut Maker) {
    let d = maker.dimensions;
    let (n, c, v) = (d.rows(), d.channels, d.vocabulary);
    let (x, dy) = (maker.tensor(0, &[n, c]), maker.tensor(1, &[n, c]));
    let (gain, bias, tokens) = (maker.tensor(2, &[c]), maker.tensor(3, &[c]), maker.tokens(0));
    let (inv_c, eps) = ((1.0 / c as f64) as f32, 1e-5);
    let saved = maker.run(Kind::Layernorm, &[&x, &gain, &bias], &[inv_c, eps], &[&[n, c], &[n], &[n]]);
    let inputs = [&dy, &x, &saved[1], &saved[2], &gain];
    maker.run(Kind::LayernormBackward, &inputs, &[inv_c], &[&[n, c], &[c], &[c]]);
    let saved = maker.run(Kind::Rmsnorm, &[&x, &gain], &[inv_c, eps], &[&[n, c], &[n]]);
    maker.run(Kind::RmsnormBackward, &[&dy, &x, &saved[1], &gain], &[inv_c], &[&[n, c], &[c]]);
    let (table, wpe) = (maker.tensor(4, &[v, c]), maker.tensor(5, &[d.positions, c]));
    maker.run(Kind::Embedding, &[&tokens, &table, &wpe], &[], &[&[n, c]]);
    maker.run(Kind::TokenEmbedding, &[&tokens, &table], &[], &[&[n, c]]);
    maker.run(Kind::EmbeddingBackward, &[&tokens, &dy], &[], &[&[v, c], &[d.positions, c]]);
    maker.run(Kind::TokenEmbeddingBackward, &[&tokens, &dy], &[], &[&[v, c]]);
    let (logits, targets) = (maker.tensor(6, &[n, v]), maker.tokens(1));
    let saved = maker.run(Kind::CrossEntropy, &[&logits, &targets], &[], &[&[n], &[n], &[n]]);
    let inputs = [&logits, &targets, &saved[1], &saved[2]];
    maker.run(Kind::CrossEntropyBackward, &inputs, &[(1.0 / n as f64) as f32], &[&[n, v]]);
    let [x, up, dy] = [0, 1, 2].map(|seed| maker.tensor(seed, &[n, c]));
    maker.run(Kind::Add, &[&x, &up], &[], &[&[n, c]]);
    maker.run(Kind::Gelu, &[&x], &[], &[&[n, c]]);
    maker.run(Kind::GeluBackward, &[&dy, &x], &[], &[&[n, c]]);
    maker.run(Kind::Swiglu, &[&x, &up], &[], &[&[n, c]]);
    maker.run(Kind::SwigluBackward, &[&dy, &x, &up], &[], &[&[n, c], &[n, c]]);
}

#[test]
fn rows_and_elements_of_every_shape_keep_their_order() {
    // B, T, C, V: the 32 lanes of a sum, the 1024 words of a block, and more tokens than positions of each.
    let shapes = [
        [1, 1, 1, 2],
        [2, 3, 31, 33],
        [3, 5, 32, 31],
        [1, 7, 33, 32],
        [2, 16, 63, 3],
        [2, 17, 64, 65],
        [1, 31, 33, 1023],
        [1, 2, 1024, 1025],
        [5, 1, 97, 1],
    ];
    let examples =
        shapes.into_iter().flat_map(|[b, t, c, v]| Maker::both([b, t, c, v, 1, t + 2, 3, 1, 2], 22, rows));
    hold(&examples.collect::<Vec<_>>());
}

fn heads(maker: &mut Maker) {
    let d = maker.dimensions;
    let (n, a, k, half) = (d.rows(), d.query_width(), d.kv_width(), d.head_size / 2);
    let statistics = [d.batch, d.heads, d.time];
    let scale = (1.0 / (d.head_size as f64).sqrt()) as f32;
    let (qkv, d_out) = (maker.tensor(0, &[n, 3 * a]), maker.tensor(1, &[n, a]));
    let shapes: [&[u64]; 3] = [&[n, a], &statistics, &statistics];
    let saved = maker.run(Kind::Attention, &[&qkv], &[scale], &shapes);
    let inputs = [&d_out, &qkv, &saved[0], &saved[1], &saved[2]];
    maker.run(Kind::AttentionBackward, &inputs, &[scale], &[&[n, 3 * a]]);
    let (query, key, value) = (maker.tensor(2, &[n, a]), maker.tensor(3, &[n, k]), maker.tensor(4, &[n, k]));
    let saved = maker.run(Kind::GroupedAttention, &[&query, &key, &value], &[scale], &shapes);
    let inputs = [&d_out, &query, &key, &value, &saved[0], &saved[1], &saved[2]];
    maker.run(Kind::GroupedAttentionBackward, &inputs, &[scale], &[&[n, a], &[n, k], &[n, k]]);
    if half > 0 {
        let (cos, sin) = (maker.tensor(5, &[d.time, half]), maker.tensor(6, &[d.time, half]));
        maker.run(Kind::Rope, &[&query, &cos, &sin], &[], &[&[n, a]]);
        maker.run(Kind::RopeBackward, &[&d_out, &cos, &sin], &[], &[&[n, a]]);
    }
}

#[test]
fn attention_of_every_shape_takes_keys_and_queries_in_order() {
    // B, T, NH, KVH, HS.
    let shapes = [
        [1, 1, 1, 1, 1],
        [2, 7, 2, 1, 2],
        [1, 31, 3, 3, 6],
        [1, 32, 2, 1, 32],
        [2, 33, 4, 2, 4],
        [1, 65, 2, 2, 66],
        [1, 129, 2, 1, 10],
    ];
    let examples = shapes
        .into_iter()
        .flat_map(|[b, t, nh, kvh, hs]| Maker::both([b, t, 1, 2, nh, t, 1, kvh, hs], 23, heads));
    hold(&examples.collect::<Vec<_>>());
}

#[test]
fn a_leaf_reads_the_windows_that_the_oracle_reads() {
    let stream: Vec<u32> = (0..1000).map(|i| i * 7 + 1).collect();
    for (batch, time) in [(1, 1), (3, 33), (2, 499), (60, 33)] {
        let d = dimensions([batch, time, 1, 7000, 1, time, 1, 1, 1]);
        let n = vec![d.rows()];
        let example = Example {
            kind: Kind::Window,
            dimensions: d,
            constants: vec![],
            inputs: vec![],
            outputs: vec![(Dtype::U32, n.clone()), (Dtype::U32, n)],
        };
        let order = step::order::Order::new(1000, time as usize as u64, 5).unwrap();
        let windows = order.leaf_windows(3, 0, 1, batch);
        let (tokens, targets) = step::order::inputs_and_targets(&stream, &windows, time as usize);
        for build in builds() {
            for shapes in shapes(&build) {
                let mut machine = open(build, &device::kernels::source());
                let done = run(&mut machine, &build, &shapes, &example, &stream);
                assert_done(&done, &[Words::u32(&tokens), Words::u32(&targets)], "window");
            }
        }
    }
}

#[test]
fn a_leafs_loss_is_the_mean_in_ascending_order() {
    let (rows, vocabulary) = (97, 11);
    let examples = Maker::both([1, rows, 1, vocabulary, 1, rows, 1, 1, 1], 24, |maker| {
        let (n, v) = (maker.dimensions.rows(), maker.dimensions.vocabulary);
        let (logits, targets) = (maker.tensor(6, &[n, v]), maker.tokens(1));
        maker.run(Kind::CrossEntropy, &[&logits, &targets], &[], &[&[n], &[n], &[n]]);
    });
    for (example, expected, _) in &examples {
        let inv_n = 1.0 / rows as f64 as f32;
        let mean = expected[0].floats().iter().fold(0.0_f32, |sum, loss| sum + loss) * inv_n;
        for build in builds() {
            let mut machine = open(build, &device::kernels::source());
            let done = run(&mut machine, &build, &shapes(&build)[2], example, &[]);
            assert_eq!(done.loss, mean.to_bits());
        }
    }
}

#[test]
fn what_is_not_finite_is_counted_and_every_nan_is_one_word() {
    let mut values = vec![1.5_f32; 2100];
    (values[3], values[1024], values[2099]) = (f32::INFINITY, f32::from_bits(0xffc1_2345), f32::NEG_INFINITY);
    let x = Words::f32(&[2100], &values);
    let zeros = Words::f32(&[2100], &vec![0.0; 2100]);
    let example = Example {
        kind: Kind::Add,
        dimensions: dimensions([1, 1, 1, 1, 1, 1, 1, 1, 1]),
        constants: vec![],
        inputs: vec![x.clone(), zeros],
        outputs: vec![(Dtype::F32, vec![2100])],
    };
    for build in builds() {
        let mut machine = open(build, &device::kernels::source());
        let done = run(&mut machine, &build, &shapes(&build)[1], &example, &[]);
        assert_eq!(done.bad, [3]);
        assert_eq!(done.folds, [fold(&x)]);
    }
}
