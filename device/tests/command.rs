//! The command as a person meets it: exit codes, what goes to stdout, what goes to stderr.

mod tiny;

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};
use tiny::{Tiny, files};

fn device(tiny: &Tiny, words: &[&str]) -> Output {
    std::fs::write(tiny.path("challenge.note"), tiny::CHECKPOINT).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_device"));
    command.current_dir(tiny.folder.path()).args(words).output().unwrap()
}

const RUN: [&str; 13] = [
    "run",
    "--job",
    "job",
    "--challenge",
    "challenge.note",
    "--keys",
    "keys",
    "--out",
    "out",
    "--devices",
    "2",
    "--backend",
    "simulated",
];

fn run_with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    RUN.iter().chain(more).copied().collect()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn assert_refused(output: &Output, message: &str) {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    let errors = text(&output.stderr);
    assert!(errors.starts_with("device: error: ") && errors.contains(message), "{errors}");
}

#[test]
fn a_run_writes_receipts_and_says_what_it_did() {
    let tiny = Tiny::new();
    let output = device(&tiny, &run_with(&["--traces"]));
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let said = text(&output.stdout);
    assert!(said.contains(&tiny.run.id().to_string()) && said.contains("2 devices, simulated"), "{said}");
    assert!(said.contains("out/receipt-1.cose") && said.contains("4 records"), "{said}");
    let (traces, rest): (Vec<_>, Vec<_>) =
        files(&tiny.path("out")).into_iter().partition(|name| name.starts_with("traces/"));
    assert_eq!((traces.len() as u64, rest.len()), (tiny::STEPS * tiny::LEAVES, 6));
    assert!(tiny::read_receipt(&tiny.path("out"), 1).is_some());
    for rank in 0..2 {
        let key = tiny.path(&format!("keys/device-{rank}.key"));
        assert_eq!(std::fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_summary_for_machines_has_the_same_facts() {
    let tiny = Tiny::new();
    let more = ["--json", "--traces", "--steps", "1..3", "--fault", "silent:device=1"];
    let output = device(&tiny, &run_with(&more));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["run"], tiny.run.id().to_string());
    assert_eq!(said["steps"], serde_json::json!([1, 3]));
    assert_eq!(said["simulated"], true);
    assert_eq!(said["invalid"], serde_json::Value::Null);
    assert_eq!(said["faults"][0], "silent:device=1");
    assert_eq!(said["devices"][0]["records"], 2);
    assert_eq!(said["devices"][0]["receipt"]["file"], "out/receipt-0.cose");
    assert_eq!(said["devices"][1]["receipt"], serde_json::Value::Null);
    assert_eq!(said["loss_first"]["step"], 1);
    assert!(files(&tiny.path("out")).contains(&"traces/rank-0/step-000001-leaf-0001.cbor".to_owned()));
}

#[test]
fn the_loss_for_machines_has_the_digits_that_the_oracle_prints() {
    let tiny = Tiny::new();
    let output = device(&tiny, &run_with(&["--json"]));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let read = |rank| tiny::read_receipt(&tiny.path("out"), rank).unwrap().1.records[0].losses.clone();
    let losses: Vec<f32> = [read(0), read(1)].concat().into_iter().map(f32::from_bits).collect();
    let mean = losses.iter().sum::<f32>() / tiny::LEAVES as f32;
    assert_eq!(said["loss_first"]["mean"].to_string(), serde_json::json!(mean).to_string());
}

#[test]
fn a_run_without_traces_says_what_they_would_be_for() {
    let tiny = Tiny::new();
    let output = device(&tiny, &run_with(&[]));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let note = "device: note: no traces kept: a divergence can be located only to the leaf\n\
                device: hint: `device run --traces` keeps them\n";
    assert_eq!(text(&output.stderr), note);
}

#[test]
fn a_run_that_ends_early_says_where() {
    let tiny = Tiny::new();
    let name = &tiny.plan.operations[1].name;
    let fault = format!("poison:device=1,step=2,leaf=3,operation={name},element=0");
    let output = device(&tiny, &run_with(&["--fault", &fault]));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stdout);
    let end = format!("ended: step 2 met a NaN or an infinity in leaf 3, operation {name}");
    assert!(said.contains(&end), "{said}");
}

#[test]
fn a_dry_run_checks_the_job_and_writes_nothing() {
    let tiny = Tiny::new();
    let before = files(tiny.folder.path()).len();
    let output = device(&tiny, &["run", "--job", "job", "--devices", "4", "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.contains(&format!("parameters            {}", tiny.plan.parameter_count())), "{said}");
    assert!(said.contains("32 tokens, ") && said.contains(" multiply-accumulates\n"), "{said}");
    assert!(!said.contains("iB"), "{said}");
    assert!(said.contains("disk, all devices     ") && said.contains("time, estimated       "), "{said}");
    let output = device(&tiny, &run_with(&["--dry-run", "--json"]));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["state_bytes"], 12 * tiny.plan.parameter_count());
    assert_eq!(said["step_tokens"], 32);
    let parts = ["disk_snapshot_bytes", "disk_trace_bytes", "disk_record_bytes"]
        .map(|part| said[part].as_u64().unwrap());
    assert_eq!(said["disk_bytes"], parts.iter().sum::<u64>());
    assert!(parts[0] >= 2 * 2 * 12 * tiny.plan.parameter_count(), "two snapshots of each device: {said}");
    assert_eq!(parts[1], 0, "no traces were asked for");
    let time = &said["time_estimated"];
    assert!(time["seconds"].as_f64().unwrap() > 0.0 && time["at_least"] == false, "{time}");
    assert_eq!(files(tiny.folder.path()).len(), before + 1, "only this test's note");
    std::fs::write(tiny.path("job/tokens.bin"), b"short").unwrap();
    let output = device(&tiny, &["run", "--job", "job", "--devices", "4", "--dry-run"]);
    assert_refused(&output, "tokens.bin: expected 1600 bytes (400 tokens), found 5 bytes");
}

#[test]
fn what_is_wrong_is_said_with_a_hint_where_there_is_one() {
    let tiny = Tiny::new();
    let refuse = |words: &[&str], message: &str| assert_refused(&device(&tiny, words), message);
    refuse(&["run", "--job", "job", "--devices", "2"], "--challenge");
    refuse(&["run", "--job", "nowhere", "--devices", "2", "--dry-run"], "nowhere/run.cose");
    refuse(&["nonsense"], "nonsense");
    refuse(&run_with(&["--steps", "3..1"]), "such as 0..20");
    let on = |backend: &'static str| [&RUN[..RUN.len() - 1], &[backend]].concat();
    refuse(&on("abacus"), "backend \"abacus\" is not in this build, expected ");
    refuse(&on("abacus"), "device: hint: `device list`");
    refuse(&run_with(&["--fault", "bit-flip:device=9"]), "device: hint: `device faults`");
    refuse(&run_with(&["--fault", "nonsense"]), "corrupted-link");
    assert!(!tiny.path("out").exists() && !tiny.path("keys").exists());
    std::fs::create_dir(tiny.path("out")).unwrap();
    std::fs::write(tiny.path("out/mine"), b"").unwrap();
    refuse(&run_with(&[]), "device: hint: receipts are never overwritten");
    assert!(!tiny.path("keys").exists());
}

#[test]
fn what_is_mistaken_for_a_job_or_a_challenge_is_refused_with_a_hint() {
    let tiny = Tiny::new();
    let refuse = |words: &[&str], message: &str, hint: &str| {
        let output = device(&tiny, words);
        assert_refused(&output, message);
        assert_refused(&output, &format!("device: hint: {hint}"));
        assert!(!tiny.path("out").exists() && !tiny.path("keys").exists());
    };
    let job = "give OUT/job, as `oracle predict` writes it";
    refuse(&["run", "--job", ".", "--devices", "2", "--dry-run"], "./run.cose: No such file", job);
    refuse(&["run", "--job", "job/run.cose", "--devices", "2", "--dry-run"], "run.cose", job);
    refuse(&["faults", "--job", "."], "./run.cose", job);
    refuse(&run_with(&["--steps", "2..9"]), "steps 2..9 are not within the run's steps 0..4", "give --steps");
    std::fs::write(tiny.path("log.pub"), "log.example/tiny+31926336+AQtTnF8/eb7C\n").unwrap();
    std::fs::write(tiny.path("long"), [b'a'; 20_000]).unwrap();
    for (file, message) in [
        ("log.pub", "challenge: line 2: expected the tree size"),
        ("long", "challenge: long: expected at most 16384 bytes, found 20000 bytes"),
        ("nowhere", "challenge: nowhere: No such file"),
        ("job/plan.cbor", "challenge: "),
    ] {
        let words: Vec<&str> =
            RUN.iter().map(|word| if *word == "challenge.note" { file } else { word }).collect();
        refuse(&words, message, "`client challenge` writes it");
    }
}

#[test]
fn the_current_folder_can_take_the_output() {
    let tiny = Tiny::new();
    std::fs::create_dir(tiny.path("here")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_device"));
    std::fs::write(tiny.path("challenge.note"), tiny::CHECKPOINT).unwrap();
    let words = "run --job ../job --challenge ../challenge.note --keys ../keys --devices 1 --out .";
    let output = command.current_dir(tiny.path("here")).args(words.split(' ')).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(tiny::read_receipt(&tiny.path("here"), 0).is_some());
}

#[test]
fn a_key_that_others_can_read_stops_the_run() {
    let tiny = Tiny::new();
    assert_eq!(device(&tiny, &run_with(&[])).status.code(), Some(0));
    std::fs::remove_dir_all(tiny.path("out")).unwrap();
    let key = tiny.path("keys/device-1.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = device(&tiny, &run_with(&[]));
    assert_refused(&output, "keys/device-1.key: expected mode 0600, found 0644");
    assert!(text(&output.stderr).contains("chmod 600"));
    assert!(!tiny.path("out").exists());
    let secret = std::fs::read_to_string(key).unwrap();
    let secret = secret.trim().rsplit(':').next().unwrap();
    assert!(!text(&output.stderr).contains(secret));
}

#[test]
fn backends_and_faults_are_listed() {
    let tiny = Tiny::new();
    let said = |words: &[&str]| {
        let output = device(&tiny, words);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{words:?}");
        text(&output.stdout).to_owned()
    };
    let list = said(&["list"]);
    assert!(list.contains("simulated: ") && list.contains("runs the profile exactly"), "{list}");
    let listed: serde_json::Value = serde_json::from_str(&said(&["list", "--json"])).unwrap();
    let simulated = listed.as_array().unwrap().iter().find(|one| one["name"] == "simulated").unwrap();
    assert_eq!((&simulated["simulated"], &simulated["devices"][0]["exact"]), (&true.into(), &true.into()));
    let faults = said(&["faults"]);
    assert!(device::fault::FORMS.iter().all(|form| faults.contains(form.example)), "{faults}");
    let faults = said(&["faults", "--job", "job"]);
    assert!(
        tiny.plan.operations.iter().skip(1).all(|operation| faults.contains(&operation.name)),
        "{faults}"
    );
    let listed: serde_json::Value = serde_json::from_str(&said(&["faults", "--json"])).unwrap();
    assert_eq!(listed["faults"].as_array().unwrap().len(), device::fault::FORMS.len());
}

#[test]
fn a_device_whose_kernels_contract_is_listed_as_refused_and_runs_nothing() {
    let tiny = Tiny::new();
    let why = "it contracts a product and a sum: (a * b) ";
    let output = device(&tiny, &["list", "--contracted"]);
    let list = text(&output.stdout);
    assert!(list.contains(&format!("cannot run the profile exactly: {why}")), "{list}");
    let output = device(&tiny, &["list", "--contracted", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(text(&output.stdout)).unwrap();
    let opencl = listed.as_array().unwrap().iter().find(|one| one["name"] == "opencl").unwrap();
    assert_eq!(opencl["devices"][0]["exact"], false);
    assert!(opencl["devices"][0]["refused"].as_str().unwrap().starts_with(why), "{listed}");
    // With the backend named, and with the one that would be taken.
    let named = [&RUN[..RUN.len() - 1], &["opencl", "--contracted"]].concat();
    let taken = [&RUN[..RUN.len() - 2], &["--contracted"]].concat();
    let none = "expected a device that runs the profile exactly, found none: ";
    for (words, message) in [(named, format!("backend opencl: {none}{why}")), (taken, none.to_owned())] {
        assert_refused(&device(&tiny, &words), &message);
        assert!(!tiny.path("out").exists() && !tiny.path("keys").exists());
    }
}

#[test]
fn where_no_device_computes_exactly_a_run_is_a_rehearsal_and_says_why() {
    let tiny = Tiny::new();
    std::fs::write(tiny.path("challenge.note"), tiny::CHECKPOINT).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_device"));
    // A loader of OpenCL that finds nothing to load, and no driver of CUDA.
    command.current_dir(tiny.folder.path()).env("OCL_ICD_VENDORS", "/nonexistent").env("LD_LIBRARY_PATH", "");
    let output = command.args(&RUN[..RUN.len() - 2]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("2 devices, simulated"));
    let said = text(&output.stderr);
    assert!(said.starts_with("device: note: a rehearsal, by the oracle's own arithmetic"), "{said}");
    assert!(said.contains("\ndevice: note: opencl: no OpenCL: "), "{said}");
}

#[test]
fn help_and_version_are_results() {
    let tiny = Tiny::new();
    for words in [&["--help"][..], &["run", "--help"], &["list", "--help"], &["faults", "--help"]] {
        let output = device(&tiny, words);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
        assert!(text(&output.stdout).contains("Example"), "{words:?}");
    }
    assert!(text(&device(&tiny, &["--version"]).stdout).starts_with("device 0."));
}

#[test]
fn what_is_not_found_from_another_folder_has_a_hint() {
    let tiny = Tiny::new();
    for (command, backend, hint) in
        [("check", "simulated", "say with --fixtures"), ("bench", "opencl", "name a run.toml with --run")]
    {
        let output = device(&tiny, &[command, "--backend", backend]);
        assert_refused(&output, "No such file");
        let said = text(&output.stderr);
        let expected = "\ndevice: hint: run it in the project's folder, or ";
        assert!(said.contains(&format!("{expected}{hint}")), "{said}");
    }
}

#[test]
fn one_device_is_told_as_one() {
    let tiny = Tiny::new();
    let one = ["run", "--job", "job", "--devices", "1", "--backend", "simulated"];
    let output = device(&tiny, &[&one[..], &["--dry-run"]].concat());
    let said = text(&output.stdout);
    assert!(said.contains(" in this process)") && said.contains("; 1 device in"), "{said}");
    let output = device(
        &tiny,
        &[&one[..], &["--challenge", "challenge.note", "--keys", "keys", "--out", "o"]].concat(),
    );
    assert!(text(&output.stdout).contains("steps 0..4 on 1 device, simulated"), "{output:?}");
}
