//! What checking a bundle came to: numbered checks in order, and a class.

use crate::answered::Answered;
use crate::times::Times;
use schemas::verdict::Verdict;

/// Titles of the checks, in the order and with the numbers of docs/spec/bundle.md.
pub const TITLES: [&str; 9] = [
    "bundle can be read",
    "checkpoint is signed by the log",
    "every entry is in the log",
    "every statement is signed by a key of its role",
    "plan and opened prediction are those committed to",
    "prediction came before the receipts, receipts before the opening",
    "attachments are exactly those named",
    "comparison gives the logged verdict again",
    "verdict is agree",
];

/// The title of check 6 for a prediction made openly, which no opening follows.
pub const TITLE_OPENLY: &str = "prediction came before the receipts";

/// What a report comes to; the number is a command's exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Genuine, and prediction and receipts agree.
    Agreeing = 0,
    /// Readable, but a check failed or the verdict is another.
    NotSo = 1,
    /// Could not be read.
    CouldNot = 2,
}

/// How one check went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It holds; what was checked.
    Holds(String),
    /// It does not; what was expected and found.
    Fails(String),
    /// An earlier check failed.
    NotReached,
}

/// One numbered check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// From 1, as in docs/spec/bundle.md.
    pub number: usize,
    /// What holds if it holds.
    pub title: &'static str,
    /// How it went.
    pub state: State,
}

/// The checks of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// In order; after one that fails, none is reached.
    pub checks: Vec<Check>,
    /// What it all comes to.
    pub class: Class,
    /// The logged verdict, once it is known to be what the comparison gives.
    pub verdict: Option<Verdict>,
    /// Which checkpoints the receipts answer, once the same is known.
    pub answered: Option<Answered>,
    /// What is proven of times, once the same is known.
    pub times: Option<Times>,
    /// Leaf index of the log's register by which the prediction is the only one, if the bundle has one.
    pub register: Option<u64>,
    /// What the checks leave open, in words.
    pub caveats: Vec<String>,
}

impl Report {
    /// No check reached yet. Until all hold, the class is the one that fits the first that does not.
    pub(crate) fn new() -> Report {
        Report {
            checks: unreached(&TITLES),
            class: Class::CouldNot,
            verdict: None,
            answered: None,
            times: None,
            register: None,
            caveats: Vec::new(),
        }
    }

    /// Gives a check that is not reached yet the title that fits this bundle.
    pub(crate) fn retitle(&mut self, number: usize, title: &'static str) {
        self.checks[number - 1].title = title;
    }

    /// Records how check `number` went; `None` ends the checking.
    pub(crate) fn record<T, E: std::fmt::Display>(
        &mut self,
        number: usize,
        result: Result<(T, String), E>,
    ) -> Option<T> {
        record(&mut self.checks, &mut self.class, number, result)
    }

    /// The first check that fails.
    pub fn failure(&self) -> Option<&Check> {
        failure(&self.checks)
    }

    /// One line for the whole: `verified: ...`, `genuine, but ...` if all holds and the verdict is not `agree`, or
    /// `not verified: ...`.
    pub fn summary(&self) -> String {
        match (self.class, self.failure()) {
            (Class::Agreeing, _) => {
                let verdict = self.verdict.as_ref().expect("report: an agreeing report has a verdict");
                let receipts = verdict.receipts.len();
                format!(
                    "verified: steps {} of run {} agree with their prediction in {receipts} receipt{}",
                    verdict.steps,
                    verdict.run,
                    if receipts == 1 { "" } else { "s" }
                )
            }
            (_, Some(Check { number: 9, state: State::Fails(why), .. })) => format!("genuine, but {why}"),
            (_, Some(Check { number, state: State::Fails(why), .. })) => {
                format!("not verified: check {number}: {why}")
            }
            _ => panic!("report: neither agreeing nor failing"),
        }
    }
}

impl std::fmt::Display for Report {
    /// The numbered checks, what they leave open, which challenge was answered, what is proven of times, and the
    /// summary; each on a line of its own.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write_checks(f, &self.checks, &self.caveats)?;
        for line in self.answered.iter().flat_map(Answered::lines) {
            writeln!(f, "challenge: {line}")?;
        }
        for line in self.times.iter().flat_map(Times::lines) {
            writeln!(f, "time: {line}")?;
        }
        writeln!(f, "{}", self.summary())
    }
}

/// Checks of these titles, none reached.
pub(crate) fn unreached(titles: &[&'static str]) -> Vec<Check> {
    let check =
        |(at, &title): (usize, &&'static str)| Check { number: at + 1, title, state: State::NotReached };
    titles.iter().enumerate().map(check).collect()
}

/// Records how check `number` went, and what it makes of the class; `None` ends the checking.
pub(crate) fn record<T, E: std::fmt::Display>(
    checks: &mut [Check],
    class: &mut Class,
    number: usize,
    result: Result<(T, String), E>,
) -> Option<T> {
    let check = &mut checks[number - 1];
    assert!(check.state == State::NotReached, "report: check {number} recorded twice");
    match result {
        Ok((value, what)) => {
            check.state = State::Holds(what);
            // What can be read and then fails is a "no".
            *class = Class::NotSo;
            Some(value)
        }
        Err(error) => {
            check.state = State::Fails(error.to_string());
            None
        }
    }
}

/// The first check that fails.
pub(crate) fn failure(checks: &[Check]) -> Option<&Check> {
    checks.iter().find(|check| matches!(check.state, State::Fails(_)))
}

/// Numbered checks, and what they leave open; each on a line of its own.
pub(crate) fn write_checks(
    f: &mut std::fmt::Formatter<'_>,
    checks: &[Check],
    caveats: &[String],
) -> std::fmt::Result {
    for check in checks {
        let (mark, what) = match &check.state {
            State::Holds(what) => ("ok", what.as_str()),
            State::Fails(why) => ("failed", why.as_str()),
            State::NotReached => ("not reached", ""),
        };
        let colon = if what.is_empty() { "" } else { ": " };
        writeln!(f, "{}. {} [{mark}]{colon}{what}", check.number, check.title)?;
    }
    for caveat in caveats {
        writeln!(f, "note: {caveat}")?;
    }
    Ok(())
}

/// A number of things, in words.
pub(crate) fn counted(count: usize, what: &str) -> String {
    schemas::counted::counted(count as u64, what)
}
