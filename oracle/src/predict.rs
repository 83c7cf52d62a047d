//! `oracle predict`: steps to records, records to a sealed prediction.

mod compute;

use crate::cli::PredictArgs;
use crate::commit::{Committed, Log};
use crate::explain::bytes as bytes_text;
use crate::folder::Folder;
use anyhow::Context;
use client::folder::read_statement;
use client::keyfile::KeyFileError;
use client::output::{Hinted, message_of, result};
use client::{atomic, keyfile};
use schemas::attachment::AttachmentName;
use schemas::counted::counted;
use schemas::digest::{RunId, Salt, Seal};
use schemas::key::SecretKey;
use schemas::object::Object;
use schemas::plan::Plan;
use schemas::prediction::{Maker, OpenBody, Prediction, PredictionBody};
use schemas::record::{NonFinite, StepRecord};
use schemas::run::Steps;
use schemas::statement::{Payload, Statement};
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use step::dispatch::Backend;
use step::file::open_file;
use step::memory::{self, Needs};
use step::setup::Setup;
use step::snapshot;

/// A prediction on disk.
pub struct Predicted {
    /// The folder.
    pub out: PathBuf,
    /// The run.
    pub run: RunId,
    /// The signed run statement.
    pub run_entry: Vec<u8>,
    /// The signed prediction statement.
    pub prediction_entry: Vec<u8>,
    /// The encoded body.
    pub body: Vec<u8>,
    /// Mean loss of each step.
    pub losses: Vec<f32>,
    /// Where the run met a NaN or an infinity, in words.
    pub invalid: Option<String>,
    /// By when it has to be opened, in POSIX seconds; an earlier call's, if there was one.
    pub reveal_by: u64,
}

/// Computes, seals and writes a prediction. What an earlier, interrupted call left is used. What can be refused is
/// refused before anything is computed.
pub fn predict(
    mut setup: Setup,
    backend: Backend,
    args: &PredictArgs,
    log: Option<&Log>,
) -> anyhow::Result<Predicted> {
    let total = setup.config.steps;
    anyhow::ensure!(
        args.steps.end <= total,
        "--steps {}: the run has {} (key `steps`)",
        args.steps,
        counted(total, "step")
    );
    anyhow::ensure!(args.snapshot_every > 0, "--snapshot-every: expected at least 1, found 0");
    check_memory(&setup.plan)?;
    let reveal_by = reveal_by(args.reveal_days)?;
    let key = key(&args.key)?;
    let out = args.out.clone().unwrap_or_else(|| args.run.with_extension(""));
    let folder = Folder::create(&out)?;
    let earlier = check_folder(&setup, args, &folder, &key)?;
    folder.take()?;
    if let Some(log) = log {
        let own = earlier.as_ref().map(|earlier| &earlier.entry[..]);
        log.check_free(setup.run.id(), key.public(), args.steps, own)?;
    }
    let run_entry = write_job(&setup, &folder, &key)?;
    let records = compute::compute(&mut setup, args, backend, &folder)?;
    let invalid = records.last().and_then(|record| record.non_finite).map(|at| describe(&setup.plan, at));
    let losses = records.iter().map(|record| mean_loss(&setup, record)).collect();
    let body = PredictionBody { run: setup.run.id(), first: args.steps.first, records };
    let bytes = body.encode();
    let salt = salt(&folder)?;
    let reveal_by = earlier.as_ref().map_or(reveal_by, |earlier| earlier.reveal_by);
    let prediction_entry = match earlier {
        Some(earlier) => {
            let path = folder.prediction("prediction.cose");
            anyhow::ensure!(
                earlier.seal == body.seal(salt),
                "{} seals other records than those in its folder; choose another --out",
                path.display()
            );
            put(&folder.prediction("body.cbor"), &bytes)?;
            earlier.entry
        }
        None => {
            let prediction = Prediction {
                run: body.run,
                steps: args.steps,
                seal: body.seal(salt),
                reveal_by,
                by: Some(Maker {
                    program: concat!("oracle ", env!("CARGO_PKG_VERSION")).into(),
                    backend: backend.name().into(),
                }),
                open: args.open.then(|| OpenBody { salt, body: AttachmentName::of(&bytes) }),
            };
            let entry = Statement::sign(&Payload::Prediction(prediction), &key)?;
            atomic::write(&folder.prediction("body.cbor"), &bytes, atomic::PUBLIC)?;
            atomic::write(&folder.prediction("prediction.cose"), &entry, atomic::PUBLIC)?;
            entry
        }
    };
    let run = setup.run.id();
    Ok(Predicted { out, run, run_entry, prediction_entry, body: bytes, losses, invalid, reveal_by })
}

/// Refuses a run that does not fit, before anything is written. State and data are there already.
fn check_memory(plan: &Plan) -> anyhow::Result<()> {
    let needs = Needs::of(plan, rayon::current_num_threads() as u64);
    let (needed, available) = (needs.total() - needs.state - needs.data, memory::available());
    let message = format!(
        "expected {} of memory beside state and data, found {} free",
        bytes_text(needed),
        bytes_text(available)
    );
    let hint = "fewer sequences in a leaf and more leaves need less, and fewer threads; `oracle plan` tells how much";
    anyhow::ensure!(needed <= available, Hinted::new(message, hint));
    Ok(())
}

/// What an earlier call sealed in the same folder.
struct Earlier {
    entry: Vec<u8>,
    seal: Seal,
    reveal_by: u64,
}

/// The deadline that stands in the entry, POSIX seconds.
fn reveal_by(days: u64) -> anyhow::Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?.as_secs();
    let deadline = days.checked_mul(86_400).and_then(|seconds| now.checked_add(seconds));
    deadline.filter(|seconds| *seconds <= i64::MAX as u64).context("--reveal-days: too many days")
}

/// The predictor's key, made if it is not there.
fn key(path: &Path) -> anyhow::Result<SecretKey> {
    let public = keyfile::public_path(path);
    if !keyfile::is_there(path) {
        match keyfile::create(path) {
            Ok(key) => {
                let (path, public) = (path.display(), public.display());
                eprintln!("oracle: note: made a new key {path} (its public half: {public})");
                return Ok(key);
            }
            // Another call has just made it.
            Err(KeyFileError::Write(error))
                if error.path == path && error.source.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
    let key = keyfile::load(path)?;
    // A call that was ended between the two left the secret half alone.
    if !keyfile::is_there(&public) {
        keyfile::write_public(path, &key)?;
    }
    Ok(key)
}

/// Refuses a folder that holds another run, or another prediction, or either by another key. Returns the prediction
/// statement that is there.
fn check_folder(
    setup: &Setup,
    args: &PredictArgs,
    folder: &Folder,
    key: &SecretKey,
) -> anyhow::Result<Option<Earlier>> {
    let other = |path: &Path, what: String| {
        Hinted::new(format!("{} holds {what}", path.display()), "choose another --out, or remove that folder")
    };
    let unreadable = |path: &Path, error: anyhow::Error| {
        let message = message_of(&error);
        Hinted::new(message, format!("choose another --out, or move {} away", path.display()))
    };
    let path = folder.prediction("run.cose");
    if keyfile::is_there(&path) {
        let (_, found) = read_statement(&path).map_err(|error| unreadable(&path, error))?;
        let (run, expected) = (found.payload.run(), setup.run.id());
        anyhow::ensure!(run == expected, other(&path, format!("run {run}, this one is {expected}")));
        let signer = found.signer;
        let what = format!("this run signed by {signer}, --key is {}", key.public());
        anyhow::ensure!(signer == key.public(), other(&path, what));
    }
    let path = folder.prediction("prediction.cose");
    if !keyfile::is_there(&path) {
        return Ok(None);
    }
    let (entry, found) = read_statement(&path).map_err(|error| unreadable(&path, error))?;
    let Payload::Prediction(earlier) = &found.payload else {
        anyhow::bail!(other(&path, format!("a {} statement", found.payload.stem())));
    };
    let (run, expected) = (earlier.run, setup.run.id());
    anyhow::ensure!(
        run == expected,
        other(&path, format!("a prediction of run {run}, this one is {expected}"))
    );
    let kind = |open: bool| if open { "an open" } else { "a sealed" };
    let told = |steps: Steps, open: bool| format!("{} prediction of steps {steps}", kind(open));
    let (was, is) = (told(earlier.steps, earlier.open.is_some()), told(args.steps, args.open));
    anyhow::ensure!(
        was == is && found.signer == key.public(),
        other(&path, format!("{was} by {}, asked for is {is} by {}", found.signer, key.public()))
    );
    // A new salt would not open it.
    let salt = folder.prediction("salt");
    anyhow::ensure!(
        keyfile::is_there(&salt),
        Hinted::new(
            format!("{} is sealed, and its salt is missing: expected {}", path.display(), salt.display()),
            "put the salt back, or predict again with another --out"
        )
    );
    Ok(Some(Earlier { entry, seal: earlier.seal, reveal_by: earlier.reveal_by }))
}

/// Writes what the operator of the devices needs, and the same run and plan beside the prediction.
fn write_job(setup: &Setup, folder: &Folder, key: &SecretKey) -> anyhow::Result<Vec<u8>> {
    let run_entry = Statement::sign(&Payload::Run(setup.run.clone()), key)?;
    // First, so that from now on the folder is this run's.
    put(&folder.prediction("run.cose"), &run_entry)?;
    let plan = setup.plan.encode();
    put(&folder.prediction("plan.cbor"), &plan)?;
    put(&folder.job("plan.cbor"), &plan)?;
    let initial = folder.job("initial.safetensors");
    if !snapshot::holds(&initial, &setup.plan.parameters, &setup.state) {
        snapshot::write(&initial, &setup.plan.parameters, &setup.state)?;
    }
    let tokens: Vec<u8> = setup.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    put(&folder.job("tokens.bin"), &tokens)?;
    // Last: where it is, the job is whole.
    put(&folder.job("run.cose"), &run_entry)?;
    Ok(run_entry)
}

/// Writes a file unless it is there with the same content: what was lost or damaged since an earlier call comes back.
fn put(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    match holds(path, bytes) {
        Ok(true) => Ok(()),
        _ => Ok(atomic::write(path, bytes, atomic::PUBLIC)?),
    }
}

/// Whether a file's content is `bytes`; it is not held in memory a second time.
fn holds(path: &Path, bytes: &[u8]) -> std::io::Result<bool> {
    let mut file = open_file(path)?;
    if file.metadata()?.len() != bytes.len() as u64 {
        return Ok(false);
    }
    let mut found = vec![0; bytes.len().min(1 << 20)];
    for part in bytes.chunks(1 << 20) {
        file.read_exact(&mut found[..part.len()])?;
        if found[..part.len()] != *part {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The salt of a folder: it stays the same, so that a repeated call gives the same entry.
fn salt(folder: &Folder) -> anyhow::Result<Salt> {
    let path = folder.prediction("salt");
    if let Ok(text) = open_file(&path).and_then(std::io::read_to_string) {
        return text.trim_end().parse().with_context(|| format!("{} is damaged", path.display()));
    }
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("the operating system gave no random bytes")?;
    atomic::write_new(&path, format!("{}\n", Salt(bytes)).as_bytes(), atomic::SECRET)?;
    Ok(Salt(bytes))
}

fn mean_loss(setup: &Setup, record: &StepRecord) -> f32 {
    let sum: f32 = record.losses.iter().map(|bits| f32::from_bits(*bits)).sum();
    sum / setup.config.leaves as f32
}

/// Where a step stopped being finite, in words.
pub fn describe(plan: &Plan, at: NonFinite) -> String {
    match at {
        NonFinite::Tap { leaf, tap } => {
            let tap = plan.taps().nth(tap as usize).expect("predict: the tap is one of the plan's");
            let tensor = plan.operand_name(tap.operand);
            format!("{tensor} of {} in leaf {leaf} is not finite", plan.operations[tap.operation].name)
        }
        NonFinite::Update { stage: 0 } => "the reduced gradient is not finite".into(),
        NonFinite::Update { stage: 1 } => "the gradient's norm is not finite".into(),
        NonFinite::Update { .. } => "the new parameters or moments are not finite".into(),
    }
}

/// Prints what was predicted, for people or as JSON, and what to do next.
pub fn report(predicted: &Predicted, logged: Option<&Committed>, args: &PredictArgs) {
    let out = predicted.out.display();
    if args.json {
        let object = serde_json::json!({
            "run_id": predicted.run.to_string(), "out": out.to_string(),
            "steps": [args.steps.first, args.steps.end], "losses": predicted.losses, "invalid": predicted.invalid,
            "body_bytes": predicted.body.len(), "peak_memory_bytes": memory::peak(),
            "run_index": logged.map(|logged| logged.run_index),
            "prediction_index": logged.map(|logged| logged.prediction_index),
            "reveal_by_unix_s": predicted.reveal_by,
        });
        return result(&format!("{object}\n"));
    }
    let mut text = format!("run          {}\n", predicted.run);
    for (step, loss) in (args.steps.first..).zip(&predicted.losses).take(8) {
        text.push_str(&format!("step {step:<7} loss {loss:.4}\n"));
    }
    if predicted.losses.len() > 8 {
        let last = args.steps.first + predicted.losses.len() as u64 - 1;
        let loss = predicted.losses[predicted.losses.len() - 1];
        text.push_str(&format!("...\nstep {last:<7} loss {loss:.4}\n"));
    }
    if let Some(invalid) = &predicted.invalid {
        text.push_str(&format!("invalid      {invalid}; the prediction ends there\n"));
    }
    text.push_str(&format!("sealed       {} bytes of records in {out}/prediction\n", predicted.body.len()));
    text.push_str(&format!("job          {out}/job (give this to the operator)\n"));
    if !args.open {
        let by = schemas::time::utc(predicted.reveal_by);
        text.push_str(&format!("deadline     {by}: not opened by then, it counts as a failure\n"));
    }
    if let Some(logged) = logged {
        let (run, prediction) = (logged.run_index, logged.prediction_index);
        text.push_str(&format!("committed    run as entry {run}, prediction as entry {prediction}\n"));
    }
    result(&text);
    match (logged, &args.ledger) {
        (Some(_), Some(ledger)) => {
            let key = args.log_key.as_ref().map(|key| format!(" --log-key {key}")).unwrap_or_default();
            eprintln!(
                "oracle: hint: next: client challenge --ledger {ledger}{key} --prediction {out}/prediction --out \
                 {out}/job/challenge.note"
            );
            eprintln!(
                "oracle: hint: then: device run --job {out}/job --challenge {out}/job/challenge.note --devices 1 \
                 --steps {} --keys keys --out {out}/receipts --traces",
                args.steps
            );
        }
        _ => {
            eprintln!("oracle: hint: nothing is proven before it is in a log: the same command with --commit")
        }
    }
}
