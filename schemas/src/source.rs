//! Where bytes come from: memory, or a file that is too large to hold. Effects stay outside: a file is opened and read
//! by whoever implements [`Source`].

use std::sync::Arc;

/// Why bytes could not be had from a source. It says nothing about what they mean.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The system did not give them.
    #[error("cannot be read at byte {at}: {reason}")]
    Unreadable {
        /// Where.
        at: u64,
        /// What the system said.
        reason: Arc<str>,
    },
    /// They are other bytes than before.
    #[error("changed while it was read: {what} has other bytes than before")]
    Changed {
        /// What was read twice.
        what: Arc<str>,
    },
}

/// Bytes that can be read anywhere, and more than once.
pub trait Source {
    /// How many there are.
    fn bytes(&self) -> u64;

    /// Fills `into` with the bytes from `at` on.
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), SourceError>;

    /// All of them, where they are in memory.
    fn in_memory(&self) -> Option<&[u8]> {
        None
    }
}

impl Source for &[u8] {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), SourceError> {
        let here = usize::try_from(at).ok().and_then(|at| self.get(at..)?.get(..into.len()));
        let short = || SourceError::Unreadable { at, reason: "it ends before".into() };
        into.copy_from_slice(here.ok_or_else(short)?);
        Ok(())
    }

    fn in_memory(&self) -> Option<&[u8]> {
        Some(self)
    }
}

/// A part of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where it begins.
    pub at: u64,
    /// How long it is.
    pub bytes: u64,
}

impl Place {
    /// All of `source`.
    pub fn whole(source: &dyn Source) -> Place {
        Place { at: 0, bytes: source.bytes() }
    }

    /// Gives what is there, piece by piece.
    pub fn read_pieces(self, source: &dyn Source, mut each: impl FnMut(&[u8])) -> Result<(), SourceError> {
        let mut buffer = vec![0; PIECE_BYTES.min(self.bytes) as usize];
        let mut done = 0;
        while done < self.bytes {
            let piece = &mut buffer[..PIECE_BYTES.min(self.bytes - done) as usize];
            source.read_at(self.at + done, piece)?;
            each(piece);
            done += piece.len() as u64;
        }
        Ok(())
    }

    /// All that is there. Whoever asks knows that it is not too long.
    pub fn read(self, source: &dyn Source) -> Result<Vec<u8>, SourceError> {
        let mut bytes = vec![0; self.bytes as usize];
        source.read_at(self.at, &mut bytes)?;
        Ok(bytes)
    }
}

/// How much is read at once where nothing needs to be held.
const PIECE_BYTES: u64 = 128 << 10;
