//! What can be wrong with data: each message says what was expected, what was found, and what to do.

use super::TOKENS_MAX;
use super::binary::LLMC_HEADER_BYTES;
use super::cut::{SPACES_MAX, UNCUT_BYTES_MAX};
use super::files::FILES_MAX;
use super::tokenizer::TOKENIZER_BYTES_MAX;
use std::path::{Path, PathBuf};

/// Why the files of a run.toml are not a token stream.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The file cannot be read.
    #[error("could not read {}: {source} (see data.files in run.toml; paths are relative to it)", path.display())]
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
    /// A pattern without a file.
    #[error("data.files: {pattern:?}: expected at least one file, found none in {}", folder.display())]
    Pattern {
        /// The pattern, as run.toml has it.
        pattern: String,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// More files than there may be.
    #[error("data.files: expected at most {FILES_MAX} files, found more; join them")]
    TooManyFiles,
    /// The tokenizer.json cannot be used.
    #[error("{}: {wrong}", path.display())]
    Tokenizer {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        wrong: WrongTokenizer,
    },
}

/// What is wrong with the bytes of a data file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongTokens {
    /// Shorter than a header.
    #[error("expected a header of {LLMC_HEADER_BYTES} bytes, found {found} bytes in all")]
    Header {
        /// Bytes in the file.
        found: u64,
    },
    /// Not an llm.c file, or one of another version.
    #[error(
        "expected magic 20240520 version 1 or magic 20240801 version 7, found magic {magic} version {version}; is it \
         `nanogpt`, without a header?"
    )]
    Magic {
        /// First header word.
        magic: u32,
        /// Second header word.
        version: u32,
    },
    /// Truncated, or with something after the last token.
    #[error(
        "expected {expected} bytes of tokens ({count} tokens, as the header says), found {found}; the file is {}",
        if found < expected { "cut short" } else { "longer than its header says" }
    )]
    Length {
        /// Tokens by the header.
        count: u64,
        /// Bytes that they take.
        expected: u64,
        /// Bytes after the header.
        found: u64,
    },
    /// Half a token at the end.
    #[error(
        "expected an even number of bytes (two a token), found {found}; the file is cut short or not `nanogpt`"
    )]
    Odd {
        /// Bytes in the file.
        found: u64,
    },
    /// Longer or shorter than a moment ago.
    #[error(
        "expected the {expected} bytes that the file had when it was opened, found {found}; let nothing write to it"
    )]
    Changed {
        /// Bytes when it was opened.
        expected: u64,
        /// Bytes read.
        found: u64,
    },
    /// A token outside the vocabulary.
    #[error(
        "expected tokens below model.vocab_size = {vocabulary}, found {token} at token {index} of the file; is it of \
         another tokenizer?"
    )]
    Vocabulary {
        /// V.
        vocabulary: u32,
        /// The first such token.
        token: u32,
        /// Its place in the file.
        index: u64,
    },
    /// Not a text.
    #[error(
        "expected UTF-8, found something else at byte {at}; convert the file, or use tokenizer = \"bytes\""
    )]
    Utf8 {
        /// The first byte that belongs to no character.
        at: u64,
    },
    /// More white space than programs for regular expressions follow.
    #[error("expected at most {SPACES_MAX} white-space characters in a row, found more after byte {at}")]
    Spaces {
        /// Where the run begins.
        at: u64,
    },
    /// More text than is encoded in one piece.
    #[error(
        "expected at most {UNCUT_BYTES_MAX} bytes of text without a place to cut it, found more after byte {at}; cut \
         the file into several, each a document"
    )]
    Uncut {
        /// Where the piece begins.
        at: u64,
    },
    /// A text that the tokenizer has no tokens for.
    #[error("the tokenizer failed on the text at byte {at}: {why}")]
    Encode {
        /// Where the piece begins that it failed on.
        at: u64,
        /// What it says.
        why: String,
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
    /// More tokens than the system gives memory for.
    #[error("the system has no memory for {tokens} tokens of four bytes")]
    Memory {
        /// In the file.
        tokens: u64,
    },
    /// The system could not go on reading.
    #[error("could not read on: {0}")]
    Io(String),
}

impl WrongTokens {
    /// The same, of a file.
    pub(super) fn at(self, path: &Path) -> TokensError {
        TokensError::Wrong { path: path.to_owned(), wrong: self }
    }
}

impl From<std::io::Error> for WrongTokens {
    fn from(error: std::io::Error) -> WrongTokens {
        WrongTokens::Io(error.to_string())
    }
}

/// What is wrong with a tokenizer.json.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongTokenizer {
    /// It cannot be read.
    #[error("could not read it: {0} (see data.tokenizer in run.toml; the path is relative to it)")]
    Io(String),
    /// Longer than any honest one.
    #[error("expected at most {TOKENIZER_BYTES_MAX} bytes, found {found}")]
    TooLong {
        /// Its length.
        found: u64,
    },
    /// Not JSON, or not of this format.
    #[error("expected a tokenizer.json in Hugging Face's format, found: {0}")]
    Format(String),
    /// Another algorithm.
    #[error("model.type: expected BPE, found {found}")]
    Model {
        /// Its name.
        found: String,
    },
    /// Merges that are left out by chance.
    #[error("model.dropout: expected none, found {found}; it would make the tokens a matter of chance")]
    Dropout {
        /// The value.
        found: String,
    },
}
