//! Receipts: read, held against the rule, submitted, admitted.

use crate::folder::{ReceiptFiles, list_receipts, read_file};
use crate::ledger::{Ledger, Logged, RunEntry};
use crate::output::{self, Hinted};
use anyhow::ensure;
use schemas::attachment::ATTACHMENT_BYTES_MAX;
use schemas::digest::EntryDigest;
use schemas::statement::{Payload, STATEMENT_BYTES_MAX, Statement};
use std::path::PathBuf;
use verify::receipt::{Admitted, Terms, admit};

/// A receipt that is logged and may be judged.
pub struct Judged {
    /// What is judged.
    pub admitted: Admitted,
    /// The folder it came from.
    pub folder: PathBuf,
    /// The statement.
    pub bytes: Vec<u8>,
    /// The encoded body.
    pub body: Vec<u8>,
    /// Its place.
    pub logged: Logged,
}

/// Receipts to be judged, by rank, and why others are not.
pub struct Receipts {
    /// In order of rank, then name.
    pub judged: Vec<Judged>,
    /// In words, with the file's name.
    pub refused: Vec<String>,
}

/// Reads all receipts of `folders` and submits those that may be judged, each body before its statement. What is
/// refused is not submitted.
pub fn submit_all(ledger: &Ledger, folders: &[PathBuf], terms: &Terms) -> anyhow::Result<Receipts> {
    let mut files = Vec::new();
    for folder in folders {
        files.extend(list_receipts(folder)?);
    }
    // With nothing to judge, the prediction must not be opened.
    ensure!(
        !files.is_empty(),
        Hinted::new(
            format!("no receipt-RANK.cose in {}", list(folders)),
            "`device run --out DIR` writes receipts into DIR; nothing was submitted, the prediction stays sealed",
        )
    );
    let mut receipts = Receipts { judged: Vec::new(), refused: Vec::new() };
    // What the server says of places decides only how a refusal is worded: `submit` proves every place.
    let placed = ledger.run_entries(terms.id)?;
    for file in files {
        match read(&file, terms, &placed) {
            Ok(read) => submit(ledger, file, read, terms, &mut receipts)?,
            Err(why) => receipts.refused.push(refusal(&file, &why)),
        }
    }
    receipts.judged.sort_by_key(|judged| (judged.admitted.receipt().rank, judged.admitted.entry()));
    receipts.judged.dedup_by_key(|judged| judged.admitted.entry());
    Ok(receipts)
}

fn list(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The file's name, without its folder: a verdict is public and says nothing of where it was made.
fn refusal(file: &ReceiptFiles, why: &anyhow::Error) -> String {
    let name = file.statement.file_name().unwrap_or_default().to_string_lossy();
    format!("{name}: {}", output::message_of(why))
}

/// Reads one receipt and holds it against every rule that needs no place in the log.
fn read(
    file: &ReceiptFiles,
    terms: &Terms,
    placed: &[RunEntry],
) -> anyhow::Result<(Vec<u8>, Statement, Vec<u8>)> {
    let bytes = bare(read_file(&file.statement, STATEMENT_BYTES_MAX as u64))?;
    let statement = Statement::open(&bytes)?;
    let Payload::Receipt(receipt) = &statement.payload else {
        anyhow::bail!("expected a receipt statement, found {}", statement.payload.stem());
    };
    let body = bare(read_file(&file.body, ATTACHMENT_BYTES_MAX))?;
    let place = placed.iter().find(|entry| entry.digest == statement.digest).map(|entry| entry.index);
    // If it is not in the log yet, its place will be after everything that is.
    let terms = if place.is_none() { Terms { opening_index: None, ..*terms } } else { *terms };
    admit(statement.digest, statement.signer, receipt, place.unwrap_or(u64::MAX), &body, &terms)?;
    Ok((bytes, statement, body))
}

/// The innermost message, which has no path in it.
fn bare<T>(result: anyhow::Result<T>) -> anyhow::Result<T> {
    result.map_err(|error| anyhow::anyhow!("{}", error.root_cause()))
}

fn submit(
    ledger: &Ledger,
    file: ReceiptFiles,
    (bytes, statement, body): (Vec<u8>, Statement, Vec<u8>),
    terms: &Terms,
    receipts: &mut Receipts,
) -> anyhow::Result<()> {
    let Payload::Receipt(receipt) = &statement.payload else { unreachable!("receipts: read has seen to it") };
    ledger.attach(&body)?;
    let logged = ledger.submit(&bytes)?;
    let entry: EntryDigest = statement.digest;
    match admit(entry, statement.signer, receipt, logged.index, &body, terms) {
        Ok(admitted) => {
            let folder = file.folder;
            receipts.judged.push(Judged { admitted, folder, bytes, body, logged });
        }
        Err(why) => receipts.refused.push(refusal(&file, &why.into())),
    }
    Ok(())
}
