//! The plan of a GPT-2 or a Llama, read from the blocks of docs/spec/plan.md itself: a second derivation beside
//! `step`'s, with which it must agree byte for byte. So the page is complete, and stays so.

use schemas::checksum::Dtype;
use schemas::config::Config;
use schemas::config::model::Model;
use schemas::config::optimizer::Optimizer;
use schemas::digest::Checksum;
use schemas::plan::{
    Corrections, DataOrder, Dimensions, GroupStep, Kind, Operand, Operation, Parameter, Plan, Rule, Table,
    Tensor, Update,
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

/// The text of fixtures/config/llama.toml: grouped heads of a size of their own, SGD, groups of parameters.
pub const LLAMA_TOML: &str = r#"# A Llama small enough to read.
name = "tiny llama"
profile = "f32-fma"
steps = 3
leaves = 2
devices_max = 1

[model]
model_type = "llama"
vocab_size = 11
hidden_size = 10
intermediate_size = 12
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
head_dim = 6
max_position_embeddings = 6
rms_norm_eps = 1e-5
rope_theta = 500000.0
hidden_act = "silu"
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
kind = "sgd"
learning_rate = 1e-2
momentum = 0.9
nesterov = true
weight_decay = 0.01
schedule = "constant"
warmup_steps = 2
final_fraction = 1.0

[[optimizer.groups]]
match = ["model.embed_tokens.weight", "lm_head.*"]
learning_rate_factor = 0.1
weight_decay = 0.0

[[optimizer.groups]]
match = ["*.mlp.*"]
learning_rate_factor = 0.5
"#;

/// The configs of the fixtures, by name: both models, each with a head of its own and without.
pub fn tomls() -> [(&'static str, String); 4] {
    let untied =
        |text: &str, key: &str, value| text.replace(key, &format!("{key}\ntie_word_embeddings = {value}"));
    [
        ("tiny", TINY_TOML.into()),
        ("untied", untied(TINY_TOML, "activation_function = \"gelu_new\"", false)),
        ("llama", LLAMA_TOML.into()),
        ("llama-tied", untied(&LLAMA_TOML.replace(", \"lm_head.*\"", ""), "hidden_act = \"silu\"", true)),
    ]
}

const PAGE: &str = include_str!("../../../docs/spec/plan.md");

/// Derives the plan of `config` over `tokens` tokens with checksum `dataset`.
pub fn plan(config: &Config, tokens: u64, dataset: Checksum) -> Plan {
    let data = &config.data;
    let dimensions = dimensions(config);
    let plan = Plan {
        profile: config.profile.clone(),
        config: config.digest(),
        dimensions,
        parameters: vec![],
        tables: vec![],
        tensors: vec![],
        operations: vec![],
        leaves: config.leaves,
        devices_max: config.devices_max,
        data: DataOrder { tokens, dataset, seed: data.seed },
        update: update(config, dimensions.rows()),
    };
    let mut reader = Reader::new(plan, &config.model);
    if let Model::Llama(llama) = &config.model {
        reader.tables(llama.rope_theta.unwrap_or(10_000.0));
    }
    reader.parameters(&config.optimizer);
    reader.operations();
    reader.plan
}

/// The letters of the page's table.
fn dimensions(config: &Config) -> Dimensions {
    let data = &config.data;
    let (batch, time) = (data.sequences, data.length);
    match &config.model {
        Model::Gpt2(model) => Dimensions {
            batch,
            time,
            channels: model.n_embd,
            vocabulary: model.vocab_size,
            layers: model.n_layer,
            heads: model.n_head,
            positions: model.n_positions,
            inner: model.n_inner.unwrap_or(4 * model.n_embd),
            kv_heads: model.n_head,
            head_size: model.n_embd / model.n_head,
        },
        Model::Llama(model) => Dimensions {
            batch,
            time,
            channels: model.hidden_size,
            vocabulary: model.vocab_size,
            layers: model.num_hidden_layers,
            heads: model.num_attention_heads,
            positions: model.max_position_embeddings,
            inner: model.intermediate_size,
            kv_heads: model.num_key_value_heads.unwrap_or(model.num_attention_heads),
            head_size: model.head_dim.unwrap_or(model.hidden_size / model.num_attention_heads),
        },
    }
}

fn bits(value: f64) -> u32 {
    (value as f32).to_bits()
}

fn update(config: &Config, rows: u64) -> Update {
    let optimizer = &config.optimizer;
    let steps = 0..config.steps;
    let adamw = optimizer.kind == "adamw";
    let rule = if adamw {
        let (beta1, beta2) = (optimizer.beta1.unwrap(), optimizer.beta2.unwrap());
        let correction =
            |beta: f64, step: u64| bits(1.0 / (1.0 - (0..=step).fold(1.0, |power, _| power * beta)));
        let at = |step| Corrections { first: correction(beta1, step), second: correction(beta2, step) };
        Rule::Adamw {
            beta1: bits(beta1),
            one_minus_beta1: bits(1.0 - beta1),
            beta2: bits(beta2),
            one_minus_beta2: bits(1.0 - beta2),
            epsilon: bits(optimizer.epsilon.unwrap()),
            corrections: steps.clone().map(at).collect(),
        }
    } else {
        Rule::Sgd {
            momentum: bits(optimizer.momentum.unwrap()),
            nesterov: optimizer.nesterov.unwrap_or(false),
        }
    };
    let group = |factor: f64, weight_decay: f64| {
        let at = |step| {
            let rate = learning_rate(config, step) * factor;
            let decay = if adamw { 1.0 - rate * weight_decay } else { weight_decay };
            GroupStep { learning_rate: bits(rate), decay: bits(decay) }
        };
        steps.clone().map(at).collect::<Vec<_>>()
    };
    let decay = optimizer.weight_decay;
    let mut groups: Vec<_> = optimizer
        .groups
        .iter()
        .map(|own| group(own.learning_rate_factor.unwrap_or(1.0), own.weight_decay.unwrap_or(decay)))
        .collect();
    groups.extend([group(1.0, decay), group(1.0, 0.0)]);
    Update {
        inverse_leaves: bits(1.0 / config.leaves as f64),
        inverse_rows: bits(1.0 / rows as f64),
        clip: bits(optimizer.clip.unwrap_or(f64::INFINITY)),
        clip_epsilon: bits(1e-6),
        rule,
        groups,
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
fn block(title: &str) -> std::str::Lines<'static> {
    let (_, after) = PAGE.split_once(&format!("```{title}\n")).expect("a block of plan.md");
    let (inside, _) = after.split_once("\n```").expect("an end of the block");
    inside.lines()
}

/// Turns the page's lines into a plan's lists.
struct Reader {
    plan: Plan,
    norm_epsilon: f64,
    /// Which blocks are read.
    model: &'static str,
    /// What `%` stands for, without and with a layer.
    prefixes: [&'static str; 2],
    /// The token table, as the page calls it.
    table: &'static str,
    tied: bool,
}

impl Reader {
    fn new(plan: Plan, model: &Model) -> Reader {
        match model {
            Model::Gpt2(own) => Reader {
                plan,
                norm_epsilon: own.layer_norm_epsilon,
                model: "gpt2",
                prefixes: ["transformer.", "transformer.h."],
                table: "%wte.weight",
                tied: own.tie_word_embeddings.unwrap_or(true),
            },
            Model::Llama(own) => Reader {
                plan,
                norm_epsilon: own.rms_norm_eps,
                model: "llama",
                prefixes: ["model.", "model.layers."],
                table: "%embed_tokens.weight",
                tied: own.tie_word_embeddings.unwrap_or(false),
            },
        }
    }

    fn tables(&mut self, theta: f64) {
        let d = self.plan.dimensions;
        let lines = block(&format!("{} tables", self.model));
        for (line, words) in lines.zip(rotary_tables(theta, d.time, d.head_size)) {
            let (name, shape) = self.shaped(line);
            self.plan.tables.push(Table { name: name.into(), shape, words });
        }
    }

    fn parameters(&mut self, optimizer: &Optimizer) {
        let layers = self.plan.dimensions.layers;
        let head = (!self.tied).then_some(("head", None));
        let lists = std::iter::once(("first", None))
            .chain((0..layers).map(|layer| ("layer", Some(layer))))
            .chain([("last", None)])
            .chain(head);
        for (part, layer) in lists {
            for line in block(&format!("{} parameters {part}", self.model)) {
                let (name, shape) = self.shaped(line);
                let name = self.full_name(name, layer);
                let own = optimizer.groups.iter().position(|group| group.matches(&name));
                let two = usize::from(shape.len() != 2);
                let group = own.unwrap_or(optimizer.groups.len() + two);
                self.plan.parameters.push(Parameter { name, shape, group });
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
        if self.tied {
            self.part("tied", None, "", "");
        }
    }

    /// What `$head`, `$d_head` and `$d_table` stand for.
    fn head(&self) -> [String; 3] {
        match self.tied {
            true => [self.table.into(), "d_table.head[V,C]".into(), "d_table.embedding[V,C]".into()],
            false => ["^lm_head.weight".into(), "d^lm_head.weight".into(), format!("d{}", self.table)],
        }
    }

    /// One block of operations: `<name>: <kind> (<inputs>; <constants>) -> <outputs>`.
    fn part(&mut self, title: &str, layer: Option<u64>, stream: &str, gradient: &str) {
        let [head, d_head, d_table] = self.head();
        for line in block(&format!("{} operations {title}", self.model)) {
            let at = layer.map(|layer| format!("layer{layer}")).unwrap_or_default();
            let line = line.replace("$head", &head).replace("$d_head", &d_head).replace("$d_table", &d_table);
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
            let full = self.full_name(name, layer);
            let found = self.plan.parameters.iter().position(|parameter| parameter.name == full);
            found.unwrap_or_else(|| panic!("no parameter {full}"))
        };
        if word.starts_with(['%', '^']) {
            Operand::Parameter(parameter(word))
        } else if let Some(name) = word.strip_prefix('d').filter(|name| name.starts_with(['%', '^'])) {
            Operand::Gradient(parameter(name))
        } else if let Some(name) = word.strip_prefix('#') {
            let found = self.plan.tables.iter().position(|table| table.name == name);
            Operand::Table(found.unwrap_or_else(|| panic!("no table {name}")))
        } else {
            let found = self.plan.tensors.iter().position(|tensor| tensor.name == word);
            Operand::Tensor(found.unwrap_or_else(|| panic!("no tensor {word}")))
        }
    }

    fn output(&mut self, word: &str, kind: Kind, layer: Option<u64>) -> Operand {
        if word.contains(['%', '^']) {
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
            "HS/2" => d.head_size / 2,
            "A" => d.heads * d.head_size,
            "K" => d.kv_heads * d.head_size,
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
            "1/sqrt(HS)" => 1.0 / (d.head_size as f64).sqrt(),
            "eps" => self.norm_epsilon,
            other => panic!("no constant {other}"),
        })
    }

    fn full_name(&self, name: &str, layer: Option<u64>) -> String {
        let [plain, layers] = self.prefixes;
        match (name.strip_prefix('%'), layer) {
            (Some(name), Some(layer)) => format!("{layers}{layer}.{name}"),
            (Some(name), None) => format!("{plain}{name}"),
            (None, _) => name.trim_start_matches('^').into(),
        }
    }
}

/// docs/spec/plan.md, "Rotary tables", step by step.
fn rotary_tables(theta: f64, times: u64, head_size: u64) -> [Vec<u32>; 2] {
    let constant = |name: &str| {
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| {name} | `0x"))).expect("a constant");
        let digits = row.split('`').nth(1).unwrap().trim_start_matches("0x");
        f64::from_bits(u64::from_str_radix(digits, 16).unwrap())
    };
    let [ln2, ln2_hi, ln2_lo, log2e] = ["LN2", "LN2HI", "LN2LO", "LOG2E"].map(constant);
    let [two_pi, p1, p2, p3] = ["TWOPI", "P1", "P2", "P3"].map(constant);

    let (mut m, mut n) = (theta, 0.0);
    while m >= 2.0 {
        (m, n) = (m / 2.0, n + 1.0);
    }
    if m * 3.0 > 4.0 {
        (m, n) = (m * 0.5, n + 1.0);
    }
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let sum = (0..=13).rev().fold(1.0 / 29.0, |sum, j| sum * z + 1.0 / f64::from(2 * j + 1));
    let ln = n * ln2 + (2.0 * s) * sum;

    let mut tables = [vec![], vec![]];
    for t in 0..times {
        for i in 0..head_size / 2 {
            let x = ((2 * i) as f64 / head_size as f64) * ln;
            let k = (x * log2e + 0.5).floor();
            let r = (k * ln2_hi - x) + k * ln2_lo;
            let sum = (1..=14).rev().fold(1.0, |sum, j| 1.0 + (sum * r) / f64::from(j));
            let frequency = sum * 0.5_f64.powi(k as i32);

            let a = t as f64 * frequency;
            let k = (a * two_pi + 0.5).floor();
            let r = ((a - k * p1) - k * p2) - k * p3;
            let z = r * r;
            let (mut c, mut s) = (1.0, 1.0);
            for j in (1..=8).rev().map(f64::from) {
                c = 1.0 - (c * z) / ((2.0 * j - 1.0) * (2.0 * j));
                s = 1.0 - (s * z) / ((2.0 * j) * (2.0 * j + 1.0));
            }
            s *= r;
            let turned = [[c, s], [-s, c], [-c, -s], [s, -c]][k as usize % 4];
            tables.iter_mut().zip(turned).for_each(|(table, value)| table.push(bits(value)));
        }
    }
    tables
}
