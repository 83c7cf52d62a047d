//! The peak of memory that `oracle plan` tells is the peak that `oracle predict` reaches.

mod shop;

use shop::{Shop, Size, TINY};

/// 3.3 million parameters and many tokens: tensors of the leaf weigh most.
const DEEP: Size =
    Size { steps: 1, leaves: 1, layers: 4, channels: 252, vocabulary: 256, sequences: 8, length: 256 };
/// 22 million parameters and few tokens: state and gradient weigh most.
const WIDE: Size =
    Size { steps: 1, leaves: 2, layers: 6, channels: 540, vocabulary: 2000, sequences: 1, length: 48 };

#[test]
fn the_peak_is_told_within_a_tenth() {
    for size in [DEEP, WIDE] {
        let shop = Shop::open(size, "seed = 3");
        for threads in [1, 2] {
            let told =
                shop.json(&format!("plan --run run.toml --threads {threads} --json"))["memory_bytes"].clone();
            let told = told.as_u64().unwrap();
            let done = shop.json(&format!(
                "predict --run run.toml --steps 0..1 --threads {threads} --key p.key --out out-{threads} --json"
            ));
            let found = done["peak_memory_bytes"].as_u64().unwrap();
            eprintln!("{threads} threads: told {told}, found {found}, {:.3}", told as f64 / found as f64);
            assert!(told >= 200_000_000, "{told}: too little to tell apart from the program itself");
            assert!(told.abs_diff(found) * 10 <= found, "told {told}, found {found} on {threads} threads");
        }
        // A resumed call holds one state at a time too.
        std::fs::remove_file(shop.path("out-2/prediction/prediction.cose")).unwrap();
        let done =
            shop.json("predict --run run.toml --steps 0..1 --threads 2 --key p.key --out out-2 --json");
        let told = shop.json("plan --run run.toml --threads 2 --json")["memory_bytes"].clone();
        assert!(done["peak_memory_bytes"].as_u64().unwrap() <= told.as_u64().unwrap() * 11 / 10);
    }
}

#[test]
fn a_run_that_does_not_fit_is_refused_before_anything_is_written() {
    // State and data are small; a leaf of 64 sequences of 1024 tokens with 1.6 million logits each is not.
    let size = Size {
        steps: 1,
        leaves: 1,
        layers: 1,
        channels: 12,
        vocabulary: 1 << 20,
        sequences: 64,
        length: 1024,
    };
    let shop = Shop::open(size, "seed = 3");
    let corpus = "x".repeat(600_000);
    std::fs::write(shop.path("corpus.txt"), corpus).unwrap();
    let plan = shop.json("plan --run run.toml --json");
    assert!(plan["memory_bytes"].as_u64().unwrap() > plan["machine_memory_bytes"].as_u64().unwrap());
    let said = shop.done("plan --run run.toml");
    assert!(said.contains("this machine has ") && said.contains("`oracle predict` will refuse"), "{said}");
    let said = shop.refused("predict --run run.toml --steps 0..1 --key p.key --out out");
    assert!(
        said.contains("of memory beside state and data") && said.contains("hint: fewer sequences"),
        "{said}"
    );
    assert!(!shop.path("out").exists() && !shop.path("p.key").exists());
}

#[test]
fn what_does_not_fit_is_not_measured() {
    let shop = Shop::open(TINY, "seed = 3");
    let said = shop.done("plan --run run.toml");
    assert!(!said.contains("will refuse"), "{said}");
    // The logits alone are 843 GB.
    let said = shop.refused("bench --sequences 4096 --length 1024 --repeats 1 --no-torch");
    assert!(said.contains("oracle: error: expected ") && said.contains(" GB of memory, found "), "{said}");
    assert!(said.contains("oracle: hint: fewer --sequences"), "{said}");
    for repeats in [0, 1001, u64::MAX] {
        let said = shop.refused(&format!("bench --repeats {repeats} --no-torch"));
        assert!(said.contains(&format!("--repeats: expected 1 to 1000, found {repeats}")), "{said}");
    }
    for command in
        ["plan --run run.toml", "predict --run run.toml --steps 0..1 --out out", "bench --no-torch"]
    {
        for threads in [0, 1025] {
            let said = shop.refused(&format!("{command} --threads {threads}"));
            assert!(said.contains(&format!("--threads: expected 1 to 1024, found {threads}")), "{said}");
        }
    }
    assert!(!shop.path("out").exists());
}
