//! Policies as text (docs/spec/bundle.md, "Policy"): a tlog-policy, and lines of our own among its lines.
//!
//! ```text
//! log <vkey> [<url>]
//! witness <name> <vkey> [<url>]
//! group <name> all|any|<k> <member> ...
//! quorum <name>|none
//! faulty <number>
//! predictor <key>
//! device <key>
//! verdict <key>
//! profile <name>
//! simulated yes|no
//! complete yes|no
//! sealed yes|no
//! replayed yes|no
//! challenge cosigned|first|smallest
//! ```

use crate::answered::Asked;
use crate::policy::{Policy, PolicyError};
use schemas::key::PublicKey;
use schemas::profile::F32_FMA;
use tlog::policy::POLICY_BYTES_MAX;

/// What is wrong with a line that is ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Too few or too many items.
    #[error("the line has {found} items, expected `{expected}`")]
    Form {
        /// The line's form.
        expected: &'static str,
        /// Items found.
        found: usize,
    },
    /// The first word is none.
    #[error(
        "the line begins with {found:?}, expected log, witness, group, quorum, faulty, predictor, device, verdict, \
         profile, simulated, complete, sealed, replayed or challenge"
    )]
    Word {
        /// The word found.
        found: String,
    },
    /// Not a public key.
    #[error(transparent)]
    Key(#[from] schemas::key::KeyError),
    /// A second line of what is said once.
    #[error("said on line {first} already; expected it once")]
    Twice {
        /// The earlier line's number.
        first: usize,
    },
    /// Another word than the line takes.
    #[error("expected {expected}, found {found:?}")]
    Value {
        /// What the line takes.
        expected: &'static str,
        /// The word found.
        found: String,
    },
    /// A profile that this program does not know: it could not judge by it.
    #[error("profile {found:?} is not known here; expected {:?}", F32_FMA.id)]
    Profile {
        /// The name found.
        found: String,
    },
    /// More than there may be wrong witnesses.
    #[error("faulty {found}: expected a number below that of the policy's witnesses, {witnesses}")]
    Faulty {
        /// As said.
        found: usize,
        /// Witnesses of the policy.
        witnesses: usize,
    },
    /// Nobody's cosignature counts.
    #[error(
        "challenge {found} asks for cosignatures, and the quorum is none; expected witnesses and a quorum of them"
    )]
    NoQuorum {
        /// What is asked.
        found: &'static str,
    },
    /// Only printable characters, spaces and tabs are allowed.
    #[error("expected text of UTF-8 without control characters other than tabs")]
    Text,
}

/// The words of tlog-policy, which `tlog` reads.
const TLOG_WORDS: [&str; 4] = ["log", "witness", "group", "quorum"];

/// What lines of our own said, each with its number.
#[derive(Default)]
struct Reader {
    predictors: Vec<(usize, PublicKey)>,
    devices: Vec<(usize, PublicKey)>,
    signers: Vec<(usize, PublicKey)>,
    profiles: Vec<(usize, String)>,
    simulated: Option<(usize, bool)>,
    complete: Option<(usize, bool)>,
    sealed: Option<(usize, bool)>,
    replayed: Option<(usize, bool)>,
    challenge: Vec<(usize, Asked)>,
    faulty: Option<(usize, usize)>,
}

/// Reads a policy strictly.
pub fn parse(bytes: &[u8]) -> Result<Policy, PolicyError> {
    if bytes.len() > POLICY_BYTES_MAX {
        return Err(tlog::policy::PolicyError::TooLong { found: bytes.len() }.into());
    }
    let mut reader = Reader::default();
    // What tlog is to read: our lines are empty ones there, so that numbers of lines stay what they are.
    let mut trust = Vec::new();
    for (at, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let ours = line.strip_suffix(b"\n").map_or(Ok(false), |line| reader.line(at + 1, line));
        let ours = ours.map_err(|source| PolicyError::Line { line: at + 1, source })?;
        trust.extend_from_slice(if ours { b"\n" } else { line });
    }
    let trust = tlog::policy::Policy::parse(&trust)?;
    let log_keys = trust.logs().iter().map(|log| log.key.clone()).collect();
    let keys = |keys: Vec<(usize, PublicKey)>| keys.into_iter().map(|(_, key)| key).collect();
    let mut policy =
        Policy::of_logs(log_keys, keys(reader.predictors), keys(reader.devices), keys(reader.signers))?;
    let witnesses = trust.witnesses().len();
    if let Some((line, found)) = reader.faulty.filter(|(_, found)| *found >= witnesses) {
        return Err(PolicyError::Line { line, source: LineError::Faulty { found, witnesses } });
    }
    let cosigned = |(_, asked): &&(usize, Asked)| *asked != Asked::Smallest;
    if let Some((line, asked)) = reader.challenge.iter().find(cosigned)
        && !trust.asks_for_cosignatures()
    {
        return Err(PolicyError::Line { line: *line, source: LineError::NoQuorum { found: asked.word() } });
    }
    policy.set_witnesses(trust, reader.faulty.map_or(0, |(_, found)| found));
    policy.set_profiles(reader.profiles.into_iter().map(|(_, name)| name).collect());
    policy.set_simulated(reader.simulated.is_none_or(|(_, counts)| counts));
    policy.set_complete(reader.complete.is_some_and(|(_, asked)| asked));
    policy.set_sealed(reader.sealed.is_some_and(|(_, asked)| asked));
    policy.set_replayed(reader.replayed.is_some_and(|(_, asked)| asked));
    policy.set_challenge(reader.challenge.into_iter().map(|(_, asked)| asked).collect());
    Ok(policy)
}

impl Reader {
    /// Reads a line, and says whether it is one of ours.
    fn line(&mut self, number: usize, line: &[u8]) -> Result<bool, LineError> {
        let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
        let mut items = line.split(blank).filter(|item| !item.is_empty());
        let Some(word) = items.next() else { return Ok(false) };
        if word.starts_with(b"#") || TLOG_WORDS.iter().any(|known| known.as_bytes() == word) {
            return Ok(false);
        }
        let text = std::str::from_utf8(line).map_err(|_| LineError::Text)?;
        if text.chars().any(|found| found.is_control() && found != '\t') {
            return Err(LineError::Text);
        }
        let items: Vec<&str> = text.split([' ', '\t']).filter(|item| !item.is_empty()).collect();
        let form = |expected| LineError::Form { expected, found: items.len() };
        let of = |expected| match items[..] {
            [_, item] => Ok(item),
            _ => Err(form(expected)),
        };
        match items[0] {
            "predictor" => once(&mut self.predictors, number, of("predictor <key>")?.parse()?)?,
            "device" => once(&mut self.devices, number, of("device <key>")?.parse()?)?,
            "verdict" => once(&mut self.signers, number, of("verdict <key>")?.parse()?)?,
            "profile" => match of("profile <name>")? {
                name if name == F32_FMA.id => once(&mut self.profiles, number, name.to_owned())?,
                name => return Err(LineError::Profile { found: cut(name) }),
            },
            "simulated" => set(&mut self.simulated, number, truth(of("simulated yes|no")?)?)?,
            "complete" => set(&mut self.complete, number, truth(of("complete yes|no")?)?)?,
            "sealed" => set(&mut self.sealed, number, truth(of("sealed yes|no")?)?)?,
            "replayed" => set(&mut self.replayed, number, truth(of("replayed yes|no")?)?)?,
            "challenge" => {
                let word = of("challenge cosigned|first|smallest")?;
                let expected = "cosigned, first or smallest";
                let wrong = || LineError::Value { expected, found: cut(word) };
                once(&mut self.challenge, number, Asked::of_word(word).ok_or_else(wrong)?)?;
            }
            "faulty" => set(&mut self.faulty, number, count(of("faulty <number>")?)?)?,
            word => return Err(LineError::Word { found: cut(word) }),
        }
        Ok(true)
    }
}

fn once<T: PartialEq>(list: &mut Vec<(usize, T)>, number: usize, item: T) -> Result<(), LineError> {
    if let Some((first, _)) = list.iter().find(|(_, known)| *known == item) {
        return Err(LineError::Twice { first: *first });
    }
    list.push((number, item));
    Ok(())
}

fn set<T>(place: &mut Option<(usize, T)>, number: usize, value: T) -> Result<(), LineError> {
    match place {
        Some((first, _)) => Err(LineError::Twice { first: *first }),
        None => {
            *place = Some((number, value));
            Ok(())
        }
    }
}

fn truth(word: &str) -> Result<bool, LineError> {
    match word {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(LineError::Value { expected: "yes or no", found: cut(word) }),
    }
}

fn count(word: &str) -> Result<usize, LineError> {
    let wrong = || LineError::Value { expected: "a decimal without leading zeros", found: cut(word) };
    let number: u16 = word.parse().map_err(|_| wrong())?;
    if number.to_string() == word { Ok(number.into()) } else { Err(wrong()) }
}

fn cut(word: &str) -> String {
    word.chars().take(80).collect()
}
