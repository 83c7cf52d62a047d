//! Operations under known wrong configurations: known answers of every variant for every kind it reaches, in
//! `fixtures/step/variants.json`, and that each is told apart by its bits.
//!
//! `UPDATE_FIXTURES=1 cargo nextest run -p step --test variants` writes the answers anew.

mod inputs;
mod runs;

use inputs::assert_bits;
use runs::{SMALL, first_state, llama_toml, run, run_of};
use schemas::fold::{Fold, FoldKey};
use schemas::object::Object as _;
use schemas::plan::{Dimensions, Kind, Plan};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use step::buffer::Flat;
use step::checksum::FoldTables;
use step::dispatch::Backend;
use step::execute::no_hook;
use step::operation::{Call, Input};
use step::session::Session;
use step::state::State;
use step::update;
use step::variants::drill::Drill;
use step::variants::explain::{self, Vector};
use step::variants::{PROFILE, VARIANTS, Variant};

fn fixture(path: &str) -> Vec<u8> {
    let top = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    std::fs::read(top.join(path)).expect("the fixture is there; UPDATE_FIXTURES=1 writes it")
}

enum Words {
    F32(Vec<f32>),
    U32(Vec<u32>),
}

/// One of the worked examples of operations.
struct Example {
    kind: Kind,
    dimensions: Dimensions,
    constants: Vec<u32>,
    inputs: Vec<Words>,
    outputs: Vec<Vec<f32>>,
}

fn words(text: &Value) -> Vec<u32> {
    text.as_str().unwrap().split_whitespace().map(|word| u32::from_str_radix(word, 16).unwrap()).collect()
}

fn examples() -> Vec<Example> {
    let all: Vec<Value> = serde_json::from_slice(&fixture("step/operations.json")).unwrap();
    let f32s = |text: &Value| words(text).into_iter().map(f32::from_bits).collect();
    let example = |value: &Value| {
        let d: Vec<u64> =
            value["dimensions"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).collect();
        let input = |tensor: &Value| match tensor["dtype"].as_str() {
            Some("f32") => Words::F32(f32s(&tensor["words"])),
            _ => Words::U32(words(&tensor["words"])),
        };
        Example {
            kind: Kind::ALL.into_iter().find(|(_, name)| value["kind"] == *name).unwrap().0,
            dimensions: Dimensions {
                batch: d[0],
                time: d[1],
                channels: d[2],
                vocabulary: d[3],
                layers: d[4],
                heads: d[5],
                positions: d[6],
                inner: d[7],
                kv_heads: d[8],
                head_size: d[9],
            },
            constants: words(&value["constants"]),
            inputs: value["inputs"].as_array().unwrap().iter().map(input).collect(),
            outputs: value["outputs"].as_array().unwrap().iter().map(|out| f32s(&out["words"])).collect(),
        }
    };
    all.iter().map(example).collect()
}

impl Example {
    fn run(&self, variant: &Variant) -> Vec<Vec<f32>> {
        let mut inputs = Vec::new();
        for words in &self.inputs {
            inputs.push(match words {
                Words::F32(words) => Input::F32(words),
                Words::U32(words) => Input::U32(words),
            });
        }
        let call = Call {
            backend: Backend::REFERENCE,
            dimensions: self.dimensions,
            inputs,
            constants: &self.constants,
        };
        // What was there before must not matter.
        let mut outputs: Vec<Vec<f32>> = self.outputs.iter().map(|out| vec![f32::NAN; out.len()]).collect();
        variant.run(&call, self.kind, &mut outputs.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        outputs
    }
}

/// The bits as they are folded.
fn folded(words: &[f32]) -> Vec<u32> {
    words.iter().map(|x| if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() }).collect()
}

fn tables(words: usize) -> FoldTables {
    FoldTables::new(Backend::REFERENCE, FoldKey([0; 32]), words)
}

/// Where a tensor first is another one, what stands there, and its fold under a key of zeros.
fn difference(expected: &[f32], found: &[f32]) -> Value {
    let (expected, bits) = (folded(expected), folded(found));
    match expected.iter().zip(&bits).position(|(expected, found)| expected != found) {
        None => Value::Null,
        Some(element) => {
            let Fold { a, b } = tables(found.len()).fold(found).fold;
            json!([element, format!("{:08x}", bits[element]), format!("{a:016x} {b:016x}")])
        }
    }
}

/// Word i of a tensor: the first 4 bytes, little-endian, of SHA-256(label || u64le i), without what `mask` clears.
fn labelled(label: &str, count: u64, mask: u32) -> Vec<f32> {
    let word = |i: u64| {
        let hash = Sha256::new().chain_update(label).chain_update(i.to_le_bytes()).finalize();
        f32::from_bits(u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]]) & !mask)
    };
    (0..count).map(word).collect()
}

/// The optimizer's inputs: a reduced gradient and a state before step 0.
fn update_inputs(plan: &Plan) -> (Vec<f32>, State) {
    let count = plan.parameter_count();
    let flat = |label, mask| Flat::copied(&labelled(label, count, mask));
    let state = State {
        step: 0,
        parameters: flat("parameters", 1 << 30),
        first_moment: flat("first moment", 1 << 30),
        second_moment: flat("second moment", 1 << 31 | 1 << 30),
    };
    (labelled("gradient", count, 1 << 30), state)
}

fn updated(variant: &Variant, plan: &Plan) -> (f32, State) {
    let (gradient, mut state) = update_inputs(plan);
    variant.update(plan, &gradient, 2.0, &mut state);
    (variant.norm(plan, &gradient), state)
}

fn plan(name: &str) -> Plan {
    Plan::decode(&fixture(&format!("plan/{name}.cbor"))).unwrap()
}

/// The answers: of each example and each plan's update, every variant that changes something.
fn answers() -> Vec<Value> {
    let mut all = Vec::new();
    for (number, example) in examples().iter().enumerate() {
        for variant in VARIANTS.iter().filter(|variant| variant.reaches(example.kind)) {
            let found = example.run(variant);
            let outputs: Vec<Value> =
                example.outputs.iter().zip(&found).map(|(one, other)| difference(one, other)).collect();
            if outputs.iter().any(|output| !output.is_null()) {
                let kind = example.kind.name();
                all.push(json!({
                    "example": number, "kind": kind, "outputs": outputs, "variant": variant.name,
                }));
            }
        }
    }
    for name in ["tiny", "llama"] {
        let plan = plan(name);
        let (norm, state) = updated(&PROFILE, &plan);
        for variant in VARIANTS.iter().filter(|variant| variant.reaches_update()) {
            let (its_norm, its_state) = updated(variant, &plan);
            let mut answer = Map::new();
            for (what, expected, found) in [
                ("parameters", &state.parameters[..], &its_state.parameters[..]),
                ("first_moment", &state.first_moment, &its_state.first_moment),
                ("second_moment", &state.second_moment, &its_state.second_moment),
                ("norm", &[norm], &[its_norm]),
            ] {
                answer.insert(what.into(), difference(expected, found));
            }
            if answer.values().any(|value| !value.is_null()) {
                answer.insert("plan".into(), name.into());
                answer.insert("variant".into(), variant.name.into());
                all.push(answer.into());
            }
        }
    }
    all
}

#[test]
fn under_the_profile_itself_the_operations_are_the_references() {
    let examples = examples();
    for (number, example) in examples.iter().enumerate() {
        for (found, expected) in example.run(&PROFILE).iter().zip(&example.outputs) {
            assert_bits(found, expected, &format!("example {number}, {}", example.kind.name()));
        }
    }
    for name in ["tiny", "llama"] {
        let plan = plan(name);
        let (gradient, mut state) = update_inputs(&plan);
        update::apply_with_norm(Backend::REFERENCE, &plan, &gradient, 2.0, &mut state);
        let (norm, found) = updated(&PROFILE, &plan);
        assert_eq!(norm.to_bits(), update::global_norm(Backend::REFERENCE, &plan, &gradient).to_bits());
        assert_bits(&found.parameters, &state.parameters, name);
        assert_bits(&found.first_moment, &state.first_moment, name);
        assert_bits(&found.second_moment, &state.second_moment, name);
        assert_eq!(found.step, 1);
    }
}

#[test]
fn every_variant_gives_its_known_answers() {
    let answers = answers();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/step/variants.json");
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        let lines: Vec<String> = answers.iter().map(Value::to_string).collect();
        std::fs::write(path, format!("[\n{}\n]\n", lines.join(",\n"))).expect("the fixture is written");
    }
    let recorded: Vec<Value> = serde_json::from_slice(&fixture("step/variants.json")).unwrap();
    for (found, recorded) in answers.iter().zip(&recorded) {
        assert_eq!(found, recorded);
    }
    assert_eq!(answers.len(), recorded.len());
}

/// docs/spec/variants.md: the table of what each variant is known to change.
#[test]
fn the_page_tells_which_kinds_each_variant_changes() {
    let page = include_str!("../../docs/spec/variants.md");
    let recorded: Vec<Value> = serde_json::from_slice(&fixture("step/variants.json")).unwrap();
    let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for answer in &recorded {
        let of = kinds.entry(answer["variant"].as_str().unwrap()).or_default();
        let update = |what: &str| !answer[what].is_null();
        match answer["kind"].as_str() {
            Some(kind) => of.push(kind),
            None => {
                let rule = if answer["plan"] == "tiny" { "adamw" } else { "sgd" };
                let optimizer =
                    ["parameters", "first_moment", "second_moment"].iter().any(|what| update(what));
                of.extend(optimizer.then_some(rule));
                of.extend(update("norm").then_some("norm"));
            }
        }
    }
    for variant in VARIANTS {
        let mut kinds = kinds.remove(variant.name).unwrap_or_default();
        kinds.sort_unstable();
        kinds.dedup();
        let line = format!("| `{}` | {} |", variant.name, kinds.join(", "));
        assert!(page.contains(&line), "docs/spec/variants.md has no line\n{line}");
    }
}

#[test]
fn a_variant_is_found_by_its_name_and_another_name_is_refused_with_all() {
    for variant in VARIANTS {
        assert_eq!(Variant::named(variant.name).unwrap().name, variant.name);
    }
    let error = Variant::named("fast-math").unwrap_err().to_string();
    assert!(error.contains("split-k-8, descending-k, found \"fast-math\""), "{error}");
}

/// Of every operation of a small model, every variant that changes it is told from the fold of the first tap that it
/// changes; so is the profile from all of them.
fn every_change_is_explained(plan: &Plan, tokens: &[u32], state: &State) {
    let session = Session::new(plan, tokens, Backend::detect()).unwrap();
    let (step, leaf) = (1, 2);
    let honest = session.leaf(step, leaf, &state.parameters, &mut no_hook());
    let mut changes = 0;
    for (operation, described) in plan.operations.iter().enumerate() {
        for variant in VARIANTS.iter().filter(|variant| variant.reaches(described.kind)) {
            let drill = Drill { operation, variant: *variant };
            let found = drill.leaf(&session, step, leaf, &state.parameters, &mut no_hook());
            let Some(tap) = honest.folds.iter().zip(&found.folds).position(|(one, other)| one != other)
            else {
                assert_eq!((found.folds.len(), found.loss), (honest.folds.len(), honest.loss));
                continue;
            };
            assert_eq!(plan.taps().nth(tap).unwrap().operation, operation, "nothing before it changes");
            let explained = explain::tap(&session, step, leaf, &state.parameters, tap, found.folds[tap]);
            assert_eq!(explained.leaf.folds, honest.folds);
            assert!(explained.names.iter().any(|name| name == variant.name), "{}", described.name);
            changes += 1;
        }
        let tap = plan.taps().take_while(|tap| tap.operation < operation).count();
        let other = Fold { a: honest.folds[tap].a + 1, b: honest.folds[tap].b };
        let none = explain::tap(&session, step, leaf, &state.parameters, tap, other);
        assert_eq!(none.names, Vec::<String>::new(), "{}", described.name);
    }
    println!("{changes} changes explained");
    assert!(changes > 3 * plan.operations.len(), "{changes} of {}", plan.operations.len());
}

#[test]
fn every_changed_operation_of_gpt2_is_explained() {
    let (plan, tokens) = run(SMALL);
    every_change_is_explained(&plan, &tokens, &first_state(&plan));
}

#[test]
fn every_changed_operation_of_llama_is_explained() {
    let (plan, tokens) = run_of(&llama_toml());
    every_change_is_explained(&plan, &tokens, &first_state(&plan));
}

#[test]
fn windows_of_another_leaf_are_named_and_so_is_the_files_own_order() {
    let (plan, tokens) = run_of(&llama_toml());
    let session = Session::new(&plan, &tokens, Backend::detect()).unwrap();
    let state = first_state(&plan);
    let folds = |(inputs, targets): (Vec<u32>, Vec<u32>)| {
        [session.folds().fold_u32(&inputs), session.folds().fold_u32(&targets)]
    };
    let told = |tap, found| explain::tap(&session, 1, 2, &state.parameters, tap, found).names;
    for tap in [0, 1] {
        assert_eq!(told(tap, folds(session.window(1, 3))[tap]), ["data-of-step-1-leaf-3"]);
        assert_eq!(told(tap, folds(session.window(0, 0))[tap]), ["data-of-step-0-leaf-0"]);
        let natural = folds(session.window_in_file_order(1, 2))[tap];
        assert_eq!(told(tap, natural)[0], "data-in-file-order");
        assert_eq!(told(tap, Fold { a: 1, b: 2 }), Vec::<String>::new());
    }
}

#[test]
fn a_changed_optimizer_and_a_changed_norm_are_explained() {
    let (plan, tokens) = run_of(&llama_toml());
    let session = Session::new(&plan, &tokens, Backend::detect()).unwrap();
    // Moments of zero make a product and a sum of one rounding.
    let mut before = first_state(&plan);
    session.step(&mut before).unwrap();
    let mut after = before.clone();
    let gradient = session.step(&mut after).unwrap().reduced.unwrap();
    let norm = update::global_norm(Backend::detect(), &plan, &gradient);
    let mut named = 0;
    for variant in VARIANTS.iter().filter(|variant| variant.reaches_update()) {
        let mut state = before.clone();
        variant.update(&plan, &gradient, norm, &mut state);
        for (which, honest, found) in [
            (Vector::First, &after.first_moment, &state.first_moment),
            (Vector::Second, &after.second_moment, &state.second_moment),
            (Vector::Parameters, &after.parameters, &state.parameters),
        ] {
            let [honest, found] = [honest, found].map(|words| session.folds().fold(words).fold);
            if honest != found {
                let names = explain::update(&session, &before, &gradient, norm, (which, found));
                assert!(names.iter().any(|name| name == variant.name), "{variant:?} not in {names:?}");
                named += 1;
            }
        }
        let its = variant.norm(&plan, &gradient);
        if its.to_bits() != norm.to_bits() {
            assert!(explain::norm(&session, &gradient, its.to_bits()).iter().any(|n| n == variant.name));
            named += 1;
        }
    }
    assert!(named >= 6, "{named}");
    assert!(explain::norm(&session, &gradient, norm.to_bits() ^ 1 << 20).is_empty());
}
