//! A prediction's folder belongs to one run and one call at a time, and what is in it is held to the run.

mod shop;

use shop::{Shop, TINY, stderr};
use std::time::{Duration, Instant};

const PREDICT: &str = "predict --run run.toml --steps 0..24 --snapshot-every 5 --key p.key --out";

/// The files of a whole prediction that are the same whoever computes it and whenever.
const SAME: [&str; 6] = [
    "prediction/plan.cbor",
    "prediction/body.cbor",
    "job/plan.cbor",
    "job/initial.safetensors",
    "job/tokens.bin",
    "job/run.cose",
];

#[track_caller]
fn same(shop: &Shop, found: &str, expected: &str) {
    for file in SAME {
        let of = |folder: &str| shop.read(&format!("{folder}/{file}"));
        assert!(of(found) == of(expected), "{file}");
    }
}

/// Everything that a folder holds.
fn content(shop: &Shop, folder: &str) -> Vec<(String, Vec<u8>)> {
    let files = shop.files(folder).into_iter();
    files.map(|name| (name.clone(), shop.read(&format!("{folder}/{name}")))).collect()
}

#[test]
fn two_calls_at_once_in_one_folder_are_one_too_many() {
    let long = shop::Size { steps: 2000, ..TINY };
    let shop = Shop::open(long, "seed = 3");
    let predict = "predict --run run.toml --steps 0..2000 --snapshot-every 5 --key p.key --out out";
    let mut first = shop.command(predict).spawn().unwrap();
    let begun = Instant::now();
    while !shop.path("out/prediction/snapshots/step-000005.digest").exists() {
        assert!(first.try_wait().unwrap().is_none(), "the first call ended before it kept a snapshot");
        assert!(begun.elapsed() < Duration::from_secs(60), "no snapshot in a minute");
        std::thread::park_timeout(Duration::from_micros(200));
    }
    let said = shop.refused(predict);
    assert!(said.contains("out/prediction free, found another call at work in it"), "{said}");
    assert!(said.contains("oracle: hint: let that call end, or choose another --out"), "{said}");
    assert!(first.try_wait().unwrap().is_none(), "the first call ended before the second was refused");
    // Another folder is another matter.
    shop.done("predict --run run.toml --steps 0..1 --key p.key --out other");

    // The lock ends with the call that had it, however that ends.
    first.kill().unwrap();
    first.wait().unwrap();
    shop.write_run(TINY, "seed = 3");
    let said = shop.refused(&format!("{PREDICT} out"));
    assert!(said.contains("out/prediction/run.cose holds run "), "{said}");
    std::fs::remove_dir_all(shop.path("out")).unwrap();
    shop.done(&format!("{PREDICT} whole"));
    let mut calls: Vec<_> =
        (0..4).map(|_| shop.command(&format!("{PREDICT} out")).spawn().unwrap()).collect();
    let ended: Vec<_> = calls.drain(..).map(|call| call.wait_with_output().unwrap()).collect();
    // Whoever comes after the end finds it done.
    let done = ended.iter().filter(|output| output.status.success()).count();
    assert!(done >= 1, "{}", stderr(&ended[0]));
    for output in ended.iter().filter(|output| !output.status.success()) {
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(output).contains("another call at work"), "{}", stderr(output));
    }
    same(&shop, "out", "whole");
}

#[test]
fn calls_that_make_one_key_at_once_all_use_it() {
    let shop = Shop::open(TINY, "seed = 3");
    let call = |number: u32| {
        let out = format!("predict --run run.toml --steps 0..1 --key new.key --out out-{number}");
        shop.command(&out).spawn().unwrap()
    };
    let calls: Vec<_> = (0..6).map(call).collect();
    for call in calls {
        let output = call.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let run = shop.read("out-0/job/run.cose");
    assert!((1..6).all(|number| shop.read(&format!("out-{number}/job/run.cose")) == run), "one signer");
    let public = shop.read("new.pub");
    // What an ended call left alone comes back, and is not replaced by another's.
    std::fs::remove_file(shop.path("new.pub")).unwrap();
    shop.done("predict --run run.toml --steps 0..1 --key new.key --out out-0");
    assert_eq!(shop.read("new.pub"), public);
}

#[test]
fn a_folder_of_another_run_is_refused_and_stays_as_it_is() {
    let shop = Shop::open(TINY, "seed = 4");
    shop.done(&format!("{PREDICT} out"));
    std::fs::write(shop.path("out/job/initial.safetensors.part"), b"of that run").unwrap();
    shop.write_run(TINY, "seed = 3");
    shop.done(&format!("{PREDICT} whole"));
    let before = content(&shop, "out");
    let refused = |file: &str, what: &str| {
        let said = shop.refused(&format!("{PREDICT} out"));
        assert!(said.contains(&format!("out/prediction/{file} holds {what} ")), "{said}");
        assert!(said.contains("hint: choose another --out, or remove that folder"), "{said}");
    };
    refused("run.cose", "run");
    assert!(content(&shop, "out") == before);
    // Without the run's entry the prediction itself tells, before anything is computed.
    std::fs::remove_file(shop.path("out/prediction/run.cose")).unwrap();
    refused("prediction.cose", "a prediction of run");
    // Without that too, its steps and snapshots are not taken for this run's.
    std::fs::remove_file(shop.path("out/prediction/prediction.cose")).unwrap();
    let output = shop.command(&format!("{PREDICT} out")).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("is damaged or of another run, not used"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("going on from"), "{}", stderr(&output));
    same(&shop, "out", "whole");
}

#[test]
fn what_is_missing_or_damaged_in_a_finished_folder_comes_back() {
    let shop = Shop::open(TINY, "seed = 3");
    shop.done(&format!("{PREDICT} out"));
    shop.done(&format!("{PREDICT} whole"));
    let before = content(&shop, "out");
    for file in SAME {
        let path = shop.path("out").join(file);
        let whole = std::fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for damaged in [&whole[..whole.len() - 1], &flipped, &[&whole[..], &[0]].concat()] {
            std::fs::write(&path, damaged).unwrap();
            shop.done(&format!("{PREDICT} out"));
            assert!(std::fs::read(&path).unwrap() == whole, "{file}");
        }
        std::fs::remove_file(&path).unwrap();
        shop.done(&format!("{PREDICT} out"));
        assert!(content(&shop, "out") == before, "{file} removed");
    }
    // What cannot come back is told: the run's entry when it is no statement, the salt of what is sealed.
    let run = shop.path("out/prediction/run.cose");
    let whole = std::fs::read(&run).unwrap();
    std::fs::write(&run, &whole[..whole.len() - 1]).unwrap();
    let said = shop.refused(&format!("{PREDICT} out"));
    assert!(
        said.contains("out/prediction/run.cose") && said.contains("hint: choose another --out"),
        "{said}"
    );
    std::fs::write(&run, &whole).unwrap();
    let salt = shop.read("out/prediction/salt");
    std::fs::remove_file(shop.path("out/prediction/salt")).unwrap();
    let said = shop.refused(&format!("{PREDICT} out"));
    assert!(said.contains("its salt is missing: expected out/prediction/salt"), "{said}");
    assert!(!shop.path("out/prediction/salt").exists());
    std::fs::write(shop.path("out/prediction/salt"), salt).unwrap();
    shop.done(&format!("{PREDICT} out"));
    assert!(content(&shop, "out") == before);
}

#[test]
fn a_snapshot_that_is_not_this_runs_is_not_gone_on_from() {
    let shop = Shop::open(TINY, "seed = 4");
    let later = "predict --run run.toml --steps 10..12 --snapshot-every 5 --key p.key --out";
    shop.done(&format!("{later} other"));
    shop.write_run(TINY, "seed = 3");
    shop.done(&format!("{later} whole"));
    let snapshots = ["step-000005", "step-000010", "step-000012"];
    let interrupted = |out: &str| {
        shop.done(&format!("{later} {out}"));
        std::fs::remove_file(shop.path(out).join("prediction/prediction.cose")).unwrap();
    };
    let copy = |from: &str, out: &str, ending: &str| {
        for name in snapshots {
            let file = format!("prediction/snapshots/{name}.{ending}");
            std::fs::copy(shop.path(from).join(&file), shop.path(out).join(&file)).unwrap();
        }
    };
    let said = |out: &str| {
        let output = shop.command(&format!("{later} {out}")).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        same(&shop, out, "whole");
        stderr(&output)
    };
    // As they are: the last one is gone on from.
    interrupted("out");
    assert!(said("out").contains("going on from the snapshot before step 12"));
    // Another run's, whole and with their digests: no record of steps 0..10 is here to hold them to.
    interrupted("out");
    copy("other", "out", "safetensors");
    copy("other", "out", "digest");
    let told = said("out");
    assert_eq!(told.matches("not used: ").count(), 3, "{told}");
    assert!(!told.contains("going on from"), "{told}");
    // Another state under this run's name: the record before step 12 tells the last one, the digests tell the rest.
    interrupted("out");
    copy("other", "out", "safetensors");
    let digest = shop.path("out/prediction/snapshots/step-000012.digest");
    let own = std::fs::read_to_string(&digest).unwrap();
    let others = shop.read("other/prediction/snapshots/step-000012.digest");
    let others = String::from_utf8(others).unwrap();
    let forged = format!("{} {}", others.split_once(' ').unwrap().0, own.split_once(' ').unwrap().1);
    std::fs::write(&digest, forged).unwrap();
    let told = said("out");
    assert!(told.contains("before step 12 has other parameters than its record"), "{told}");
    assert!(!told.contains("going on from"), "{told}");
}

#[test]
fn only_what_a_snapshot_was_saved_as_becomes_weights_and_nothing_is_overwritten() {
    let shop = Shop::open(TINY, "seed = 3");
    shop.done("predict --run run.toml --steps 0..2 --key p.key --out out");
    let snapshot = "out/prediction/snapshots/step-000002.safetensors";
    let weights = |out: &str| format!("weights --run run.toml --snapshot {snapshot} --out {out}");
    shop.done(&weights("one.safetensors"));
    let one = shop.read("one.safetensors");
    let said = shop.refused(&weights("one.safetensors"));
    assert!(said.contains("one.safetensors is there already"), "{said}");
    assert!(said.contains("hint: choose another --out"), "{said}");

    let whole = shop.read(snapshot);
    let first = 8 + u64::from_le_bytes(*whole.first_chunk().unwrap()) as usize;
    let mut damaged = whole.clone();
    damaged[first] ^= 1;
    std::fs::write(shop.path(snapshot), &damaged).unwrap();
    let said = shop.refused(&weights("two.safetensors"));
    assert!(said.contains("expected the state \"") && said.contains("that was saved, found "), "{said}");
    // Without a digest it is somebody's own file; what is not finite is no weight all the same.
    std::fs::remove_file(shop.path(snapshot).with_extension("digest")).unwrap();
    shop.done(&weights("three.safetensors"));
    damaged[first..first + 4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    std::fs::write(shop.path(snapshot), &damaged).unwrap();
    let said = shop.refused(&weights("two.safetensors"));
    assert!(said.contains("wte.weight\": expected finite values, found inf at element 0"), "{said}");
    assert!(!shop.path("two.safetensors").exists());
    assert!(shop.read("one.safetensors") == one);

    let inspect = "data inspect --run run.toml --step 1 --leaf 0 --proof window.cbor";
    shop.done(inspect);
    let proof = shop.read("window.cbor");
    let said = shop.refused(&inspect.replace("--step 1", "--step 2"));
    assert!(
        said.contains("cannot write window.cbor") && said.contains("hint: it is there already"),
        "{said}"
    );
    assert!(shop.read("window.cbor") == proof);
}
