//! `oracle weights`: the parameters of a snapshot, as a file for Hugging Face's libraries.

use crate::cli::WeightsArgs;
use client::output::{Hinted, result};
use step::{setup, snapshot, weights};

/// Runs the command.
pub fn write(args: &WeightsArgs) -> anyhow::Result<()> {
    let layout = setup::parameters(&args.run)?;
    anyhow::ensure!(
        !args.out.exists(),
        Hinted::new(
            format!("{} is there already", args.out.display()),
            "choose another --out, or move that file away"
        )
    );
    let state = snapshot::read(&args.snapshot, &layout)?;
    // A snapshot that `oracle predict` saved has its digest beside it.
    let (noted, found) =
        (std::fs::read_to_string(args.snapshot.with_extension("digest")), state.digest().to_string());
    if let Ok(noted) = noted {
        let (path, noted) = (args.snapshot.display(), noted.trim_end());
        anyhow::ensure!(noted == found, "{path}: expected the state {noted} that was saved, found {found}");
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
