//! From text to tokens and back: bytes, GPT-2's byte pair encoding, or a tokenizer.json.

use super::cut::Cut;
use super::wrong::{TokensError, WrongTokenizer};
use crate::file::open_file;
use schemas::config::tokenizer_identity;
use serde_json::Value;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tokenizers::PostProcessorWrapper;

/// Longest tokenizer.json.
pub const TOKENIZER_BYTES_MAX: usize = 64 << 20;

/// The patterns of Llama 3 and of Qwen 2, as their tokenizer.json have them.
pub(super) const WORDS: [&str; 2] = [
    concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
];

/// A tokenizer, ready.
pub struct Tokenizer {
    /// Its name in a config's encoding.
    pub identity: String,
    /// What it does.
    pub(super) kind: Kind,
    /// Where a text may be cut for it.
    pub(super) cut: Cut,
}

/// The three kinds.
pub(super) enum Kind {
    /// Each byte is a token.
    Bytes,
    /// GPT-2's ranks.
    Gpt2(&'static tiktoken_rs::CoreBPE),
    /// A tokenizer.json.
    File(Box<tokenizers::Tokenizer>),
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "Tokenizer({})", self.identity)
    }
}

impl Tokenizer {
    /// The tokenizer that `data.tokenizer` names; a path is relative to `base`.
    pub fn open(name: &str, base: &Path) -> Result<Tokenizer, TokensError> {
        let kind = match name {
            "bytes" => Kind::Bytes,
            "gpt2" => Kind::Gpt2(tiktoken_rs::r50k_base_singleton()),
            file => {
                let path = base.join(file);
                let read = read_file(&path).and_then(|bytes| Tokenizer::from_json(&bytes));
                return read.map_err(|wrong| TokensError::Tokenizer { path, wrong });
            }
        };
        Ok(Tokenizer { identity: name.into(), kind, cut: Cut::BeforeSpace })
    }

    /// The tokenizer that a tokenizer.json describes.
    pub fn from_json(bytes: &[u8]) -> Result<Tokenizer, WrongTokenizer> {
        let format = |error: &dyn std::fmt::Display| WrongTokenizer::Format(printable(&error.to_string()));
        let json: Value = serde_json::from_slice(bytes).map_err(|error| format(&error))?;
        match &json["model"]["type"] {
            Value::String(name) if name == "BPE" => {}
            Value::Null => return Err(format(&"no model.type")),
            other => return Err(WrongTokenizer::Model { found: printable(&other.to_string()) }),
        }
        let dropout = &json["model"]["dropout"];
        if !dropout.is_null() && dropout.as_f64() != Some(0.0) {
            return Err(WrongTokenizer::Dropout { found: printable(&dropout.to_string()) });
        }
        let read = guarded(|| tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| error.to_string()));
        let mut file = read.map_err(|why| format(&why))?;
        // What is done to whole examples of a batch has no place in a stream.
        file.with_padding(None).with_post_processor(None::<PostProcessorWrapper>);
        file.with_truncation(None).map_err(|error| format(&error))?;
        let cut = cut_of(&json);
        Ok(Tokenizer { identity: tokenizer_identity(bytes), kind: Kind::File(Box::new(file)), cut })
    }

    /// The tokens of a whole text, or of a part between places that are safe to cut.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        match &self.kind {
            Kind::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Kind::Gpt2(ranks) => guarded(|| Ok(ranks.encode_ordinary(text))),
            Kind::File(file) => guarded(|| {
                let encoded = file.encode_fast(text, false).map_err(|error| error.to_string())?;
                Ok(encoded.get_ids().to_vec())
            })
            .map_err(|why| printable(&why)),
        }
    }

    /// The text of tokens, for reading: what is no character is U+FFFD. None if there is no such token.
    pub fn decode(&self, tokens: &[u32]) -> Option<String> {
        let lossy = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        match &self.kind {
            Kind::Bytes => {
                tokens.iter().map(|token| u8::try_from(*token).ok()).collect::<Option<_>>().map(lossy)
            }
            Kind::Gpt2(ranks) => ranks.decode_bytes(tokens).ok().map(lossy),
            Kind::File(file) => {
                guarded(|| file.decode(tokens, false).map_err(|error| error.to_string())).ok()
            }
        }
    }
}

/// The file, limits first.
fn read_file(path: &Path) -> Result<Vec<u8>, WrongTokenizer> {
    let failed = |error: std::io::Error| WrongTokenizer::Io(error.to_string());
    let file = open_file(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(TOKENIZER_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() > TOKENIZER_BYTES_MAX {
        true => Err(WrongTokenizer::TooLong { found: bytes.len() as u64 }),
        false => Ok(bytes),
    }
}

/// A library's panic, which a strange file might cause, as an error.
fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("it is not consistent".into()))
}

/// The beginning of a message that quotes a file, without control characters.
fn printable(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Where a text may be cut for a tokenizer.json: only where its parts are known to work on words of a known pattern.
fn cut_of(json: &Value) -> Cut {
    let normalizer = &json["normalizer"];
    // Composition never joins white space to what stands before it, nor anything to a line feed.
    let local = normalizer.is_null() || normalizer["type"] == "NFC";
    let added = json["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
    // An added token is found in a part as in the whole if it neither has nor takes white space.
    let harmless = |token: &Value| {
        let content = token["content"].as_str().unwrap_or_default();
        let plain = !content.is_empty() && !content.contains(char::is_whitespace);
        plain && token["lstrip"] != true && token["rstrip"] != true
    };
    if !local || !added.iter().all(harmless) {
        return Cut::Never;
    }
    let words = &json["pre_tokenizer"];
    let bytes = |part: &Value, regex: bool| {
        let used = part["use_regex"].as_bool().unwrap_or(true);
        part["type"] == "ByteLevel" && part["add_prefix_space"] == false && used == regex
    };
    if bytes(words, true) {
        return Cut::BeforeSpace;
    }
    let parts = words["pretokenizers"].as_array().map_or(&[][..], Vec::as_slice);
    match parts {
        [split, last]
            if words["type"] == "Sequence"
                && bytes(last, false)
                && split["type"] == "Split"
                && split["behavior"] == "Isolated"
                && split["invert"] == false
                && WORDS.iter().any(|pattern| split["pattern"]["Regex"] == **pattern) =>
        {
            Cut::BeforeSpaceOrAfterLine
        }
        _ => Cut::Never,
    }
}
