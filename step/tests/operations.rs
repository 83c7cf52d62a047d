//! A worked example of every kind of operation: inputs, constants and outputs, bit by bit, in
//! `fixtures/step/operations.json`. They are the reference's; every backend of this machine has to give them, and so
//! has whoever writes another executor.
//!
//! `UPDATE_FIXTURES=1 cargo nextest run -p step --test operations` writes them anew.

mod inputs;

use inputs::{assert_bits, both, painted, tokens};
use schemas::plan::{Dimensions, Kind};
use serde_json::{Value, json};
use step::dispatch::Backend;
use step::operation::{Call, Input};

/// The letters of shapes, small and odd; `long` is one sequence longer than the 32 lanes of a sum.
fn dimensions(long: bool) -> Dimensions {
    let (batch, time, heads, kv_heads) = if long { (1, 35, 2, 1) } else { (2, 3, 4, 2) };
    Dimensions {
        batch,
        time,
        channels: 5,
        vocabulary: 37,
        layers: 1,
        heads,
        positions: time + 1,
        inner: 3,
        kv_heads,
        head_size: 2,
    }
}

/// A tensor of an example.
#[derive(Clone)]
enum Tensor {
    F32(Vec<u64>, Vec<f32>),
    U32(Vec<u64>, Vec<u32>),
}

impl Tensor {
    fn f32(&self) -> &[f32] {
        match self {
            Tensor::F32(_, words) => words,
            Tensor::U32(..) => panic!("not f32"),
        }
    }

    /// Shape and words, each word eight hexadecimal digits.
    fn to_json(&self) -> Value {
        let (shape, dtype, words): (_, _, Vec<u32>) = match self {
            Tensor::F32(shape, words) => {
                // Which NaN it is is left open.
                let one = |x: &f32| if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() };
                (shape, "f32", words.iter().map(one).collect())
            }
            Tensor::U32(shape, words) => (shape, "u32", words.clone()),
        };
        let words: Vec<String> = words.iter().map(|word| format!("{word:08x}")).collect();
        json!({"dtype": dtype, "shape": shape, "words": words.join(" ")})
    }
}

/// Makes the examples of one set of dimensions and one set of values.
struct Maker {
    backend: Backend,
    dimensions: Dimensions,
    values: Vec<f32>,
    examples: Vec<Value>,
}

impl Maker {
    /// A tensor of values, another one for each `seed`.
    fn tensor(&self, seed: usize, shape: &[u64]) -> Tensor {
        let words = self.values.iter().cycle().skip(97 * seed).copied();
        Tensor::F32(shape.to_vec(), words.take(shape.iter().product::<u64>() as usize).collect())
    }

    /// A token for each row.
    fn tokens(&self, seed: u32) -> Tensor {
        let rows = self.dimensions.rows();
        Tensor::U32(vec![rows], tokens(rows as usize, self.dimensions.vocabulary as u32, seed))
    }

    /// Runs an operation and keeps it as an example.
    fn run(&mut self, kind: Kind, inputs: &[&Tensor], constants: &[f32], outputs: &[&[u64]]) -> Vec<Tensor> {
        let constants: Vec<u32> = constants.iter().map(|x| x.to_bits()).collect();
        let as_call = inputs.iter().map(|tensor| match *tensor {
            Tensor::F32(_, words) => Input::F32(words),
            Tensor::U32(_, words) => Input::U32(words),
        });
        let call = Call {
            backend: self.backend,
            dimensions: self.dimensions,
            inputs: as_call.collect(),
            constants: &constants,
        };
        let mut words: Vec<Vec<f32>> =
            outputs.iter().map(|shape| vec![0.0; shape.iter().product::<u64>() as usize]).collect();
        call.run(kind, &mut words.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        let outputs: Vec<Tensor> =
            outputs.iter().zip(words).map(|(shape, words)| Tensor::F32(shape.to_vec(), words)).collect();
        let d = self.dimensions;
        self.examples.push(json!({
            "kind": kind.name(),
            "dimensions": [d.batch, d.time, d.channels, d.vocabulary, d.layers, d.heads, d.positions, d.inner,
                d.kv_heads, d.head_size],
            "constants": constants.iter().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(" "),
            "inputs": inputs.iter().map(|tensor| tensor.to_json()).collect::<Vec<_>>(),
            "outputs": outputs.iter().map(Tensor::to_json).collect::<Vec<_>>(),
        }));
        outputs
    }

    /// What goes over whole rows.
    fn rows(&mut self) {
        let d = self.dimensions;
        let (n, c, v) = (d.rows(), d.channels, d.vocabulary);
        let (x, dy) = (self.tensor(0, &[n, c]), self.tensor(1, &[n, c]));
        let (gain, bias, tokens) = (self.tensor(2, &[c]), self.tensor(3, &[c]), self.tokens(0));
        let (inv_c, eps) = ((1.0 / c as f64) as f32, 1e-5);
        let saved = self.run(Kind::Layernorm, &[&x, &gain, &bias], &[inv_c, eps], &[&[n, c], &[n], &[n]]);
        let inputs = [&dy, &x, &saved[1], &saved[2], &gain];
        self.run(Kind::LayernormBackward, &inputs, &[inv_c], &[&[n, c], &[c], &[c]]);
        let saved = self.run(Kind::Rmsnorm, &[&x, &gain], &[inv_c, eps], &[&[n, c], &[n]]);
        self.run(Kind::RmsnormBackward, &[&dy, &x, &saved[1], &gain], &[inv_c], &[&[n, c], &[c]]);

        let (table, wpe) = (self.tensor(4, &[v, c]), self.tensor(5, &[d.positions, c]));
        self.run(Kind::Embedding, &[&tokens, &table, &wpe], &[], &[&[n, c]]);
        self.run(Kind::TokenEmbedding, &[&tokens, &table], &[], &[&[n, c]]);
        self.run(Kind::EmbeddingBackward, &[&tokens, &dy], &[], &[&[v, c], &[d.positions, c]]);
        self.run(Kind::TokenEmbeddingBackward, &[&tokens, &dy], &[], &[&[v, c]]);

        let (logits, targets) = (self.tensor(6, &[n, v]), self.tokens(1));
        let saved = self.run(Kind::CrossEntropy, &[&logits, &targets], &[], &[&[n], &[n], &[n]]);
        let inputs = [&logits, &targets, &saved[1], &saved[2]];
        self.run(Kind::CrossEntropyBackward, &inputs, &[(1.0 / n as f64) as f32], &[&[n, v]]);
    }

    fn products(&mut self) {
        let (n, i, o) = (self.dimensions.rows(), self.dimensions.channels, self.dimensions.inner);
        let (x, dy, bias) = (self.tensor(0, &[n, i]), self.tensor(1, &[n, o]), self.tensor(2, &[o]));
        let (by_inputs, by_outputs) = (self.tensor(3, &[i, o]), self.tensor(3, &[o, i]));
        self.run(Kind::Linear, &[&x, &by_inputs, &bias], &[], &[&[n, o]]);
        self.run(Kind::LinearBackwardInput, &[&dy, &by_inputs], &[], &[&[n, i]]);
        self.run(Kind::LinearBackwardWeight, &[&x, &dy], &[], &[&[i, o]]);
        self.run(Kind::LinearBackwardBias, &[&dy], &[], &[&[o]]);
        self.run(Kind::Project, &[&x, &by_outputs], &[], &[&[n, o]]);
        self.run(Kind::ProjectBackwardInput, &[&dy, &by_outputs], &[], &[&[n, i]]);
        self.run(Kind::ProjectBackwardWeight, &[&dy, &x], &[], &[&[o, i]]);
    }

    /// Sums that come out otherwise if a rounding is added or left out: of a product in binary64 rounded twice, and of
    /// a product below the smallest number, whose sign a further term of zero would change.
    fn traps(&mut self) {
        self.dimensions = Dimensions { batch: 1, time: 1, ..self.dimensions };
        let tensor = |words: &[u32]| {
            let words: Vec<f32> = words.iter().map(|word| f32::from_bits(*word)).collect();
            Tensor::F32(vec![1, words.len() as u64], words)
        };
        let (x, w) = (tensor(&[0x3f80_0001, 0x3980_0001]), tensor(&[0x3f80_0000, 0x397f_fffe]));
        let out = self.run(Kind::Project, &[&x, &w], &[], &[&[1, 1]]);
        assert_bits(out[0].f32(), &[f32::from_bits(0x3f80_0001)], "fma rounds once");
        let (x, w) = (tensor(&[0x8000_0001]), tensor(&[0x0000_0001]));
        let out = self.run(Kind::Project, &[&x, &w], &[], &[&[1, 1]]);
        assert_bits(out[0].f32(), &[-0.0], "a chain is not padded");
    }

    fn elements(&mut self) {
        let shape = [self.dimensions.rows(), self.dimensions.inner];
        let [x, up, dy] = [0, 1, 2].map(|seed| self.tensor(seed, &shape));
        self.run(Kind::Add, &[&x, &up], &[], &[&shape]);
        self.run(Kind::Gelu, &[&x], &[], &[&shape]);
        self.run(Kind::GeluBackward, &[&dy, &x], &[], &[&shape]);
        self.run(Kind::Swiglu, &[&x, &up], &[], &[&shape]);
        self.run(Kind::SwigluBackward, &[&dy, &x, &up], &[], &[&shape, &shape]);
    }

    fn heads(&mut self) {
        let d = self.dimensions;
        let (n, a, k, half) = (d.rows(), d.query_width(), d.kv_width(), d.head_size / 2);
        let statistics = [d.batch, d.heads, d.time];
        let scale = (1.0 / (d.head_size as f64).sqrt()) as f32;
        let (qkv, d_out) = (self.tensor(0, &[n, 3 * a]), self.tensor(1, &[n, a]));
        let shapes: [&[u64]; 3] = [&[n, a], &statistics, &statistics];
        let saved = self.run(Kind::Attention, &[&qkv], &[scale], &shapes);
        let inputs = [&d_out, &qkv, &saved[0], &saved[1], &saved[2]];
        self.run(Kind::AttentionBackward, &inputs, &[scale], &[&[n, 3 * a]]);

        let (query, key, value) = (self.tensor(2, &[n, a]), self.tensor(3, &[n, k]), self.tensor(4, &[n, k]));
        let saved = self.run(Kind::GroupedAttention, &[&query, &key, &value], &[scale], &shapes);
        let inputs = [&d_out, &query, &key, &value, &saved[0], &saved[1], &saved[2]];
        self.run(Kind::GroupedAttentionBackward, &inputs, &[scale], &[&[n, a], &[n, k], &[n, k]]);

        let (cos, sin) = (self.tensor(5, &[d.time, half]), self.tensor(6, &[d.time, half]));
        self.run(Kind::Rope, &[&query, &cos, &sin], &[], &[&[n, a]]);
        self.run(Kind::RopeBackward, &[&d_out, &cos, &sin], &[], &[&[n, a]]);
    }
}

fn examples(backend: Backend) -> Vec<Value> {
    let maker = |long, values| Maker { backend, dimensions: dimensions(long), values, examples: vec![] };
    let mut all = Vec::new();
    for values in both(4000, 77) {
        let mut maker = maker(false, values);
        maker.rows();
        maker.products();
        maker.elements();
        maker.heads();
        all.append(&mut maker.examples);
    }
    let mut maker = maker(true, painted(4000, 78));
    maker.heads();
    maker.traps();
    all.append(&mut maker.examples);
    all
}

#[test]
fn every_backend_gives_the_worked_examples_of_every_kind() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/step/operations.json");
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        let lines: Vec<String> = examples(Backend::REFERENCE).iter().map(Value::to_string).collect();
        std::fs::write(path, format!("[\n{}\n]\n", lines.join(",\n"))).expect("the fixture is written");
    }
    let text = std::fs::read(path).expect("the fixture is there; UPDATE_FIXTURES=1 writes it");
    let recorded: Vec<Value> = serde_json::from_slice(&text).expect("the fixture is a list");
    for (kind, name) in Kind::ALL {
        // A window is read, not computed.
        assert!(kind == Kind::Window || recorded.iter().any(|example| example["kind"] == name), "no {name}");
    }
    for backend in Backend::all() {
        let found = examples(backend);
        assert_eq!(found.len(), recorded.len());
        for (found, recorded) in found.iter().zip(&recorded) {
            assert_eq!(found, recorded, "{backend}, {}", found["kind"]);
        }
    }
}
