//! The files under fixtures/: made by this program, compared with it ever after.
//!
//! `UPDATE_FIXTURES=1 cargo nextest run -p schemas --test fixtures` writes them anew.

mod sample;

use sample::objects::{self, Sample, sample};
use sample::{Encoded, diagnostic, network, rejected, tree};
use schemas::bundle::Bundle;
use schemas::cbor;
use schemas::config::Config;
use schemas::digest::EntryDigest;
use schemas::object::Object as _;
use schemas::profile::F32_FMA;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fixtures")
}

/// Every generated file, by its path under fixtures/.
fn generated() -> BTreeMap<String, Vec<u8>> {
    let sample = sample();
    let mut files = BTreeMap::new();
    for object in sample::all(&sample).into_iter().chain(sample::further(&sample)) {
        let path = format!("{}/{}", object.stem, object.name);
        files.insert(format!("{path}.diag"), reading(&object).into_bytes());
        files.insert(format!("{path}.cbor"), object.bytes);
    }
    for case in rejected::all(&sample) {
        let expect = (sample::reader(case.reader))(&case.bytes).unwrap_err();
        let text = format!("expect: {expect}\nread as: {}\n\n{}", case.reader, hex_lines(&case.bytes));
        files.insert(format!("{}/rejected/{}.txt", case.stem, case.name), text.into_bytes());
    }
    for (name, text) in network::tomls() {
        files.insert(format!("config/{name}.toml"), text.into_bytes());
    }
    for (name, text) in refused_tomls() {
        let expect = Config::from_toml(&text).unwrap_err().to_string().replace('\n', "\n#         ");
        files.insert(
            format!("config/rejected/{name}.toml"),
            format!("# expect: {expect}\n{text}").into_bytes(),
        );
    }
    files.insert("checksum/sums.txt".into(), sums().into_bytes());
    let profile = F32_FMA.encode();
    let value = cbor::decode(&profile, profile.len()).unwrap();
    let text = format!("/ profile digest {} /\n{}", F32_FMA.digest(), diagnostic::text(&value));
    files.insert("profile/f32-fma.diag".into(), text.into_bytes());
    files.insert("profile/f32-fma.cbor".into(), profile);
    let [early, late] = &sample.checkpoints;
    files.insert("checkpoint/size-3.txt".into(), early.clone().into_bytes());
    files.insert("checkpoint/size-9.txt".into(), late.clone().into_bytes());
    let vkey = tree::vkey(objects::ORIGIN, &objects::key("log"));
    files.insert("checkpoint/log.vkey".into(), format!("{vkey}\n").into_bytes());
    files.insert("ledger/entries.txt".into(), entries(&sample).into_bytes());
    for (path, text) in sample::witness::files(&sample) {
        files.insert(path.into(), text.into_bytes());
    }
    let leaves: Vec<Vec<u8>> =
        std::iter::once(objects::genesis()).chain(sample.statements.iter().cloned()).collect();
    let receipt = tree::receipt(objects::ORIGIN, &objects::key("log"), &leaves, 3, 1_800_000_000);
    let value = cbor::decode(&receipt, receipt.len()).unwrap();
    files.insert("ledger/receipt.diag".into(), diagnostic::text(&value).into_bytes());
    files.insert("ledger/receipt.cbor".into(), receipt);
    files
}

/// What a person reads beside the bytes.
fn reading(object: &Encoded) -> String {
    let value = cbor::decode(&object.bytes, object.bytes.len()).unwrap();
    let mut text = format!("/ {}/{}.cbor, {} bytes /\n", object.stem, object.name, object.bytes.len());
    if let Some((what, digest)) = &object.digest {
        writeln!(text, "/ {what} {digest} /").unwrap();
    }
    text + &diagnostic::text(&value)
}

fn hex_lines(bytes: &[u8]) -> String {
    bytes.chunks(50).map(|line| hex::encode(line) + "\n").collect()
}

fn sums() -> String {
    let mut text = String::from(
        "# Word i of each tensor is the first 4 bytes, little-endian, of SHA-256(label || u64le i), bit 30 cleared.\n\
         # Folds are under a key of 32 zero bytes. dtype f32.\n\
         # label; checksum; fold a; fold b\n",
    );
    for (_, label, checksum, fold) in objects::known_sums() {
        writeln!(text, "{label}; {checksum}; {:016x}; {:016x}", fold.a, fold.b).unwrap();
    }
    text
}

/// The log of the sample, entry by entry.
fn entries(sample: &Sample) -> String {
    let kinds =
        ["genesis", "run", "prediction", "receipt", "receipt", "opening", "register", "verdict", "register"];
    let mut text = String::from("# leaf index; kind; SHA-256\n");
    let entries = std::iter::once(objects::genesis()).chain(sample.statements.iter().cloned());
    for (index, (kind, bytes)) in kinds.iter().zip(entries).enumerate() {
        writeln!(text, "{index}; {kind}; {}", EntryDigest::of(&bytes)).unwrap();
    }
    text
}

/// Configs that are refused, one failure each, made from the accepted ones.
fn refused_tomls() -> Vec<(&'static str, String)> {
    let change = |text: &str, from: &str, to: &str| {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text.replace(from, to)
    };
    let replaced = |from: &str, to: &str| change(network::TINY_TOML, from, to);
    let llama = |from: &str, to: &str| change(network::LLAMA_TOML, from, to);
    vec![
        ("unknown_key", replaced("steps = 3", "steps = 3\nstep = 3")),
        ("unknown_key_in_model", replaced("n_layer = 2", "n_layer = 2\nn_layers = 2")),
        ("missing_key", replaced("leaves = 4\n", "")),
        ("key_twice", replaced("steps = 3", "steps = 3\nsteps = 4")),
        ("another_type", replaced("steps = 3", "steps = \"3\"")),
        ("another_type_in_a_table", replaced("n_layer = 2", "n_layer = 2.5")),
        ("another_type_in_a_list", replaced("files = [", "files = [7, ")),
        (
            "no_table",
            replaced("steps = 3", "steps = 3\nmodel = 3").split_once("[model]").unwrap().0.to_owned(),
        ),
        ("unknown_profile", replaced("f32-fma", "bf16-mma-16x25")),
        ("no_steps", replaced("steps = 3", "steps = 0")),
        ("devices_not_a_power_of_two", replaced("devices_max = 2", "devices_max = 3")),
        ("devices_that_do_not_divide", replaced("leaves = 4", "leaves = 5")),
        ("another_model", replaced("\"gpt2\"", "\"mamba\"")),
        ("no_model_type", replaced("model_type = \"gpt2\"\n", "")),
        ("another_activation", replaced("gelu_new", "relu")),
        ("dropout", replaced("n_layer = 2", "n_layer = 2\nresid_pdrop = 0.1")),
        ("heads_that_do_not_divide", replaced("n_head = 2", "n_head = 3")),
        ("longer_than_positions", replaced("length = 4", "length = 7")),
        ("seed_and_snapshot", replaced("seed = 1\n", "seed = 1\nsnapshot = \"a.safetensors\"\n")),
        ("neither_seed_nor_snapshot", replaced("seed = 1\n", "")),
        ("tokenizer_for_tokens", replaced("format = \"llmc\"", "format = \"llmc\"\ntokenizer = \"bytes\"")),
        ("another_tokenizer", replaced("format = \"llmc\"", "format = \"text\"\ntokenizer = \"gpt-2\"")),
        ("text_without_tokenizer", replaced("format = \"llmc\"", "format = \"text\"")),
        (
            "tokenizer_by_hash",
            replaced(
                "format = \"llmc\"",
                &format!("format = \"text\"\ntokenizer = \"sha256:{}\"", "0".repeat(64)),
            ),
        ),
        ("no_files", replaced("files = [\"tokens.bin\"]", "files = []")),
        ("another_optimizer", replaced("\"adamw\"", "\"lion\"")),
        ("adamw_without_beta2", replaced("beta2 = 0.95\n", "")),
        ("momentum_for_adamw", replaced("beta2 = 0.95", "beta2 = 0.95\nmomentum = 0.9")),
        ("nesterov_for_adamw", replaced("beta2 = 0.95", "beta2 = 0.95\nnesterov = true")),
        ("beta_of_one", replaced("beta1 = 0.9", "beta1 = 1.0")),
        ("rate_not_a_number", replaced("learning_rate = 1e-3", "learning_rate = nan")),
        ("warmup_beyond_the_steps", replaced("warmup_steps = 1", "warmup_steps = 4")),
        ("name_with_a_control_character", replaced("name = \"tiny\"", "name = \"a\\u0007\"")),
        ("llama_key_of_gpt2", llama("hidden_size = 10", "n_embd = 10")),
        ("llama_typo", llama("num_key_value_heads", "num_kv_heads")),
        (
            "llama_scaled_rope",
            llama("rope_theta", "rope_scaling = {type = \"linear\", factor = 2.0}\nrope_theta"),
        ),
        ("llama_attention_bias", llama("rope_theta", "attention_bias = true\nrope_theta")),
        ("llama_another_activation", llama("silu", "gelu")),
        ("llama_kv_heads_that_do_not_divide", llama("num_key_value_heads = 2", "num_key_value_heads = 3")),
        ("llama_no_kv_heads", llama("num_key_value_heads = 2", "num_key_value_heads = 0")),
        ("llama_heads_that_do_not_divide", llama("head_dim = 6\n", "")),
        ("llama_odd_head", llama("head_dim = 6", "head_dim = 5")),
        ("llama_theta_below_one", llama("500000.0", "0.5")),
        ("llama_config_and_keys", llama("vocab_size = 11", "vocab_size = 11\nconfig = \"config.json\"")),
        ("group_without_patterns", llama("[\"*.mlp.*\"]", "[]")),
        ("group_with_a_blank_pattern", llama("*.mlp.*", "mlp gate")),
        ("group_with_an_unknown_key", llama("learning_rate_factor = 0.5", "learning_rate = 0.5")),
        ("group_with_a_negative_factor", llama("learning_rate_factor = 0.5", "learning_rate_factor = -0.5")),
    ]
}

/// The files below `folder`, by path relative to it.
fn present(folder: &Path, below: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    let entries = std::fs::read_dir(folder.join(below)).into_iter().flatten();
    for entry in entries {
        let entry = entry.unwrap();
        let name = format!("{below}/{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => present(folder, &name, files),
            false => drop(files.insert(name, std::fs::read(entry.path()).unwrap())),
        }
    }
}

/// The pages that show fixtures: a block that opens with "```", a language and `fixtures/<path>` holds that file.
fn pages() -> Vec<(PathBuf, String)> {
    let spec = folder().parent().unwrap().join("docs/spec");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(spec).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 10);
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// The page with its blocks filled from `files`, and how many there are.
fn filled(page: &str, files: &BTreeMap<String, Vec<u8>>) -> (String, usize) {
    let (mut out, mut count, mut skipping) = (String::new(), 0, false);
    for line in page.lines() {
        if skipping && line != "```" {
            continue;
        }
        skipping = false;
        writeln!(out, "{line}").unwrap();
        let named = line.strip_prefix("```").and_then(|info| info.split_once(" fixtures/"));
        if let Some((_, path)) = named {
            let bytes =
                files.get(path).unwrap_or_else(|| panic!("a page shows fixtures/{path}, which is not made"));
            out += std::str::from_utf8(bytes).unwrap();
            (count, skipping) = (count + 1, true);
        }
    }
    (out, count)
}

#[test]
fn the_examples_in_the_pages_are_the_fixtures() {
    let (files, mut blocks) = (generated(), 0);
    for (path, page) in pages() {
        let (again, count) = filled(&page, &files);
        blocks += count;
        if std::env::var_os("UPDATE_FIXTURES").is_some() {
            std::fs::write(&path, again).unwrap();
        } else {
            let hint = "run `UPDATE_FIXTURES=1 cargo nextest run -p schemas --test fixtures`";
            assert!(again == page, "{}: an example is not its fixture; {hint}", path.display());
        }
    }
    assert!(blocks > 15, "{blocks} blocks");
}

/// Every constant of the profile stands in its page, as bits.
#[test]
fn the_profile_page_has_every_constant_of_the_profile() {
    let page = include_str!("../../docs/spec/profile.md");
    for (table, words) in F32_FMA.tables {
        for word in *words {
            assert!(page.contains(&format!("`0x{word:08x}`")), "{table}: 0x{word:08x}");
        }
    }
    for (rule, name) in F32_FMA.rules {
        let known =
            page.contains(&format!("`{name}`")) || page.contains(&format!("## {name}")) || *rule == "order";
        assert!(known, "{rule}: {name}");
    }
}

#[test]
fn the_checked_in_fixtures_are_what_this_program_makes() {
    let (folder, generated) = (folder(), generated());
    let mut stems: Vec<&str> = generated.keys().map(|path| path.split('/').next().unwrap()).collect();
    stems.dedup();
    let mut found = BTreeMap::new();
    stems.iter().for_each(|stem| present(&folder, stem, &mut found));
    // Each folder's README is written by hand; v1 holds what has been released and belongs to no program.
    found.retain(|path, _| !path.ends_with("/README.md") && !path.contains("/v1/"));
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        for path in found.keys().filter(|path| !generated.contains_key(*path)) {
            std::fs::remove_file(folder.join(path)).unwrap();
        }
        for (path, bytes) in &generated {
            std::fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
            std::fs::write(folder.join(path), bytes).unwrap();
        }
        return;
    }
    let again = "run `UPDATE_FIXTURES=1 cargo nextest run -p schemas --test fixtures` if the change is meant";
    for (path, bytes) in &generated {
        let there = found.remove(path).unwrap_or_else(|| panic!("fixtures/{path} is missing; {again}"));
        assert!(there == *bytes, "fixtures/{path} is stale; {again}");
    }
    assert!(found.is_empty(), "no program makes {:?}; {again}", found.keys());
}

/// The checked-in file decides, not the generator: its header says which message, its bytes which input.
#[test]
fn every_rejected_case_fails_for_its_own_reason() {
    let mut cases = BTreeMap::new();
    let objects =
        ["plan", "prediction", "receipt", "verdict", "bundle", "window", "register", "completeness"];
    for stem in ["cbor", "statement", "opened"].into_iter().chain(objects) {
        let before = cases.len();
        present(&folder(), &format!("{stem}/rejected"), &mut cases);
        assert!(cases.len() > before, "no rejected cases for {stem}");
    }
    let mut messages = BTreeMap::new();
    for (path, text) in cases {
        let text = String::from_utf8(text).unwrap();
        let (header, digits) = text.split_once("\n\n").unwrap();
        let (expect, reader) = header.strip_prefix("expect: ").unwrap().split_once("\nread as: ").unwrap();
        let bytes = hex::decode(digits.replace('\n', "")).unwrap();
        assert_eq!((sample::reader(reader))(&bytes).unwrap_err(), expect, "{path}");
        // Two cases with one message could hide each other: only bare CBOR and a signature have but one thing to say.
        if !path.starts_with("cbor/") && !expect.contains("the signature is not") {
            assert_eq!(messages.insert(expect.to_owned(), path.clone()), None, "{path}: {expect}");
        }
    }
}

/// A version that was released is read for ever, and what it refused is refused for ever, in whatever words.
#[test]
fn files_of_the_first_version_are_read_as_they_were() {
    let mut files = BTreeMap::new();
    present(&folder(), "bundle/v1", &mut files);
    let bytes = &files["bundle/v1/agree.cbor"];
    let bundle = Bundle::decode(bytes).unwrap();
    assert_eq!((bundle.version, bundle.encode()), (1, bytes.clone()));
    files.retain(|path, _| path.contains("/rejected/"));
    assert_eq!(files.len(), 11);
    for (path, text) in files {
        let text = String::from_utf8(text).unwrap();
        let digits = text.split_once("\n\n").unwrap().1.replace('\n', "");
        assert!(Bundle::decode(&hex::decode(digits).unwrap()).is_err(), "{path}");
    }
}

#[test]
fn every_refused_config_fails_for_its_own_reason() {
    let mut cases = BTreeMap::new();
    present(&folder(), "config/rejected", &mut cases);
    assert!(cases.len() > 20);
    for (path, text) in cases {
        let text = String::from_utf8(text).unwrap();
        let (header, config) = text.split_once("\n# A ").unwrap();
        let expect = header.strip_prefix("# expect: ").unwrap().replace("\n#         ", "\n");
        let config = format!("# A {config}");
        assert_eq!(Config::from_toml(&config).unwrap_err().to_string(), expect, "{path}");
    }
}

/// Lists every kind once, so that a kind without a fixture is noticed.
#[test]
fn the_plans_use_every_kind() {
    let sample = sample();
    let config = Config::from_toml(network::LLAMA_TOML).unwrap();
    let llama = network::plan(&config, objects::TOKENS, sample.plan.data.dataset);
    let plans = [sample.plan, llama];
    for (kind, name) in schemas::plan::Kind::ALL {
        let used = plans.iter().any(|plan| plan.operations.iter().any(|operation| operation.kind == kind));
        assert!(used, "{name}");
    }
}
