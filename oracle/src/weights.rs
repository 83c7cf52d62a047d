//! `oracle weights`: the parameters of a snapshot, as a file for Hugging Face's libraries.

use crate::cli::WeightsArgs;
use client::output::result;
use step::{setup, snapshot, weights};

/// Runs the command.
pub fn write(args: &WeightsArgs) -> anyhow::Result<()> {
    let layout = setup::parameters(&args.run)?;
    let state = snapshot::read(&args.snapshot, &layout)?;
    weights::write(&args.out, &layout, &state.parameters)?;
    let (tensors, count) = (layout.len(), state.parameters.len());
    let out = args.out.display();
    result(&format!("wrote {out}: {count} parameters in {tensors} tensors, before step {}\n", state.step));
    Ok(())
}
