//! A bundle that is not in memory is read as one that is; and a file that changes while it is read gives an error,
//! never another answer.

mod support;

use schemas::bundle::Bundle;
use schemas::object::Object as _;
use schemas::source::{Source, SourceError};
use schemas::trace::Trace;
use std::cell::Cell;
use support::story::{Story, policy};
use support::{Vector, World, outcome};
use verify::bundle::{check, check_stored};
use verify::policy::Policy;
use verify::report::{Class, Report};

/// Bytes that are not in memory, as far as a reader can tell. From the read of this number on they are `after`.
struct Elsewhere<'a> {
    before: &'a [u8],
    after: &'a [u8],
    change_at: usize,
    reads: Cell<usize>,
}

impl<'a> Elsewhere<'a> {
    fn new(bytes: &'a [u8]) -> Elsewhere<'a> {
        Elsewhere { before: bytes, after: bytes, change_at: usize::MAX, reads: Cell::new(0) }
    }
}

impl Source for Elsewhere<'_> {
    fn bytes(&self) -> u64 {
        self.before.len() as u64
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), SourceError> {
        self.reads.set(self.reads.get() + 1);
        let now = if self.reads.get() > self.change_at { self.after } else { self.before };
        now.read_at(at, into)
    }
}

/// The report of bytes that are elsewhere and stay as they are.
fn elsewhere(bytes: &[u8], policy: &Policy) -> Report {
    check_stored(&Elsewhere::new(bytes), policy).unwrap()
}

/// A run in which a device met one wrong word, with both traces: evidence is fetched.
fn diverging(world: &World) -> (Story, Bundle) {
    let mut bodies = world.bodies(2);
    let wrong = world.wrong_trace(1, 1, 2, &[(1, 1 << 22)]);
    bodies[1].records[1].traces[0] = wrong.root();
    let right: &Trace = &world.traces[1][1];
    let story = Story::whole(world, &bodies, vec![right.encode(), wrong.encode()], false);
    let bundle = story.bundle(world);
    (story, bundle)
}

/// A bundle of version 2 whose bodies are left out.
fn agreeing(world: &World) -> (Story, Bundle) {
    let mut story = Story::whole(world, &world.bodies(2), vec![], true);
    let mut bundle = story.bundle_2(world, &[(0, 7)], &[(0, 8)]);
    story.leave_out_implied(world, &mut bundle);
    (story, bundle)
}

#[test]
fn what_is_elsewhere_is_read_as_what_is_in_memory() {
    let world = World::new(2, 2, 2);
    for (story, bundle) in [agreeing(&world), diverging(&world)] {
        let (bytes, policy) = (bundle.encode(), policy(story.log.key()));
        let report = check(&bytes, &policy);
        assert!(report.verdict.is_some(), "{report}");
        assert_eq!(elsewhere(&bytes, &policy), report);
        for at in (0..bytes.len()).step_by(5) {
            assert_eq!(elsewhere(&bytes[..at], &policy), check(&bytes[..at], &policy), "cut at {at}");
            let mut changed = bytes.clone();
            changed[at] ^= [1, 0x20, 0x80][at % 3];
            assert_eq!(elsewhere(&changed, &policy), check(&changed, &policy), "byte {at}");
        }
    }
    // Keys and texts that are longer than what is held of a file.
    let long = |last: u8| [&[0x79, 0xc3, 0x50][..], &[b'k'; 49_999], &[last]].concat();
    let policy = policy(agreeing(&world).0.log.key());
    for keys in [[b'a', b'b'], [b'b', b'a'], [b'a', b'a'], [b'a', 0xff]] {
        let bytes = [&[0xa2][..], &long(keys[0]), &[0], &long(keys[1]), &[0]].concat();
        assert_eq!(elsewhere(&bytes, &policy), check(&bytes, &policy), "{keys:?}");
    }
    let text = "\u{e9}\u{1f600}\u{20ac}".repeat(9000);
    let bytes = [&[0x7a], &(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
    assert_eq!(elsewhere(&bytes, &policy), check(&bytes, &policy));
    assert!(check(&bytes, &policy).to_string().contains("expected a map with text keys, found text string"));
}

#[test]
fn a_file_that_is_cut_short_while_it_is_read_gives_no_report() {
    let world = World::new(2, 2, 2);
    for (story, bundle) in [agreeing(&world), diverging(&world)] {
        let (bytes, policy) = (bundle.encode(), policy(story.log.key()));
        let whole = Elsewhere::new(&bytes);
        check_stored(&whole, &policy).unwrap();
        for change_at in 0..whole.reads.get() {
            let source = Elsewhere { after: &bytes[..1], change_at, ..Elsewhere::new(&bytes) };
            let error = check_stored(&source, &policy).unwrap_err();
            assert!(matches!(error, SourceError::Unreadable { .. }), "{change_at}: {error}");
        }
    }
}

#[test]
fn a_file_that_changes_while_it_is_read_gives_no_other_answer() {
    let world = World::new(2, 2, 2);
    let (story, bundle) = diverging(&world);
    let (bytes, policy) = (bundle.encode(), policy(story.log.key()));
    let honest = Story::whole(&world, &world.bodies(2), vec![], false).bundle(&world).encode();
    let (whole, own) = (Elsewhere::new(&bytes), check(&honest, &policy));
    let report = check_stored(&whole, &policy).unwrap();
    assert_eq!((report.class, report.verdict.is_some()), (Class::NotSo, true), "{report}");
    // Each attachment overwritten, one after the other; and the whole file by an honest one, as long as that is.
    let mut others: Vec<Vec<u8>> = Vec::new();
    for attachment in &bundle.attachments {
        let at = bytes.windows(attachment.len()).position(|window| window == attachment).unwrap();
        let mut other = bytes.clone();
        other[at + attachment.len() / 2] ^= 1;
        others.push(other);
    }
    let mut other = bytes.clone();
    other[..honest.len().min(bytes.len())].copy_from_slice(&honest[..honest.len().min(bytes.len())]);
    others.push(other);
    let mut changed = 0;
    for after in &others {
        for change_at in 0..whole.reads.get() {
            let source = Elsewhere { after, change_at, ..Elsewhere::new(&bytes) };
            match check_stored(&source, &policy) {
                Err(SourceError::Changed { what }) => {
                    assert!(what.starts_with("attachment "), "{what}");
                    changed += 1;
                }
                Err(other) => panic!("{other}"),
                // It is one of the two files' own, all of it proven; or a mixture that does not hold.
                Ok(found) => {
                    let known = [&None, &report.verdict, &own.verdict].contains(&&found.verdict);
                    assert!(known && [own.class, Class::NotSo, Class::CouldNot].contains(&found.class));
                    assert!(found.class != own.class || found.verdict == own.verdict, "{found}");
                }
            }
        }
    }
    assert!(changed > 5, "{changed}");
}

/// Receipts are looked at once and their records let go: the earliest step in which one of them departs still decides.
#[test]
fn the_earliest_departure_of_all_devices_decides() {
    let world = World::new(4, 4, 6);
    for (first, second) in [(2, 4), (4, 2), (3, 3), (5, 0)] {
        let mut bodies = world.bodies(4);
        outcome(&mut bodies, 1, first).parameters =
            world.sum_with(first as u64, Vector::Parameters, &[(4, 1 << 22)]);
        outcome(&mut bodies, 3, second).norm ^= 1;
        for missing in [None, Some(2)] {
            if let Some(rank) = missing {
                bodies[rank].records.truncate(1);
            }
            let story = Story::whole(&world, &bodies, vec![], false);
            let report = elsewhere(&story.bundle(&world).encode(), &policy(story.log.key()));
            // The logged verdict was reached with all records in memory: check 8 holds them together.
            let verdict = report.verdict.clone().unwrap_or_else(|| panic!("{report}"));
            // Device 2 has no record of step 1: only what departed before it is a departure.
            let step = first.min(second) as u64;
            let expected = (missing.is_none() || step < 1).then_some(step);
            assert_eq!(verdict.step, expected, "{report}");
        }
    }
}
