//! Files in which each token takes one, two or four bytes.

use super::Sink;
use super::files::Opened;
use super::wrong::WrongTokens;

/// Bytes of an llm.c header: 256 int32.
pub const LLMC_HEADER_BYTES: usize = 1024;
const LLMC_UINT16: (u32, u32) = (20_240_520, 1);
const LLMC_UINT32: (u32, u32) = (20_240_801, 7);

/// llm.c: magic 20240520 version 1 (uint16) or magic 20240801 version 7 (uint32), then the token count.
pub fn read_llmc(file: &mut Opened, sink: &mut Sink, told: &mut dyn FnMut(u64)) -> Result<(), WrongTokens> {
    let mut header = Vec::new();
    file.fill(&mut header, LLMC_HEADER_BYTES)?;
    if header.len() < LLMC_HEADER_BYTES {
        return Err(WrongTokens::Header { found: header.len() as u64 });
    }
    let [magic, version, count] = [0, 1, 2].map(|word| uint32(&header.as_chunks::<4>().0[word]));
    let bytes = match (magic, version) {
        LLMC_UINT16 => 2,
        LLMC_UINT32 => 4,
        _ => return Err(WrongTokens::Magic { magic, version }),
    };
    let (expected, found) = (u64::from(count) * bytes, file.bytes - LLMC_HEADER_BYTES as u64);
    if expected != found {
        return Err(WrongTokens::Length { count: count.into(), expected, found });
    }
    match bytes {
        2 => read_words(file, sink, told, uint16),
        _ => read_words(file, sink, told, uint32),
    }
}

/// nanoGPT: uint16 from the first byte on.
pub fn read_uint16(file: &mut Opened, sink: &mut Sink, told: &mut dyn FnMut(u64)) -> Result<(), WrongTokens> {
    if !file.bytes.is_multiple_of(2) {
        return Err(WrongTokens::Odd { found: file.bytes });
    }
    read_words(file, sink, told, uint16)
}

/// Each byte is a token.
pub fn read_bytes(file: &mut Opened, sink: &mut Sink, told: &mut dyn FnMut(u64)) -> Result<(), WrongTokens> {
    read_words(file, sink, told, |[byte]: &[u8; 1]| u32::from(*byte))
}

/// The rest of the file, `N` bytes a token.
fn read_words<const N: usize>(
    file: &mut Opened,
    sink: &mut Sink,
    told: &mut dyn FnMut(u64),
    word: impl Fn(&[u8; N]) -> u32,
) -> Result<(), WrongTokens> {
    sink.expect((file.bytes - file.done()) / N as u64)?;
    let mut buffer = Vec::new();
    while file.block(&mut buffer)? {
        // A block ends within a token where the file has shrunk under our hands; the next one then is not there.
        let (words, rest) = buffer.as_chunks::<N>();
        let left = rest.to_vec();
        sink.push(words.iter().map(&word))?;
        buffer.clear();
        buffer.extend_from_slice(&left);
        told(file.done());
    }
    Ok(())
}

fn uint16(bytes: &[u8; 2]) -> u32 {
    u16::from_le_bytes(*bytes).into()
}

fn uint32(bytes: &[u8; 4]) -> u32 {
    u32::from_le_bytes(*bytes)
}
