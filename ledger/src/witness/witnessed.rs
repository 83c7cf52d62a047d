//! The latest checkpoint that a quorum of witnesses has cosigned, as readers see it.

use std::sync::{Arc, PoisonError, RwLock};

use tlog::tree::TreeSize;

/// Cheap to share.
#[derive(Clone, Default)]
pub struct Witnessed(Arc<RwLock<Standing>>);

/// What is witnessed.
#[derive(Clone, Default)]
pub enum Standing {
    /// Nothing, or nothing yet.
    #[default]
    Nothing,
    /// A checkpoint, with its size.
    Note(TreeSize, Arc<str>),
    /// It is proven that this log's key has signed what this log does not hold, so it vouches for nothing more.
    Forked,
}

impl Witnessed {
    /// What is witnessed now.
    pub fn standing(&self) -> Standing {
        // It is replaced as a whole, so a poisoned lock still holds a good one.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The cosigned note of exactly that size, if that is the one.
    pub fn of_size(&self, size: TreeSize) -> Option<Arc<str>> {
        match self.standing() {
            Standing::Note(found, note) if found == size => Some(note),
            _ => None,
        }
    }

    /// A checkpoint is witnessed. An earlier one does not replace a later one, and nothing comes after a fork.
    pub fn add(&self, size: TreeSize, note: &str) {
        let mut standing = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let newer = match *standing {
            Standing::Nothing => true,
            Standing::Note(found, _) => found < size,
            Standing::Forked => false,
        };
        if newer {
            *standing = Standing::Note(size, note.into());
        }
    }

    /// What was witnessed under another policy does not count.
    pub fn forget(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Standing::Nothing;
    }

    /// A fork is proven.
    pub fn fork(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Standing::Forked;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_checkpoint_replaces_an_earlier_one_and_nothing_a_fork() {
        let witnessed = Witnessed::default();
        let sizes = || [1, 2, 3].map(|size| witnessed.of_size(TreeSize(size)).map(|note| note.to_string()));
        witnessed.add(TreeSize(2), "two");
        witnessed.add(TreeSize(1), "one");
        witnessed.add(TreeSize(2), "again");
        assert_eq!(sizes(), [None, Some("two".to_owned()), None]);
        witnessed.add(TreeSize(3), "three");
        assert_eq!(sizes(), [None, None, Some("three".to_owned())]);
        witnessed.forget();
        witnessed.add(TreeSize(1), "one");
        assert_eq!(sizes(), [Some("one".to_owned()), None, None]);
        witnessed.fork();
        witnessed.add(TreeSize(3), "three");
        assert_eq!(sizes(), [None, None, None]);
    }
}
