//! Flags and help.

use clap::{Args, Parser, Subcommand};
use schemas::run::{STEPS_MAX, Steps};
use std::path::PathBuf;

/// What stands under the flags of `device run --help`.
const RUN_HELP: &str = "\
A job is a folder with run.cose, plan.cbor, initial.safetensors and tokens.bin. The challenge is the exact bytes of a
log checkpoint that covers the prediction (`client challenge` writes it).

What is finished is kept in OUT/work. Ended in any way, the same command goes on from there, to the same bits. Receipts
appear at the end, each of them whole; OUT/log.jsonl and OUT/loss.svg show the run while it goes.

One process runs all devices, or each runs one of them (--rank, --peers), on one machine or on several. Links between
processes are not encrypted: whoever can reach an address can disturb a run, though never unseen.

Examples:
  device run --job job --challenge challenge.note --devices 2 --keys keys --out receipts --traces
  device run --job job --challenge challenge.note --devices 2 --keys keys --out faulty \\
    --fault corrupted-link:device=0,step=3,element=1000,bit=22
  device run --job job --challenge challenge.note --devices 2 --keys keys --out receipts \\
    --rank 0 --peers 127.0.0.1:7101,127.0.0.1:7102
  device run --job job --devices 2 --dry-run";

/// Runs a training job on devices and signs a receipt for each.
#[derive(Debug, Parser)]
#[command(
    name = "device",
    version,
    about = "Run a training job on devices and sign a receipt for each",
    after_help = "Example:\n  device run --job job --challenge challenge.note --devices 2 --keys keys --out receipts"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a job and write one receipt per device
    #[command(after_help = RUN_HELP)]
    Run(Box<Run>),
    /// Show the backends of this build, their devices, and which of these can run the profile exactly
    #[command(after_help = "Example:\n  device list --json")]
    List(Listing),
    /// Compare a device with worked examples and recorded steps, bit for bit
    #[command(
        after_help = "Exit status: 0 equal, 1 not, 2 not checked.\n\nExample:\n  device check --backend opencl"
    )]
    Check(crate::check::Flags),
    /// Time a device: kinds of operations, whole steps, checksums and folds, and what recording costs
    #[command(after_help = "Example:\n  device bench --backend cuda --json")]
    Bench(crate::bench::Flags),
    /// Explain every fault that can be rehearsed
    #[command(after_help = "With --job, the operations whose results a fault can change are listed too.\n\n\
Examples:\n  device faults\n  device faults --job job")]
    Faults(FaultListing),
}

/// Flags of `device run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The job's folder
    #[arg(long, value_name = "DIR")]
    pub job: PathBuf,
    /// A log checkpoint note that the receipts answer
    #[arg(long, value_name = "FILE", required_unless_present = "dry_run")]
    pub challenge: Option<PathBuf>,
    /// How many devices share each step: a power of two
    #[arg(long, value_name = "W")]
    pub devices: u64,
    /// Steps to write records of, end excluded; those before are run too [default: all]
    #[arg(long, value_name = "A..B", value_parser = read_steps)]
    pub steps: Option<Steps>,
    /// Folder of the devices' keys; device-<rank>.key is made when absent
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    pub keys: Option<PathBuf>,
    /// Folder for the receipts: new or empty, or of the same run, interrupted
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    pub out: Option<PathBuf>,
    /// Keep the traces, by which a reconciliation names operations; without them it names leaves
    #[arg(long)]
    pub traces: bool,
    /// Keep the traces of the last N steps only, in bounded space
    #[arg(long, value_name = "N", conflicts_with = "traces", value_parser = clap::value_parser!(u64).range(1..))]
    pub keep_traces: Option<u64>,
    /// Write a snapshot to go on from every N steps, 0 for none [default: 20 in a run, at least one in 100 steps]
    #[arg(long, value_name = "N")]
    pub snapshot_every: Option<u64>,
    /// Run this one of the devices; the others are other processes
    #[arg(long, value_name = "R", requires = "peers")]
    pub rank: Option<u64>,
    /// Where the devices are, by rank; each listens at its own address
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', requires = "rank")]
    pub peers: Option<Vec<String>>,
    /// Listen here instead of at the device's own address in --peers
    #[arg(long, value_name = "HOST:PORT", requires = "rank")]
    pub listen: Option<String>,
    /// Write the receipt of a device that has finished all steps, though the others cannot be met again
    #[arg(long, requires = "rank")]
    pub hand_in: bool,
    /// How long to wait for another device, at the start and in each step
    #[arg(long, value_name = "SECONDS", default_value_t = 600, requires = "rank",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub peer_timeout: u64,
    /// Do something wrong on purpose, NAME:KEY=VALUE,...; may be repeated (see `device faults`)
    #[arg(long = "fault", value_name = "SPEC")]
    pub faults: Vec<String>,
    /// What runs the arithmetic (see `device list`) [default: the first with a device that runs the profile exactly]
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// Build kernels that contract products and sums, to see the device refused
    #[arg(long, hide = true)]
    pub contracted: bool,
    /// Let the simulated device of a rank compute one operation in a wrong configuration, RANK:OPERATION:VARIANT, to
    /// see it named
    #[arg(long, hide = true, value_name = "SPEC")]
    pub misconfigured: Option<String>,
    /// Check the job and say what memory, disk and time the run would need; nothing is written
    #[arg(long)]
    pub dry_run: bool,
    /// Write the summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `device list`.
#[derive(Debug, Args)]
pub struct Listing {
    /// Build kernels that contract products and sums, to see every device refused
    #[arg(long, hide = true)]
    pub contracted: bool,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `device faults`.
#[derive(Debug, Args)]
pub struct FaultListing {
    /// List this job's operations too
    #[arg(long, value_name = "DIR")]
    pub job: Option<PathBuf>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

fn read_steps(text: &str) -> Result<Steps, String> {
    let number = |text: &str| text.parse::<u64>().ok().filter(|&number| number <= STEPS_MAX);
    match text.split_once("..").map(|(first, end)| (number(first), number(end))) {
        Some((Some(first), Some(end))) if first < end => Ok(Steps { first, end }),
        _ => Err("expected two step numbers A..B with A below B, such as 0..20".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn flags_are_consistent_and_every_help_has_an_example() {
        let mut command = Cli::command();
        command.clone().debug_assert();
        let mut helps = vec![command.render_long_help().to_string()];
        // clap's own `help` only repeats the others.
        let commands = command.get_subcommands_mut().filter(|sub| sub.get_name() != "help");
        helps.extend(commands.map(|sub| sub.render_long_help().to_string()));
        assert_eq!(helps.len(), 6);
        assert!(helps.iter().all(|help| help.contains("Example") && help.contains("  device ")), "{helps:?}");
    }

    #[test]
    fn steps_are_two_numbers_in_order() {
        assert_eq!(read_steps("3..7"), Ok(Steps { first: 3, end: 7 }));
        for bad in ["", "3", "3..", "..3", "3..3", "4..3", "-1..3", "0..4294967297", "0..1..2", " 0..1"] {
            assert!(read_steps(bad).is_err(), "{bad:?}");
        }
    }
}
