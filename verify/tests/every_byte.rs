//! Every byte of a bundle is bound, but for the signature lines of witnesses that the policy does not name
//! (docs/spec/bundle.md): which bytes these are, exactly, and that a change of any other is rejected, as each cut is.

mod support;

use schemas::bundle::Bundle;
use schemas::object::Object as _;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use support::World;
use support::log::witness;
use support::story::{Story, predictor_key};
use verify::bundle::check;
use verify::policy::Policy;
use verify::policy_file::parse;
use verify::report::Class;

/// The witness that policies here name, and one that they do not.
const NAMED: (u8, u64) = (0, 1_800_000_000);
const UNNAMED: (u8, u64) = (1, 1_800_000_001);

/// A bundle of version 2 with a cosigned cover, a completeness and bodies that are left out.
fn bundle(world: &World) -> (Story, Bundle) {
    let mut story = Story::new();
    story.cosigners = vec![NAMED, UNNAMED];
    story.tell(world, &world.bodies(2), vec![], true);
    let mut bundle = story.bundle_2(world, &[NAMED, UNNAMED], &[NAMED, UNNAMED]);
    story.leave_out_implied(world, &mut bundle);
    assert_eq!(bundle.attachments.len(), 1, "the bodies are implied");
    (story, bundle)
}

fn policy(story: &Story) -> Policy {
    let (log, predictor) = (story.log.key(), predictor_key().public());
    let named = witness(NAMED.0);
    let text = format!("log {log}\nwitness w {}\nquorum w\npredictor {predictor}\n", named.verifier());
    parse(text.as_bytes()).unwrap()
}

/// The places of the signature line of the witness that nobody names.
fn lines_of_unnamed(bytes: &[u8]) -> Vec<Range<usize>> {
    let line = format!("\u{2014} witness.example/{} ", UNNAMED.0).into_bytes();
    let begins = bytes.windows(line.len()).enumerate().filter(|(_, window)| *window == line);
    let begins: Vec<usize> = begins.map(|(at, _)| at).collect();
    let end = |at: usize| at + bytes[at..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
    begins.into_iter().map(|at| at..end(at)).collect()
}

/// Changes each byte by each of `changes` (exclusive or), and returns where some change leaves the bundle agreeing.
/// What it then says is what it said before.
fn accepted(bytes: &[u8], policy: &Policy, changes: impl Fn(usize) -> Vec<u8> + Sync) -> BTreeSet<usize> {
    let before = check(bytes, policy);
    assert_eq!(before.class, Class::Agreeing, "{before}");
    let share = |first: usize, threads: usize| {
        let mut found = BTreeSet::new();
        let mut changed = bytes.to_vec();
        for at in (first..bytes.len()).step_by(threads) {
            for change in changes(at) {
                changed[at] = bytes[at] ^ change;
                let report = check(&changed, policy);
                if report.class == Class::Agreeing {
                    assert_eq!(report, before, "byte {at} xor {change:#x}");
                    found.insert(at);
                }
            }
            changed[at] = bytes[at];
        }
        found
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|first| scope.spawn(move || share(first, threads))).collect();
        all.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

fn bits(_: usize) -> Vec<u8> {
    (0..8).map(|bit| 1 << bit).collect()
}

/// One bit of each byte, another of its neighbours.
fn one_bit(at: usize) -> Vec<u8> {
    vec![1 << (at % 8)]
}

#[test]
fn each_byte_outside_the_lines_of_unnamed_witnesses_is_bound() {
    let world = World::new(2, 2, 2);
    let (story, bundle) = bundle(&world);
    let policy = policy(&story);
    let bytes = bundle.encode();
    // In the bundle's checkpoint and in the completeness's, which have to be the same; in the cover's; and in each
    // receipt's, which the receipt's signature covers.
    let lines = lines_of_unnamed(&bytes);
    assert_eq!(lines.len(), 5);
    let near = |at: usize| lines.iter().any(|line| (line.start - 200..line.end + 200).contains(&at));
    let found = accepted(&bytes, &policy, |at| if near(at) { bits(at) } else { one_bit(at) });
    let cover = bundle.covers[0].checkpoint.as_ref().unwrap();
    let cover = bytes.windows(cover.len()).position(|window| window == cover).unwrap();
    let of_cover = lines.iter().find(|line| line.start > cover).unwrap();
    assert!(found.iter().all(|at| of_cover.contains(at)), "{found:?} of {of_cover:?}");
    // Of that line, neither what makes it a line of a note nor the spaces can change: name and signature can.
    let line = &bytes[of_cover.clone()];
    let form: BTreeSet<usize> =
        (0..line.len()).filter(|at| *at < 4 || [b' ', b'\n'].contains(&line[*at])).collect();
    let free = found.iter().map(|at| at - of_cover.start).collect::<BTreeSet<_>>();
    assert!(free.is_disjoint(&form), "{free:?}");
    assert!(free.len() * 10 >= (line.len() - form.len()) * 9, "{} of {}", free.len(), line.len());
    // The same line of the bundle's checkpoint, in both places at once, is as free.
    let mut both = bundle.clone();
    both.checkpoint = story.log.cosigned(story.log.size(), &[NAMED]);
    both.completeness.as_mut().unwrap().checkpoint = both.checkpoint.clone();
    assert_eq!(check(&both.encode(), &policy).class, Class::Agreeing);
    // And without a completeness it stands there alone.
    let mut alone = bundle.clone();
    alone.completeness = None;
    let bytes = alone.encode();
    let of_checkpoint = lines_of_unnamed(&bytes).pop().unwrap();
    let found = accepted(&bytes, &policy, |at| if of_checkpoint.contains(&at) { bits(at) } else { vec![] });
    assert!(found.len() * 10 >= (of_checkpoint.len() - form.len()) * 9, "{found:?}");
}

#[test]
fn each_cut_of_a_bundle_and_each_byte_after_it_is_rejected() {
    let world = World::new(2, 2, 2);
    let (story, bundle) = bundle(&world);
    let policy = policy(&story);
    let mut bytes = bundle.encode();
    for end in 0..bytes.len() {
        assert_eq!(check(&bytes[..end], &policy).class, Class::CouldNot, "cut at {end}");
    }
    bytes.push(0);
    for byte in 0..=255 {
        *bytes.last_mut().unwrap() = byte;
        assert_eq!(check(&bytes, &policy).class, Class::CouldNot, "{byte} added");
    }
}

#[test]
fn each_byte_of_the_first_versions_fixture_is_bound() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("fixtures");
    let bytes = std::fs::read(fixtures.join("bundle/v1/agree.cbor")).unwrap();
    let log = std::fs::read_to_string(fixtures.join("checkpoint/log.vkey")).unwrap();
    let mut seed = [0; 32];
    seed[..9].copy_from_slice(b"predictor");
    let predictor = schemas::key::SecretKey::from_seed(seed).public().to_string();
    let policy = Policy::parse(log.trim(), &[&predictor], &[], &[]).unwrap();
    assert_eq!(accepted(&bytes, &policy, one_bit), BTreeSet::new());
    for end in 0..bytes.len() {
        assert_eq!(check(&bytes[..end], &policy).class, Class::CouldNot, "cut at {end}");
    }
}
