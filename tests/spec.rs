//! What the specification's fixtures say, the crates do: each was written apart from `schemas`' own test program, and
//! has to come to the same bytes.

use schemas::config::Config;
use schemas::digest::Checksum;
use schemas::fold::FoldKey;
use schemas::object::Object;
use schemas::plan::Plan;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::path::Path;
use step::dispatch::Backend;
use tlog::checkpoint::Checkpoint;
use tlog::cosignature::CosigningKey;
use tlog::note::{NoteSignature, Verifier as _, VerifierKey};
use tlog::policy::Policy;
use tlog::witness::{AddCheckpoint, decide};
use verify::report::Class;

fn fixture(path: &str) -> Vec<u8> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::read(top.join("fixtures").join(path)).unwrap()
}

fn text(path: &str) -> String {
    String::from_utf8(fixture(path)).unwrap()
}

/// docs/spec/plan.md: the fixtures were read off the page's lists.
#[test]
fn step_derives_the_plans_that_the_page_describes() {
    for name in ["tiny", "untied", "llama", "llama-tied"] {
        let config = Config::from_toml(&text(&format!("config/{name}.toml"))).unwrap();
        let page = Plan::decode(&fixture(&format!("plan/{name}.cbor"))).unwrap();
        let step = step::plan::derive(&config, page.data.tokens, page.data.dataset).unwrap();
        for (found, expected) in step.operations.iter().zip(&page.operations) {
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(step.parameters, page.parameters, "{name}");
        assert_eq!(step.tables, page.tables, "{name}");
        assert_eq!(step.tensors, page.tensors, "{name}");
        assert_eq!(step.update, page.update, "{name}");
        assert_eq!(step.encode(), page.encode(), "{name}");
    }
}

/// docs/spec/plan.md: the sizes it states of two plans, and an element of the rotary tables.
#[test]
fn the_counts_and_the_table_that_the_page_states_are_those_of_the_fixtures() {
    let page = include_str!("../docs/spec/plan.md").replace('\n', " ");
    for name in ["tiny", "llama"] {
        let plan = Plan::decode(&fixture(&format!("plan/{name}.cbor"))).unwrap();
        let [parameters, tensors, operations] =
            [plan.parameters.len(), plan.tensors.len(), plan.operations.len()];
        let taps = plan.taps().count();
        let counts = format!(
            "the plan has {parameters} parameters, {tensors} tensors, {operations} operations and {taps} taps."
        );
        assert!(page.contains(&counts), "missing: {counts}");
    }
    let [cos, sin] = step::number::rotary::tables(10_000.0, 1000, 128);
    let at = 999 * 64 + 20;
    let words = format!("the cosine is `0x{:08x}`, the sine `0x{:08x}`.", cos[at], sin[at]);
    assert!(page.contains(&words), "missing: {words}");
}

/// docs/spec/checksum.md: the oracle's code and the device's, which share none, against the known answers.
#[test]
fn step_and_device_compute_the_known_checksums_and_folds() {
    let sums = text("checksum/sums.txt");
    let mut flat = 0;
    for line in sums.lines().filter(|line| !line.starts_with('#')) {
        let [label, checksum, a, b] = line.split("; ").collect::<Vec<_>>()[..] else { panic!("{line}") };
        let shape = label.strip_prefix("shape [").unwrap().strip_suffix(']').unwrap();
        let shape: Vec<u64> = shape.split(", ").map(|dimension| dimension.parse().unwrap()).collect();
        let words = words(label, shape.iter().product());
        let expected: Checksum = checksum.parse().unwrap();
        let expected_fold = [a, b].map(|sum| u64::from_str_radix(sum, 16).unwrap());
        let key = FoldKey([0; 32]);

        assert_eq!(step::checksum::checksum_f32(&shape, &words), expected, "{label}");
        let folded = step::checksum::FoldTables::new(Backend::detect(), key, words.len()).fold(&words);
        assert_eq!([folded.fold.a, folded.fold.b], expected_fold, "{label}");
        assert!(folded.finite);

        let digested = device::checksum::Coefficients::new(key, words.len() as u64).digest(&words);
        assert_eq!([digested.sum.fold.a, digested.sum.fold.b], expected_fold, "{label}");
        if shape.len() == 1 {
            assert_eq!(digested.sum.checksum, expected, "{label}");
            flat += 1;
        }
    }
    assert!(flat > 2, "the device's flat vectors are among the shapes");
}

fn words(label: &str, count: u64) -> Vec<f32> {
    let word = |i: u64| {
        let hash = Sha256::new().chain_update(label).chain_update(i.to_le_bytes()).finalize();
        f32::from_bits(u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]]) & !(1 << 30))
    };
    (0..count).map(word).collect()
}

/// A NaN is one word, whatever its bits and whoever computes.
#[test]
fn every_nan_is_one_word_to_step_and_device() {
    let key = FoldKey([3; 32]);
    let sums = [0x7fc0_0000_u32, 0xffc0_0001, 0x7f80_0001].map(|bits| {
        let words = [1.0, f32::from_bits(bits), 2.0];
        let digested = device::checksum::Coefficients::new(key, 3).digest(&words);
        let folded = step::checksum::FoldTables::new(Backend::detect(), key, 3).fold(&words);
        let checksum = step::checksum::checksum_f32(&[3], &words);
        assert_eq!((digested.sum.checksum, digested.sum.fold), (checksum, folded.fold));
        assert!(!digested.finite && !folded.finite);
        digested.sum
    });
    assert!(sums.iter().all(|sum| *sum == sums[0]));
}

/// docs/spec/plan.md, "Order": the worked example.
#[test]
fn the_data_order_is_that_of_the_page() {
    let order = step::order::Order::new(41, 4, 42).unwrap();
    let epoch =
        |first: u64| (first..first + 10).map(|q| order.window(q).to_string()).collect::<Vec<_>>().join(", ");
    let page = include_str!("../docs/spec/plan.md").replace('\n', " ");
    assert!(page.contains(&format!("Epoch 0 reads the windows {}; epoch 1 reads {}.", epoch(0), epoch(10))));
}

/// docs/spec/window.md: the fixture's windows are those of the order, and its paths lead to the plan's checksum.
#[test]
fn the_fixtures_window_is_what_the_leaf_reads() {
    let config = Config::from_toml(&text("config/tiny.toml")).unwrap();
    let tokens: Vec<u32> = words("tokens", 2500).iter().map(|word| word.to_bits() % 11).collect();
    let dataset = step::checksum::checksum_u32(&[2500], &tokens);
    let plan = step::plan::derive(&config, 2500, dataset).unwrap();
    let proof = schemas::window::WindowProof::decode(&fixture("window/window.cbor")).unwrap();
    let order = step::order::Order::new(2500, 4, config.data.seed).unwrap();
    let windows = || order.leaf_windows(proof.step, proof.leaf, plan.leaves, plan.dimensions.batch);
    let sequences = verify::window::check(&proof, &plan, windows).unwrap();
    let (inputs, targets) = step::order::inputs_and_targets(&tokens, &windows(), 4);
    let read =
        |part: fn(&verify::window::Sequence) -> &Vec<u32>| sequences.iter().flat_map(part).copied().collect();
    assert_eq!((inputs, targets), (read(|sequence| &sequence.inputs), read(|sequence| &sequence.targets)));
}

/// docs/spec/profile.md, "Known answers": each line of the table, recomputed.
#[test]
fn the_profile_pages_known_answers_are_those_of_step() {
    use step::number::elementary::{exp, gelu, gelu_backward, log, tanh};
    let page = include_str!("../docs/spec/profile.md");
    let number = |x: f32| format!("`0x{:08x}`", x.to_bits());
    let answers =
        |x: f32| [x, exp(x), log(x), tanh(x), gelu(x), gelu_backward(x, 1.0)].map(number).join(" | ");
    for x in [0.0, 1.0, 0.1, 2.5, -3.0, 50.0, -87.0, f32::from_bits(1)] {
        let line = format!("| {} |", answers(x));
        assert!(page.contains(&line), "missing: {line}");
    }
    let plan = Plan::decode(&fixture("plan/tiny.cbor")).unwrap();
    let first: Vec<String> =
        step::init::initial_parameters(&plan, 1, 0.02)[..4].iter().map(|x| number(*x)).collect();
    assert!(page.contains(&first.join(", ")), "missing: {}", first.join(", "));
}

/// docs/spec/checkpoint.md: signed by the fixtures' own code, opened by the log's.
#[test]
fn tlog_opens_the_fixtures_checkpoints() {
    let key = VerifierKey::parse(text("checkpoint/log.vkey").trim()).unwrap();
    for size in [3, 9] {
        let note = fixture(&format!("checkpoint/size-{size}.txt"));
        let checkpoint = Checkpoint::open(&note, key.name().as_str(), &key).unwrap();
        assert_eq!(checkpoint.head.size.0, size);
    }
}

/// docs/spec/witness.md: cosigned by the fixtures' own code, opened under the policy, and what a witness decides.
#[test]
fn the_fixtures_cosigned_checkpoint_is_accepted_by_the_fixtures_policy() {
    let policy = Policy::parse(&fixture("witness/policy.txt")).unwrap();
    let (checkpoint, cosignatures) = policy.open(&fixture("witness/cosigned.txt")).unwrap();
    let times: Vec<u64> = cosignatures.iter().map(|cosignature| cosignature.time_s).collect();
    assert_eq!(times, [1_800_000_000, 1_800_000_007]);
    let proven: Vec<Option<u64>> = (0..3).map(|faulty| policy.proven_by(&cosignatures, faulty)).collect();
    assert_eq!(proven, [Some(1_800_000_000), Some(1_800_000_007), None]);

    let log = &policy.logs()[0].key;
    let request = AddCheckpoint::parse(&fixture("witness/request.txt")).unwrap();
    assert_eq!(request.format().as_bytes(), fixture("witness/request.txt"));
    let last = Checkpoint::open(&fixture("checkpoint/size-3.txt"), log.name().as_str(), log).unwrap().head;
    let accepted = decide(&request, std::slice::from_ref(log), Some(last)).unwrap();
    assert_eq!(accepted.checkpoint, checkpoint);
    let answer = NoteSignature::parse_lines(&fixture("witness/answer.txt")).unwrap();
    assert!(answer[0].is_of(&policy.witnesses()[0].key));
    let key = CosigningKey::from_seed(answer[0].name.clone(), &seed("witness-0"));
    assert_eq!(key.cosign(&checkpoint.text(), 1_800_000_000), answer[0]);
}

/// The seed of a fixtures' key: its role, padded with zeros.
fn seed(role: &str) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..role.len()].copy_from_slice(role.as_bytes());
    seed
}

/// docs/spec/bundle.md: proofs, signatures, seals and order of the fixture are genuine.
#[test]
fn the_fixtures_bundle_verifies() {
    let statement = |name: &str| fixture(&format!("statement/{name}.cbor"));
    let signer = |name| schemas::statement::Statement::open(&statement(name)).unwrap().signer.to_string();
    let (predictor, devices) = (signer("prediction"), [signer("receipt-0"), signer("receipt-1")]);
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    let policy =
        verify::policy::Policy::parse(&text("checkpoint/log.vkey"), &[&predictor], &devices, &[]).unwrap();
    let report = verify::bundle::check(&fixture("bundle/agree.cbor"), &policy);
    assert_eq!(report.class, Class::Agreeing, "{report}");
    let implied = verify::bundle::check(&fixture("bundle/implied.cbor"), &policy);
    assert_eq!((implied.class, &implied.verdict), (Class::Agreeing, &report.verdict), "{implied}");
    assert!(implied.to_string().contains("1 attachment; bodies of 2 receipts follow from the prediction"));
}

/// docs/spec/opened.md: step 1 of the fixtures' prediction is the one sealed, and the number that the page works out.
#[test]
fn the_fixtures_opened_step_verifies() {
    let predictor =
        schemas::statement::Statement::open(&fixture("statement/prediction.cbor")).unwrap().signer;
    let policy =
        verify::policy::Policy::parse(&text("checkpoint/log.vkey"), &[&predictor.to_string()], &[], &[])
            .unwrap();
    let report = verify::opened::check(&fixture("opened/step.cbor"), &policy);
    assert_eq!(report.class, Class::Agreeing, "{report}");
    let loss = report.opened.unwrap().record.losses[0];
    let page = include_str!("../docs/spec/opened.md");
    assert!(page.contains(&format!("The mean loss of leaf 0 is `0x{loss:08x}`, {}.", f32::from_bits(loss))));
}

/// The source of `NAME.rs` among the threats, or among the other tests, with strings that go over several lines in one.
fn source_of(name: &str) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let threat = tests.join(format!("threats/{name}.rs"));
    let path = if threat.exists() { threat } else { tests.join(format!("{name}.rs")) };
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.split("\\\n").map(str::trim_start).collect::<String>().replace("\\\"", "\"")
}

/// docs/VERIFY.md, "Threats": each row names tests that are there and expect what it shows, and each test has its row.
#[test]
fn every_threat_is_tried_by_the_tests_that_its_row_names() {
    let page = include_str!("../docs/VERIFY.md");
    let (_, section) = page.split_once("\n## Threats\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut named = BTreeSet::new();
    let rows = section.lines().filter(|line| line.starts_with("| ") && line.ends_with("` |"));
    for row in rows {
        let cells: Vec<&str> = row.split('|').collect();
        let ["", who, stopped, seen, left, tests, ""] = cells[..] else { panic!("not five cells: {row}") };
        assert!(!who.trim().is_empty() && !stopped.trim().is_empty() && !seen.trim().is_empty(), "{row}");
        let mut sources = String::new();
        for test in quoted(tests) {
            let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("{test} is no FILE::TEST"));
            let source = source_of(file);
            assert!(source.contains(&format!("#[test]\nfn {name}()")), "{test} is not there: {row}");
            sources += &source;
            named.insert(test);
        }
        for text in [seen, left].into_iter().flat_map(quoted) {
            assert!(sources.contains(&text), "no test of this row expects {text:?}: {row}");
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("threats");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_stem().unwrap().to_str().unwrap();
        let source = std::fs::read_to_string(&path).unwrap();
        for test in source.split("#[test]\nfn ").skip(1) {
            let test = format!("{file}::{}", test.split('(').next().unwrap());
            assert!(named.contains(&test), "docs/VERIFY.md has no row for {test}");
        }
    }
}
