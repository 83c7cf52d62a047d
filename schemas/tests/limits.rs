//! The largest that is taken, and the first that is not.

use schemas::config::{Config, ConfigError};
use schemas::digest::{PlanDigest, StepSeal};
use schemas::object::Object as _;
use schemas::opened::OpenedStep;
use schemas::plan::{GroupStep, Plan, Rule};
use schemas::source::{Place, Source, SourceError};
use schemas::window::{Chunk, WindowProof};

const GPT2: &str = include_str!("../../fixtures/config/tiny.toml");
const LLAMA: &str = include_str!("../../fixtures/config/llama.toml");
const PLAN: &[u8] = include_bytes!("../../fixtures/plan/llama.cbor");

#[test]
fn a_config_takes_the_largest_values_and_no_larger() {
    let names = |count: usize| format!("name = \"{}\"", "\u{e9}".repeat(count));
    let layers = |count: u64| format!("num_hidden_layers = {count}");
    let heads =
        |heads: u64| format!("num_attention_heads = {heads}\nnum_key_value_heads = 2\nhead_dim = 65536");
    let patterns = |count: usize| format!("match = [{}]", vec!["\"*.mlp.*\""; count].join(", "));
    let pattern = |chars: usize| format!("\"*{}\"", "x".repeat(chars - 1));
    let wide_heads = "num_attention_heads = 4\nnum_key_value_heads = 2\nhead_dim = 6";
    for (text, from, most, beyond, field) in [
        (GPT2, "name = \"tiny\"", names(80), names(81), "name"),
        (GPT2, "sequences = 2", "sequences = 65536".into(), "sequences = 65537".into(), "data.sequences"),
        (
            GPT2,
            "warmup_steps = 1",
            "warmup_steps = 3".into(),
            "warmup_steps = 4".into(),
            "optimizer.warmup_steps",
        ),
        (LLAMA, "num_hidden_layers = 2", layers(512), layers(513), "model.num_hidden_layers"),
        (LLAMA, wide_heads, heads(16), heads(18), "model.head_dim"),
        (LLAMA, "match = [\"*.mlp.*\"]", patterns(16), patterns(17), "optimizer.groups.match"),
        (LLAMA, "\"*.mlp.*\"", pattern(80), pattern(81), "optimizer.groups.match"),
    ] {
        let of = |to: &str| {
            assert_eq!(text.matches(from).count(), 1, "{from}");
            Config::from_toml(&text.replace(from, to))
        };
        assert!(of(&most).is_ok(), "{most}: {:?}", of(&most));
        let refused = of(&beyond).unwrap_err();
        assert!(
            matches!(&refused, ConfigError::Value { field: of, .. } if *of == field),
            "{beyond}: {refused}"
        );
    }
    let long = |bytes: usize| Config::from_toml(&(GPT2.to_owned() + &" ".repeat(bytes - GPT2.len())));
    assert!(long(1 << 16).is_ok());
    assert_eq!(long((1 << 16) + 1), Err(ConfigError::TooLong { found: (1 << 16) + 1 }));
}

#[test]
fn dropout_is_off_only_where_the_run_says_so() {
    let (head, rest) = GPT2.split_once("[model]\n").unwrap();
    let (keys, rest) = rest.split_once("\n[state]").unwrap();
    let keys: Vec<String> = keys
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .map(|(key, value)| format!("\"{key}\": {value}"))
        .collect();
    let read = |more: &str| {
        let text = format!("{head}[model]\nconfig = \"config.json\"\n{more}\n[state]{rest}");
        Config::from_toml_with(&text, |_| Ok(format!("{{{}, \"attn_pdrop\": 0.1}}", keys.join(", "))))
    };
    assert_eq!(read("dropout = \"off\"").unwrap(), Config::from_toml(GPT2).unwrap());
    let refused = |more: &str| read(more).unwrap_err().to_string();
    assert!(refused("").contains("model.attn_pdrop: expected 0, or"), "{}", refused(""));
    assert_eq!(refused("dropout = \"on\""), "config: model.dropout: expected off, found on");
}

#[test]
fn a_tokenizer_by_hash_is_named_by_the_whole_hash() {
    let mut config = Config::from_toml(GPT2).unwrap();
    config.data.format = "text".into();
    let mut read = |digits: &str| {
        config.data.tokenizer = Some(format!("sha256:{digits}"));
        Config::decode(&config.encode())
    };
    assert!(read(&"0".repeat(64)).is_ok());
    for digits in ["", "1", &"0".repeat(63), &"g".repeat(64)] {
        let refused = read(digits).unwrap_err().to_string();
        assert!(refused.contains("data.tokenizer: expected bytes, gpt2 or the path"), "{refused}");
    }
}

#[test]
fn a_window_proof_has_its_limits() {
    let chunk = |index: u64| Chunk { index, bytes: vec![0; 4], path: vec![] };
    let good = WindowProof {
        plan: PlanDigest([1; 32]),
        step: (1 << 32) - 1,
        leaf: 1023,
        windows: vec![u64::MAX >> 1; 1 << 16],
        root: [2; 32],
        chunks: (0..(1 << 13) - 1).chain([u64::MAX >> 1]).map(chunk).collect(),
    };
    assert_eq!(WindowProof::decode(&good.encode()).as_ref(), Ok(&good));
    let refused = |change: &dyn Fn(&mut WindowProof)| {
        let mut proof = WindowProof { windows: vec![5], chunks: vec![chunk(4)], ..good.clone() };
        change(&mut proof);
        WindowProof::decode(&proof.encode()).unwrap_err().to_string()
    };
    for (found, expected) in [
        (refused(&|proof| proof.step = 1 << 32), "\"step\": expected at most 4294967295, found 4294967296"),
        (
            refused(&|proof| proof.windows = vec![0; (1 << 16) + 1]),
            "\"windows\": expected at most 65536 items",
        ),
        (refused(&|proof| proof.windows[0] = 1 << 63), "\"windows\": expected at most 9223372036854775807"),
        (
            refused(&|proof| proof.chunks = (0..=1 << 13).map(chunk).collect()),
            "\"chunks\": expected at most 8192",
        ),
        (
            refused(&|proof| proof.chunks[0].index = 1 << 63),
            "\"index\": expected at most 9223372036854775807",
        ),
        (refused(&|proof| proof.chunks[0].bytes.clear()), "\"bytes\": expected 1..=1024 items of 4 bytes"),
    ] {
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn a_plan_has_its_limits() {
    let most = 1_u64 << 38;
    let read = |change: &dyn Fn(&mut Plan)| {
        let mut plan = Plan::decode(PLAN).unwrap();
        change(&mut plan);
        Plan::decode(&plan.encode())
    };
    let refused = |change: &dyn Fn(&mut Plan)| read(change).unwrap_err().to_string();
    assert!(read(&|plan| plan.data.tokens = most).is_ok());
    let found = refused(&|plan| plan.data.tokens = most + 1);
    assert!(found.contains("\"tokens\": expected at most 274877906944"), "{found}");
    // 2^38 + 1 is 5 x 54975581389.
    let found = refused(&|plan| plan.parameters[0].shape = vec![5, 54_975_581_389]);
    assert!(found.contains("1 to 274877906944 elements"), "{found}");
    let all = |elements: u64| {
        refused(&|plan| {
            let others: u64 =
                plan.parameters[1..].iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum();
            plan.parameters[0].shape = vec![elements - others];
        })
    };
    assert!(all(most + 1).contains("parameters in all"), "{}", all(most + 1));
    assert!(!all(most).contains("parameters in all"), "{}", all(most));

    let long = |steps: usize| {
        read(&|plan| {
            assert!(matches!(plan.update.rule, Rule::Sgd { .. }), "no list of corrections");
            plan.parameters.iter_mut().for_each(|parameter| parameter.group = 0);
            plan.update.groups = vec![vec![GroupStep { learning_rate: 0, decay: 0 }; steps]];
        })
    };
    assert!(long(1 << 20).is_ok(), "{:?}", long(1 << 20).unwrap_err());
    let found = long((1 << 20) + 1).unwrap_err().to_string();
    assert!(found.contains("1..=1048576 items of 8 bytes"), "{found}");
}

/// As many seals as there are other steps in the longest prediction.
#[test]
fn an_opened_step_has_its_limits() {
    let mut opened = OpenedStep::decode(include_bytes!("../../fixtures/opened/step.cbor")).unwrap();
    opened.seals = vec![StepSeal([7; 32]); (1 << 16) - 1];
    assert_eq!(OpenedStep::decode(&opened.encode()).as_ref(), Ok(&opened));
    opened.seals.push(StepSeal([7; 32]));
    let found = OpenedStep::decode(&opened.encode()).unwrap_err().to_string();
    assert!(found.contains("\"seals\": expected 0..=65535 items of 32 bytes"), "{found}");
}

#[test]
fn a_part_of_a_source_is_given_whole_whatever_its_length_and_nothing_beside_it() {
    let all: Vec<u8> = (0..400_000u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let source: &dyn Source = &&all[..];
    // A piece is 128 KiB.
    for bytes in [0, 1, 131_071, 131_072, 131_073, 262_144, 399_990] {
        let mut pieces = Vec::new();
        Place { at: 7, bytes }.read_pieces(source, |piece| pieces.extend_from_slice(piece)).unwrap();
        assert!(pieces == all[7..7 + bytes as usize], "{bytes} bytes");
        assert!(Place { at: 7, bytes }.read(source).unwrap() == pieces, "{bytes} bytes");
    }
    let mut beyond = [0; 8];
    let ends = SourceError::Unreadable { at: 399_993, reason: "it ends before".into() };
    assert_eq!(source.read_at(399_993, &mut beyond), Err(ends));
    assert_eq!(source.read_at(399_992, &mut beyond), Ok(()));
    assert!(source.read_at(u64::MAX, &mut beyond).is_err());
    assert_eq!(Place::whole(source), Place { at: 0, bytes: 400_000 });
}
