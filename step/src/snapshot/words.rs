//! f32 words of a file, little-endian, to and from memory.

use super::map;
use rayon::prelude::*;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Bytes of a file that are mapped at one time: pages that are mapped count as this process's memory.
const WINDOW_BYTES: usize = 16 << 20;
/// Words copied by one task.
const TASK_WORDS: usize = 1 << 16;

/// A file to take words from.
pub enum Source {
    /// Through the system's read.
    Read(File),
    /// Through memory (see `map` for which files).
    Mapped(File),
}

impl Source {
    /// `count` words from byte `start` on.
    pub fn words(&self, start: u64, count: usize) -> io::Result<Vec<f32>> {
        let mut words = vec![0.0_f32; count];
        let mut at = start;
        for part in words.chunks_mut(WINDOW_BYTES / 4) {
            let bytes = 4 * part.len();
            match self {
                Source::Read(file) => {
                    file.read_exact_at(bytemuck::cast_slice_mut(part), at)?;
                    if cfg!(target_endian = "big") {
                        part.iter_mut().for_each(|word| *word = f32::from_bits(word.to_bits().swap_bytes()));
                    }
                }
                Source::Mapped(file) => copy(&map::window(file, at, bytes)?, part),
            }
            at += bytes as u64;
        }
        Ok(words)
    }

    /// `count` bytes from byte `start` on.
    pub fn bytes(&self, start: u64, count: usize) -> io::Result<Vec<u8>> {
        let (Source::Read(file) | Source::Mapped(file)) = self;
        let mut bytes = vec![0; count];
        file.read_exact_at(&mut bytes, start)?;
        Ok(bytes)
    }
}

fn copy(bytes: &[u8], words: &mut [f32]) {
    let tasks = words.par_chunks_mut(TASK_WORDS).zip(bytes.par_chunks(4 * TASK_WORDS));
    tasks.for_each(|(words, bytes)| {
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = f32::from_le_bytes(*bytes);
        }
    });
}

/// Appends words to a file.
pub fn write(file: &mut impl io::Write, words: &[f32]) -> io::Result<()> {
    if cfg!(target_endian = "little") {
        return file.write_all(bytemuck::cast_slice(words));
    }
    for part in words.chunks(TASK_WORDS) {
        let bytes: Vec<u8> = part.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_all(&bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn words_come_back_over_the_edges_of_windows_and_tasks() {
        let words: Vec<u32> = (1..).take(2 * WINDOW_BYTES / 4 + TASK_WORDS + 3).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"a header").unwrap();
        write(&mut file, &words.iter().map(|word| f32::from_bits(*word)).collect::<Vec<_>>()).unwrap();
        for source in [Source::Read(file.try_clone().unwrap()), Source::Mapped(file)] {
            let found: Vec<u32> =
                source.words(8, words.len()).unwrap().iter().map(|word| word.to_bits()).collect();
            let differs = found.iter().zip(&words).position(|(found, word)| found != word);
            assert_eq!((found.len(), differs), (words.len(), None));
            assert!(source.words(12, words.len()).is_err(), "beyond the end");
        }
    }
}
