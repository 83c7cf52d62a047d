//! A policy of three witnesses, and what a report says against it.

use super::log::{Log, witness};
use super::story::predictor_key;
use schemas::bundle::Bundle;
use schemas::object::Object as _;
use verify::bundle::check;
use verify::policy::Policy;
use verify::policy_file::parse;
use verify::report::{Report, State};

/// A policy file of three witnesses of which `quorum` have to cosign, and these lines.
pub fn file(log: &Log, quorum: &str, lines: &str) -> String {
    let witnesses: String =
        (0..3).map(|number| format!("witness w{number} {}\n", witness(number).verifier())).collect();
    let predictor = predictor_key().public();
    let log = log.key();
    format!(
        "# whom I trust\n\nlog {log}\n{witnesses}group two 2 w0 w1 w2\nquorum {quorum}\npredictor {predictor}\n{lines}"
    )
}

pub fn policy(log: &Log, quorum: &str, lines: &str) -> Policy {
    parse(file(log, quorum, lines).as_bytes()).unwrap()
}

/// The number of the check that fails, and why.
pub fn failed(report: &Report) -> (usize, String) {
    let check = report.failure().unwrap_or_else(|| panic!("a check fails: {report}"));
    let State::Fails(why) = &check.state else { unreachable!() };
    (check.number, why.clone())
}

/// Why check 6 fails.
pub fn sixth(bundle: &Bundle, policy: &Policy) -> String {
    let (number, why) = failed(&check(&bundle.encode(), policy));
    assert_eq!(number, 6, "{why}");
    why
}
