//! Buffers that are used again: a leaf's tensors and the flat gradients.
//!
//! A step of a large model takes and gives back gigabytes; asked of the system each time, every page of them would be
//! cleared and mapped anew. A buffer comes back with whatever was left in it, so nothing may be read from one before it
//! was written (`tests/buffers.rs` fills them with NaN to see that nothing is).

use memmap2::{Advice, MmapMut};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers of one length.
pub struct Pool {
    words: usize,
    free: Mutex<Vec<Block>>,
}

/// Where the words lie.
enum Block {
    /// Pages of their own, which start at a multiple of every vector's length.
    Mapped(MmapMut),
    /// Words that came from elsewhere.
    Owned(Vec<f32>),
}

impl Block {
    fn new(words: usize) -> Block {
        match MmapMut::map_anon(4 * words.max(1)) {
            Ok(map) => {
                // Huge pages only save time; a system that has none runs the same.
                #[cfg(target_os = "linux")]
                let _ = map.advise(Advice::HugePage);
                Block::Mapped(map)
            }
            Err(_) => Block::Owned(vec![0.0; words]),
        }
    }
}

impl Pool {
    /// A pool of buffers of `words` words, empty at first.
    pub fn new(words: usize) -> Arc<Pool> {
        Arc::new(Pool { words, free: Mutex::new(vec![]) })
    }

    /// A buffer, used before if there is one. What is in it is not defined.
    pub fn take(self: &Arc<Pool>) -> Flat {
        let block = self.free().pop().unwrap_or_else(|| Block::new(self.words));
        Flat { block: Some(block), words: self.words, home: Some(self.clone()) }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Block>> {
        // A list of buffers is whole whatever panicked while it was held.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flat buffer of f32 words; when dropped it goes back to the pool it came from.
pub struct Flat {
    /// None only while it is dropped.
    block: Option<Block>,
    words: usize,
    home: Option<Arc<Pool>>,
}

impl Flat {
    /// `words` words of +0, of no pool.
    pub fn zeros(words: usize) -> Flat {
        Flat { block: Some(Block::new(words)), words, home: None }
    }

    /// The same words on pages of their own.
    pub fn copied(words: &[f32]) -> Flat {
        let mut flat = Flat::zeros(words.len());
        flat.copy_from_slice(words);
        flat
    }

    /// The words as a vector.
    pub fn into_vec(mut self) -> Vec<f32> {
        match self.block.take() {
            Some(Block::Owned(words)) => words,
            block => {
                self.block = block;
                self.to_vec()
            }
        }
    }
}

impl Deref for Flat {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &self.block {
            Some(Block::Mapped(map)) => &bytemuck::cast_slice(map)[..self.words],
            Some(Block::Owned(words)) => words,
            None => &[],
        }
    }
}

impl DerefMut for Flat {
    fn deref_mut(&mut self) -> &mut [f32] {
        match &mut self.block {
            Some(Block::Mapped(map)) => &mut bytemuck::cast_slice_mut(map)[..self.words],
            Some(Block::Owned(words)) => words,
            None => &mut [],
        }
    }
}

impl From<Vec<f32>> for Flat {
    fn from(words: Vec<f32>) -> Flat {
        Flat { words: words.len(), block: Some(Block::Owned(words)), home: None }
    }
}

impl Clone for Flat {
    fn clone(&self) -> Flat {
        Flat::copied(self)
    }
}

impl PartialEq for Flat {
    fn eq(&self, other: &Flat) -> bool {
        self[..] == other[..]
    }
}

impl fmt::Debug for Flat {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Flat({} words)", self.len())
    }
}

impl Drop for Flat {
    fn drop(&mut self) {
        if let (Some(home), Some(block)) = (&self.home, self.block.take()) {
            home.free().push(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_the_next_one_taken() {
        let pool = Pool::new(1000);
        let mut one = pool.take();
        assert_eq!(one.len(), 1000);
        assert!(one.as_ptr().addr().is_multiple_of(64));
        one[999] = 7.0;
        let two = pool.take();
        assert_eq!(two[999], 0.0);
        drop(one);
        assert_eq!(pool.take()[999], 7.0);
        assert_eq!(two.clone().into_vec().len(), 1000);
        assert_eq!(Flat::from(vec![1.0, 2.0]).into_vec(), [1.0, 2.0]);
    }
}
