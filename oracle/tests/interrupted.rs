//! Work that is ended at any moment goes on to the same bytes, and a disk that is full leaves nothing half-written.

mod shop;

use shop::{Shop, TINY, stderr};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

const PREDICT: &str = "predict --run run.toml --steps 0..24 --snapshot-every 5 --key p.key --out";

/// Files that a call writes one after the other.
const MOMENTS: [&str; 6] = [
    "prediction/plan.cbor",
    "job/initial.safetensors",
    "job/run.cose",
    "prediction/snapshots/step-000005.safetensors",
    "prediction/snapshots/step-000010.digest",
    "prediction/snapshots/step-000015.safetensors",
];

/// Waits for a file, then kills the child. True if it was killed.
fn kill_once_there(child: &mut Child, path: &Path) -> bool {
    while !path.exists() && child.try_wait().unwrap().is_none() {
        std::thread::park_timeout(Duration::from_micros(200));
    }
    child.kill().unwrap();
    // A signal ends it, unless it ended by itself just before.
    child.wait().unwrap().code().is_none()
}

#[test]
fn a_call_killed_at_any_moment_is_gone_on_from_to_the_same_bytes() {
    let shop = Shop::open(TINY, "seed = 3");
    shop.done(&format!("{PREDICT} whole"));
    let mut killed = 0;
    for (number, moment) in MOMENTS.iter().enumerate() {
        let out = format!("out-{number}");
        // The second call finds the file there and is killed as soon as it has begun.
        for _ in 0..2 {
            let mut child = shop.command(&format!("{PREDICT} {out}")).spawn().unwrap();
            killed += u32::from(kill_once_there(&mut child, &shop.path(&out).join(moment)));
        }
    }
    assert!(killed >= 6, "{killed} of 12 calls were killed");
    for number in 0..MOMENTS.len() {
        let out = format!("out-{number}");
        shop.done(&format!("{PREDICT} {out}"));
        for file in ["prediction/body.cbor", "job/initial.safetensors", "job/tokens.bin", "job/run.cose"] {
            assert_eq!(shop.read(&format!("{out}/{file}")), shop.read(&format!("whole/{file}")), "{file}");
        }
        let left = shop.files(&out).into_iter().filter(|name| name.contains("part")).collect::<Vec<_>>();
        assert!(left.iter().all(|name| !name.starts_with("prediction/s")), "{left:?}");
    }
}

/// Runs the command with no file allowed beyond a size: no signal ends it, writing on fails as it does on a full disk.
fn limited(shop: &Shop, blocks: u64, arguments: &str) -> String {
    let mut command = std::process::Command::new("sh");
    let script = format!("ulimit -f {blocks}; exec {} {arguments}", env!("CARGO_BIN_EXE_oracle"));
    let output = command.arg("-c").arg(script).current_dir(shop.path("")).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    stderr(&output)
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing_half_written() {
    let shop = Shop::open(TINY, "seed = 3");
    shop.done(&format!("{PREDICT} whole"));
    // 60 kB, and 12 bytes for each of 14 thousand parameters are 160 kB.
    let said = limited(&shop, 60, &format!("{PREDICT} out"));
    assert!(said.contains("initial.safetensors") && said.contains("File too large"), "{said}");
    assert!(said.contains("oracle: hint: the disk is full, or a limit is set"), "{said}");
    assert_eq!(shop.files("out"), ["job/plan.cbor", "prediction/plan.cbor", "prediction/run.cose"]);

    shop.done(&format!("{PREDICT} out"));
    for name in shop.files("out/prediction") {
        let again = name.starts_with('s') || name == "prediction.cose" || name == "body.cbor";
        if again && name != "salt" {
            std::fs::remove_file(shop.path("out/prediction").join(name)).unwrap();
        }
    }
    // The job is there; now it is the first snapshot that does not fit.
    let said = limited(&shop, 60, &format!("{PREDICT} out"));
    assert!(said.contains("step-000005.safetensors") && said.contains("File too large"), "{said}");
    assert!(said.contains("`oracle plan` tells how many bytes"), "{said}");
    let kept = shop.files("out/prediction");
    assert_eq!(kept, ["plan.cbor", "run.cose", "salt", "steps/steps-000000-000005.cbor"]);
    shop.done(&format!("{PREDICT} out"));
    assert_eq!(shop.read("out/prediction/body.cbor"), shop.read("whole/prediction/body.cbor"));
}

#[test]
fn a_thousand_steps_are_few_files() {
    let shop = Shop::open(shop::Size { steps: 1000, leaves: 1, length: 4, channels: 12, ..TINY }, "seed = 3");
    let plan = shop.json("plan --run run.toml --json --snapshot-every 250");
    shop.done("predict --run run.toml --steps 0..1000 --snapshot-every 250 --key p.key --out out");
    let files = shop.files("out");
    let count = |start: &str| files.iter().filter(|name| name.starts_with(start)).count();
    assert_eq!(count("prediction/steps/"), 4);
    assert_eq!(count("prediction/snapshots/"), 8);
    // What `oracle plan` says of the disk is what is there.
    assert_eq!(plan["snapshots"], 4);
    let found: u64 = files.iter().map(|name| shop.path("out").join(name).metadata().unwrap().len()).sum();
    let told = plan["disk_bytes"].as_u64().unwrap();
    assert!(found.abs_diff(told) * 10 <= found, "told {told} bytes, found {found}");
}

#[test]
fn a_folder_that_holds_something_else_than_was_computed_is_told() {
    let shop = Shop::open(TINY, "seed = 3");
    let predict = "predict --run run.toml --steps 0..3 --out out --key";
    shop.done(&format!("{predict} p.key"));
    let said = shop.refused(&format!("{predict} q.key"));
    assert!(said.contains("this run signed by"), "{said}");
    // A prediction of another key beside a run of this one.
    shop.done("predict --run run.toml --steps 0..3 --out other --key q.key");
    let own = shop.read("out/prediction/prediction.cose");
    let put = |bytes: &[u8]| std::fs::write(shop.path("out/prediction/prediction.cose"), bytes).unwrap();
    put(&shop.read("other/prediction/prediction.cose"));
    assert!(shop.refused(&format!("{predict} p.key")).contains("steps 0..3 by "));
    put(&own);
    // Under another salt the same records have another seal.
    let salt = shop.read("out/prediction/salt");
    std::fs::write(shop.path("out/prediction/salt"), format!("{}\n", "0".repeat(64))).unwrap();
    let said = shop.refused(&format!("{predict} p.key"));
    assert!(said.contains("seals other records than those in its folder"), "{said}");
    std::fs::write(shop.path("out/prediction/salt"), salt).unwrap();
}
