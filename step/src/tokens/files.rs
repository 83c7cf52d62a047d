//! The files that run.toml names: patterns, what may be opened, and reading in blocks.

use super::BLOCK_BYTES;
use super::wrong::{TokensError, WrongTokens};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Most files of a stream.
pub const FILES_MAX: usize = 1 << 16;

/// A data file, open.
pub struct Opened {
    /// Where it is.
    pub path: PathBuf,
    /// Its length when it was opened.
    pub bytes: u64,
    file: File,
    read: u64,
}

impl Opened {
    /// Opens a regular file.
    pub fn open(path: &Path) -> Result<Opened, TokensError> {
        let failed = |source| TokensError::Read { path: path.to_owned(), source };
        // Asked before it is opened: a pipe would wait for a writer, a device might never end.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(WrongTokens::NotAFile.at(path));
        }
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        Ok(Opened { path: path.to_owned(), bytes, file, read: 0 })
    }

    /// Appends up to `count` bytes to `buffer`; fewer only at the end of the file.
    pub fn fill(&mut self, buffer: &mut Vec<u8>, count: usize) -> Result<(), WrongTokens> {
        self.read += (&mut self.file).take(count as u64).read_to_end(buffer)? as u64;
        if self.read > self.bytes {
            return Err(WrongTokens::Changed { expected: self.bytes, found: self.read });
        }
        Ok(())
    }

    /// Appends the next block to `buffer`; false where the file has ended, at the length that it had.
    pub fn block(&mut self, buffer: &mut Vec<u8>) -> Result<bool, WrongTokens> {
        let before = self.read;
        self.fill(buffer, BLOCK_BYTES)?;
        if self.read > before {
            return Ok(true);
        }
        match self.read == self.bytes {
            true => Ok(false),
            false => Err(WrongTokens::Changed { expected: self.bytes, found: self.read }),
        }
    }

    /// Bytes read so far.
    pub fn done(&self) -> u64 {
        self.read
    }
}

/// The files in the order of the stream: patterns are replaced by what they match, ordered by bytes.
pub fn expand(base: &Path, files: &[String]) -> Result<Vec<PathBuf>, TokensError> {
    let mut paths = Vec::new();
    for file in files {
        let (folder, name) = file.rsplit_once('/').map_or(("", file.as_str()), |(folder, name)| {
            (if folder.is_empty() { "/" } else { folder }, name)
        });
        match name.contains('*') {
            true => paths.extend(matching(base, folder, name, file)?),
            false => paths.push(PathBuf::from(file)),
        }
        if paths.len() > FILES_MAX {
            return Err(TokensError::TooManyFiles);
        }
    }
    Ok(paths)
}

fn matching(base: &Path, folder: &str, name: &str, pattern: &str) -> Result<Vec<PathBuf>, TokensError> {
    let looked_in = base.join(folder);
    // An empty path is the folder one stands in.
    let here = if looked_in.as_os_str().is_empty() { Path::new(".") } else { &looked_in };
    let failed = |source| TokensError::Read { path: here.to_owned(), source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(here).map_err(failed)? {
        let found = entry.map_err(failed)?.file_name();
        let bytes = found.as_encoded_bytes();
        let hidden = bytes.starts_with(b".") && !name.starts_with('.');
        if !hidden && matches(name.as_bytes(), bytes) {
            names.push(found);
        }
        if names.len() > FILES_MAX {
            return Err(TokensError::TooManyFiles);
        }
    }
    if names.is_empty() {
        return Err(TokensError::Pattern { pattern: pattern.into(), folder: here.to_owned() });
    }
    names.sort_unstable_by(|one, other| one.as_encoded_bytes().cmp(other.as_encoded_bytes()));
    Ok(names.into_iter().map(|name| Path::new(folder).join(name)).collect())
}

/// Whether `name` is `pattern` with something in the place of each `*`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let parts: Vec<&[u8]> = pattern.split(|byte| *byte == b'*').collect();
    let [first, middle @ .., last] = &parts[..] else { return pattern == name };
    let Some(mut rest) = name.strip_prefix(*first) else { return false };
    // The earliest place of each part leaves most to those after it.
    for part in middle {
        let at = (0..=rest.len()).find(|at| rest[*at..].starts_with(part));
        let Some(at) = at else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        let cases = [
            ("*", "", true),
            ("*", "a", true),
            ("a*", "a", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a-c-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*.bin", "x.bin", true),
            ("*.bin", "x.bin2", false),
            ("a**b", "ab", true),
            ("*ab*ab*", "ab-ab", true),
            ("*ab*ab*", "abab", true),
            ("*ab*ab*", "ab", false),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_file_that_grows_or_shrinks_while_it_is_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        for found in [3, 4, 5] {
            std::fs::write(&path, "abcd").unwrap();
            let mut file = Opened::open(&path).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(found).unwrap();
            let mut read = Vec::new();
            let blocks = [file.block(&mut read), file.block(&mut read)];
            let changed = Err(WrongTokens::Changed { expected: 4, found });
            match found {
                3 => assert_eq!(blocks, [Ok(true), changed]),
                4 => assert_eq!((blocks, &read[..]), ([Ok(true), Ok(false)], &b"abcd"[..])),
                // At once: what never ends would be read for ever.
                _ => assert_eq!(blocks[0], changed),
            }
        }
    }

    #[test]
    fn more_files_than_a_stream_may_have_are_refused() {
        let named = |count| expand(Path::new(""), &vec!["a".to_owned(); count]);
        assert_eq!(named(FILES_MAX).unwrap().len(), FILES_MAX);
        assert!(matches!(named(FILES_MAX + 1), Err(TokensError::TooManyFiles)));
    }

    #[test]
    fn patterns_are_replaced_by_what_they_match_ordered_by_bytes() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b10.bin", "b9.bin", "a.txt", ".b1.bin", "B2.bin"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let files = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).into()).collect();
            expand(folder.path(), &patterns)
                .map(|paths| paths.iter().map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(files(&["a.txt", "*.bin"]).unwrap(), ["a.txt", "B2.bin", "b10.bin", "b9.bin"]);
        assert_eq!(files(&[".*.bin"]).unwrap(), [".b1.bin"]);
        let refused = files(&["x*"]).unwrap_err().to_string();
        assert!(
            refused.starts_with("data.files: \"x*\": expected at least one file, found none in "),
            "{refused}"
        );
        assert!(matches!(files(&["nowhere/*"]), Err(TokensError::Read { .. })));
        let absolute = folder.path().join("*.txt").to_str().unwrap().to_owned();
        assert_eq!(files(&[&absolute]).unwrap(), [folder.path().join("a.txt").to_str().unwrap()]);
    }
}
