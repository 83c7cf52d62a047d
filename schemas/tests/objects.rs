//! What holds for every object: one value, one encoding, and nothing else is read.

mod sample;

use sample::objects::sample;
use schemas::bundle::Bundle;
use schemas::object::{Object as _, ObjectError};
use schemas::opened::OpenedStep;

#[test]
fn every_object_is_read_from_the_one_encoding() {
    for object in sample::all(&sample()) {
        let what = format!("{}/{}", object.stem, object.name);
        assert_eq!((object.read)(&object.bytes).as_ref(), Ok(&object.bytes), "{what}");
        let longer = [&object.bytes[..], &[0]].concat();
        assert!((object.read)(&longer).is_err(), "{what}: a trailing byte");
    }
}

#[test]
fn every_truncation_is_rejected() {
    for object in sample::all(&sample()) {
        for end in 0..object.bytes.len() {
            assert!(
                (object.read)(&object.bytes[..end]).is_err(),
                "{}/{}: cut at {end}",
                object.stem,
                object.name
            );
        }
    }
}

/// A flip is rejected, or it is another value whose one encoding is the flipped bytes; never a second encoding.
#[test]
fn every_flipped_bit_is_rejected_or_another_value() {
    for object in sample::all(&sample()) {
        let what = format!("{}/{}", object.stem, object.name);
        let (mut rejected, mut other) = (0, 0);
        // Every bit of a short object; of a long one, one bit of each byte, a different one from byte to byte.
        let bits_per_byte = if object.bytes.len() <= 2048 { 8 } else { 1 };
        for i in 0..object.bytes.len() * bits_per_byte {
            let bit = if bits_per_byte == 8 { i } else { 8 * i + i % 8 };
            let mut flipped = object.bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match (object.read)(&flipped) {
                Ok(again) => {
                    assert_eq!(again, flipped, "{what}: bit {bit} gives a second encoding");
                    other += 1;
                }
                Err(_) => rejected += 1,
            }
        }
        assert!(rejected > 0, "{what}");
        assert_eq!(object.stem == "statement", other == 0, "{what}: {other} flips were read");
    }
}

#[test]
fn a_field_that_an_object_has_not_is_rejected_by_name() {
    // Longer than any name there is, so that it comes last in the one encoding.
    let name = "z".repeat(24);
    let mut tried = 0;
    for object in sample::all(&sample()) {
        let mut longer = object.bytes.clone();
        if !(0xa1..0xb7).contains(&longer[0]) {
            continue;
        }
        longer[0] += 1;
        longer.extend([&[0x78, 24], name.as_bytes(), &[0]].concat());
        let message = (object.read)(&longer).unwrap_err();
        assert!(message.contains(&name), "{}/{}: {message}", object.stem, object.name);
        tried += 1;
    }
    assert!(tried > 20, "{tried} maps");
}

/// Version 1 of a bundle has no register and no folds.
#[test]
fn fields_of_version_2_are_rejected_in_a_bundle_of_version_1() {
    let mut bundle = Bundle::decode(include_bytes!("../../fixtures/bundle/agree.cbor")).unwrap();
    bundle.covers.iter_mut().for_each(|cover| cover.checkpoint = None);
    let mut bytes = bundle.encode();
    // The version stands last.
    assert_eq!(std::mem::replace(bytes.last_mut().unwrap(), 1), 2);
    let found = ObjectError::Unknown { object: "bundle", field: "completeness".into() };
    assert_eq!(Bundle::decode(&bytes), Err(found));
}

#[test]
fn a_cover_is_of_a_tree_of_at_most_2_to_the_63_less_1_entries() {
    let bundle = Bundle::decode(include_bytes!("../../fixtures/bundle/agree.cbor")).unwrap();
    for (tree_size, taken) in [(i64::MAX as u64, true), (i64::MAX as u64 + 1, false)] {
        let mut bundle = bundle.clone();
        bundle.covers.last_mut().unwrap().tree_size = tree_size;
        assert_eq!(Bundle::decode(&bundle.encode()).is_ok(), taken, "{tree_size}");
    }
}

#[test]
fn an_opened_step_is_refused_by_its_length_above_4_mib() {
    let refused = |bytes: usize| OpenedStep::decode(&vec![0; bytes]).unwrap_err().to_string();
    assert!(!refused(4 << 20).contains("4194304"), "{}", refused(4 << 20));
    let beyond = refused((4 << 20) + 1);
    assert!(beyond.contains("4194305") && beyond.contains("4194304"), "{beyond}");
}

/// Limits come first: not even a header is read of an input that is too long or empty.
#[test]
fn an_empty_input_is_an_error() {
    for object in sample::all(&sample()) {
        let message = (object.read)(&[]).unwrap_err();
        assert!(message.ends_with(": not well-formed CBOR at byte 0: end of input bytes"), "{message}");
    }
}

/// docs/spec/prediction.md states it.
#[test]
fn a_record_of_eight_leaves_and_four_devices_has_661_bytes() {
    let mut record = sample().body.records[0].clone();
    record.traces = [&record.traces[..], &record.traces].concat();
    record.losses = [&record.losses[..], &record.losses].concat();
    let outcome = record.outcome.as_mut().unwrap();
    outcome.nodes = vec![outcome.reduced; 7];
    assert_eq!((record.traces.len(), record.losses.len()), (8, 8));
    assert_eq!(schemas::cbor::encode(&record.to_value()).len(), 661);
}
