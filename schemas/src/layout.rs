//! An object that stays where it is: a map whose fields are read when they are asked for, and whose lists are read one
//! item at a time. So what is held is what was asked for, however large the whole is.

use crate::cbor::reader::{Head, Reader};
use crate::cbor::{self, CborError, ITEMS_MAX, Value};
use crate::object::{Fields, ObjectError};
use crate::source::{Place, Source};
use std::collections::BTreeMap;

/// Longest item of most lists, and longest of most small fields. The longest that there is is a step record of 1024
/// leaves, some 103 KiB.
pub(crate) const ITEM_BYTES_MAX: u64 = 128 << 10;
/// Most CBOR items in one of them; an operation of a plan has some 80.
const ITEM_ITEMS_MAX: usize = 4096;
/// Most bytes of a field's name that are looked at; the longest name there is has 23.
const NAME_BYTES_MAX: u64 = 320;

/// The fields of a map, by place.
pub(crate) struct Layout<'a> {
    object: &'static str,
    source: &'a dyn Source,
    places: BTreeMap<&'static str, Place>,
    unknown: Option<String>,
}

impl<'a> Layout<'a> {
    /// Finds the fields that `names` lists, once all of the input is known to be the one encoding of one item.
    pub(crate) fn open(
        object: &'static str,
        source: &'a dyn Source,
        place: Place,
        bytes_max: usize,
        names: &[&'static str],
    ) -> Result<Layout<'a>, ObjectError> {
        let wrong = |source| ObjectError::Cbor { object, source };
        if place.bytes > bytes_max as u64 {
            let found = usize::try_from(place.bytes).unwrap_or(usize::MAX);
            return Err(wrong(CborError::TooLong { found, max: bytes_max }));
        }
        Reader::scan(source, place, ITEMS_MAX).map_err(wrong)?;
        let mut layout = Layout { object, source, places: BTreeMap::new(), unknown: None };
        layout.find(place, names)?;
        Ok(layout)
    }

    fn find(&mut self, place: Place, names: &[&'static str]) -> Result<(), ObjectError> {
        let object = self.object;
        let no_map = |found: &str| ObjectError::Field {
            object,
            field: String::new(),
            expected: "a map with text keys".into(),
            found: found.into(),
        };
        let wrong = |source| ObjectError::Cbor { object, source };
        let mut reader = Reader::new(self.source, place);
        let count = match reader.head().map_err(wrong)? {
            Head::Map(count) => count,
            other => return Err(no_map(other.kind())),
        };
        for _ in 0..count {
            let bytes = match reader.head().map_err(wrong)? {
                Head::Text(bytes) => bytes,
                other => return Err(no_map(other.kind())),
            };
            let Place { at, bytes } = reader.skip_bytes(bytes).map_err(wrong)?;
            let name = Place { at, bytes: bytes.min(NAME_BYTES_MAX) };
            let name = name.read(self.source).map_err(|error| wrong(error.into()))?;
            let value = reader.skip().map_err(wrong)?;
            match names.iter().find(|known| known.as_bytes() == name) {
                Some(known) => drop(self.places.insert(known, value)),
                None => {
                    self.unknown.get_or_insert_with(|| String::from_utf8_lossy(&name).into_owned());
                }
            }
        }
        Ok(())
    }

    fn wrong(&self, source: CborError) -> ObjectError {
        ObjectError::Cbor { object: self.object, source }
    }

    fn field(&self, field: &str, expected: impl Into<String>, found: impl Into<String>) -> ObjectError {
        let (object, field) = (self.object, field.into());
        ObjectError::Field { object, field, expected: expected.into(), found: found.into() }
    }

    /// Takes those of these small fields that are there, each of at most `bytes_max` bytes.
    pub(crate) fn fields(&mut self, names: &[&'static str], bytes_max: u64) -> Result<Fields, ObjectError> {
        let mut fields = BTreeMap::new();
        for name in names {
            if let Some(place) = self.places.remove(name) {
                let item = Item { object: self.object, field: name, source: self.source, place };
                fields.insert((*name).to_owned(), item.read(bytes_max)?);
            }
        }
        Ok(Fields::of(self.object, fields))
    }

    /// Takes a field that must be there.
    fn take(&mut self, field: &'static str) -> Result<Place, ObjectError> {
        self.places.remove(field).ok_or(ObjectError::Missing { object: self.object, field })
    }

    /// Takes a byte string of at most `bytes_max` bytes: where its content is.
    pub(crate) fn string(&mut self, field: &'static str, bytes_max: u64) -> Result<Place, ObjectError> {
        let place = self.take(field)?;
        let mut reader = Reader::new(self.source, place);
        match reader.head().map_err(|error| self.wrong(error))? {
            Head::Bytes(bytes) if bytes > bytes_max => {
                Err(self.field(field, format!("at most {bytes_max} bytes"), format!("{bytes} bytes")))
            }
            Head::Bytes(bytes) => reader.skip_bytes(bytes).map_err(|error| self.wrong(error)),
            other => Err(self.field(field, "a byte string", other.kind())),
        }
    }

    /// Takes a byte string of any length that is a row of items of `item_bytes` bytes, at most `count_max` of them.
    pub(crate) fn row(
        &mut self,
        field: &'static str,
        item_bytes: u64,
        count_max: u64,
    ) -> Result<Place, ObjectError> {
        let place = self.string(field, u64::MAX)?;
        if !place.bytes.is_multiple_of(item_bytes) || place.bytes / item_bytes > count_max {
            let expected = format!("0..={count_max} items of {item_bytes} bytes");
            return Err(self.field(field, expected, format!("{} bytes", place.bytes)));
        }
        Ok(place)
    }

    /// Takes an array of at most `count_max` items.
    pub(crate) fn array(&mut self, field: &'static str, count_max: usize) -> Result<Items<'a>, ObjectError> {
        let place = self.take(field)?;
        let mut reader = Reader::new(self.source, place);
        match reader.head().map_err(|error| self.wrong(error))? {
            Head::Array(left) if left <= count_max as u64 => {
                Ok(Items { object: self.object, field, source: self.source, reader, left })
            }
            Head::Array(count) => {
                Err(self.field(field, format!("at most {count_max} items"), count.to_string()))
            }
            other => Err(self.field(field, "an array", other.kind())),
        }
    }

    /// Takes an array of at most `count_max` items, if it is there.
    pub(crate) fn array_optional(
        &mut self,
        field: &'static str,
        count_max: usize,
    ) -> Result<Option<Items<'a>>, ObjectError> {
        match self.places.contains_key(field) {
            true => self.array(field, count_max).map(Some),
            false => Ok(None),
        }
    }

    /// Ends the reading: no field may be left.
    pub(crate) fn close(self) -> Result<(), ObjectError> {
        let left = self.places.into_keys().next().map(str::to_owned);
        match left.or(self.unknown) {
            None => Ok(()),
            Some(field) => {
                Err(ObjectError::Unknown { object: self.object, field: field.chars().take(80).collect() })
            }
        }
    }
}

/// The items of an array, one after the other.
pub(crate) struct Items<'a> {
    object: &'static str,
    field: &'static str,
    source: &'a dyn Source,
    reader: Reader<'a>,
    left: u64,
}

impl<'a> Items<'a> {
    /// Where the next item is.
    pub(crate) fn next_place(&mut self) -> Result<Option<Place>, ObjectError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        self.reader.skip().map(Some).map_err(|source| ObjectError::Cbor { object: self.object, source })
    }

    /// Where the content of the next item is, which has to be a byte string.
    pub(crate) fn next_string(&mut self) -> Result<Option<Place>, ObjectError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let wrong = |source| ObjectError::Cbor { object: self.object, source };
        match self.reader.head().map_err(wrong)? {
            Head::Bytes(bytes) => self.reader.skip_bytes(bytes).map(Some).map_err(wrong),
            other => Err(ObjectError::Field {
                object: self.object,
                field: self.field.into(),
                expected: "byte strings".into(),
                found: other.kind().into(),
            }),
        }
    }

    /// Gives each item, of at most `bytes_max` bytes, to `each`, which says what it is.
    pub(crate) fn read<T>(
        mut self,
        bytes_max: u64,
        mut each: impl FnMut(Value) -> Result<T, ObjectError>,
    ) -> Result<Vec<T>, ObjectError> {
        let mut all = Vec::new();
        while let Some(place) = self.next_place()? {
            let item = Item { object: self.object, field: self.field, source: self.source, place };
            all.push(each(item.read(bytes_max)?)?);
        }
        Ok(all)
    }
}

/// A small item.
struct Item<'a> {
    object: &'static str,
    field: &'static str,
    source: &'a dyn Source,
    place: Place,
}

impl Item<'_> {
    fn read(self, bytes_max: u64) -> Result<Value, ObjectError> {
        let Item { object, field, source, place } = self;
        if place.bytes > bytes_max {
            return Err(ObjectError::Field {
                object,
                field: field.into(),
                expected: format!("items of at most {bytes_max} bytes"),
                found: format!("{} bytes", place.bytes),
            });
        }
        let wrong = |source| ObjectError::Cbor { object, source };
        let bytes = place.read(source).map_err(|error| wrong(error.into()))?;
        cbor::decode_small(&bytes, ITEM_ITEMS_MAX).map_err(wrong)
    }
}
