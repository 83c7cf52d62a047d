//! `oracle weights`: the parameters of a snapshot, as a file for Hugging Face's libraries.

use crate::cli::WeightsArgs;
use client::folder::read_file;
use client::keyfile;
use client::output::{Hinted, result};
use step::{setup, snapshot, weights};

/// Longest text that stands beside a snapshot.
const NOTE_BYTES_MAX: u64 = 1024;

/// Runs the command.
pub fn write(args: &WeightsArgs) -> anyhow::Result<()> {
    let layout = setup::parameters(&args.run)?;
    anyhow::ensure!(
        !keyfile::is_there(&args.out),
        Hinted::new(
            format!("{} is there already", args.out.display()),
            "choose another --out, or move that file away"
        )
    );
    let state = snapshot::read(&args.snapshot, &layout)?;
    // A snapshot that `oracle predict` saved has its digest beside it, and the run.
    let noted = args.snapshot.with_extension("digest");
    if keyfile::is_there(&noted) {
        let text = read_file(&noted, NOTE_BYTES_MAX)?;
        let text = String::from_utf8_lossy(&text);
        let (noted, found) = (text.split_whitespace().next().unwrap_or("none"), state.digest().to_string());
        let path = args.snapshot.display();
        anyhow::ensure!(noted == found, "{path}: expected the state {noted:?} that was saved, found {found}");
    }
    if let Some(wrong) = weights::first_not_finite(&layout, &state.parameters) {
        anyhow::bail!("{}: {wrong}", args.snapshot.display());
    }
    weights::write(&args.out, &layout, &state.parameters)?;
    let (tensors, count) = (layout.len(), state.parameters.len());
    let out = args.out.display();
    result(&format!("wrote {out}: {count} parameters in {tensors} tensors, before step {}\n", state.step));
    Ok(())
}
