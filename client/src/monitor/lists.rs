//! The lists of one run (docs/spec/register.md), derived from the entries.

use schemas::key::PublicKey;
use schemas::register::{EntryLeaf, ListRoot, PredictionLeaf, Register};
use schemas::statement::Statement;
use tlog::compact::CompactTree;
use tlog::hash::{Hash, leaf_hash};

/// What a monitor remembers of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunLists {
    /// Whether its run statement has been seen.
    pub(crate) known: bool,
    /// Index of the first opening or verdict that no register has followed yet.
    pub(crate) waiting: Option<u64>,
    entries: CompactTree,
    predictions: CompactTree,
}

impl RunLists {
    /// Adds the run's next entry.
    pub(crate) fn push(&mut self, index: u64, statement: &Statement) {
        self.entries.push(leaf_hash(&EntryLeaf::of(index, statement).encode()));
        if let Some(leaf) = PredictionLeaf::of(index, statement) {
            self.predictions.push(leaf_hash(&leaf.encode()));
        }
    }

    /// What is wrong with a register at `index`, whose entry is not yet among the lists; nothing if nothing is.
    pub(crate) fn differs(
        &self,
        index: u64,
        register: &Register,
        signer: PublicKey,
        log: &[u8; 32],
    ) -> Option<String> {
        if signer.to_bytes() != *log {
            return Some(format!("is signed by {signer}, expected the log's key"));
        }
        if register.size != index {
            return Some(format!("is of size {}, expected its own index", register.size));
        }
        let lists = [
            ("entries", &self.entries, register.entries),
            ("predictions", &self.predictions, register.predictions),
        ];
        lists.into_iter().find_map(|(list, own, ListRoot { count, root })| {
            let head = own.head();
            let same = (head.size.0, head.root) == (count, Hash::new(root));
            let (expected, found) = (head.root, Hash::new(root));
            let size = head.size;
            (!same).then(|| {
                format!("says {count} {list} with root {found}, expected {size} with root {expected}")
            })
        })
    }

    /// As bytes: a flag, the waiting index plus one, and both lists.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.known)];
        bytes.extend(self.waiting.map_or(0, |index| index + 1).to_le_bytes());
        self.entries.encode(&mut bytes);
        self.predictions.encode(&mut bytes);
        bytes
    }

    /// What [`RunLists::encode`] wrote; none if it is anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<RunLists> {
        let (known, rest) = bytes.split_first()?;
        let (waiting, rest) = rest.split_first_chunk::<8>()?;
        let (entries, rest) = CompactTree::decode(rest)?;
        let (predictions, rest) = CompactTree::decode(rest)?;
        let waiting = u64::from_le_bytes(*waiting).checked_sub(1);
        rest.is_empty().then_some(RunLists { known: *known == 1, waiting, entries, predictions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back_as_they_were_kept() {
        let mut lists = RunLists { known: true, waiting: Some(0), ..RunLists::default() };
        for count in 0..70u32 {
            assert_eq!(RunLists::decode(&lists.encode()).as_ref(), Some(&lists));
            let mut bytes = lists.encode();
            bytes.pop();
            assert_eq!(RunLists::decode(&bytes), None);
            assert_eq!(RunLists::decode(&[&lists.encode()[..], &[0]].concat()), None);
            lists.entries.push(leaf_hash(&count.to_le_bytes()));
            if count % 3 == 0 {
                lists.predictions.push(leaf_hash(&count.to_le_bytes()));
                lists.waiting = None;
            }
        }
        assert_eq!(RunLists::decode(b""), None);
    }
}
