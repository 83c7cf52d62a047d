//! Receipts: read, held against the rule, submitted, admitted.

use crate::folder::{ReceiptFiles, list_receipts, read_file};
use crate::ledger::{Ledger, Logged};
use crate::output::{self, Hinted};
use anyhow::ensure;
use schemas::attachment::ATTACHMENT_BYTES_MAX;
use schemas::digest::EntryDigest;
use schemas::statement::{Payload, STATEMENT_BYTES_MAX, Statement};
use std::path::{Path, PathBuf};
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
    for file in files {
        let place = place(ledger, &file)?;
        match read(&file, terms, place) {
            Ok(read) => submit(ledger, file, read, terms, &mut receipts)?,
            Err(why) => receipts.refused.push(why),
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
fn refusal(file: &Path, why: &anyhow::Error) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    format!("{name}: {}", output::message_of(why))
}

/// Where the log has a receipt already. What is wrong with its file is for [`read`] to tell.
fn place(ledger: &Ledger, file: &ReceiptFiles) -> anyhow::Result<Option<u64>> {
    match read_file(&file.statement, STATEMENT_BYTES_MAX as u64) {
        Ok(bytes) => Ok(ledger.find(&bytes)?.map(|logged| logged.index)),
        Err(_) => Ok(None),
    }
}

/// Reads one receipt and holds it against every rule that needs no place in the log. What is wrong is told with
/// the name of the file that it is wrong with.
fn read(
    file: &ReceiptFiles,
    terms: &Terms,
    place: Option<u64>,
) -> Result<(Vec<u8>, Statement, Vec<u8>), String> {
    let wrong = |why: anyhow::Error| refusal(&file.statement, &why);
    let bytes = bare(read_file(&file.statement, STATEMENT_BYTES_MAX as u64)).map_err(wrong)?;
    let statement = Statement::open(&bytes).map_err(|why| wrong(why.into()))?;
    let Payload::Receipt(receipt) = &statement.payload else {
        return Err(wrong(anyhow::anyhow!(
            "expected a receipt statement, found {}",
            statement.payload.stem()
        )));
    };
    let body = bare(read_file(&file.body, ATTACHMENT_BYTES_MAX)).map_err(|why| refusal(&file.body, &why))?;
    // If it is not in the log yet, its place will be after everything that is.
    let terms = if place.is_none() { Terms { opening_index: None, ..*terms } } else { *terms };
    admit(statement.digest, statement.signer, receipt, place.unwrap_or(u64::MAX), &body, &terms)
        .map_err(|why| wrong(why.into()))?;
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
        Err(why) => receipts.refused.push(refusal(&file.statement, &why.into())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::attachment::AttachmentName;
    use schemas::key::SecretKey;
    use schemas::object::Object as _;
    use schemas::receipt::Receipt;
    use schemas::run::Run;
    use tlog::note::{KeyName, SigningKey};

    #[test]
    fn a_refusal_names_the_file_that_is_at_fault() {
        let folder = tempfile::tempdir().unwrap();
        let run = Run::decode(include_bytes!("../../fixtures/run/run.cbor")).unwrap();
        let log = SigningKey::from_seed(KeyName::new("log.example/test").unwrap(), &[1; 32]);
        let log = log.verifier();
        let terms = Terms { run: &run, id: run.id(), log, prediction_index: 1, opening_index: None };
        let key = SecretKey::from_seed([9; 32]);
        let receipt = Receipt::decode(include_bytes!("../../fixtures/receipt/receipt.cbor")).unwrap();
        let receipt = Receipt { body: AttachmentName::of(b"body"), ..receipt };
        let bytes = Statement::sign(&Payload::Receipt(Box::new(receipt)), &key).unwrap();
        std::fs::write(folder.path().join("receipt-1.cose"), bytes).unwrap();
        let file = list_receipts(folder.path()).unwrap().remove(0);
        let why = |file: &ReceiptFiles| read(file, &terms, None).unwrap_err();
        assert!(why(&file).starts_with("receipt-1.body.cbor: No such file"), "{}", why(&file));
        std::fs::write(&file.body, b"body").unwrap();
        assert!(
            why(&file).starts_with("receipt-1.cose: checkpoint not signed by this log"),
            "{}",
            why(&file)
        );
        std::fs::write(&file.statement, b"no statement").unwrap();
        assert!(why(&file).starts_with("receipt-1.cose: statement: "), "{}", why(&file));
    }
}
