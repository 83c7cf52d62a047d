//! Text as tokens: read in blocks, cut where it does not matter, encoded by all threads, in the order of the text.

use super::Sink;
use super::cut::{Cut, UNCUT_BYTES_MAX, long_space};
use super::files::Opened;
use super::tokenizer::Tokenizer;
use super::wrong::WrongTokens;
use rayon::prelude::*;

/// About how many bytes one thread encodes at a time.
const PART_BYTES: usize = 64 << 10;

/// A file of UTF-8. The parts are cut at places where cutting changes nothing, so neither their size nor the number of
/// threads shows in the tokens.
pub fn read(
    file: &mut Opened,
    tokenizer: &Tokenizer,
    sink: &mut Sink,
    told: &mut dyn FnMut(u64),
) -> Result<(), WrongTokens> {
    let cut = tokenizer.cut;
    if cut == Cut::Never && file.bytes > UNCUT_BYTES_MAX as u64 {
        return Err(WrongTokens::Uncut { at: 0 });
    }
    let mut buffer = Vec::new();
    // The place of the buffer in the file.
    let mut from = 0;
    loop {
        let more = file.block(&mut buffer)?;
        let text = valid(&buffer, from, !more)?;
        if let Some(at) = long_space(text) {
            return Err(WrongTokens::Spaces { at: from + at as u64 });
        }
        let end = if more { cut.last(text).unwrap_or(0) } else { text.len() };
        if text.len() - end > UNCUT_BYTES_MAX {
            return Err(WrongTokens::Uncut { at: from + end as u64 });
        }
        encode(&text[..end], from, tokenizer, sink)?;
        buffer.drain(..end);
        from += end as u64;
        told(from);
        if !more {
            return Ok(());
        }
    }
}

/// The characters of `bytes`; one that is cut by the end of a block is left for the next.
fn valid(bytes: &[u8], from: u64, last: bool) -> Result<&str, WrongTokens> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) if error.error_len().is_none() && !last => {
            Ok(std::str::from_utf8(&bytes[..error.valid_up_to()]).expect("tokens: valid up to there"))
        }
        Err(error) => Err(WrongTokens::Utf8 { at: from + error.valid_up_to() as u64 }),
    }
}

fn encode(text: &str, from: u64, tokenizer: &Tokenizer, sink: &mut Sink) -> Result<(), WrongTokens> {
    let parts = tokenizer.cut.parts(text, PART_BYTES);
    let encoded: Vec<Result<Vec<u32>, String>> =
        parts.par_iter().map(|part| tokenizer.encode(part)).collect();
    let mut at = from;
    for (part, tokens) in parts.iter().zip(encoded) {
        sink.push(tokens.map_err(|why| WrongTokens::Encode { at, why })?)?;
        at += part.len() as u64;
    }
    Ok(())
}
