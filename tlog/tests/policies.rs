//! Policies: the page's example, every quorum of small policies against its definition, and what is rejected.

use tlog::checkpoint::Checkpoint;
use tlog::cosignature::{Cosignature, CosigningKey};
use tlog::hash::leaf_hash;
use tlog::note::{KeyError, KeyName, SigningKey};
use tlog::policy::{
    GROUPS_MAX, LOGS_MAX, LineError, POLICY_BYTES_MAX, Policy, PolicyError, UntrustedError, WITNESSES_MAX,
};
use tlog::tree::{TreeHead, TreeSize};

fn log(number: u8) -> SigningKey {
    SigningKey::from_seed(KeyName::new("example.com/log").unwrap(), &[number; 32])
}

fn witness(number: u8) -> CosigningKey {
    CosigningKey::from_seed(KeyName::new(&format!("w{number}")).unwrap(), &[number; 32])
}

/// Lines that define witnesses `w0`, `w1` and so on.
fn witness_lines(count: u8) -> String {
    (0..count).map(|number| format!("witness w{number} {}\n", witness(number).verifier())).collect()
}

fn parse(text: &str) -> Policy {
    Policy::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Whether the witnesses of a bit set meet the quorum.
fn met(policy: &Policy, cosigned: u64) -> bool {
    policy.is_met(|witness| {
        let at = policy.witnesses().iter().position(|known| known == witness).unwrap();
        cosigned >> at & 1 == 1
    })
}

fn error_of(text: &str) -> (usize, LineError) {
    match Policy::parse(text.as_bytes()) {
        Err(PolicyError::Line { line, source }) => (line, source),
        other => panic!("{other:?}\n{text}"),
    }
}

#[test]
fn the_example_of_the_specification_asks_for_two_of_the_one_and_one_of_the_other() {
    let text = format!(
        "log {}\n\n{}group X-witnesses 2 w0 w1 w2\n\n{}group Y-witnesses any w3 w4 w5\n\n\
         group X-and-Y all X-witnesses Y-witnesses\nquorum X-and-Y\n",
        log(1).verifier(),
        witness_lines(3),
        witness_lines(6).lines().skip(3).map(|line| format!("{line}\n")).collect::<String>(),
    );
    let policy = parse(&text);
    assert_eq!((policy.logs().len(), policy.witnesses().len()), (1, 6));
    for cosigned in 0..64_u64 {
        let expected = (cosigned & 0b111).count_ones() >= 2 && cosigned >> 3 != 0;
        assert_eq!(met(&policy, cosigned), expected, "{cosigned:06b}");
    }
}

/// A policy as its definition reads: a witness, or at least k of some policies.
enum Tree {
    Witness(u8),
    Group(usize, Vec<Tree>),
}

impl Tree {
    fn met(&self, cosigned: u64) -> bool {
        match self {
            Tree::Witness(number) => cosigned >> number & 1 == 1,
            Tree::Group(threshold, members) => {
                members.iter().filter(|member| member.met(cosigned)).count() >= *threshold
            }
        }
    }

    /// Appends the lines of its groups, innermost first, and returns its name.
    fn write(&self, lines: &mut String, groups: &mut usize) -> String {
        let Tree::Group(threshold, members) = self else {
            let Tree::Witness(number) = self else { unreachable!() };
            return format!("w{number}");
        };
        let names: Vec<String> = members.iter().map(|member| member.write(lines, groups)).collect();
        *groups += 1;
        lines.push_str(&format!("group g{groups} {threshold} {}\n", names.join(" ")));
        format!("g{groups}")
    }
}

/// Every tree over the witnesses [first, first + count), with every threshold of every group.
fn trees(first: u8, count: u8) -> Vec<Tree> {
    let mut found = Vec::new();
    if count == 1 {
        found.push(Tree::Witness(first));
    }
    // Flat groups, and groups of two parts each of which is any tree of its size.
    for threshold in 1..=usize::from(count) {
        let members = (first..first + count).map(Tree::Witness).collect();
        found.push(Tree::Group(threshold, members));
    }
    for left in 1..count {
        for threshold in 1..=2 {
            let (lefts, rights) = (trees(first, left).len(), trees(first + left, count - left).len());
            for (at_left, at_right) in (0..lefts).flat_map(|left| (0..rights).map(move |right| (left, right)))
            {
                let left_tree = trees(first, left).swap_remove(at_left);
                let right_tree = trees(first + left, count - left).swap_remove(at_right);
                found.push(Tree::Group(threshold, vec![left_tree, right_tree]));
            }
        }
    }
    found
}

#[test]
fn every_set_of_witnesses_meets_every_small_policy_as_its_definition_says() {
    let mut policies = 0;
    for count in 1..=4 {
        for tree in trees(0, count) {
            let (mut lines, mut groups) = (witness_lines(count), 0);
            let name = tree.write(&mut lines, &mut groups);
            let policy = parse(&format!("{lines}quorum {name}\n"));
            for cosigned in 0..1_u64 << count {
                assert_eq!(met(&policy, cosigned), tree.met(cosigned), "{cosigned:b} of\n{lines}");
            }
            policies += 1;
        }
    }
    assert!(policies > 300, "{policies}");
}

#[test]
fn all_any_and_numbers_are_what_they_stand_for() {
    for members in 1..=5_u8 {
        let names: String = (0..members).map(|number| format!(" w{number}")).collect();
        let group =
            |word: &str| parse(&format!("{}group g {word}{names}\nquorum g\n", witness_lines(members)));
        assert_eq!(group("all"), group(&members.to_string()));
        assert_eq!(group("any"), group("1"));
    }
    let none = parse("quorum none\n");
    assert!(none.is_quorum(&[]) && !none.asks_for_cosignatures());
    let single = parse(&format!("{}quorum w0\n", witness_lines(1)));
    assert!(single.asks_for_cosignatures() && !met(&single, 0) && met(&single, 1));
}

fn cosignature(number: u8, time_s: u64) -> Cosignature {
    Cosignature { witness: witness(number).verifier().clone(), time_s }
}

/// With any `faulty` witnesses left out, somebody honest has seen the checkpoint by the earliest of the rest.
fn worst_case(times: &[Option<u64>], faulty: usize) -> Option<u64> {
    let sets = 0..1_u32 << times.len();
    let liars = sets.filter(|set| set.count_ones() as usize <= faulty);
    let honest = liars.map(|set| {
        let rest = times.iter().enumerate().filter(|(at, _)| set >> at & 1 == 0);
        rest.filter_map(|(_, time)| *time).min()
    });
    // No honest witness may be left: then nothing is proven.
    honest.collect::<Option<Vec<u64>>>()?.into_iter().max()
}

#[test]
fn the_proven_time_is_the_worst_that_so_many_liars_leave() {
    let policy = parse(&format!("{}group g 2 w0 w1 w2 w3\nquorum g\n", witness_lines(4)));
    // Each witness has signed at one of three times or not at all; a fifth one is not of the policy.
    for code in 0..4_u32.pow(4) {
        let times: Vec<Option<u64>> =
            (0..4).map(|at| [None, Some(10), Some(20), Some(30)][(code >> (2 * at) & 3) as usize]).collect();
        let mut cosignatures = vec![cosignature(9, 1)];
        for (at, time_s) in times.iter().enumerate().filter_map(|(at, time)| time.map(|time| (at, time))) {
            // A later line of the same witness changes nothing.
            cosignatures.extend([cosignature(at as u8, time_s + 5), cosignature(at as u8, time_s)]);
        }
        for faulty in 0..=5 {
            assert_eq!(
                policy.proven_by(&cosignatures, faulty),
                worst_case(&times, faulty),
                "{times:?} {faulty}"
            );
        }
        // By a clock that runs backwards the latest, here the second line of each, is the earliest.
        let backwards: Vec<_> = times.iter().map(|time| time.map(|time| 95 - time)).collect();
        for faulty in 0..=5 {
            let since = policy.proven_since(&cosignatures, faulty);
            assert_eq!(since.map(|time| 100 - time), worst_case(&backwards, faulty), "{times:?} {faulty}");
        }
        let signed = times.iter().flatten().count();
        assert_eq!(policy.is_quorum(&cosignatures), signed >= 2, "{times:?}");
    }
}

#[test]
fn a_policy_opens_checkpoints_of_its_logs_with_a_quorum() {
    let lines: String = [1, 2].map(|number| format!("log {}\n", log(number).verifier())).concat();
    let policy = parse(&format!("{lines}{}group g 2 w0 w1 w2\nquorum g\n", witness_lines(3)));
    let head = TreeHead { size: TreeSize(3), root: leaf_hash(b"x") };
    let checkpoint = Checkpoint { origin: "example.com/log".to_owned(), head };
    let cosigned = |log: &SigningKey, witnesses: &[u8]| {
        let lines =
            witnesses.iter().map(|number| witness(*number).cosign(&checkpoint.text(), 50).to_string());
        format!("{}{}", checkpoint.sign(log), lines.collect::<String>())
    };
    // Either key of the log will do.
    for key in [log(1), log(2)] {
        let (opened, cosignatures) = policy.open(cosigned(&key, &[2, 9, 0]).as_bytes()).unwrap();
        assert_eq!((&opened, cosignatures.len()), (&checkpoint, 2));
        let error = policy.open(cosigned(&key, &[2, 9]).as_bytes()).unwrap_err();
        assert_eq!(error, UntrustedError::NoQuorum { found: 1 });
    }
    let error = policy.open(cosigned(&log(3), &[0, 1, 2]).as_bytes()).unwrap_err();
    assert!(matches!(error, UntrustedError::Checkpoint(_)), "{error}");
    let stranger = SigningKey::from_seed(KeyName::new("example.com/other").unwrap(), &[1; 32]);
    let foreign = Checkpoint { origin: "example.com/other".to_owned(), head }.sign(&stranger);
    let error = policy.open(foreign.as_bytes()).unwrap_err();
    assert_eq!(error, UntrustedError::UnknownLog { found: "example.com/other".to_owned() });
}

#[test]
fn a_cosignature_by_another_key_of_the_same_name_counts_for_nothing() {
    let policy = parse(&format!("{}group g all w0 w1\nquorum g\n", witness_lines(2)));
    let namesake = CosigningKey::from_seed(KeyName::new("w1").unwrap(), &[9; 32]).verifier().clone();
    let stranger = Cosignature { witness: namesake, time_s: 40 };
    let cosignatures = [cosignature(0, 50), stranger];
    assert!(!policy.is_quorum(&cosignatures));
    assert_eq!(policy.proven_by(&cosignatures, 0), Some(50));
    assert_eq!(policy.proven_by(&cosignatures, 1), None);
    assert!(policy.is_quorum(&[cosignature(0, 50), cosignature(1, 40)]));
}

#[test]
fn spaces_comments_urls_and_any_bytes_in_names_are_read() {
    let key = witness(0).verifier().to_string();
    let text = [
        &b"# a comment \xff\n \t \n\t# another\n"[..],
        format!("\tlog  {} https://log.example/ \n", log(1).verifier()).as_bytes(),
        b"witness \xe2\x84\xaa\xff ",
        format!("{key}\thttp://w.example/x\n").as_bytes(),
        b"group K any \xe2\x84\xaa\xff\nquorum K\n# the end\n",
    ]
    .concat();
    let policy = Policy::parse(&text).unwrap();
    assert_eq!(policy.logs()[0].url.as_deref(), Some("https://log.example/"));
    assert_eq!(policy.witnesses()[0].url.as_deref(), Some("http://w.example/x"));
    assert_eq!(policy.witnesses()[0].key, *witness(0).verifier());
    // Names are bytes: these two differ although both are shown alike.
    let other = witness(1).verifier().to_string();
    let alike = [
        format!("witness \u{fffd} {key}\n").as_bytes(),
        b"witness \xff ",
        other.as_bytes(),
        b"\nquorum \xff\n",
    ]
    .concat();
    let policy = Policy::parse(&alike).unwrap();
    assert!(met(&policy, 2) && !met(&policy, 1));
}

#[test]
fn every_mistake_is_refused_with_its_line() {
    let two = witness_lines(2);
    let key = |number| witness(number).verifier().to_string();
    let name = |name: &str| name.to_owned();
    assert_eq!(error_of("quorum none"), (1, LineError::NotEnded));
    assert_eq!(error_of("# x\nquorum none\r\n"), (2, LineError::ControlCharacter { found: 0x0d }));
    assert_eq!(error_of("\x7f\n"), (1, LineError::ControlCharacter { found: 0x7f }));
    assert_eq!(error_of("Quorum none\n"), (1, LineError::UnknownWord { found: name("Quorum") }));
    for (form, lines) in [
        ("log <vkey> [<url>]", ["log\n", "log a b c\n"]),
        ("witness <name> <vkey> [<url>]", ["witness a\n", "witness a b c d\n"]),
        ("group <name> all|any|<k> <member> ...", ["group a\n", "group a all\n"]),
        ("quorum <name>|none", ["quorum\n", "quorum a b\n"]),
    ] {
        for line in lines {
            let found = line.split_whitespace().count();
            assert_eq!(error_of(line), (1, LineError::WrongForm { expected: form, found }));
        }
    }
    let foreign = KeyError::UnsupportedType { expected: 4, found: 1 };
    assert_eq!(error_of(&format!("witness a {}\n", log(1).verifier())), (1, LineError::Key(foreign)));
    let foreign = KeyError::UnsupportedType { expected: 1, found: 4 };
    assert_eq!(error_of(&format!("log {}\n", key(1))), (1, LineError::Key(foreign)));

    // The same public key, under another name and so another ID.
    let renamed = CosigningKey::from_seed(KeyName::new("other").unwrap(), &[1; 32]).verifier().to_string();
    assert_eq!(error_of(&format!("{two}witness z {renamed}\n")), (3, LineError::DuplicateKey { first: 2 }));
    let log_line = format!("log {}\n", log(1).verifier());
    let renamed = SigningKey::from_seed(KeyName::new("other").unwrap(), &[1; 32]).verifier().to_string();
    assert_eq!(error_of(&format!("{log_line}log {renamed}\n")), (2, LineError::DuplicateKey { first: 1 }));

    let taken = |taken: &str| LineError::NameTaken { name: name(taken) };
    assert_eq!(error_of(&format!("{two}witness w0 {}\n", key(5))), (3, taken("w0")));
    assert_eq!(error_of(&format!("{two}group w0 any w1\n")), (3, taken("w0")));
    assert_eq!(error_of(&format!("witness none {}\n", key(5))), (1, taken("none")));
    assert_eq!(error_of(&format!("{two}group none any w1\n")), (3, taken("none")));
    let unknown = |unknown: &str| LineError::NameUnknown { name: name(unknown) };
    assert_eq!(error_of(&format!("group g any w0\n{two}")), (1, unknown("w0")));
    assert_eq!(error_of(&format!("{two}group g any g\n")), (3, unknown("g")));
    assert_eq!(error_of(&format!("{two}group g any none\n")), (3, unknown("none")));
    assert_eq!(error_of(&format!("quorum w0\n{two}")), (1, unknown("w0")));
    let twice = |twice: &str| LineError::MemberTwice { name: name(twice) };
    assert_eq!(error_of(&format!("{two}group g any w0 w0\n")), (3, twice("w0")));
    assert_eq!(error_of(&format!("{two}group g any w0\ngroup h any w1 w0\n")), (4, twice("w0")));
    for word in ["0", "3", "-1", "+1", "01", "All", "", "18446744073709551617"] {
        if !word.is_empty() {
            let wrong = LineError::BadThreshold { found: name(word), members: 2 };
            assert_eq!(error_of(&format!("{two}group g {word} w0 w1\n")), (3, wrong));
        }
    }
    assert_eq!(error_of("quorum none\nquorum none\n"), (2, LineError::SecondQuorum));
    assert_eq!(Policy::parse(two.as_bytes()), Err(PolicyError::NoQuorum));
    assert_eq!(Policy::parse(b""), Err(PolicyError::NoQuorum));
}

#[test]
fn as_many_as_the_limits_allow_are_read_and_no_more() {
    let logs = |count: usize| -> String {
        (0..count).map(|number| format!("log {}\n", log(number as u8).verifier())).collect()
    };
    let full = witness_lines(WITNESSES_MAX as u8);
    let groups = |count: usize| -> String {
        let member = |number: usize| if number == 0 { "w0".to_owned() } else { format!("g{}", number - 1) };
        (0..count).map(|number| format!("group g{number} all {}\n", member(number))).collect()
    };
    let text = format!("{}{full}{}quorum g{}\n", logs(LOGS_MAX), groups(GROUPS_MAX), GROUPS_MAX - 1);
    let policy = parse(&text);
    assert!(met(&policy, 1) && !met(&policy, u64::MAX - 1), "a chain of groups over w0");

    let too_many = |what, expected| LineError::TooMany { what, expected };
    assert_eq!(error_of(&logs(LOGS_MAX + 1)), (LOGS_MAX + 1, too_many("logs", LOGS_MAX)));
    let witnesses = witness_lines(WITNESSES_MAX as u8 + 1);
    assert_eq!(error_of(&witnesses), (WITNESSES_MAX + 1, too_many("witnesses", WITNESSES_MAX)));
    let one_more = format!("{}{}", witness_lines(1), groups(GROUPS_MAX + 1));
    assert_eq!(error_of(&one_more), (GROUPS_MAX + 2, too_many("groups", GROUPS_MAX)));
    let long = |length: usize| format!("#{}\nquorum none\n", "x".repeat(length - "#\nquorum none\n".len()));
    parse(&long(POLICY_BYTES_MAX));
    let found = POLICY_BYTES_MAX + 1;
    assert_eq!(Policy::parse(long(found).as_bytes()), Err(PolicyError::TooLong { found }));
}
