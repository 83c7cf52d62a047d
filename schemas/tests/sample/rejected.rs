//! Inputs that must be refused, one failure each: the files of fixtures/<stem>/rejected.

use super::objects::{Sample, key};
use super::small_plan;
use schemas::cbor::{self, Value};
use schemas::object::Object;
use schemas::statement::{Payload, Statement};

/// One refused input.
pub struct Case {
    /// Folder under fixtures/.
    pub stem: &'static str,
    /// Which decoder, by the names of `reader`.
    pub reader: &'static str,
    /// File name without an ending: what is wrong.
    pub name: &'static str,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Every case.
pub fn all(sample: &Sample) -> Vec<Case> {
    let mut cases = cbor_cases();
    cases.extend(statement_cases(sample));
    cases.extend(plan_cases());
    cases.extend(prediction_cases(sample));
    cases.extend(receipt_cases(sample));
    cases.extend(verdict_cases(sample));
    cases.extend(bundle_cases(sample));
    cases.extend(window_cases());
    cases.extend(register_cases(sample));
    cases.extend(completeness_cases(sample));
    cases.extend(opened_cases(sample));
    cases
}

fn cbor_cases() -> Vec<Case> {
    let case = |(name, digits): (&'static str, &str)| Case {
        stem: "cbor",
        reader: "cbor",
        name,
        bytes: hex::decode(digits).unwrap(),
    };
    [
        ("integer_in_two_bytes", "1801"),
        ("integer_in_nine_bytes", "1b0000000000000001"),
        ("negative_integer_in_two_bytes", "3800"),
        ("text_length_in_two_bytes", "7800"),
        ("tag_in_three_bytes", "d900d200"),
        ("keys_out_of_order", "a2616201616101"),
        ("longer_key_first", "a262616101616201"),
        ("repeated_key", "a2616101616102"),
        ("repeated_key_within_a_key", "a1a20001000100"),
        ("trailing_byte", "0000"),
        ("nothing", ""),
        ("cut_in_a_header", "18"),
        ("cut_in_a_byte_string", "4201"),
        ("text_not_utf8", "61ff"),
        ("indefinite_array", "9f00ff"),
        ("indefinite_map", "bf0000ff"),
        ("indefinite_bytes", "5f4100ff"),
        ("indefinite_text", "7f6161ff"),
        ("half_float", "f93c00"),
        ("float", "fa3f800000"),
        ("double", "fb3ff0000000000000"),
        ("undefined", "f7"),
        ("simple_value", "e0"),
        ("reserved_length", "1c"),
        ("break_alone", "ff"),
        ("array_longer_than_the_input", "9bffffffffffffffff"),
        ("map_longer_than_the_input", "ba7fffffff00"),
        ("bytes_longer_than_the_input", "5bffffffffffffffff00"),
        ("thirteen_levels", "8181818181818181818181818100"),
    ]
    .into_iter()
    .map(case)
    .collect()
}

/// Changes the item at `path` (text keys and array indexes) of an encoded object.
fn changed(bytes: &[u8], path: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut whole = cbor::decode(bytes, bytes.len()).unwrap();
    let mut at = &mut whole;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = match at {
            Value::Array(items) => &mut items[part.parse::<usize>().unwrap()],
            Value::Map(pairs) => {
                let found = pairs.iter_mut().find(|(key, _)| *key == Value::text(part));
                &mut found.unwrap_or_else(|| panic!("no field {part} in {path}")).1
            }
            Value::Tag(_, inner) => match &mut **inner {
                Value::Array(items) => &mut items[part.parse::<usize>().unwrap()],
                other => panic!("a tag over a {}", other.kind()),
            },
            other => panic!("{path} leads into a {}", other.kind()),
        };
    }
    change(at);
    cbor::encode(&whole)
}

fn set(bytes: &[u8], path: &str, value: Value) -> Vec<u8> {
    changed(bytes, path, |at| *at = value)
}

fn without(bytes: &[u8], path: &str, field: &str) -> Vec<u8> {
    changed(bytes, path, |at| {
        let Value::Map(pairs) = at else { panic!("{path} is not a map") };
        pairs.retain(|(key, _)| *key != Value::text(field));
    })
}

fn with(bytes: &[u8], path: &str, field: &str, value: Value) -> Vec<u8> {
    changed(bytes, path, |at| {
        let Value::Map(pairs) = at else { panic!("{path} is not a map") };
        pairs.push((Value::text(field), value));
    })
}

fn items(value: &mut Value) -> &mut Vec<Value> {
    let Value::Array(items) = value else { panic!("not an array") };
    items
}

fn numbers(numbers: &[u64]) -> Value {
    Value::Array(numbers.iter().map(|&n| Value::Uint(n)).collect())
}

/// A statement of arbitrary parts, correctly signed over them.
fn signed(protected: Value, payload: &[u8], unprotected: Value, role: &str) -> Vec<u8> {
    let protected = cbor::encode(&protected);
    let message = cbor::encode(&Value::Array(vec![
        Value::text("Signature1"),
        Value::bytes(&protected),
        Value::bytes([]),
        Value::bytes(payload),
    ]));
    let signature = key(role).sign(&message);
    let items = vec![Value::Bytes(protected), unprotected, Value::bytes(payload), Value::bytes(signature)];
    cbor::encode(&Value::Tag(18, Box::new(Value::Array(items))))
}

fn statement_cases(sample: &Sample) -> Vec<Case> {
    let good = &sample.statements[0];
    let payload = sample.run.encode();
    let public = key("predictor").public();
    let header = |alg: Value, stem: &str, iss: String, sub: String| {
        let claims = Value::Map(vec![(Value::Uint(1), Value::text(iss)), (Value::Uint(2), Value::text(sub))]);
        Value::Map(vec![
            (Value::Uint(1), alg),
            (Value::Uint(3), Value::text(format!("application/vnd.tallystick.{stem}+cbor"))),
            (Value::Uint(4), Value::bytes(public.to_bytes())),
            (Value::Uint(15), claims),
        ])
    };
    let (eddsa, iss, sub) = (Value::Nint(7), public.to_string(), sample.run.id().to_string());
    let right = header(eddsa.clone(), "run", iss.clone(), sub.clone());
    let empty = || Value::Map(vec![]);
    let sign = |protected: Value| signed(protected, &payload, empty(), "predictor");
    assert_eq!(&sign(right.clone()), good, "signed() makes what Statement::sign makes");
    let dropped = |number: u64| {
        let Value::Map(pairs) = right.clone() else { unreachable!() };
        Value::Map(pairs.into_iter().filter(|(label, _)| *label != Value::Uint(number)).collect())
    };
    let weak_kid = {
        let Value::Map(mut pairs) = right.clone() else { unreachable!() };
        let neutral = [&[1][..], &[0; 31]].concat();
        pairs[2].1 = Value::Bytes(neutral);
        Value::Map(pairs)
    };
    let flipped_signature = changed(good, "3", |at| {
        let Value::Bytes(bytes) = at else { unreachable!() };
        bytes[63] ^= 1;
    });
    let other_payload = set(good, "2", Value::Bytes(sample.open.encode()));
    let mut long = sample.verdict.clone();
    long.missing = vec!["x".repeat(200); 305];
    let unsigned_long = long.encode();
    assert!(Statement::sign(&Payload::Verdict(Box::new(long)), &key("predictor")).is_err());
    let unknown = cbor::encode(&Value::map([("key", Value::text("value"))]));
    let cases = [
        ("no_tag", cbor::encode(&Value::Array(vec![]))),
        ("another_tag", cbor::encode(&Value::Tag(17, Box::new(Value::Array(vec![]))))),
        ("three_items", cbor::encode(&Value::Tag(18, Box::new(Value::Array(vec![Value::Null; 3]))))),
        ("detached_payload", set(good, "2", Value::Null)),
        (
            "unprotected_header",
            signed(right.clone(), &payload, Value::Map(vec![(Value::Uint(1), eddsa.clone())]), "predictor"),
        ),
        ("short_signature", set(good, "3", Value::bytes([0; 63]))),
        ("flipped_signature", flipped_signature),
        ("signature_over_another_payload", other_payload),
        ("signed_by_another_key", signed(right.clone(), &payload, empty(), "device-0")),
        ("no_content_type", sign(dropped(3))),
        ("no_kid", sign(dropped(4))),
        ("no_algorithm", sign(dropped(1))),
        ("no_claims", sign(dropped(15))),
        ("kid_of_small_order", sign(weak_kid)),
        ("another_algorithm", sign(header(Value::Nint(6), "run", iss.clone(), sub.clone()))),
        (
            "another_issuer",
            sign(header(eddsa.clone(), "run", key("device-0").public().to_string(), sub.clone())),
        ),
        ("another_subject", sign(header(eddsa.clone(), "run", iss.clone(), "0".repeat(64)))),
        (
            "unknown_kind",
            signed(header(eddsa.clone(), "audit", iss.clone(), sub.clone()), &unknown, empty(), "predictor"),
        ),
        ("content_type_of_another_kind", sign(header(eddsa, "opening", iss, sub))),
        ("longer_than_60_kib", signed(right, &unsigned_long, empty(), "predictor")),
    ];
    cases
        .into_iter()
        .map(|(name, bytes)| Case { stem: "statement", reader: "statement", name, bytes })
        .collect()
}

fn plan_cases() -> Vec<Case> {
    let good = small_plan::plan().encode();
    let set_in = set;
    let set = |path: &str, value: Value| set(&good, path, value);
    let tables = |tables: &[(&str, u64)]| {
        let table = |(name, words): &(&str, u64)| {
            Value::map([
                ("name", Value::text(*name)),
                ("shape", numbers(&[2, 2])),
                ("words", Value::Bytes(vec![0; 4 * *words as usize])),
            ])
        };
        Value::Array(tables.iter().map(table).collect())
    };
    let cases = [
        ("field_missing", without(&good, "", "leaves")),
        ("field_unknown", with(&good, "", "comment", Value::text("hello"))),
        ("config_too_short", set("config", Value::bytes([0; 31]))),
        ("dimension_of_zero", set("dimensions", numbers(&[1, 2, 2, 3, 1, 1, 2, 0, 1, 2]))),
        ("nine_dimensions", set("dimensions", numbers(&[1, 2, 2, 3, 1, 1, 2, 8, 1]))),
        ("heads_that_do_not_divide", set("dimensions", numbers(&[1, 2, 2, 3, 1, 3, 2, 8, 2, 2]))),
        ("time_beyond_positions", set("dimensions", numbers(&[1, 3, 2, 3, 1, 1, 2, 8, 1, 2]))),
        ("devices_not_a_power_of_two", set("devices_max", Value::Uint(3))),
        ("devices_that_do_not_divide", set("devices_max", Value::Uint(2))),
        ("no_leaves", set("leaves", Value::Uint(0))),
        ("too_few_tokens", set("data/tokens", Value::Uint(2))),
        ("shape_of_no_dimensions", set("tensors/4/shape", numbers(&[]))),
        ("shape_with_a_zero", set("tensors/4/shape", numbers(&[0]))),
        ("shape_too_large", set("tensors/4/shape", numbers(&[1 << 38, 2]))),
        ("unknown_dtype", set("tensors/4/dtype", Value::Uint(3))),
        ("unknown_kind", set("operations/8/kind", Value::text("subtract"))),
        ("operand_of_no_class", set("operations/8/inputs/0", numbers(&[4, 0]))),
        ("operand_beyond_the_tables", set("operations/8/inputs/0", numbers(&[3, 0]))),
        ("table_too_short", set("tables", tables(&[("cos", 4), ("sin", 3)]))),
        ("table_name_twice", set("tables", tables(&[("cos", 4), ("cos", 4)]))),
        ("nine_tables", set("tables", tables(&[("cos", 4); 9]))),
        ("table_as_output", {
            let with_table = set("tables", tables(&[("cos", 4)]));
            set_in(&with_table, "operations/8/outputs/0", numbers(&[3, 0]))
        }),
        ("operand_beyond_the_tensors", set("operations/8/inputs/0", numbers(&[2, 11]))),
        ("operand_beyond_the_parameters", set("operations/2/inputs/1", numbers(&[0, 2]))),
        ("input_not_written_yet", set("operations/2/inputs/0", numbers(&[2, 8]))),
        ("output_written_twice", set("operations/7/outputs/0", numbers(&[2, 9]))),
        ("parameter_as_output", set("operations/8/outputs/0", numbers(&[0, 0]))),
        (
            "gradient_never_written",
            changed(&good, "operations", |at| {
                let Value::Array(items) = at else { unreachable!() };
                items.pop();
            }),
        ),
        ("wrong_shape", set("tensors/3/shape", numbers(&[3, 2]))),
        ("wrong_element_type", set("tensors/4/dtype", Value::Uint(2))),
        ("constant_missing", set("operations/4/constants", numbers(&[]))),
        ("constant_too_wide", set("operations/4/constants", numbers(&[1 << 32]))),
        ("operation_name_twice", set("operations/8/name", Value::text("window"))),
        ("parameter_name_twice", set("parameters/1/name", Value::text("wte"))),
        ("tensor_name_twice", set("tensors/4/name", Value::text("max"))),
        (
            "tensor_never_written",
            changed(&good, "tensors", |at| {
                let Value::Array(items) = at else { unreachable!() };
                let Value::Map(mut pairs) = items[4].clone() else { unreachable!() };
                pairs
                    .iter_mut()
                    .filter(|(key, _)| *key == Value::text("name"))
                    .for_each(|(_, name)| *name = Value::text("y"));
                items.push(Value::Map(pairs));
            }),
        ),
        (
            "window_not_first",
            changed(&good, "operations", |at| {
                let Value::Array(items) = at else { unreachable!() };
                items.remove(0);
            }),
        ),
        ("group_beyond_the_groups", set("parameters/1/group", Value::Uint(1))),
        ("group_of_16", set("parameters/1/group", Value::Uint(16))),
        ("no_groups", set("update/groups", Value::Array(vec![]))),
        ("steps_not_whole", set("update/groups/0", Value::bytes([0; 9]))),
        ("no_steps", set("update/groups/0", Value::bytes([]))),
        ("corrections_of_other_steps", set("update/rule/corrections", Value::bytes([0; 16]))),
        ("unknown_rule", set("update/rule/kind", Value::text("lion"))),
    ];
    cases.into_iter().map(|(name, bytes)| Case { stem: "plan", reader: "plan", name, bytes }).collect()
}

fn prediction_cases(sample: &Sample) -> Vec<Case> {
    let (good, body) = (sample.open.encode(), sample.body.encode());
    let set_body = |path: &str, value: Value| set(&body, path, value);
    let invalid = super::invalid_body(&sample.body);
    let after_invalid = set_body(
        "records",
        Value::Array(super::record_values(&[invalid.records[1].clone(), sample.body.records[0].clone()])),
    );
    let statement = [
        ("run_missing", without(&good, "", "run")),
        ("steps_empty", set(&good, "steps", numbers(&[2, 2]))),
        ("steps_backwards", set(&good, "steps", numbers(&[2, 1]))),
        ("steps_too_many", set(&good, "steps", numbers(&[0, 65537]))),
        ("seal_too_long", set(&good, "seal", Value::bytes([0; 33]))),
        ("opening_null", set(&good, "open", Value::Null)),
        ("maker_without_backend", with(&good, "", "by", Value::map([("program", Value::text("oracle"))]))),
        ("opening_without_salt", without(&good, "open", "salt")),
        ("reveal_by_beyond_a_clock", set(&good, "reveal_by", Value::Uint(1 << 63))),
        ("attachment_too_long", set(&good, "open/body/1", Value::Uint((64 << 20) + 1))),
    ];
    let body = [
        ("body_without_records", set_body("records", numbers(&[]))),
        ("body_going_on_after_an_invalid_step", after_invalid),
        ("record_without_leaves", set_body("records/0/0", Value::bytes([]))),
        ("record_with_a_loss_too_few", set_body("records/0/1", Value::bytes([0; 12]))),
        ("record_with_two_nodes", set_body("records/0/2", Value::bytes([0; 64]))),
        ("record_with_half_a_node", set_body("records/0/2", Value::bytes([0; 48]))),
        ("record_without_norm", changed(&body, "records/0", |at| drop(items(at).remove(4)))),
        ("record_with_an_unknown_stage", changed(&body, "records/2", |at| items(at).push(numbers(&[3])))),
        (
            "record_not_finite_in_a_leaf_with_an_outcome",
            changed(&body, "records/2", |at| items(at).push(numbers(&[0, 0]))),
        ),
    ];
    let statement =
        statement.map(|(name, bytes)| Case { stem: "prediction", reader: "prediction", name, bytes });
    let body = body.map(|(name, bytes)| Case { stem: "prediction", reader: "prediction-body", name, bytes });
    statement.into_iter().chain(body).collect()
}

fn receipt_cases(sample: &Sample) -> Vec<Case> {
    let (receipt, body) = &sample.receipts[0];
    let (good, body) = (receipt.encode(), body.encode());
    let set = |path: &str, value: Value| set(&good, path, value);
    let statement = [
        ("rank_beyond_the_devices", set("rank", Value::Uint(2))),
        ("three_devices", set("devices", Value::Uint(3))),
        ("no_devices", set("devices", Value::Uint(0))),
        ("simulated_as_a_number", set("simulated", Value::Uint(1))),
        ("name_with_a_line_feed", set("facts/name", Value::text("a\nb"))),
        ("name_too_long", set("facts/name", Value::text("a".repeat(201)))),
        ("checkpoint_too_long", set("checkpoint", Value::bytes(vec![b'x'; 16385]))),
        ("answer_without_step", without(&good, "answer", "step")),
        ("answer_with_a_step_too_high", set("answer/step", Value::Uint(schemas::run::STEPS_MAX + 2))),
        ("answer_with_a_short_fold", set("answer/reduced", Value::bytes([0; 15]))),
    ];
    let reversed = changed(&body, "records", |at| {
        let Value::Array(items) = at else { unreachable!() };
        items.reverse();
    });
    let body = [
        ("body_with_descending_steps", reversed),
        (
            "body_with_half_an_exchange",
            super::rejected::set(&body, "records/0/exchanges", Value::bytes([0; 48])),
        ),
        ("body_with_a_short_sum", super::rejected::set(&body, "records/0/partial", Value::bytes([0; 47]))),
        ("body_without_partial", without(&body, "records/0", "partial")),
        (
            "body_with_a_step_too_high",
            super::rejected::set(&body, "records/2/step", Value::Uint(schemas::run::STEPS_MAX + 1)),
        ),
        ("body_with_a_fourth_stage", super::rejected::with(&body, "records/2", "non_finite", numbers(&[3]))),
    ];
    let statement = statement.map(|(name, bytes)| Case { stem: "receipt", reader: "receipt", name, bytes });
    let body = body.map(|(name, bytes)| Case { stem: "receipt", reader: "receipt-body", name, bytes });
    statement.into_iter().chain(body).collect()
}

fn verdict_cases(sample: &Sample) -> Vec<Case> {
    let good = super::diverging(sample).encode();
    let set = |path: &str, value: Value| set(&good, path, value);
    let cases = [
        ("unknown_outcome", set("outcome", Value::text("match"))),
        ("unknown_phase", set("findings/0/phase", Value::text("memory"))),
        ("unknown_cause", set("findings/0/cause", Value::text("cosmic ray"))),
        ("device_not_a_key", set("findings/0/device", Value::bytes([1; 31]))),
        ("word_of_two_numbers", set("findings/1/word", numbers(&[57, 1]))),
        ("word_beyond_any_tensor", set("findings/1/word", numbers(&[(1 << 40) + 1, 1, 2]))),
        ("note_too_long", set("findings/0/note", Value::text("a".repeat(401)))),
        ("missing_too_long", set("missing/0", Value::text("a".repeat(201)))),
        ("receipts_not_whole", set("receipts", Value::bytes([0; 33]))),
    ];
    cases.into_iter().map(|(name, bytes)| Case { stem: "verdict", reader: "verdict", name, bytes }).collect()
}

fn bundle_cases(sample: &Sample) -> Vec<Case> {
    let good = sample.bundle.encode();
    let set = |path: &str, value: Value| set(&good, path, value);
    let reversed = changed(&good, "attachments", |at| {
        let Value::Array(items) = at else { unreachable!() };
        items.reverse();
    });
    let twice = |field: &str| {
        changed(&good, field, |at| {
            let Value::Array(items) = at else { unreachable!() };
            items.push(items.last().unwrap().clone());
        })
    };
    let cases = [
        ("no_version", without(&good, "", "tallystick_bundle")),
        ("version_1", set("tallystick_bundle", Value::Uint(1))),
        ("version_3", set("tallystick_bundle", Value::Uint(3))),
        ("checkpoint_too_long", set("checkpoint", Value::bytes(vec![b'x'; 16385]))),
        ("covers_checkpoint_too_long", set("covers/0/checkpoint", Value::bytes(vec![b'x'; 16385]))),
        ("covers_checkpoint_not_bytes", set("covers/0/checkpoint", Value::text("x"))),
        ("completeness_missing", without(&good, "", "completeness")),
        ("completeness_twice", twice("completeness")),
        ("folds_not_whole", set("folds", Value::bytes([0; 17]))),
        ("proof_not_whole", set("entries/0/proof", Value::bytes([0; 33]))),
        ("proof_of_65_hashes", set("entries/0/proof", Value::bytes([0; 32 * 65]))),
        ("entry_too_long", set("entries/0/bytes", Value::bytes(vec![0; 61441]))),
        ("covers_twice_the_same_size", twice("covers")),
        ("attachments_out_of_order", reversed),
        ("attachment_twice", twice("attachments")),
        ("attachment_not_bytes", set("attachments/0", Value::text("a"))),
        ("plan_missing", without(&good, "", "plan")),
    ];
    cases.into_iter().map(|(name, bytes)| Case { stem: "bundle", reader: "bundle", name, bytes }).collect()
}

fn window_cases() -> Vec<Case> {
    let good = super::window::short().encode();
    let set = |path: &str, value: Value| set(&good, path, value);
    let reversed = changed(&good, "chunks", |at| items(at).reverse());
    let twice = changed(&good, "chunks", |at| {
        let first = items(at)[0].clone();
        items(at).insert(0, first);
    });
    let cases = [
        ("no_windows", set("windows", numbers(&[]))),
        ("no_chunks", set("chunks", numbers(&[]))),
        ("chunks_out_of_order", reversed),
        ("chunk_twice", twice),
        ("chunk_of_half_a_token", set("chunks/0/bytes", Value::bytes([0; 6]))),
        ("chunk_too_long", set("chunks/0/bytes", Value::bytes(vec![0; 4100]))),
        ("chunk_without_path", without(&good, "chunks/0", "path")),
        ("path_not_whole", set("chunks/0/path", Value::bytes([0; 33]))),
        ("path_of_65_hashes", set("chunks/0/path", Value::bytes(vec![0; 65 * 32]))),
        ("leaf_too_high", set("leaf", Value::Uint(1024))),
        ("step_missing", without(&good, "", "step")),
        ("root_too_short", set("root", Value::bytes([0; 31]))),
    ];
    cases.into_iter().map(|(name, bytes)| Case { stem: "window", reader: "window", name, bytes }).collect()
}

fn register_cases(sample: &Sample) -> Vec<Case> {
    let Payload::Register(register) = Statement::open(sample.statements.last().unwrap()).unwrap().payload
    else {
        unreachable!()
    };
    let good = register.encode();
    let set = |path: &str, value: Value| set(&good, path, value);
    let cases = [
        ("run_missing", without(&good, "", "run")),
        ("size_too_high", set("size", Value::Uint(1 << 63))),
        ("more_entries_than_the_log", set("entries/count", Value::Uint(9))),
        ("more_predictions_than_entries", set("predictions/count", Value::Uint(8))),
        ("root_too_short", set("entries/root", Value::bytes([0; 31]))),
        ("list_without_count", without(&good, "predictions", "count")),
    ];
    cases
        .into_iter()
        .map(|(name, bytes)| Case { stem: "register", reader: "register", name, bytes })
        .collect()
}

fn completeness_cases(sample: &Sample) -> Vec<Case> {
    let good = sample.completeness.encode();
    let set = |path: &str, value: Value| set(&good, path, value);
    let reversed = changed(&good, "entries", |at| items(at).reverse());
    let twice = changed(&good, "predictions", |at| {
        let first = items(at)[0].clone();
        items(at).push(first);
    });
    let longer = changed(&good, "predictions/0", |at| items(at).push(Value::Uint(0)));
    let cases = [
        ("no_version", without(&good, "", "tallystick_completeness")),
        ("version_2", set("tallystick_completeness", Value::Uint(2))),
        ("checkpoint_too_long", set("checkpoint", Value::bytes(vec![b'x'; 16385]))),
        ("register_too_long", set("register/bytes", Value::bytes(vec![0; 61441]))),
        ("proof_not_whole", set("register/proof", Value::bytes([0; 33]))),
        ("register_missing", without(&good, "", "register")),
        ("entries_out_of_order", reversed),
        ("prediction_twice", twice),
        ("prediction_of_six_items", longer),
        ("prediction_of_no_steps", set("predictions/0/3", Value::Uint(0))),
        ("prediction_by_no_key", set("predictions/0/1", Value::bytes([0; 32]))),
        ("entry_of_an_unknown_kind", set("entries/0/1", Value::text("genesis"))),
        ("entry_not_a_list", set("entries/0", Value::Uint(1))),
    ];
    let case = |(name, bytes)| Case { stem: "completeness", reader: "completeness", name, bytes };
    cases.into_iter().map(case).collect()
}

fn opened_cases(sample: &Sample) -> Vec<Case> {
    let good = sample.opened.encode();
    let set = |path: &str, value: Value| set(&good, path, value);
    let cases = [
        ("no_version", without(&good, "", "tallystick_opened")),
        ("version_2", set("tallystick_opened", Value::Uint(2))),
        ("checkpoint_too_long", set("checkpoint", Value::bytes(vec![b'x'; 16385]))),
        ("prediction_too_long", set("prediction/bytes", Value::bytes(vec![0; 61441]))),
        ("proof_not_whole", set("prediction/proof", Value::bytes([0; 33]))),
        ("run_of_no_steps", set("run/steps", Value::Uint(0))),
        ("step_beyond_any_run", set("step", Value::Uint((1 << 32) + 1))),
        ("salt_too_short", set("salt", Value::bytes([0; 31]))),
        ("salt_missing", without(&good, "", "salt")),
        (
            "record_of_two_items",
            set("record", Value::Array(vec![Value::bytes([0; 32]), Value::bytes([0; 4])])),
        ),
        ("seals_not_whole", set("seals", Value::bytes([0; 33]))),
    ];
    let case = |(name, bytes)| Case { stem: "opened", reader: "opened", name, bytes };
    cases.into_iter().map(case).collect()
}
