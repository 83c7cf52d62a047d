//! A model from Hugging Face's own `config.json`: keys that do not touch the arithmetic are passed over from an
//! explicit list, every other key is either read, held to the one value that is supported, or refused by name.

use super::ConfigError;
use super::check::{ensure, one_of, printable};
use super::model::Model;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Longest config.json, in bytes.
pub const JSON_BYTES_MAX: usize = 64 << 10;

/// Keys that say nothing about the arithmetic. So do all that start with `summary_`.
const PASSED_OVER: [&str; 20] = [
    "_attn_implementation",
    "_name_or_path",
    "architectures",
    "bos_token_id",
    "chunk_size_feed_forward",
    "dtype",
    "eos_token_id",
    "id2label",
    "label2id",
    "model_max_length",
    "n_ctx",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "return_dict",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "transformers_version",
    "use_cache",
];

/// A key with but one supported value: whose it is, its place in run.toml, the value in JSON.
struct Fixed {
    model_type: &'static str,
    field: &'static str,
    value: &'static str,
}

const FIXED: [Fixed; 8] = [
    Fixed { model_type: "gpt2", field: "model.scale_attn_weights", value: "true" },
    Fixed { model_type: "gpt2", field: "model.scale_attn_by_inverse_layer_idx", value: "false" },
    Fixed { model_type: "gpt2", field: "model.reorder_and_upcast_attn", value: "false" },
    Fixed { model_type: "gpt2", field: "model.add_cross_attention", value: "false" },
    Fixed { model_type: "llama", field: "model.attention_bias", value: "false" },
    Fixed { model_type: "llama", field: "model.mlp_bias", value: "false" },
    Fixed { model_type: "llama", field: "model.rope_scaling", value: "null" },
    Fixed { model_type: "llama", field: "model.pretraining_tp", value: "1" },
];

/// Fractions of values set to zero at random while training: none is supported.
const DROPOUTS: [(&str, &str); 4] = [
    ("gpt2", "model.attn_pdrop"),
    ("gpt2", "model.embd_pdrop"),
    ("gpt2", "model.resid_pdrop"),
    ("llama", "model.attention_dropout"),
];

/// The key of a field such as `model.rope_scaling`.
fn key(field: &'static str) -> &'static str {
    field.trim_start_matches("model.")
}

/// Refuses a key of a run.toml's `[model]` that stands in no run.toml because it has one supported value.
pub(super) fn check_toml(model: &toml::Table) -> Result<(), ConfigError> {
    let fixed = FIXED.iter().map(|fixed| (fixed.field, fixed.value));
    let dropouts = DROPOUTS.iter().map(|(_, field)| (*field, "0"));
    for (field, value) in fixed.chain(dropouts) {
        if let Some(found) = model.get(key(field)) {
            let expected = format!("the key left out (the only value supported is {value})");
            return ensure(field, false, &expected, &found.to_string());
        }
    }
    Ok(())
}

/// Reads the `config.json` at `path`, whose content is `text`; `dropout_off` says that the run trains without the
/// dropout that the file states.
pub(super) fn read(path: &str, text: &str, dropout_off: bool) -> Result<Model, ConfigError> {
    let wrong = |reason: String| ConfigError::ModelFile { path: printable(path), reason };
    if text.len() > JSON_BYTES_MAX {
        return Err(wrong(format!("expected at most {JSON_BYTES_MAX} bytes, found {}", text.len())));
    }
    let mut keys: Map<String, Value> =
        serde_json::from_str(text).map_err(|e| wrong(printable(&e.to_string())))?;
    // A key whose value is null counts as absent.
    keys.retain(|_, value| !value.is_null());
    let model_type = keys.get("model_type").map_or("nothing".into(), word);
    one_of("model.model_type", &["gpt2", "llama"], &model_type)?;
    for fixed in FIXED.iter().filter(|fixed| fixed.model_type == model_type) {
        if let Some(found) = keys.remove(key(fixed.field)) {
            let found = found.to_string();
            ensure(
                fixed.field,
                found == fixed.value,
                &format!("{} (all that is supported)", fixed.value),
                &found,
            )?;
        }
    }
    for (_, field) in DROPOUTS.iter().filter(|(of, _)| *of == model_type) {
        if let Some(found) = keys.remove(key(field)) {
            let none = dropout_off || found.as_f64() == Some(0.0);
            let expected = "0, or `dropout = \"off\"` beside `config` in [model]: dropout is not supported";
            ensure(field, none, expected, &found.to_string())?;
        }
    }
    if model_type == "llama" {
        take_rope_parameters(&mut keys)?;
    }
    keys.retain(|key, _| !PASSED_OVER.contains(&key.as_str()) && !key.starts_with("summary_"));
    match model_type.as_str() {
        "gpt2" => typed(keys).map(Model::Gpt2).map_err(wrong),
        _ => typed(keys).map(Model::Llama).map_err(wrong),
    }
}

/// Newer files keep the base of the frequencies in a map of its own.
fn take_rope_parameters(keys: &mut Map<String, Value>) -> Result<(), ConfigError> {
    let Some(found) = keys.remove("rope_parameters") else { return Ok(()) };
    let parameters = found.as_object().cloned().unwrap_or_default();
    let plain = parameters.keys().all(|key| key == "rope_theta" || key == "rope_type")
        && parameters.get("rope_type").is_none_or(|rope_type| rope_type == "default");
    let expected = "rope_theta and rope_type \"default\" (scaled rotary positions are not supported)";
    ensure("model.rope_parameters", plain && found.is_object(), expected, &found.to_string())?;
    if let Some(theta) = parameters.get("rope_theta") {
        keys.insert("rope_theta".into(), theta.clone());
    }
    Ok(())
}

fn typed<T: DeserializeOwned>(keys: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(keys)).map_err(|e| printable(&e.to_string()))
}

/// A text without its quotes.
fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That of Hugging Face's `gpt2`, as it is.
    const GPT2: &str = r#"{"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256,
        "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024,
        "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
        "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
        "summary_type": "cls_index", "summary_use_proj": true,
        "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257}"#;

    /// Grouped heads and the base of the frequencies in both places where files have it.
    const LLAMA: &str = r#"{"architectures": ["LlamaForCausalLM"], "attention_bias": false,
        "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 2048,
        "initializer_range": 0.02, "intermediate_size": 5632, "max_position_embeddings": 2048,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 22, "num_key_value_heads": 4,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 500000,
        "tie_word_embeddings": false, "torch_dtype": "float32", "transformers_version": "4.35.0",
        "use_cache": true, "vocab_size": 32000}"#;

    fn refusal(text: &str) -> String {
        read("config.json", text, false).unwrap_err().to_string()
    }

    #[test]
    fn files_as_they_are_published_are_read() {
        let Model::Gpt2(gpt2) = read("config.json", GPT2, true).unwrap() else { panic!("not a GPT-2") };
        assert_eq!((gpt2.n_embd, gpt2.n_layer, gpt2.n_inner), (768, 12, None));
        let Model::Llama(llama) = read("config.json", LLAMA, false).unwrap() else { panic!("not a Llama") };
        assert_eq!((llama.num_key_value_heads, llama.rope_theta), (Some(4), Some(500_000.0)));
        let newer = LLAMA.replace(
            "\"rope_theta\": 500000",
            "\"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"default\"}",
        );
        assert_eq!(read("config.json", &newer, false).unwrap(), Model::Llama(llama));
    }

    #[test]
    fn what_would_change_the_arithmetic_is_refused_by_name() {
        for (from, to, named) in [
            ("\"attention_bias\": false", "\"attention_bias\": true", "model.attention_bias: expected false"),
            (
                "\"rope_scaling\": null",
                "\"rope_scaling\": {\"type\": \"linear\"}",
                "model.rope_scaling: expected null",
            ),
            (
                "\"rope_theta\": 500000",
                "\"rope_parameters\": {\"rope_theta\": 500000, \"rope_type\": \"llama3\"}",
                "model.rope_parameters: expected rope_theta and rope_type \"default\"",
            ),
            ("\"pretraining_tp\": 1", "\"pretraining_tp\": 2", "model.pretraining_tp: expected 1"),
            (
                "\"attention_dropout\": 0.0",
                "\"attention_dropout\": 0.1",
                "model.attention_dropout: expected 0, or",
            ),
            ("\"use_cache\": true", "\"sliding_window\": 4096", "unknown field `sliding_window`"),
            ("\"hidden_size\": 2048,", "", "missing field `hidden_size`"),
            ("\"llama\"", "\"mistral\"", "model.model_type: expected gpt2 or llama, found mistral"),
        ] {
            assert!(LLAMA.contains(from), "{from}");
            let message = refusal(&LLAMA.replace(from, to));
            assert!(message.contains(named), "{named}: {message}");
        }
        let message = refusal(GPT2);
        assert!(message.contains("model.attn_pdrop: expected 0, or `dropout = \"off\"`"), "{message}");
    }

    /// `text` with one more key.
    fn with(text: &str, key: &str, value: &str) -> String {
        text.replacen('{', &format!("{{\"{key}\": {value}, "), 1)
    }

    #[test]
    fn keys_that_the_page_passes_over_are() {
        let page = include_str!("../../../docs/spec/config.md");
        let (_, list) = page.split_once("are passed over: ").unwrap();
        let (list, _) = list.split_once(" and all that begin with `summary_`").unwrap();
        let keys: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        assert_eq!(keys, PASSED_OVER);
        let bare = LLAMA.lines().filter(|line| !line.contains("use_cache")).collect::<String>()
            + "\"vocab_size\": 9}";
        for key in keys.into_iter().chain(["summary_of_anything"]) {
            assert!(read("config.json", &with(&bare, key, "7"), false).is_ok(), "{key}");
        }
    }

    #[test]
    fn keys_with_one_value_may_have_it_and_no_other() {
        for (text, key, value, other) in [
            (GPT2, "scale_attn_weights", "true", "false"),
            (GPT2, "scale_attn_by_inverse_layer_idx", "false", "true"),
            (GPT2, "reorder_and_upcast_attn", "false", "true"),
            (GPT2, "add_cross_attention", "false", "true"),
            (LLAMA, "mlp_bias", "false", "true"),
        ] {
            let plain = read("config.json", text, true).unwrap();
            for value in [value, "null"] {
                assert_eq!(
                    read("config.json", &with(text, key, value), true).unwrap(),
                    plain,
                    "{key} {value}"
                );
            }
            let found = read("config.json", &with(text, key, other), true).unwrap_err().to_string();
            let expected = format!("model.{key}: expected {value} (all that is supported), found {other}");
            assert!(found.ends_with(&expected), "{found}");
        }
        let null = read(
            "config.json",
            &LLAMA.replace("\"attention_bias\": false", "\"attention_bias\": null"),
            false,
        );
        assert_eq!(null.unwrap(), read("config.json", LLAMA, false).unwrap());
    }

    #[test]
    fn no_kind_of_dropout_is_trained_with() {
        let gpt2 = GPT2.replace("0.1", "0.0");
        for (text, key) in [
            (&*gpt2, "attn_pdrop"),
            (&*gpt2, "embd_pdrop"),
            (&*gpt2, "resid_pdrop"),
            (LLAMA, "attention_dropout"),
        ] {
            let stated =
                |value: &str| text.replace(&format!("\"{key}\": 0.0"), &format!("\"{key}\": {value}"));
            for value in ["0", "0.0", "-0.0", "null"] {
                assert!(read("config.json", &stated(value), false).is_ok(), "{key} {value}");
            }
            for value in ["0.1", "\"0\"", "false"] {
                let found = refusal(&stated(value));
                assert!(
                    found.contains(&format!("model.{key}: expected 0, or `dropout = \"off\"`")),
                    "{found}"
                );
                assert!(read("config.json", &stated(value), true).is_ok(), "{key} {value}: off");
            }
        }
    }

    #[test]
    fn rope_parameters_are_a_map_of_the_base_alone() {
        let stated = |value: &str| read("config.json", &with(LLAMA, "rope_parameters", value), false);
        let theta = |value: &str| match stated(value).unwrap() {
            Model::Llama(llama) => llama.rope_theta,
            Model::Gpt2(_) => panic!("not a Llama"),
        };
        assert_eq!(theta("null"), Some(5e5));
        assert_eq!(theta("{\"rope_type\": \"default\"}"), Some(5e5));
        assert_eq!(theta("{\"rope_theta\": 1e4}"), Some(1e4), "where both are stated this one counts");
        for value in ["3", "[]", "{\"rope_theta\": 1e4, \"factor\": 8.0}", "{\"rope_type\": \"linear\"}"] {
            let found = stated(value).unwrap_err().to_string();
            assert!(found.contains("model.rope_parameters: expected rope_theta and rope_type"), "{found}");
        }
    }

    #[test]
    fn a_file_longer_than_the_limit_is_refused() {
        let of = |bytes: usize| LLAMA.to_owned() + &" ".repeat(bytes - LLAMA.len());
        assert!(read("config.json", &of(JSON_BYTES_MAX), false).is_ok());
        let found = refusal(&of(JSON_BYTES_MAX + 1));
        assert!(found.ends_with("expected at most 65536 bytes, found 65537"), "{found}");
    }
}
