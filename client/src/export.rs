//! A bundle's entries and proofs as files of their own, in the forms that other tools read. What is in the bundle is
//! written as it is; a COSE receipt, which is another signature of the log, is asked of the log, and checked.

use crate::atomic::{self, StagedFolder, WriteError};
use crate::keyfile;
use crate::ledger::Ledger;
use crate::output::{self, Hinted};
use anyhow::Context as _;
use schemas::bundle::ProvenEntry;
use schemas::bundle::stored::StoredBundle;
use schemas::object::Object as _;
use schemas::statement::{Statement, transparent};
use std::path::Path;
use tlog::checkpoint::Checkpoint;
use tlog::hash::Hash;
use tlog::note::Verifier as _;
use tlog::proof::InclusionProof;
use tlog::tlog_proof::TlogProof;
use tlog::tree::LeafIndex;

/// Writes each entry and its proof into a new folder; and its COSE receipt, if there is a log (its address and its key)
/// to be asked.
pub fn export(bundle: &StoredBundle, folder: &Path, log: Option<(&str, &str)>) -> anyhow::Result<()> {
    let checkpoint =
        String::from_utf8(bundle.checkpoint.clone()).context("the bundle's checkpoint is no text")?;
    let register = bundle.completeness.iter().map(|object| &object.register);
    let entries: Vec<&ProvenEntry> = bundle.entries.iter().chain(register).collect();
    // All of them first: a folder that lacks some would look like one of a log that gives none.
    let receipts = match log {
        Some((address, key)) => receipts(bundle, &entries, address, key)?,
        None => Vec::new(),
    };
    let staged = StagedFolder::create(folder)?;
    let mut names = Vec::new();
    let mut write = |name: String, bytes: &[u8]| -> anyhow::Result<()> {
        let written = atomic::write_new(&staged.path().join(&name), bytes, atomic::PUBLIC);
        written.map_err(|error| WriteError { path: folder.join(&name), ..error })?;
        names.push(name);
        Ok(())
    };
    for (at, entry) in entries.into_iter().enumerate() {
        let ProvenEntry { index, bytes, proof } = entry;
        let kind = Statement::reread(bytes).map_or("entry", |statement| statement.payload.stem());
        let inclusion = InclusionProof(proof.iter().map(|hash| Hash::new(*hash)).collect());
        let proof =
            TlogProof { extra: None, index: LeafIndex(*index), inclusion, checkpoint: checkpoint.clone() };
        write(format!("{index}-{kind}.cose"), bytes)?;
        write(format!("{index}-{kind}.tlog-proof"), proof.format().as_bytes())?;
        if let Some(receipt) = receipts.get(at) {
            write(format!("{index}-{kind}.receipt.cbor"), receipt)?;
            let whole = transparent(bytes, std::slice::from_ref(receipt))?;
            write(format!("{index}-{kind}.transparent.cose"), &whole)?;
        }
    }
    write("checkpoint.note".into(), &bundle.checkpoint)?;
    for cover in &bundle.covers {
        if let Some(note) = &cover.checkpoint {
            write(format!("checkpoint-{}.note", cover.tree_size), note)?;
        }
    }
    if let Some(object) = &bundle.completeness {
        write("run.completeness".into(), &object.encode())?;
    }
    staged.place()?;
    output::result(
        &names.iter().map(|name| format!("{}\n", folder.join(name).display())).collect::<String>(),
    );
    if log.is_none() {
        output::note(
            "no COSE receipts: each is a signature of its own by the log, which a bundle does not hold; with --ledger \
             and --log-key the log is asked for them",
        );
    }
    Ok(())
}

/// The log's receipts of these entries in the tree of the bundle's checkpoint, in their order.
fn receipts(
    bundle: &StoredBundle,
    entries: &[&ProvenEntry],
    address: &str,
    key: &str,
) -> anyhow::Result<Vec<Vec<u8>>> {
    let key = keyfile::log_key(key)?;
    let opened = Checkpoint::open(&bundle.checkpoint, key.name().as_str(), &key);
    let head = opened
        .map_err(|error| {
            Hinted::new(format!("the bundle's {error}"), "another log's key, or another's bundle")
        })?
        .head;
    let ledger = Ledger::connect(address, Some(&key))?;
    entries.iter().map(|entry| Ok(ledger.cose_receipt(&entry.bytes, entry.index, head)?)).collect()
}
