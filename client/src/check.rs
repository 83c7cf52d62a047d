//! `client verify`: a bundle or an opened step, checked offline.

use crate::cli::VerifyArgs;
use crate::folder::read_file;
use crate::keyfile;
use crate::output::{self, Hinted};
use crate::stored::StoredFile;
use schemas::key::PublicKey;
use schemas::object::Object as _;
use schemas::opened::OpenedStep;
use schemas::source::{Source as _, SourceError};
use std::path::Path;
use verify::policy::Policy;
use verify::report::{Check, Report, State};

/// Runs the command; its status is the report's class.
pub fn run(args: &VerifyArgs) -> anyhow::Result<u8> {
    let policy = policy(args)?;
    let file = StoredFile::open(&args.file)?;
    if let Some(bytes) = opened_step(&file).map_err(|error| file.unread(&error))? {
        return Ok(opened(&bytes, &policy, args.json));
    }
    let report = verify::bundle::check_stored(&file, &policy).map_err(|error| file.unread(&error))?;
    file.check_unchanged()?;
    if args.json {
        output::result(&format!("{}\n", verify::json::report(&report)));
    } else {
        output::result(&output::printable(&report.to_string()));
    }
    if let Some(hint) = hint_of(&report, &file) {
        output::hint(hint);
    }
    Ok(report.class as u8)
}

/// The bytes of a file that begins as an opened step does: of one that is too long, as many as tell so.
fn opened_step(file: &StoredFile) -> Result<Option<Vec<u8>>, SourceError> {
    let longest = file.bytes().min(OpenedStep::BYTES_MAX as u64 + 1);
    let mut head = vec![0; longest.min(8) as usize];
    file.read_at(0, &mut head)?;
    if !verify::opened::begins(&head) {
        return Ok(None);
    }
    let mut bytes = vec![0; longest as usize];
    file.read_at(0, &mut bytes)?;
    Ok(Some(bytes))
}

/// The same for an opened step.
fn opened(bytes: &[u8], policy: &Policy, json: bool) -> u8 {
    let report = verify::opened::check(bytes, policy);
    if json {
        output::result(&format!("{}\n", verify::json::opened(&report)));
    } else {
        output::result(&output::printable(&report.to_string()));
    }
    match report.failure() {
        Some(Check { number: 1, .. }) => {
            output::hint("cut short? `client open --prediction DIR --step N` writes opened steps")
        }
        Some(Check { number: 4, .. }) => output::hint("another predictor's key, or another's step"),
        _ => {}
    }
    report.class as u8
}

fn policy(args: &VerifyArgs) -> anyhow::Result<Policy> {
    if let Some(path) = &args.policy {
        return policy_file(path);
    }
    let keys = |texts: &[String]| -> anyhow::Result<Vec<PublicKey>> {
        texts.iter().map(|text| Ok(keyfile::public_key(text)?)).collect()
    };
    let log = keyfile::log_key(args.log_key.as_deref().unwrap_or_default())?;
    let (devices, signers) = (keys(&args.device_key)?, keys(&args.verdict_key)?);
    Ok(Policy::new(log, keys(&args.predictor_key)?, devices, signers)?)
}

/// Reads a policy file.
pub fn policy_file(path: &Path) -> anyhow::Result<Policy> {
    let bytes = read_file(path, tlog::policy::POLICY_BYTES_MAX as u64)?;
    verify::policy_file::parse(&bytes).map_err(|error| {
        let hint = "a policy has lines such as `log VKEY`, `quorum none`, `predictor KEY`; docs/spec/bundle.md \
                    lists all";
        Hinted::new(format!("{}: {error}", path.display()), hint).into()
    })
}

/// What may be behind a failed check.
fn hint_of(report: &Report, file: &StoredFile) -> Option<&'static str> {
    let Check { number, state: State::Fails(why), .. } = report.failure()? else { return None };
    match number {
        1 => Some(file.advice()),
        2 if why.contains("no quorum") => Some(
            "a later bundle of the same run may have more cosignatures: `client reconcile` again writes one",
        ),
        4 if why.contains("the receipt is signed by") => Some("another device's key, or another's bundle"),
        4 if why.contains("the verdict is signed by") => {
            Some("--verdict-key names who signed the verdict, if it was not the predictor")
        }
        4 if why.contains("is signed by") => Some("another predictor's key, or another's bundle"),
        _ => None,
    }
}
