//! The grammars of schemas/cddl and the decoders of `schemas` say the same: every fixture is in its grammar, and what
//! the decoder refuses for its structure the grammar refuses too.

use cddl::ast::CDDL;
use cddl::validator::Validator as _;
use cddl::validator::cbor::CBORValidator;
use schemas::cbor::{self, Value};
use schemas::object::{Object, ObjectError};
use schemas::profile::F32_FMA;
use schemas::trace::{Meeting, Trace};
use schemas::{
    bundle, completeness, config, opened, opening, plan, prediction, receipt, register, run, statement,
    verdict, window,
};
use std::path::{Path, PathBuf};

/// Files of the grammar; the first rule of each is the object of its stem.
const STEMS: [&str; 17] = [
    "config",
    "profile",
    "plan",
    "checksum",
    "trace",
    "window",
    "run",
    "prediction",
    "opening",
    "statement",
    "receipt",
    "verdict",
    "register",
    "checkpoint",
    "bundle",
    "completeness",
    "opened",
];

type Decoder = fn(&[u8]) -> Result<(), String>;

fn decode<T: Object>(bytes: &[u8]) -> Result<(), String> {
    T::decode(bytes).map(drop).map_err(|error: ObjectError| error.to_string())
}

fn open(bytes: &[u8]) -> Result<(), String> {
    statement::Statement::open(bytes).map(drop).map_err(|error| error.to_string())
}

/// A profile is never decoded: there is only the one that the code holds.
fn profile(bytes: &[u8]) -> Result<(), String> {
    (bytes == F32_FMA.encode()).then_some(()).ok_or("not the profile".into())
}

/// Fixture, rule of the grammar, decoder.
const FIXTURES: [(&str, &str, Decoder); 37] = [
    ("profile/f32-fma", "profile", profile),
    ("config/tiny", "config", decode::<config::Config>),
    ("config/llama", "config", decode::<config::Config>),
    ("config/llama-tied", "config", decode::<config::Config>),
    ("config/untied", "config", decode::<config::Config>),
    ("plan/llama", "plan", decode::<plan::Plan>),
    ("plan/llama-tied", "plan", decode::<plan::Plan>),
    ("plan/untied", "plan", decode::<plan::Plan>),
    ("plan/small", "plan", decode::<plan::Plan>),
    ("plan/tiny", "plan", decode::<plan::Plan>),
    ("trace/trace", "trace", decode::<Trace>),
    ("trace/meeting", "meeting", decode::<Meeting>),
    ("window/window", "window", decode::<window::WindowProof>),
    ("run/run", "run", decode::<run::Run>),
    ("prediction/sealed", "prediction", decode::<prediction::Prediction>),
    ("prediction/computed", "prediction", decode::<prediction::Prediction>),
    ("prediction/open", "prediction", decode::<prediction::Prediction>),
    ("prediction/body", "prediction-body", decode::<prediction::PredictionBody>),
    ("prediction/body-invalid", "prediction-body", decode::<prediction::PredictionBody>),
    ("opening/opening", "opening", decode::<opening::Opening>),
    ("receipt/receipt", "receipt", decode::<receipt::Receipt>),
    ("receipt/body", "receipt-body", decode::<receipt::ReceiptBody>),
    ("verdict/agree", "verdict", decode::<verdict::Verdict>),
    ("verdict/diverge", "verdict", decode::<verdict::Verdict>),
    ("statement/run", "statement", open),
    ("statement/prediction", "statement", open),
    ("statement/receipt-0", "statement", open),
    ("statement/opening", "statement", open),
    ("statement/verdict", "statement", open),
    ("statement/register-1", "statement", open),
    ("register/register", "register", decode::<register::Register>),
    ("bundle/agree", "bundle", decode::<bundle::Bundle>),
    ("bundle/implied", "bundle", decode::<bundle::Bundle>),
    ("bundle/v1/agree", "bundle", decode::<bundle::Bundle>),
    ("completeness/run", "completeness", decode::<completeness::Completeness>),
    ("completeness/short", "completeness", decode::<completeness::Completeness>),
    ("opened/step", "opened", decode::<opened::OpenedStep>),
];

/// Rejected cases that a grammar cannot express: relations between fields, counts within a byte string, signatures.
/// (The two names: `.regexp` is anchored by RFC 8610, but not in this validator.)
const BEYOND_A_GRAMMAR: [&str; 65] = [
    "bundle/attachment_twice",
    "bundle/attachments_out_of_order",
    "bundle/covers_twice_the_same_size",
    "bundle/folds_not_whole",
    "bundle/proof_not_whole",
    "completeness/entries_out_of_order",
    "completeness/prediction_by_no_key",
    "completeness/prediction_of_no_steps",
    "completeness/prediction_twice",
    "completeness/proof_not_whole",
    "opened/proof_not_whole",
    "opened/seals_not_whole",
    "plan/constant_missing",
    "plan/corrections_of_other_steps",
    "plan/devices_not_a_power_of_two",
    "plan/devices_that_do_not_divide",
    "plan/gradient_never_written",
    "plan/group_beyond_the_groups",
    "plan/heads_that_do_not_divide",
    "plan/input_not_written_yet",
    "plan/operand_beyond_the_parameters",
    "plan/operand_beyond_the_tables",
    "plan/operand_beyond_the_tensors",
    "plan/operation_name_twice",
    "plan/output_written_twice",
    "plan/parameter_as_output",
    "plan/parameter_name_twice",
    "plan/shape_too_large",
    "plan/steps_not_whole",
    "plan/table_as_output",
    "plan/table_name_twice",
    "plan/table_too_short",
    "plan/tensor_name_twice",
    "plan/tensor_never_written",
    "plan/time_beyond_positions",
    "plan/too_few_tokens",
    "plan/window_not_first",
    "plan/wrong_element_type",
    "plan/wrong_shape",
    "prediction/body_going_on_after_an_invalid_step",
    "prediction/record_with_a_loss_too_few",
    "prediction/record_with_half_a_node",
    "prediction/record_with_two_nodes",
    "prediction/steps_backwards",
    "prediction/steps_empty",
    "prediction/steps_too_many",
    "receipt/body_with_descending_steps",
    "receipt/body_with_half_an_exchange",
    "receipt/name_too_long",
    "receipt/name_with_a_line_feed",
    "receipt/rank_beyond_the_devices",
    "register/more_entries_than_the_log",
    "register/more_predictions_than_entries",
    "statement/another_issuer",
    "statement/another_subject",
    "statement/flipped_signature",
    "statement/kid_of_small_order",
    "statement/signed_by_another_key",
    "verdict/missing_too_long",
    "verdict/note_too_long",
    "verdict/receipts_not_whole",
    "window/chunk_of_half_a_token",
    "window/chunk_twice",
    "window/chunks_out_of_order",
    "window/path_not_whole",
];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All files as one text, with `root: rule` as its first rule: that is the one a validator starts at.
fn grammar(rule: &str) -> String {
    let read = |stem| std::fs::read_to_string(top().join(format!("schemas/cddl/{stem}.cddl"))).unwrap();
    std::iter::once(format!("root = {rule}\n")).chain(STEMS.into_iter().map(read)).collect()
}

fn parse(text: &str) -> CDDL<'_> {
    cddl::cddl_from_str(text, true).unwrap()
}

fn validates(grammar: &CDDL<'_>, bytes: &[u8]) -> Result<(), String> {
    let value = cddl::validator::cbor_value::decode_cbor(bytes).map_err(|error| error.to_string())?;
    CBORValidator::new(grammar, value, None).validate().map_err(|error| error.to_string())
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(top().join(format!("fixtures/{name}.cbor"))).unwrap()
}

#[test]
fn every_fixture_is_in_its_grammar() {
    let mut failures = String::new();
    for (name, rule, decoder) in FIXTURES {
        let (text, bytes) = (grammar(rule), fixture(name));
        decoder(&bytes).unwrap();
        if let Err(error) = validates(&parse(&text), &bytes) {
            failures += &format!("{name}: {error}\n");
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Every place in `value`, with a mutant of the whole for each structural change there: null, a field dropped, a
/// field added, an item too many.
fn mutants(value: &Value) -> Vec<(String, Value)> {
    let mut list = vec![("null".to_owned(), Value::Null)];
    let mut below = |label: String, part: &Value, rebuild: &dyn Fn(Value) -> Value| {
        list.extend(mutants(part).into_iter().map(|(path, part)| (format!("{label}/{path}"), rebuild(part))));
    };
    match value {
        Value::Map(pairs) => {
            for (i, (key, part)) in pairs.iter().enumerate() {
                let rebuild = |part| {
                    let mut pairs = pairs.clone();
                    pairs[i].1 = part;
                    Value::Map(pairs)
                };
                below(format!("{key:?}"), part, &rebuild);
            }
            for i in 0..pairs.len() {
                let mut fewer = pairs.clone();
                let (key, _) = fewer.remove(i);
                list.push((format!("without {key:?}"), Value::Map(fewer)));
            }
            let more = pairs.iter().cloned().chain([(Value::text("zz"), Value::Uint(0))]).collect();
            list.push(("with zz".into(), Value::Map(more)));
        }
        Value::Array(items) => {
            // Items are alike; the first and the last stand for all.
            let ends = [0, items.len().saturating_sub(1)];
            for &i in ends.iter().take(items.len()) {
                let rebuild = |part| {
                    let mut items = items.clone();
                    items[i] = part;
                    Value::Array(items)
                };
                below(i.to_string(), &items[i], &rebuild);
            }
            list.push((
                "with null".into(),
                Value::Array(items.iter().cloned().chain([Value::Null]).collect()),
            ));
        }
        Value::Tag(tag, inner) => below("tag".into(), inner, &|part| Value::Tag(*tag, Box::new(part))),
        _ => {}
    }
    list
}

#[test]
fn what_is_not_in_the_grammar_is_not_decoded_and_the_other_way_round() {
    let mut failures = String::new();
    // The small plan has every kind of item that the large ones have, and takes a tenth of the time.
    let left_out = ["plan/tiny", "plan/untied", "plan/llama", "plan/llama-tied", "profile/f32-fma"];
    for (name, rule, decoder) in FIXTURES.into_iter().filter(|(name, _, _)| !left_out.contains(name)) {
        let (text, bytes) = (grammar(rule), fixture(name));
        let (grammar, value) = (parse(&text), cbor::decode(&bytes, bytes.len()).unwrap());
        let mutants = mutants(&value);
        assert!(mutants.len() > 4, "{name}");
        for (path, mutant) in mutants {
            let bytes = cbor::encode(&mutant);
            let (decoded, valid) = (decoder(&bytes), validates(&grammar, &bytes));
            if decoded.is_ok() != valid.is_ok() {
                failures += &format!("{name}: {path}: decoder {decoded:?}, grammar {valid:?}\n");
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// The rejected cases of a stem that are read as `rule`.
fn rejected(stem: &str, rule: &str) -> Vec<(String, Vec<u8>)> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(top().join(format!("fixtures/{stem}/rejected"))).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let (header, digits) = text.split_once("\n\n").unwrap();
        let (_, read_as) = header.split_once("\nread as: ").unwrap();
        if read_as == rule {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            cases.push((name, hex::decode(digits.replace('\n', "")).unwrap()));
        }
    }
    assert!(!cases.is_empty(), "no rejected cases of {rule}");
    cases
}

#[test]
fn rejected_cases_are_outside_the_grammar_unless_listed() {
    let mut inside = Vec::new();
    let rules = [
        "plan",
        "prediction",
        "prediction-body",
        "receipt",
        "receipt-body",
        "verdict",
        "statement",
        "bundle",
    ];
    for rule in rules.into_iter().chain(["window", "register", "completeness", "opened"]) {
        let (text, stem) = (grammar(rule), rule.trim_end_matches("-body"));
        let grammar = parse(&text);
        for (name, bytes) in rejected(stem, rule) {
            if validates(&grammar, &bytes).is_ok() {
                inside.push(format!("{stem}/{name}"));
            }
        }
    }
    inside.sort();
    assert_eq!(inside, BEYOND_A_GRAMMAR);
}
