//! The command line.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Submits to a log, compares predictions with receipts, and checks the result offline.
#[derive(Debug, Parser)]
#[command(
    name = "client",
    version,
    about,
    subcommand_required = true,
    after_help = "\
Example:
  client keygen predictor.key
  client challenge --ledger http://127.0.0.1:7180 --log-key log/log.pub --prediction out/prediction \\
    --out challenge.note
  client reconcile --ledger http://127.0.0.1:7180 --log-key log/log.pub --prediction out/prediction \\
    --receipts receipts --key predictor.key --replay run.toml --out run.tally
  client verify run.tally --log-key log/log.pub --predictor-key predictor.pub"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a key: NAME.key (secret, mode 0600) and NAME.pub
    #[command(after_help = "Example:\n  client keygen predictor.key")]
    Keygen(KeygenArgs),
    /// Submit a signed statement and print its place in the log
    #[command(
        after_help = "Example:\n  client submit run.cose --ledger http://127.0.0.1:7180 --log-key log/log.pub"
    )]
    Submit(SubmitArgs),
    /// Wait until the log covers a prediction, and write the checkpoint that receipts have to answer
    #[command(
        after_help = "Example:\n  client challenge --ledger http://127.0.0.1:7180 --log-key log/log.pub \\\n    \
                            --prediction out/prediction --out challenge.note"
    )]
    Challenge(ChallengeArgs),
    /// Log the receipts, open the prediction, compare both, log the verdict, and write the bundle
    #[command(after_help = "\
Opening a prediction cannot be taken back, and receipts logged after it are not judged: run this when all
receipts are at hand. If something is missing, nothing is opened (unless --accept-incomplete is given). Running
it again is safe.

Exit status: 0 they agree, 1 they do not (diverge, invalid or incomplete), 2 could not be compared, or not without
what is missing.

Example:
  client reconcile --ledger http://127.0.0.1:7180 --log-key log/log.pub --prediction out/prediction \\
    --receipts receipts --key predictor.key --replay run.toml --out run.tally")]
    Reconcile(ReconcileArgs),
    /// Open a sealed prediction without a verdict; or write one step of it as a file while the others stay sealed
    #[command(after_help = "\
Opening a prediction cannot be taken back, and receipts logged after it are not judged: if the log lacks a device's
receipt, nothing is opened unless --without-receipts is given. Doing it again changes nothing. `client reconcile`
opens too, and still compares what was logged before.

With --step nothing is signed and nothing goes into the log. The file shows that step alone, proves that it was sealed
(docs/spec/opened.md), and is checked offline by `client verify`. Whoever has it can copy the step into a receipt.

Exit status: 0 done (or open already), 2 could not be opened, or not without what is missing.

Example:
  client open --prediction out/prediction --ledger http://127.0.0.1:7180 --log-key log/log.pub --key predictor.key
  client open --prediction out/prediction --ledger http://127.0.0.1:7180 --log-key log/log.pub \\
    --step 1 --out step-1.opened")]
    Open(OpenArgs),
    /// Name the first wrong operation of a leaf, its wrong word and the cause, from a device's trace and a prediction
    #[command(after_help = "\
Needs no log, and writes nothing. Without kept predicted traces --replay is needed: the leaf is computed again. With
it, the operation is also computed under every known configuration (docs/spec/variants.md).

Exit status: 0 the trace is as predicted, 1 it is not, 2 could not be compared.

Example:
  client pinpoint receipts/traces/rank-1/step-000003-leaf-0005.cbor --prediction out/prediction \\
    --receipt receipts/receipt-1.cose --replay run.toml")]
    Pinpoint(PinpointArgs),
    /// Check a bundle, or an opened step, offline
    #[command(after_help = "\
Exit status: 0 genuine and agreeing, 1 checked and not so, 2 could not be checked. An opened step agrees if it is the
one sealed.

Example:
  client verify run.tally --log-key log/log.pub --predictor-key predictor.pub
  client verify step-1.opened --log-key log/log.pub --predictor-key predictor.pub
  client verify run.tally --policy policy.txt")]
    Verify(VerifyArgs),
    /// Explain a bundle's argument part by part, or write its proofs as files; nothing in it is checked
    #[command(after_help = "\
With --ledger the log is asked for a COSE receipt (RFC 9942) of each entry; each is checked against the log's key, the
entry and the bundle's checkpoint, and written beside the entry, also as a transparent statement (RFC 9943).

Example:
  client bundle run.tally --explain
  client bundle run.tally --export proofs
  client bundle run.tally --export proofs --ledger http://127.0.0.1:7180 --log-key log/log.pub")]
    Bundle(BundleArgs),
    /// Print what a bundle says, without checking any of it
    #[command(after_help = "Example:\n  client show run.tally")]
    Show(ShowArgs),
    /// Fetch what a log holds of a run, or check such a file offline
    #[command(after_help = "\
With --ledger the argument is a run id: the log's newest register of that run and its lists are fetched, checked and
written to --out. Without it the argument is such a file.

Exit status: 0 complete, 1 checked and not so, 2 could not be checked.

Example:
  client completeness 7f0a...c3 --ledger http://127.0.0.1:7180 --log-key log/log.pub --out run.completeness
  client completeness run.completeness --log-key log/log.pub --predictor-key predictor.pub")]
    Completeness(CompletenessArgs),
    /// How a run stands in a log: sealed, opened or unopened past its deadline; receipts, verdicts, and what comes next
    #[command(after_help = "\
The argument is a run id, or a prediction's folder: then only that predictor's predictions count. Each entry is opened
and proven to be in the log, and an opening's body is held against the seal. That none is left out rests on the log's
list, and on its newest register where there is one. Whether a deadline has passed is by this machine's clock, or --at.

Exit status: 0 nothing is overdue, 1 a prediction is unopened past its deadline, or its opening opens nothing, or a
key predicted a step twice, 2 could not be checked.

Example:
  client status 7f0a...c3 --ledger http://127.0.0.1:7180 --log-key log/log.pub
  client status out/prediction --ledger http://127.0.0.1:7180 --log-key log/log.pub")]
    Status(StatusArgs),
    /// Follow a log, hash everything in it, and tell what is wrong with it
    #[command(after_help = "\
Each finding is printed once and kept in the state's findings.jsonl. Without --state nothing is remembered, and a log
that rewrites what was read before is not noticed.

Exit status: 0 nothing was ever found, 1 something was, 2 the log could not be checked.

Example:
  client monitor --ledger http://127.0.0.1:7180 --log-key log/log.pub --state monitor --once")]
    Monitor(MonitorArgs),
}

/// Arguments of `client keygen`.
#[derive(Debug, Args)]
pub struct KeygenArgs {
    /// Where the secret key goes; the public key goes beside it, and neither is overwritten
    pub file: PathBuf,
}

/// Arguments of `client submit`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// A signed statement
    pub file: PathBuf,
    /// Address of the log server
    #[arg(long, value_name = "URL")]
    pub ledger: String,
    /// The log's vkey, or a file that holds it
    #[arg(long, value_name = "VKEY|FILE")]
    pub log_key: Option<String>,
}

/// Arguments of `client challenge`.
#[derive(Debug, Args)]
pub struct ChallengeArgs {
    /// Address of the log server
    #[arg(long, value_name = "URL")]
    pub ledger: String,
    /// The log's vkey, or a file that holds it; without it the server's own is taken
    #[arg(long, value_name = "VKEY|FILE")]
    pub log_key: Option<String>,
    /// The prediction's folder
    #[arg(long, value_name = "DIR")]
    pub prediction: PathBuf,
    /// Where the checkpoint goes
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Arguments of `client reconcile`.
#[derive(Debug, Args)]
pub struct ReconcileArgs {
    /// Address of the log server
    #[arg(long, value_name = "URL")]
    pub ledger: String,
    /// The log's vkey, or a file that holds it
    #[arg(long, value_name = "VKEY|FILE")]
    pub log_key: String,
    /// The prediction's folder
    #[arg(long, value_name = "DIR")]
    pub prediction: PathBuf,
    /// Folders with receipt-RANK.cose and receipt-RANK.body.cbor
    #[arg(long, value_name = "DIR", required = true, num_args = 1..)]
    pub receipts: Vec<PathBuf>,
    /// The predictor's secret key
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Compute the challenge's step again from this run.toml and hold the answers against it
    #[arg(long, value_name = "RUN.TOML", conflicts_with = "no_replay")]
    pub replay: Option<PathBuf>,
    /// Do not hold the answers against a replay (the default; the verdict says so)
    #[arg(long)]
    pub no_replay: bool,
    /// Open a sealed prediction even if something is missing, and log the verdict incomplete
    #[arg(long)]
    pub accept_incomplete: bool,
    /// Where the bundle goes
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// A policy file, for what its witnesses prove of times; without it no time is told
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Print the verdict as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `client open`.
#[derive(Debug, Args)]
pub struct OpenArgs {
    /// The prediction's folder
    #[arg(long, value_name = "DIR")]
    pub prediction: PathBuf,
    /// Address of the log server
    #[arg(long, value_name = "URL")]
    pub ledger: String,
    /// The log's vkey, or a file that holds it
    #[arg(long, value_name = "VKEY|FILE")]
    pub log_key: String,
    /// The predictor's secret key
    #[arg(long, value_name = "FILE", required_unless_present = "step", conflicts_with = "step")]
    pub key: Option<PathBuf>,
    /// Open it although the log lacks receipts, which are then never judged
    #[arg(long, conflicts_with = "step")]
    pub without_receipts: bool,
    /// Show this step alone
    #[arg(long, value_name = "N", requires = "out")]
    pub step: Option<u64>,
    /// Where the opened step goes
    #[arg(long, value_name = "FILE", requires = "step")]
    pub out: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `client pinpoint`.
#[derive(Debug, Args)]
pub struct PinpointArgs {
    /// A device's trace of a leaf
    pub trace: PathBuf,
    /// The prediction's folder
    #[arg(long, value_name = "DIR")]
    pub prediction: PathBuf,
    /// The device's receipt, in which the trace's root has to stand; its body is looked for beside it
    #[arg(long, value_name = "FILE")]
    pub receipt: Option<PathBuf>,
    /// Compute the leaf again from this run.toml
    #[arg(long, value_name = "RUN.TOML")]
    pub replay: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `client verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// A bundle, or an opened step
    pub file: PathBuf,
    /// A file that says whom to trust and what to ask for (docs/spec/bundle.md); in place of the keys below
    #[arg(long, value_name = "FILE", conflicts_with_all = ["log_key", "predictor_key", "device_key", "verdict_key"])]
    pub policy: Option<PathBuf>,
    /// The log's vkey, or a file that holds it
    #[arg(long, value_name = "VKEY|FILE", required_unless_present = "policy")]
    pub log_key: Option<String>,
    /// A predictor's public key, or a file that holds it
    #[arg(long, value_name = "KEY|FILE", required_unless_present = "policy")]
    pub predictor_key: Vec<String>,
    /// A device's public key, or a file that holds it; without any, every key is taken, and the report says so
    #[arg(long, value_name = "KEY|FILE")]
    pub device_key: Vec<String>,
    /// The public key of whoever signed the verdict, if it was not the predictor
    #[arg(long, value_name = "KEY|FILE")]
    pub verdict_key: Vec<String>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `client bundle`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub struct BundleArgs {
    /// A bundle
    pub file: PathBuf,
    /// Print what each part is and what it proves
    #[arg(long, group = "what")]
    pub explain: bool,
    /// Write each entry and its proof as files into this folder, which must not be there
    #[arg(long, value_name = "DIR", group = "what")]
    pub export: Option<PathBuf>,
    /// Address of the log server, which is asked for COSE receipts
    #[arg(long, value_name = "URL", requires = "export", requires = "log_key")]
    pub ledger: Option<String>,
    /// The log's vkey, or a file that holds it
    #[arg(long, value_name = "VKEY|FILE", requires = "ledger")]
    pub log_key: Option<String>,
}

/// Arguments of `client show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A bundle
    pub file: PathBuf,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `client completeness`.
#[derive(Debug, Args)]
pub struct CompletenessArgs {
    /// A run id with --ledger, otherwise a completeness file
    #[arg(value_name = "RUN|FILE")]
    pub subject: String,
    /// Address of the log server
    #[arg(long, value_name = "URL", requires = "out")]
    pub ledger: Option<String>,
    /// The log's vkey, or a file that holds it
    #[arg(long, value_name = "VKEY|FILE")]
    pub log_key: String,
    /// Where the file goes
    #[arg(long, value_name = "FILE", requires = "ledger")]
    pub out: Option<PathBuf>,
    /// Ask for the list of all entries too, not of predictions alone
    #[arg(long, requires = "ledger")]
    pub entries: bool,
    /// A public key, or a file that holds it: its predictions must be there and are listed
    #[arg(long, value_name = "KEY|FILE")]
    pub predictor_key: Vec<String>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `client status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// A run id, or a prediction's folder
    #[arg(value_name = "RUN|DIR")]
    pub subject: String,
    /// Address of the log server
    #[arg(long, value_name = "URL")]
    pub ledger: String,
    /// The log's vkey, or a file that holds it
    #[arg(long, value_name = "VKEY|FILE")]
    pub log_key: String,
    /// A public key, or a file that holds it: only its predictions count; without any, everybody's
    #[arg(long, value_name = "KEY|FILE")]
    pub predictor_key: Vec<String>,
    /// The time by which deadlines are judged, in POSIX seconds, in place of this machine's clock
    #[arg(long, value_name = "SECONDS")]
    pub at: Option<u64>,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `client monitor`.
#[derive(Debug, Args)]
pub struct MonitorArgs {
    /// Address of the log server, or of a copy of its tiles
    #[arg(long, value_name = "URL")]
    pub ledger: String,
    /// The log's vkey, or a file that holds it
    #[arg(long, value_name = "VKEY|FILE")]
    pub log_key: String,
    /// What is remembered between looks; made if it is not there
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Look once and end
    #[arg(long, conflicts_with = "interval")]
    pub once: bool,
    /// Seconds between looks
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub interval: u64,
    /// Print findings as JSON lines
    #[arg(long)]
    pub json: bool,
}
