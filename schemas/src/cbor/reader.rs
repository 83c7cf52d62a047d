//! Reads deterministic CBOR item by item, from memory or from wherever a [`Source`] has it, in room that does not
//! grow with the input.

use super::{CborError, DEPTH_MAX, ITEMS_MAX, Value};
use crate::source::{Place, Source};

/// Bytes held of a source that is not in memory.
const WINDOW_BYTES: u64 = 16 << 10;
/// Bytes of two keys compared at once.
const COMPARED_BYTES: u64 = 64 << 10;

/// The beginning of an item: its type, and its value, length or count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Uint(u64),
    Nint(u64),
    Bytes(u64),
    Text(u64),
    Array(u64),
    Map(u64),
    Tag(u64),
    Bool(bool),
    Null,
}

impl Head {
    /// The name of the item's type, for error messages.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Head::Uint(_) => "unsigned integer",
            Head::Nint(_) => "negative integer",
            Head::Bytes(_) => "byte string",
            Head::Text(_) => "text string",
            Head::Array(_) => "array",
            Head::Map(_) => "map",
            Head::Tag(_) => "tag",
            Head::Bool(_) => "bool",
            Head::Null => "null",
        }
    }
}

/// A reader of a part of a source. Offsets in its errors count from where that part begins.
pub(crate) struct Reader<'a> {
    source: &'a dyn Source,
    memory: Option<&'a [u8]>,
    start: u64,
    end: u64,
    at: u64,
    window: Vec<u8>,
    window_at: u64,
    items: usize,
    items_max: usize,
    /// The first byte, as far as is known, that the one encoding of what was read would have otherwise.
    deviates_at: Option<u64>,
    repeats_a_key: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(source: &'a dyn Source, place: Place) -> Reader<'a> {
        Reader {
            source,
            memory: source.in_memory(),
            start: place.at,
            end: place.at + place.bytes,
            at: place.at,
            window: Vec::new(),
            window_at: 0,
            items: 0,
            items_max: ITEMS_MAX,
            deviates_at: None,
            repeats_a_key: false,
        }
    }

    /// Reads all without keeping any: whether it is the one encoding of one item, within the limits. What comes after
    /// may then trust counts and lengths, as long as the source does not change.
    pub(crate) fn scan(source: &'a dyn Source, place: Place, items_max: usize) -> Result<(), CborError> {
        let mut reader = Reader { items_max, ..Reader::new(source, place) };
        reader.item(0, false)?;
        reader.check_one_encoding()
    }

    /// What remains to be said when an item has ended: nothing follows, and it has no other encoding. An input that is
    /// not well-formed has that told first, wherever it is.
    fn check_one_encoding(&mut self) -> Result<(), CborError> {
        if self.repeats_a_key {
            return Err(CborError::NotDeterministic { offset: self.offset(self.at) });
        }
        if self.at != self.end {
            self.deviates(self.at);
        }
        match self.deviates_at {
            Some(at) => Err(CborError::NotDeterministic { offset: self.offset(at) }),
            None => Ok(()),
        }
    }

    /// Reads the next item.
    pub(crate) fn value(&mut self) -> Result<Value, CborError> {
        self.item(0, true)
    }

    /// Passes the next item; returns where it is.
    pub(crate) fn skip(&mut self) -> Result<Place, CborError> {
        let at = self.at;
        self.item(0, false)?;
        Ok(Place { at, bytes: self.at - at })
    }

    /// Passes the content of a string whose head was read; returns where it is.
    pub(crate) fn skip_bytes(&mut self, bytes: u64) -> Result<Place, CborError> {
        let at = self.at;
        self.pass(bytes, at)?;
        Ok(Place { at, bytes })
    }

    /// Reads the head of the next item.
    pub(crate) fn head(&mut self) -> Result<Head, CborError> {
        let (at, offset) = (self.at, self.offset(self.at));
        let bytes = self.ahead(9)?;
        let cut = || CborError::Malformed { offset, reason: END_OF_INPUT.into() };
        let first = *bytes.first().ok_or_else(cut)?;
        let (major, info) = (first >> 5, first & 0x1f);
        let long = match info {
            24..=27 => 1 << (info - 24),
            _ => 0,
        };
        if info >= 28 || (major == 7 && !matches!(first, 0xf4..=0xf6)) {
            return Err(CborError::Unsupported { offset, found: unsupported(first) });
        }
        let tail = bytes.get(1..1 + long).ok_or_else(cut)?;
        let number = match long {
            0 => info.into(),
            _ => tail.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte)),
        };
        let shortest = match number {
            0..24 => 0,
            24..0x100 => 1,
            0x100..0x1_0000 => 2,
            0x1_0000..0x1_0000_0000 => 4,
            _ => 8,
        };
        self.at += 1 + long as u64;
        if long != shortest {
            self.deviates(at);
        }
        Ok(match (major, first) {
            (0, _) => Head::Uint(number),
            (1, _) => Head::Nint(number),
            (2, _) => Head::Bytes(number),
            (3, _) => Head::Text(number),
            (4, _) => Head::Array(number),
            (5, _) => Head::Map(number),
            (6, _) => Head::Tag(number),
            (_, 0xf4) => Head::Bool(false),
            (_, 0xf5) => Head::Bool(true),
            _ => Head::Null,
        })
    }

    /// One item and all within it. Without `keep` it is only passed, and `Null` is returned for it.
    fn item(&mut self, depth: usize, keep: bool) -> Result<Value, CborError> {
        let (at, offset) = (self.at, self.offset(self.at));
        if self.items == self.items_max {
            return Err(CborError::TooMany { offset, max: self.items_max });
        }
        self.items += 1;
        if depth > DEPTH_MAX {
            return Err(CborError::TooDeep { offset, max: DEPTH_MAX });
        }
        let value = match self.head()? {
            Head::Uint(number) => Value::Uint(number),
            Head::Nint(number) => Value::Nint(number),
            Head::Bool(truth) => Value::Bool(truth),
            Head::Null => Value::Null,
            Head::Bytes(bytes) if keep => Value::Bytes(self.take(bytes, at)?),
            Head::Bytes(bytes) => {
                self.pass(bytes, at)?;
                Value::Null
            }
            Head::Text(bytes) => self.text(bytes, at, keep)?,
            Head::Array(count) => {
                let mut items = Vec::with_capacity(if keep { self.fitting(count, offset)? } else { 0 });
                self.fitting(count, offset)?;
                for _ in 0..count {
                    let item = self.item(depth + 1, keep)?;
                    if keep {
                        items.push(item);
                    }
                }
                Value::Array(items)
            }
            Head::Map(count) => self.map(count, offset, depth, keep)?,
            Head::Tag(tag) => Value::Tag(tag, Box::new(self.item(depth + 1, keep)?)),
        };
        Ok(if keep { value } else { Value::Null })
    }

    fn map(&mut self, count: u64, offset: usize, depth: usize, keep: bool) -> Result<Value, CborError> {
        let count = self.fitting(count, offset)?;
        let mut pairs = Vec::with_capacity(if keep { count } else { 0 });
        let mut last: Option<Place> = None;
        for _ in 0..count {
            let at = self.at;
            let key = self.item(depth + 1, keep)?;
            let place = Place { at, bytes: self.at - at };
            if let Some(last) = last.replace(place) {
                self.check_order(last, place)?;
            }
            let item = self.item(depth + 1, keep)?;
            if keep {
                pairs.push((key, item));
            }
        }
        Ok(Value::Map(pairs))
    }

    /// Keys ascend by their encoded bytes. Of two in the wrong order, the one encoding differs from these bytes where
    /// the first of them differs from the second.
    fn check_order(&mut self, first: Place, second: Place) -> Result<(), CborError> {
        let both = first.bytes.min(second.bytes);
        let mut done = 0;
        let (mut one, mut two) = (Vec::new(), Vec::new());
        while done < both {
            let count = COMPARED_BYTES.min(both - done) as usize;
            let one = self.passed(first.at + done, count, &mut one)?;
            let two = self.passed(second.at + done, count, &mut two)?;
            if let Some(at) = one.iter().zip(two).position(|(one, two)| one != two) {
                if one[at] > two[at] {
                    self.deviates(first.at + done + at as u64);
                }
                return Ok(());
            }
            done += count as u64;
        }
        // No encoded item is the beginning of another, so that these two are the same.
        match first.bytes == second.bytes {
            true => self.repeats_a_key = true,
            false => self.deviates(second.at),
        }
        Ok(())
    }

    /// The bytes ahead, `wanted` of them or as many as there are; at most a window's.
    fn ahead(&mut self, wanted: u64) -> Result<&[u8], CborError> {
        let to = self.end.min(self.at + wanted);
        if let Some(memory) = self.memory {
            return Ok(memory.get(self.at as usize..to as usize).unwrap_or_default());
        }
        if self.at < self.window_at || to > self.window_at + self.window.len() as u64 {
            self.window.resize(WINDOW_BYTES.min(self.end - self.at) as usize, 0);
            self.window_at = self.at;
            if let Err(error) = self.source.read_at(self.at, &mut self.window) {
                self.window.clear();
                return Err(error.into());
            }
        }
        let from = (self.at - self.window_at) as usize;
        Ok(&self.window[from..from + (to - self.at) as usize])
    }

    /// Bytes that were passed already; what is not in memory is read into `room`.
    fn passed<'b>(&'b self, at: u64, count: usize, room: &'b mut Vec<u8>) -> Result<&'b [u8], CborError> {
        let within = |bytes: &'b [u8], begins: u64| {
            bytes.get(usize::try_from(at.checked_sub(begins)?).ok()?..)?.get(..count)
        };
        let held = self.memory.and_then(|memory| within(memory, 0));
        match held.or_else(|| within(&self.window, self.window_at)) {
            Some(bytes) => Ok(bytes),
            None => {
                room.resize(count, 0);
                self.source.read_at(at, room)?;
                Ok(room)
            }
        }
    }

    fn pass(&mut self, bytes: u64, item_at: u64) -> Result<(), CborError> {
        if bytes > self.end - self.at {
            let offset = self.offset(item_at);
            return Err(CborError::Malformed { offset, reason: END_OF_INPUT.into() });
        }
        self.at += bytes;
        Ok(())
    }

    fn take(&mut self, bytes: u64, item_at: u64) -> Result<Vec<u8>, CborError> {
        let place = Place { at: self.at, bytes };
        self.pass(bytes, item_at)?;
        Ok(place.read(self.source)?)
    }

    fn text(&mut self, bytes: u64, item_at: u64, keep: bool) -> Result<Value, CborError> {
        let after = self.at;
        self.pass(bytes, item_at)?;
        let end = std::mem::replace(&mut self.at, after);
        let mut text = String::new();
        while self.at < end {
            let wanted = WINDOW_BYTES.min(end - self.at);
            let piece = self.ahead(wanted)?;
            // A character that the window cuts is whole in the next one.
            let right = match std::str::from_utf8(piece) {
                Ok(right) => right,
                Err(error) => std::str::from_utf8(&piece[..error.valid_up_to()]).unwrap_or_default(),
            };
            let right_bytes = right.len() as u64;
            if keep {
                text.push_str(right);
            }
            if right_bytes == 0 {
                let offset = self.offset(item_at);
                let reason = format!("invalid utf-8 at position {offset}");
                return Err(CborError::Malformed { offset, reason });
            }
            self.at += right_bytes;
        }
        Ok(Value::Text(text))
    }

    /// Refuses a count that the remaining bytes cannot hold (every item takes at least one), before allocating for it.
    fn fitting(&self, count: u64, offset: usize) -> Result<usize, CborError> {
        let left = self.end - self.at;
        usize::try_from(count).ok().filter(|_| count <= left).ok_or_else(|| CborError::Malformed {
            offset,
            reason: format!("{count} items declared, {left} bytes left"),
        })
    }

    fn deviates(&mut self, at: u64) {
        self.deviates_at = Some(self.deviates_at.map_or(at, |before| before.min(at)));
    }

    fn offset(&self, at: u64) -> usize {
        (at - self.start) as usize
    }
}

const END_OF_INPUT: &str = "end of input bytes";

/// The name of a first byte that no item here has.
fn unsupported(first: u8) -> String {
    let name = match first {
        0x5f => "indefinite bytes",
        0x7f => "indefinite string",
        0x9f => "indefinite array",
        0xbf => "indefinite map",
        0xe0..=0xf3 | 0xf8 => "simple",
        0xf7 => "undefined",
        0xf9 => "f16",
        0xfa => "f32",
        0xfb => "f64",
        0xff => "break",
        other => return format!("{other:#x}"),
    };
    name.into()
}
