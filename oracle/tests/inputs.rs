//! Backends, states and weights that are asked for.

mod shop;

use schemas::object::Object as _;
use schemas::statement::{Payload, Statement};
use shop::{Shop, TINY};

#[test]
fn every_backend_predicts_the_same_and_says_its_name() {
    let shop = Shop::open(TINY, "seed = 3");
    let mut bodies = vec![];
    for backend in step::dispatch::Backend::all() {
        let out = backend.name();
        shop.done(&format!("predict --run run.toml --steps 0..3 --key p.key --out {out} --backend {out}"));
        bodies.push(shop.read(&format!("{out}/prediction/body.cbor")));
        let statement = Statement::open(&shop.read(&format!("{out}/prediction/prediction.cose"))).unwrap();
        let Payload::Prediction(prediction) = statement.payload else { panic!("a prediction") };
        let by = prediction.by.unwrap();
        assert_eq!(by.backend, out);
        assert_eq!(by.program, concat!("oracle ", env!("CARGO_PKG_VERSION")));
        let plan = shop.json(&format!("plan --run run.toml --json --backend {out}"));
        assert_eq!(plan["backend"], out);
    }
    assert!(bodies.len() >= 2 && bodies.iter().all(|body| *body == bodies[0]));
    schemas::prediction::PredictionBody::decode(&bodies[0]).unwrap();
    let said = shop.refused("plan --run run.toml --backend sse9");
    assert!(said.contains("expected one this machine can run (reference, scalar"), "{said}");
    assert!(said.contains("found \"sse9\""), "{said}");
}

#[test]
fn taps_are_told_one_by_one_with_their_totals() {
    let shop = Shop::open(TINY, "seed = 3");
    let plan = shop.json("plan --run run.toml --json --operations");
    let taps = plan["taps"].as_array().unwrap();
    assert_eq!(taps.len() as u64, plan["taps_per_leaf"].as_u64().unwrap());
    assert_eq!((&taps[0]["tensor"], &taps[0]["bytes"]), (&"tokens".into(), &48.into()));
    // 12 rows by all weights, forward and twice backward, and 78 pairs by 24 channels seven times; two leaves.
    assert_eq!(plan["macs_per_step"], 2 * (3 * 12 * (24 * (72 + 24 + 2 * 96) + 256 * 24) + 7 * 78 * 24));
    assert!(taps.iter().enumerate().all(|(number, tap)| tap["tap"] == number));
    let text = shop.done("plan --run run.toml --operations");
    assert!(text.contains("needed in operations") && text.contains("bytes of folds"), "{text}");
    assert!(text.contains("memory ") && text.contains("disk "), "{text}");
}

#[test]
fn weights_go_out_of_a_snapshot_and_into_another_run() {
    let shop = Shop::open(TINY, "seed = 3");
    shop.done("predict --run run.toml --steps 0..2 --key p.key --out out");
    let said = shop.done(
        "weights --run run.toml --snapshot out/prediction/snapshots/step-000002.safetensors --out model.safetensors",
    );
    assert!(said.starts_with("wrote model.safetensors: ") && said.ends_with("before step 2\n"), "{said}");
    shop.write_run(TINY, "weights = \"model.safetensors\"");
    shop.done("predict --run run.toml --steps 0..1 --key p.key --out again");
    // The state it starts from has those parameters and no moments.
    let initial = shop.read("again/job/initial.safetensors");
    let weights = shop.read("model.safetensors");
    let words =
        |bytes: &[u8]| bytes[8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize..].to_vec();
    let (initial, weights) = (words(&initial), words(&weights));
    assert_eq!(initial[..weights.len()], weights[..]);
    assert!(initial[weights.len()..].iter().all(|byte| *byte == 0));

    // Of another shape, cut short, or with a NaN: refused by name, and nothing is written.
    let whole = shop.read("model.safetensors");
    let refused = |bytes: &[u8]| {
        std::fs::write(shop.path("model.safetensors"), bytes).unwrap();
        let said = shop.refused("predict --run run.toml --steps 0..1 --key p.key --out never");
        assert!(!shop.path("never").exists());
        said
    };
    let said = refused(&whole[..whole.len() - 4]);
    assert!(said.contains("bytes after the header"), "{said}");
    let mut with_nan = whole.clone();
    with_nan[whole.len() - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    let said = refused(&with_nan);
    assert!(
        said.contains("\"transformer.ln_f.bias\": expected finite values, found NaN at element 23"),
        "{said}"
    );
    std::fs::write(shop.path("model.safetensors"), &whole).unwrap();
    shop.write_run(shop::Size { channels: 36, ..TINY }, "weights = \"model.safetensors\"");
    let said = shop.refused("plan --run run.toml");
    assert!(said.contains("\"transformer.wte.weight\": expected shape [256, 36], found [256, 24]"), "{said}");
    shop.write_run(TINY, "snapshot = \"model.safetensors\"");
    let said = shop.refused("plan --run run.toml");
    assert!(said.contains("expected tensor \"adamw.m.transformer.wte.weight\", found none"), "{said}");
}

#[test]
fn a_run_that_is_invalid_before_the_first_step_asked_for_is_refused() {
    let shop = Shop::open(TINY, "seed = 3");
    shop.done("predict --run run.toml --steps 0..1 --key p.key --out out");
    shop.done("weights --run run.toml --snapshot out/job/initial.safetensors --out model.safetensors");
    // The square of such a word is beyond f32.
    let mut weights = shop.read("model.safetensors");
    let start = 8 + u64::from_le_bytes(*weights.first_chunk().unwrap()) as usize;
    weights[start..].chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&1e38_f32.to_le_bytes()));
    std::fs::write(shop.path("model.safetensors"), weights).unwrap();
    shop.write_run(TINY, "weights = \"model.safetensors\"");
    let said = shop.refused("predict --run run.toml --steps 1..2 --key p.key --out later");
    assert!(
        said.contains("step 0 is invalid (") && said.contains("before the first step asked for"),
        "{said}"
    );
    assert!(!shop.path("later/prediction/prediction.cose").exists());
    let said = shop.done("predict --run run.toml --steps 0..2 --key p.key --out first");
    assert!(said.contains("; the prediction ends there"), "{said}");
}
