//! The token stream: files of several formats, one after the other, as one row of u32.
//!
//! What is committed is the stream, not the files: its checksum as a u32 tensor. Files are read one by one and block by
//! block, so that beside the tokens there is never more than a block of a file in memory.
//!
//! Source: docs/spec/config.md#data-formats.

mod binary;
mod cut;
mod files;
mod text;
pub mod tokenizer;
pub mod wrong;

use files::Opened;
use schemas::config::Data;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use tokenizer::{Kind, Tokenizer};
use wrong::{TokensError, WrongTokens};

/// Most tokens in a stream: 16 GiB of u32.
pub const TOKENS_MAX: u64 = 1 << 32;
/// Bytes of a file that are in memory at once.
const BLOCK_BYTES: usize = 1 << 20;

/// Told how many bytes of how many have been read.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// One file of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The file, as run.toml names it, or as a pattern of it matched.
    pub path: PathBuf,
    /// The place of its first token in the stream.
    pub first: u64,
    /// How many tokens it holds.
    pub tokens: u64,
}

/// The data of a run.
#[derive(Debug)]
pub struct Stream {
    /// Every token.
    pub tokens: Vec<u32>,
    /// Where they come from, in order.
    pub shards: Vec<Shard>,
    /// What made them, where they were text.
    pub tokenizer: Option<Tokenizer>,
}

impl Stream {
    /// Reads what `data` names; its paths are relative to `base`. Every token is below `vocabulary`.
    pub fn read(
        data: &Data,
        base: &Path,
        vocabulary: u32,
        progress: Progress,
    ) -> Result<Stream, TokensError> {
        let tokenizer = match &data.tokenizer {
            None => None,
            Some(name) => Some(Tokenizer::open(name, base)?),
        };
        let paths = files::expand(base, &data.files)?;
        // Every file is looked at before the first is read: a mistake in the last should not take hours to show.
        let mut total = 0_u64;
        for path in &paths {
            let bytes = Opened::open(&base.join(path))?.bytes;
            if bytes == 0 {
                return Err(TokensError::Wrong { path: base.join(path), wrong: WrongTokens::Empty });
            }
            total += bytes;
        }
        let mut stream = Stream { tokens: Vec::new(), shards: Vec::new(), tokenizer };
        let mut before = 0;
        for path in paths {
            let mut file = Opened::open(&base.join(&path))?;
            let first = stream.tokens.len();
            let (bytes, path_read) = (file.bytes, file.path.clone());
            let mut told = |done: u64| progress((before + done).min(total), total);
            let mut sink = Sink { tokens: &mut stream.tokens, first, vocabulary };
            let read = match &stream.tokenizer {
                None if data.format == "llmc" => binary::read_llmc(&mut file, &mut sink, &mut told),
                None => binary::read_uint16(&mut file, &mut sink, &mut told),
                Some(Tokenizer { kind: Kind::Bytes, .. }) => {
                    binary::read_bytes(&mut file, &mut sink, &mut told)
                }
                Some(tokenizer) => text::read(&mut file, tokenizer, &mut sink, &mut told),
            };
            read.map_err(|wrong| wrong.at(&path_read))?;
            let tokens = stream.tokens.len() - first;
            if tokens == 0 {
                return Err(TokensError::Wrong { path: path_read, wrong: WrongTokens::Empty });
            }
            stream.shards.push(Shard { path, first: first as u64, tokens: tokens as u64 });
            before += bytes;
        }
        Ok(stream)
    }

    /// The files that hold these tokens, in order; none has no token.
    pub fn shards_of(&self, tokens: RangeInclusive<u64>) -> &[Shard] {
        let first = self.shards.partition_point(|shard| shard.first + shard.tokens <= *tokens.start());
        let shards = &self.shards[first..];
        &shards[..shards.partition_point(|shard| shard.first <= *tokens.end())]
    }
}

/// What stands for the tokenizer in the config's encoding, once a file has been read.
pub fn resolve(data: &mut Data, stream: &Stream) {
    data.tokenizer = stream.tokenizer.as_ref().map(|tokenizer| tokenizer.identity.clone());
}

/// Where the tokens of one file go.
struct Sink<'a> {
    tokens: &'a mut Vec<u32>,
    /// Tokens before this file.
    first: usize,
    vocabulary: u32,
}

impl Sink<'_> {
    /// Makes room for tokens whose number is known, if there may be so many.
    fn expect(&mut self, count: u64) -> Result<(), WrongTokens> {
        if self.tokens.len() as u64 + count > TOKENS_MAX {
            return Err(WrongTokens::TooMany);
        }
        let room = self.tokens.try_reserve_exact(count as usize);
        room.map_err(|_| WrongTokens::Memory { tokens: count })
    }

    fn push(&mut self, tokens: impl IntoIterator<Item = u32>) -> Result<(), WrongTokens> {
        let from = self.tokens.len();
        self.tokens.extend(tokens);
        if self.tokens.len() as u64 > TOKENS_MAX {
            return Err(WrongTokens::TooMany);
        }
        let vocabulary = self.vocabulary;
        match self.tokens[from..].iter().position(|token| *token >= vocabulary) {
            None => Ok(()),
            Some(at) => Err(WrongTokens::Vocabulary {
                vocabulary,
                token: self.tokens[from + at],
                index: (from + at - self.first) as u64,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
