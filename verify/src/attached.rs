//! Step 7 of a bundle: what entries name is there, or follows from the prediction, and nothing else is there. Each
//! attachment is read when its turn comes and let go before the next one is.

use crate::bundle::{Failure, Opened, Step, terms};
use crate::entries::{Entries, Entry};
use crate::evidence::{Evidence, Shelf};
use crate::implied;
use crate::receipt::{Admitted, admit, check_devices, check_record, check_rule};
use crate::report::counted;
use schemas::attachment::AttachmentName;
use schemas::bundle::BUNDLE_VERSION_1;
use schemas::bundle::stored::{StoredAttachment, StoredBundle};
use schemas::fold::Fold;
use schemas::receipt::{Receipt, ReceiptBody};
use schemas::source::SourceError;
use std::collections::BTreeSet;
use tlog::note::VerifierKey;

/// What receipts and verdict name.
pub(crate) struct Named<'a> {
    /// Receipts that were admitted and made brief.
    pub(crate) receipts: Vec<Admitted>,
    /// Evidence that stays in the bundle.
    pub(crate) evidence: Evidence<'a>,
}

impl Shelf for StoredBundle<'_> {
    fn fetch(&self, name: AttachmentName) -> Result<Vec<u8>, SourceError> {
        match there(self, name) {
            Some(attachment) => self.attachment(attachment),
            None => Err(SourceError::Changed { what: format!("attachment {}", name.sha256).into() }),
        }
    }
}

/// The attachment of this name, if the bundle has it.
fn there<'b>(bundle: &'b StoredBundle, name: AttachmentName) -> Option<&'b StoredAttachment> {
    let at =
        bundle.attachments.binary_search_by_key(&name.sha256, |attachment| attachment.name.sha256).ok()?;
    bundle.attachments.get(at).filter(|attachment| attachment.name == name)
}

/// The bytes of the attachment of this name.
pub(crate) fn find(
    bundle: &StoredBundle,
    what: impl Into<String>,
    name: AttachmentName,
) -> Result<Vec<u8>, Failure> {
    match there(bundle, name) {
        Some(attachment) => Ok(bundle.attachment(attachment)?),
        None => Err(missing(what, name)),
    }
}

fn missing(what: impl Into<String>, name: AttachmentName) -> Failure {
    Failure::NoAttachment { what: what.into(), expected: name.sha256, bytes: name.bytes }
}

/// Step 7: what entries name is there and can be read, and nothing else is there.
pub(crate) fn named<'a>(
    bundle: &'a StoredBundle,
    entries: &Entries,
    opened: &Opened,
    log: &VerifierKey,
) -> Step<Named<'a>> {
    let mut names = BTreeSet::from([opened.name.sha256]);
    let mut implied = Implied { folds: bundle.folds()?, used: Vec::new(), count: 0 };
    implied.used = vec![false; implied.folds.len()];
    let mut receipts = Vec::new();
    for entry in &entries.receipts {
        let receipt = &entry.object;
        names.insert(receipt.body.sha256);
        receipts.push(match there(bundle, receipt.body) {
            Some(attachment) => {
                let bytes = bundle.attachment(attachment)?;
                admit(entry.digest, entry.signer, receipt, entry.index, &bytes, &terms(entries, log))
                    .map_err(|source| Failure::Receipt { index: entry.index, source })?
                    .brief(&entries.run.object, &opened.body)
            }
            None => implied.admit(bundle, entries, opened, entry, log)?,
        });
    }
    if implied::has_unused(&implied.folds, &implied.used) {
        return Err(Failure::Folds);
    }
    let mut evidence = Evidence::on(bundle);
    for &name in &entries.verdict.object.evidence {
        let bytes = find(bundle, "evidence of the verdict", name)?;
        names.insert(name.sha256);
        evidence
            .add_shelved(&bytes, name)
            .map_err(|source| Failure::Evidence { name: name.sha256, source })?;
    }
    let mut attached = bundle.attachments.iter().map(|attachment| attachment.name.sha256);
    if let Some(name) = attached.find(|name| !names.contains(name)) {
        return Err(Failure::Unnamed(name));
    }
    let mut what = counted(bundle.attachments.len(), "attachment");
    if implied.count > 0 {
        what.push_str(&format!(
            "; bodies of {} follow from the prediction",
            counted(implied.count, "receipt")
        ));
    }
    Ok((Named { receipts, evidence }, what))
}

/// Bodies that follow from the prediction and the bundle's folds.
struct Implied {
    folds: Vec<Fold>,
    /// Which of them some implied body has.
    used: Vec<bool>,
    /// How many bodies there are.
    count: usize,
}

impl Implied {
    /// Admits a receipt whose body is not there but follows. Its records are made one after the other, for their hash
    /// and to be looked at, and none is kept: all are as predicted.
    fn admit(
        &mut self,
        bundle: &StoredBundle,
        entries: &Entries,
        opened: &Opened,
        entry: &Entry<Receipt>,
        log: &VerifierKey,
    ) -> Result<Admitted, Failure> {
        let (run, id, receipt) = (&entries.run.object, entries.id, &entry.object);
        let terms = implied::Terms { run, id, body: &opened.body, devices: receipt.devices };
        let what = || missing(format!("body of the receipt of device {}", receipt.rank), receipt.body);
        let records = match bundle.version {
            BUNDLE_VERSION_1 => None,
            _ => terms.records(receipt.rank, &self.folds),
        };
        let mut form = Ok(());
        let count = opened.body.records.len();
        let records = records.ok_or_else(what)?.inspect(|record| {
            if form.is_ok() {
                form = check_record(receipt, run, record);
            }
        });
        if ReceiptBody::name_of(id, receipt.rank, count, records) != receipt.body {
            return Err(what());
        }
        let held = || {
            check_rule(receipt, entry.index, &crate::bundle::terms(entries, log))?;
            check_devices(receipt, run)?;
            form
        };
        held().map_err(|source| Failure::Receipt { index: entry.index, source })?;
        terms.mark(receipt.rank, &mut self.used);
        self.count += 1;
        Ok(Admitted::as_predicted(entry.digest, entry.signer, receipt, id))
    }
}
