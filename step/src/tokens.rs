//! The token stream: files of several formats, concatenated in the order given, as one row of u32.
//!
//! What is committed is the stream, not the files: its checksum as a u32 tensor. Formats: text (one token per
//! byte), llm.c `.bin` (256 int32 of header, then uint16 or uint32), nanoGPT `.bin` (uint16, no header).

use std::io::Read;
use std::path::{Path, PathBuf};

/// How a file holds tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Each byte is a token.
    Bytes,
    /// llm.c: magic 20240520 version 1 (uint16) or magic 20240801 version 7 (uint32), then the token count.
    Llmc,
    /// nanoGPT: uint16 from the first byte on.
    Uint16,
}

impl Format {
    /// The format that a config's `data.format` names; `text` is read as bytes.
    pub fn from_name(name: &str) -> Option<Format> {
        match name {
            "text" => Some(Format::Bytes),
            "llmc" => Some(Format::Llmc),
            "nanogpt" => Some(Format::Uint16),
            _ => None,
        }
    }
}

/// Most tokens in a stream: 16 GiB of u32.
pub const TOKENS_MAX: u64 = 1 << 32;
/// Bytes of an llm.c header: 256 int32.
const LLMC_HEADER_BYTES: usize = 1024;
const LLMC_UINT16: (u32, u32) = (20_240_520, 1);
const LLMC_UINT32: (u32, u32) = (20_240_801, 7);

/// Why a file is not a token stream.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file can be read and is wrong.
    #[error("{}: {wrong}", path.display())]
    Wrong {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        wrong: WrongTokens,
    },
}

/// What is wrong with the bytes of a token file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongTokens {
    /// Shorter than a header.
    #[error("expected a header of {LLMC_HEADER_BYTES} bytes, found {found} bytes in all")]
    Header {
        /// Bytes in the file.
        found: usize,
    },
    /// Not an llm.c file, or one of another version.
    #[error(
        "expected magic 20240520 version 1 or magic 20240801 version 7, found magic {magic} version {version}"
    )]
    Magic {
        /// First header word.
        magic: u32,
        /// Second header word.
        version: u32,
    },
    /// Truncated, or with something after the last token.
    #[error("expected {expected} bytes of tokens as the header says, found {found}")]
    Length {
        /// From the header's token count.
        expected: u64,
        /// After the header.
        found: u64,
    },
    /// Half a token at the end.
    #[error("expected an even number of bytes (two a token), found {found}")]
    Odd {
        /// Bytes in the file.
        found: usize,
    },
    /// A token outside the vocabulary.
    #[error("expected tokens below the vocabulary of {vocabulary}, found {token} at token {index}")]
    Vocabulary {
        /// V.
        vocabulary: u32,
        /// The first such token.
        token: u32,
        /// Its place in the file.
        index: usize,
    },
    /// A folder, a pipe or a device.
    #[error("expected a regular file")]
    NotAFile,
    /// No token.
    #[error("expected at least one token, found none")]
    Empty,
    /// More tokens than a stream may have.
    #[error("expected at most {TOKENS_MAX} tokens in all, found more")]
    TooMany,
}

/// Reads files of one format into one stream, in the order given.
pub fn read_files(format: Format, paths: &[PathBuf], vocabulary: u32) -> Result<Vec<u32>, TokensError> {
    let mut tokens = Vec::new();
    for path in paths {
        let bytes = read_file(path)?;
        let wrong = |wrong| TokensError::Wrong { path: path.clone(), wrong };
        let part = decode(format, &bytes, vocabulary).map_err(wrong)?;
        if (tokens.len() + part.len()) as u64 > TOKENS_MAX {
            return Err(wrong(WrongTokens::TooMany));
        }
        tokens.extend(part);
    }
    Ok(tokens)
}

/// A whole file, no longer than the longest stream.
fn read_file(path: &Path) -> Result<Vec<u8>, TokensError> {
    let failed = |source| TokensError::Read { path: path.to_owned(), source };
    let bytes_max = 4 * TOKENS_MAX + LLMC_HEADER_BYTES as u64;
    // Asked before it is opened: a pipe would wait for a writer, a device might never end.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(TokensError::Wrong { path: path.to_owned(), wrong: WrongTokens::NotAFile });
    }
    let mut bytes = Vec::new();
    // One byte more than allowed is read, so that a longer file is told from one of exactly that length.
    let file = std::fs::File::open(path).map_err(failed)?;
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(failed)?;
    if read as u64 > bytes_max {
        return Err(TokensError::Wrong { path: path.to_owned(), wrong: WrongTokens::TooMany });
    }
    Ok(bytes)
}

/// The tokens of one file, each checked against the vocabulary.
pub fn decode(format: Format, bytes: &[u8], vocabulary: u32) -> Result<Vec<u32>, WrongTokens> {
    let tokens: Vec<u32> = match format {
        Format::Bytes => bytes.iter().map(|byte| u32::from(*byte)).collect(),
        Format::Llmc => decode_llmc(bytes)?,
        Format::Uint16 if bytes.len() % 2 == 1 => return Err(WrongTokens::Odd { found: bytes.len() }),
        Format::Uint16 => uint16(bytes),
    };
    if tokens.is_empty() {
        return Err(WrongTokens::Empty);
    }
    match tokens.iter().position(|token| *token >= vocabulary) {
        Some(index) => Err(WrongTokens::Vocabulary { vocabulary, token: tokens[index], index }),
        None => Ok(tokens),
    }
}

fn decode_llmc(bytes: &[u8]) -> Result<Vec<u32>, WrongTokens> {
    let Some((header, body)) = bytes.split_at_checked(LLMC_HEADER_BYTES) else {
        return Err(WrongTokens::Header { found: bytes.len() });
    };
    let header = uint32(&header[..12]);
    let (magic, version, count) = (header[0], header[1], header[2]);
    let token_bytes = match (magic, version) {
        LLMC_UINT16 => 2,
        LLMC_UINT32 => 4,
        _ => return Err(WrongTokens::Magic { magic, version }),
    };
    let (expected, found) = (u64::from(count) * token_bytes, body.len() as u64);
    if expected != found {
        return Err(WrongTokens::Length { expected, found });
    }
    Ok(if token_bytes == 2 { uint16(body) } else { uint32(body) })
}

fn uint16(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<2>().0.iter().map(|pair| u32::from(u16::from_le_bytes(*pair))).collect()
}

fn uint32(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llmc(magic: u32, version: u32, count: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = [magic, version, count].iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(LLMC_HEADER_BYTES, 0);
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn all_formats_give_the_same_stream() {
        let want = [1, 2, 300];
        let uint16 = [1, 0, 2, 0, 44, 1];
        let uint32 = [1, 0, 0, 0, 2, 0, 0, 0, 44, 1, 0, 0];
        assert_eq!(decode(Format::Uint16, &uint16, 301).unwrap(), want);
        assert_eq!(decode(Format::Llmc, &llmc(20_240_520, 1, 3, &uint16), 301).unwrap(), want);
        assert_eq!(decode(Format::Llmc, &llmc(20_240_801, 7, 3, &uint32), 301).unwrap(), want);
        assert_eq!(decode(Format::Bytes, b"ab\xff", 256).unwrap(), [97, 98, 255]);
    }

    #[test]
    fn files_are_joined_in_the_order_given() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        std::fs::write(&one, b"ab").unwrap();
        std::fs::write(&two, b"c").unwrap();
        assert_eq!(read_files(Format::Bytes, &[two.clone(), one.clone()], 256).unwrap(), [99, 97, 98]);
        let error = read_files(Format::Bytes, &[one, folder.path().join("none")], 256).unwrap_err();
        assert!(matches!(error, TokensError::Read { path, .. } if path.ends_with("none")));
        let error = read_files(Format::Llmc, &[two], 256).unwrap_err();
        assert!(
            error.to_string().ends_with("two: expected a header of 1024 bytes, found 1 bytes in all"),
            "{error}"
        );
    }

    #[test]
    fn wrong_files_are_rejected_with_what_is_wrong() {
        use WrongTokens::*;
        let good = [1, 0, 2, 0];
        let cases = [
            (Format::Uint16, vec![1, 0, 2], Odd { found: 3 }),
            (Format::Uint16, vec![], Empty),
            (Format::Bytes, vec![], Empty),
            (Format::Bytes, vec![3, 10, 9], Vocabulary { vocabulary: 10, token: 10, index: 1 }),
            (Format::Llmc, vec![0; 1023], Header { found: 1023 }),
            (Format::Llmc, llmc(20_240_520, 7, 2, &good), Magic { magic: 20_240_520, version: 7 }),
            (Format::Llmc, llmc(20_240_801, 1, 1, &good), Magic { magic: 20_240_801, version: 1 }),
            (Format::Llmc, llmc(20_240_522, 1, 2, &good), Magic { magic: 20_240_522, version: 1 }),
            (Format::Llmc, llmc(20_240_520, 1, 3, &good), Length { expected: 6, found: 4 }),
            (Format::Llmc, llmc(20_240_520, 1, 1, &good), Length { expected: 2, found: 4 }),
            (Format::Llmc, llmc(20_240_520, 1, 0, &[]), Empty),
            (
                Format::Llmc,
                llmc(20_240_801, 7, u32::MAX, &good),
                Length { expected: 17_179_869_180, found: 4 },
            ),
        ];
        for (format, bytes, want) in cases {
            assert_eq!(decode(format, &bytes, 10), Err(want));
        }
    }
}
