//! The plan of a GPT-2, read from the blocks of docs/spec/plan.md itself: a second derivation beside `step`'s, with
//! which it must agree byte for byte. So the page is complete, and stays so.

use schemas::checksum::Dtype;
use schemas::config::Config;
use schemas::digest::Checksum;
use schemas::plan::{
    DataOrder, Dimensions, Kind, Operand, Operation, Parameter, Plan, StepConstants, Tensor, Update,
};

/// The text of fixtures/config/tiny.toml.
pub const TINY_TOML: &str = r#"# A GPT-2 small enough to read.
name = "tiny"
profile = "f32-fma"
steps = 3
leaves = 4
devices_max = 2

[model]
model_type = "gpt2"
vocab_size = 11
n_positions = 6
n_embd = 8
n_layer = 2
n_head = 2
layer_norm_epsilon = 1e-5
activation_function = "gelu_new"
initializer_range = 0.02

[state]
seed = 1

[data]
format = "llmc"
files = ["tokens.bin"]
sequences = 2
length = 4
seed = 7

[optimizer]
kind = "adamw"
learning_rate = 1e-3
beta1 = 0.9
beta2 = 0.95
epsilon = 1e-8
weight_decay = 0.1
clip = 1.0
schedule = "linear"
warmup_steps = 1
final_fraction = 0.1
"#;

const PAGE: &str = include_str!("../../../docs/spec/plan.md");

/// Derives the plan of `config` over `tokens` tokens with checksum `dataset`.
pub fn plan(config: &Config, tokens: u64, dataset: Checksum) -> Plan {
    let Config { model, data, .. } = config;
    let dimensions = Dimensions {
        batch: data.sequences,
        time: data.length,
        channels: model.n_embd,
        vocabulary: model.vocab_size,
        layers: model.n_layer,
        heads: model.n_head,
        positions: model.n_positions,
        inner: model.inner(),
    };
    let plan = Plan {
        profile: config.profile.clone(),
        config: config.digest(),
        dimensions,
        parameters: vec![],
        tensors: vec![],
        operations: vec![],
        leaves: config.leaves,
        devices_max: config.devices_max,
        data: DataOrder { tokens, dataset, seed: data.seed },
        update: update(config, dimensions.rows()),
    };
    let mut reader = Reader { plan, norm_epsilon: config.model.layer_norm_epsilon };
    reader.parameters();
    reader.operations();
    reader.order_tensors();
    reader.plan
}

fn bits(value: f64) -> u32 {
    (value as f32).to_bits()
}

fn update(config: &Config, rows: u64) -> Update {
    let optimizer = &config.optimizer;
    let steps = (0..config.steps).map(|step| {
        let rate = learning_rate(config, step);
        let correction = |beta: f64| bits(1.0 / (1.0 - (0..=step).fold(1.0, |power, _| power * beta)));
        StepConstants {
            learning_rate: bits(rate),
            decay: bits(1.0 - rate * optimizer.weight_decay),
            first_correction: correction(optimizer.beta1),
            second_correction: correction(optimizer.beta2),
        }
    });
    Update {
        inverse_leaves: bits(1.0 / config.leaves as f64),
        inverse_rows: bits(1.0 / rows as f64),
        clip: bits(optimizer.clip.unwrap_or(f64::INFINITY)),
        clip_epsilon: bits(1e-6),
        beta1: bits(optimizer.beta1),
        one_minus_beta1: bits(1.0 - optimizer.beta1),
        beta2: bits(optimizer.beta2),
        one_minus_beta2: bits(1.0 - optimizer.beta2),
        epsilon: bits(optimizer.epsilon),
        steps: steps.collect(),
    }
}

/// `constant` and `linear` only: what the fixtures use.
fn learning_rate(config: &Config, step: u64) -> f64 {
    let optimizer = &config.optimizer;
    let (peak, warmup) = (optimizer.learning_rate, optimizer.warmup_steps);
    if step < warmup {
        return peak * ((step + 1) as f64 / warmup as f64);
    }
    match optimizer.schedule.as_str() {
        "constant" => peak,
        "linear" => {
            let progress = (step - warmup) as f64 / (config.steps - warmup) as f64;
            peak * (optimizer.final_fraction + (1.0 - optimizer.final_fraction) * (1.0 - progress))
        }
        other => panic!("no fixture uses the schedule {other}"),
    }
}

/// The lines of the block that starts with "```" and `title`.
fn block(title: &str) -> impl Iterator<Item = &'static str> {
    let (_, after) = PAGE.split_once(&format!("```{title}\n")).expect("a block of plan.md");
    let (inside, _) = after.split_once("\n```").expect("an end of the block");
    inside.lines()
}

/// Turns the page's lines into a plan's lists.
struct Reader {
    plan: Plan,
    norm_epsilon: f64,
}

impl Reader {
    fn parameters(&mut self) {
        let layers = self.plan.dimensions.layers;
        let lists = std::iter::once(("first", None))
            .chain((0..layers).map(|layer| ("layer", Some(layer))))
            .chain([("last", None)]);
        for (part, layer) in lists {
            for line in block(&format!("parameters {part}")) {
                let (name, shape) = self.shaped(line);
                let decay = shape.len() == 2;
                self.plan.parameters.push(Parameter { name: full_name(name, layer), shape, decay });
            }
        }
    }

    fn operations(&mut self) {
        let layers = self.plan.dimensions.layers;
        let stream = |layer: u64| match layer {
            0 => "embedding.out".to_owned(),
            _ => format!("layer{}.residual2.out", layer - 1),
        };
        self.part("first", None, "", "");
        for layer in 0..layers {
            self.part("layer forward", Some(layer), &stream(layer), "");
        }
        self.part("middle", None, &stream(layers), "");
        let mut gradient = "d_norm_final.in".to_owned();
        for layer in (0..layers).rev() {
            self.part("layer backward", Some(layer), &stream(layer), &gradient);
            gradient = format!("d_layer{layer}.residual1.in");
        }
        self.part("last", None, "", &gradient);
    }

    /// One block of operations: `<name>: <kind> (<inputs>; <constants>) -> <outputs>`.
    fn part(&mut self, title: &str, layer: Option<u64>, stream: &str, gradient: &str) {
        for line in block(&format!("operations {title}")) {
            let at = layer.map(|layer| format!("layer{layer}")).unwrap_or_default();
            let line = line.replace('@', &at).replace("$in", stream).replace("$d", gradient);
            let (name, rest) = line.split_once(": ").unwrap();
            let (kind, rest) = rest.split_once(" (").unwrap();
            let (read, written) = rest.split_once(") -> ").unwrap();
            let (inputs, constants) = read.split_once("; ").unwrap_or((read, ""));
            let kind = Kind::ALL.into_iter().find(|(_, word)| *word == kind).unwrap().0;
            let inputs = inputs.split_whitespace().map(|word| self.operand(word, layer)).collect();
            let constants = constants.split_whitespace().map(|word| self.constant(word)).collect();
            let outputs = written.split_whitespace().map(|word| self.output(word, kind, layer)).collect();
            self.plan.operations.push(Operation { name: name.into(), kind, inputs, outputs, constants });
        }
    }

    fn operand(&self, word: &str, layer: Option<u64>) -> Operand {
        let parameter = |name: &str| {
            let full = full_name(name, layer);
            let found = self.plan.parameters.iter().position(|parameter| parameter.name == full);
            found.unwrap_or_else(|| panic!("no parameter {full}"))
        };
        if word.starts_with('%') {
            Operand::Parameter(parameter(word))
        } else if let Some(name) = word.strip_prefix('d').filter(|name| name.starts_with('%')) {
            Operand::Gradient(parameter(name))
        } else {
            let found = self.plan.tensors.iter().position(|tensor| tensor.name == word);
            Operand::Tensor(found.unwrap_or_else(|| panic!("no tensor {word}")))
        }
    }

    fn output(&mut self, word: &str, kind: Kind, layer: Option<u64>) -> Operand {
        if word.contains('%') {
            return self.operand(word, layer);
        }
        let (name, shape) = self.shaped(word);
        let dtype = if kind == Kind::Window { Dtype::U32 } else { Dtype::F32 };
        self.plan.tensors.push(Tensor { name: name.into(), dtype, shape });
        Operand::Tensor(self.plan.tensors.len() - 1)
    }

    fn shaped<'a>(&self, word: &'a str) -> (&'a str, Vec<u64>) {
        let d = &self.plan.dimensions;
        let (name, letters) = word.strip_suffix(']').and_then(|word| word.split_once('[')).unwrap();
        let dimension = |letter| match letter {
            "N" => d.rows(),
            "B" => d.batch,
            "T" => d.time,
            "C" => d.channels,
            "3C" => 3 * d.channels,
            "V" => d.vocabulary,
            "NH" => d.heads,
            "I" => d.inner,
            "positions" => d.positions,
            other => panic!("no dimension {other}"),
        };
        (name, letters.split(',').map(dimension).collect())
    }

    fn constant(&self, word: &str) -> u32 {
        let d = &self.plan.dimensions;
        bits(match word {
            "1/C" => 1.0 / d.channels as f64,
            "1/N" => 1.0 / d.rows() as f64,
            "1/sqrt(HS)" => 1.0 / ((d.channels / d.heads) as f64).sqrt(),
            "eps" => self.norm_epsilon,
            other => panic!("no constant {other}"),
        })
    }

    /// The one departure from "in the order they are written": `d_wte.embedding` follows `d_wte.head`.
    fn order_tensors(&mut self) {
        let place = |plan: &Plan, name: &str| plan.tensors.iter().position(|t| t.name == name).unwrap();
        let (from, to) = (place(&self.plan, "d_wte.embedding"), place(&self.plan, "d_wte.head") + 1);
        let tensor = self.plan.tensors.remove(from);
        self.plan.tensors.insert(to, tensor);
        let moved = |operand: &mut Operand| match operand {
            Operand::Tensor(i) if *i == from => *i = to,
            Operand::Tensor(i) if (to..from).contains(i) => *i += 1,
            _ => {}
        };
        for operation in &mut self.plan.operations {
            operation.inputs.iter_mut().chain(&mut operation.outputs).for_each(moved);
        }
    }
}

fn full_name(name: &str, layer: Option<u64>) -> String {
    let name = name.trim_start_matches('%');
    match layer {
        Some(layer) => format!("transformer.h.{layer}.{name}"),
        None => format!("transformer.{name}"),
    }
}
