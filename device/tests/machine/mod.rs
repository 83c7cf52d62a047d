//! One operation on an OpenCL device, through the launches of a plan that has no other.

// Each test file uses a part of it.
#![allow(dead_code)]

use device::launches::{Shapes, launches};
use device::machine::{Build, Machine};
use device::opencl::OpenCl;
use device::order;
use device::places::{Layout, Memories, Place, Places};
use schemas::checksum::Dtype;
use schemas::digest::{Checksum, ConfigDigest};
use schemas::fold::{BLOCK_WORDS, Fold, FoldKey};
use schemas::plan::{
    DataOrder, Dimensions, GroupStep, Kind, Operand, Operation, Parameter, Plan, Rule, Tensor, Update,
};

/// The key of all folds here.
pub const KEY: FoldKey = FoldKey([7; 32]);

/// A tensor's element type, shape and words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    pub words: Vec<u32>,
}

impl Words {
    pub fn f32(shape: &[u64], values: &[f32]) -> Words {
        let words: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
        assert_eq!(words.len() as u64, shape.iter().product::<u64>());
        Words { dtype: Dtype::F32, shape: shape.to_vec(), words }
    }

    pub fn u32(words: &[u32]) -> Words {
        Words { dtype: Dtype::U32, shape: vec![words.len() as u64], words: words.to_vec() }
    }

    pub fn floats(&self) -> Vec<f32> {
        self.words.iter().map(|word| f32::from_bits(*word)).collect()
    }
}

/// An operation with what it reads, and the shapes of what it writes.
#[derive(Clone, Debug)]
pub struct Example {
    pub kind: Kind,
    pub dimensions: Dimensions,
    pub constants: Vec<u32>,
    pub inputs: Vec<Words>,
    pub outputs: Vec<(Dtype, Vec<u64>)>,
}

/// What an operation wrote, and what was recorded of it as it did.
#[derive(Clone, Debug)]
pub struct Done {
    pub outputs: Vec<Words>,
    pub folds: Vec<Fold>,
    /// Words that are not finite, of each output.
    pub bad: Vec<u64>,
    /// After a cross-entropy.
    pub loss: u32,
}

/// Both ways to build, recorded.
pub fn builds() -> [Build; 2] {
    [false, true].map(|staged| Build { recorded: true, contracted: false, staged })
}

/// Three shapes of launches for a build.
pub fn shapes(build: &Build) -> [Shapes; 3] {
    let shapes =
        |items, blocks, rows, tile, heads_words| Shapes { items, blocks, rows, tile, busy: 0, heads_words };
    match build.staged {
        true => [shapes(32, 1, 1, 32, 0), shapes(96, 3, 7, 64, 3000), shapes(256, 2, 8, 128, 1 << 20)],
        false => [shapes(1, 1, 1, 1, 0), shapes(3, 3, 7, 2, 3000), shapes(1, 16, 16, 16, 1 << 20)],
    }
}

/// The first OpenCL device with these kernels.
pub fn open(build: Build, source: &str) -> OpenCl {
    OpenCl::with_source(0, build, source).expect("PoCL is installed (make test) and builds the kernels")
}

fn plan(example: &Example) -> Plan {
    let tensor = |index: usize, dtype, shape: &[u64]| Tensor {
        name: format!("t{index}"),
        dtype,
        shape: shape.to_vec(),
    };
    let inputs = example.inputs.iter().map(|words| (words.dtype, &words.shape));
    let all = inputs.chain(example.outputs.iter().map(|(dtype, shape)| (*dtype, shape)));
    let tensors: Vec<Tensor> =
        all.enumerate().map(|(index, (dtype, shape))| tensor(index, dtype, shape)).collect();
    let reads = example.inputs.len();
    let operation = Operation {
        name: "one".into(),
        kind: example.kind,
        inputs: (0..reads).map(Operand::Tensor).collect(),
        outputs: (reads..tensors.len()).map(Operand::Tensor).collect(),
        constants: example.constants.clone(),
    };
    Plan {
        profile: "f32-fma".into(),
        config: ConfigDigest([0; 32]),
        dimensions: example.dimensions,
        parameters: vec![Parameter { name: "p".into(), shape: vec![1], group: 0 }],
        tables: vec![],
        operations: vec![operation],
        tensors,
        leaves: 1,
        devices_max: 1,
        data: DataOrder { tokens: 1000, dataset: Checksum([0; 32]), seed: 5 },
        update: Update {
            inverse_leaves: 0x3f80_0000,
            inverse_rows: (1.0 / example.dimensions.rows() as f64 as f32).to_bits(),
            clip: 0x7f80_0000,
            clip_epsilon: 0,
            rule: Rule::Sgd { momentum: 0, nesterov: false },
            groups: vec![vec![GroupStep { learning_rate: 0, decay: 0 }]],
        },
    }
}

fn bytes_u32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn bytes_u64(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Words from memory.
pub fn read_u32(machine: &mut OpenCl, place: Place, words: usize) -> Vec<u32> {
    let mut bytes = vec![0; 4 * words];
    machine.read(place.buffer, 4 * place.at, &mut bytes).expect("memory can be read");
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Runs an example on a machine; `stream` is the token stream of a window.
pub fn run(machine: &mut OpenCl, build: &Build, shapes: &Shapes, example: &Example, stream: &[u32]) -> Done {
    let plan = plan(example);
    let layout = Layout::of(&plan, shapes, build).expect("shapes are small");
    let mut allocate = |bytes| machine.allocate(bytes).expect("there is memory");
    let bytes = layout.bytes;
    let nothing = Place { buffer: allocate(4), at: 0 };
    let memories = Memories {
        tensors: allocate(bytes.tensors),
        tables: nothing.buffer,
        starts: allocate(bytes.starts),
        sorted: allocate(bytes.sorted),
        scratch: allocate(bytes.scratch),
        sums: allocate(bytes.sums),
        loss: allocate(4),
        stream: allocate(4 * stream.len().max(1) as u64),
        coefficients: allocate(bytes.coefficients),
        parameters: nothing,
        gradient: nothing,
    };
    let mut write =
        |buffer, at, bytes: &[u8]| machine.write(buffer, at, bytes).expect("memory can be written");
    let factors = (bytes.coefficients / 16).saturating_sub(BLOCK_WORDS as u64);
    let (first, second): (Vec<u64>, Vec<u64>) = (0..BLOCK_WORDS as u64).map(|j| KEY.table(j)).unzip();
    let factors = (0..factors).map(|block| KEY.factor(block)).flat_map(|(one, two)| [one, two]);
    let key: Vec<u64> = first.into_iter().chain(second).chain(factors).collect();
    write(memories.coefficients, 0, &bytes_u64(&key));
    write(memories.stream, 0, &bytes_u32(stream));
    if example.kind == Kind::Window {
        write(memories.starts, 0, &bytes_u64(&order::starts(&plan, 3, 0)));
    }
    if matches!(example.kind, Kind::EmbeddingBackward | Kind::TokenEmbeddingBackward) {
        let list = order::sorted(&example.inputs[0].words, example.dimensions.vocabulary);
        write(memories.sorted, 0, &bytes_u32(&list));
    }
    let places = Places { layout: &layout, memories };
    // What a kernel leaves out is seen.
    write(memories.tensors, 0, &vec![0xff; bytes.tensors as usize]);
    write(memories.scratch, 0, &vec![0xff; bytes.scratch as usize]);
    write(memories.sums, 0, &vec![0xff; bytes.sums as usize]);
    for (index, input) in example.inputs.iter().enumerate() {
        write(memories.tensors, 4 * places.of(Operand::Tensor(index)).at, &bytes_u32(&input.words));
    }
    let steps = launches(&plan, &places, shapes, build);
    for launch in steps.iter().flat_map(|step| step.launches.iter().chain(&step.after)) {
        machine.launch(launch).unwrap_or_else(|error| panic!("{launch:?}: {error}"));
    }
    let mut done = Done { outputs: vec![], folds: vec![], bad: vec![], loss: 0 };
    for tap in &steps[0].taps {
        let words = read_u32(machine, tap.place, tap.elements as usize);
        let (dtype, shape) = example.outputs[tap.tap].clone();
        done.outputs.push(Words { dtype, shape, words });
        let mut sums = vec![0; 24 * tap.sums as usize];
        machine.read(memories.sums, 8 * tap.sums_at, &mut sums).expect("memory can be read");
        let sums: Vec<u64> =
            sums.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        let sum = |part: usize| sums.iter().skip(part).step_by(3).fold(0, |sum: u64, x| sum.wrapping_add(*x));
        done.folds.push(Fold { a: sum(0), b: sum(1) });
        done.bad.push(sum(2));
    }
    done.loss = read_u32(machine, Place { buffer: memories.loss, at: 0 }, 1)[0];
    done
}

/// The fold of a tensor, word by word as the page says.
pub fn fold(words: &Words) -> Fold {
    let mut fold = Fold::default();
    for (i, &bits) in (0..).zip(&words.words) {
        let is_nan = words.dtype == Dtype::F32 && f32::from_bits(bits).is_nan();
        let word = u64::from(if is_nan { 0x7fc0_0000 } else { bits });
        let (t, f) = (KEY.table(i % 1024), KEY.factor(i / 1024));
        fold.a = fold.a.wrapping_add(word.wrapping_mul(t.0.wrapping_mul(f.0)));
        fold.b = fold.b.wrapping_add((word * word).wrapping_mul(t.1.wrapping_mul(f.1)));
    }
    fold
}

/// Panics at the first word that differs, of two NaN's none does; or if what was recorded is not of what was written.
pub fn assert_done(done: &Done, expected: &[Words], what: &str) {
    assert_eq!(done.outputs.len(), expected.len(), "{what}: outputs");
    for (index, (found, expected)) in done.outputs.iter().zip(expected).enumerate() {
        assert_eq!(found.words.len(), expected.words.len(), "{what}: length of output {index}");
        for (i, (&one, &other)) in found.words.iter().zip(&expected.words).enumerate() {
            let nan = |word| found.dtype == Dtype::F32 && f32::from_bits(word).is_nan();
            let same = one == other || nan(one) && nan(other);
            assert!(same, "{what}: output {index}, element {i} is {one:#010x}, expected {other:#010x}");
        }
        assert_eq!(done.folds[index], fold(found), "{what}: fold of output {index}");
        let bad = found.words.iter().filter(|word| !f32::from_bits(**word).is_finite()).count() as u64;
        let bad = if found.dtype == Dtype::F32 { bad } else { 0 };
        assert_eq!(done.bad[index], bad, "{what}: words of output {index} that are not finite");
    }
}
