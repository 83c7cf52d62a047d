//! What is counted of a running server, in the text form that Prometheus reads (OpenMetrics 1.0).
//!
//! Labels are routes, statuses and kinds of refusal, of which there are few; nothing that a peer sends becomes one,
//! and no key, address or content is in them.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::witness::counters::{Counter as WitnessCounter, Counters, WitnessCounters};

/// Content type of the text.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Shortest commit that is told apart, and how many doublings of it: up to 8 s.
const COMMIT_SECONDS_MIN: f64 = 0.000_5;
const COMMIT_DOUBLINGS: u16 = 15;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WitnessOutcome {
    witness: String,
    outcome: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WitnessName {
    witness: String,
}

/// Counts since the start.
#[derive(Debug)]
pub struct Metrics {
    requests: Family<Answered, Counter>,
    sent_bytes: Family<Route, Counter>,
    refusals: Family<Reason, Counter>,
    entries: Counter,
    entry_bytes: Counter,
    commit_seconds: Histogram,
}

/// What is not counted but looked up when somebody asks.
#[derive(Debug, Clone, Copy)]
pub struct Levels<'a> {
    /// Size of the published tree.
    pub size: u64,
    /// Submissions that wait for a place.
    pub pool_entries: u64,
    /// Their bytes.
    pub pool_bytes: u64,
    /// Bytes of the index's file.
    pub index_bytes: u64,
    /// Bytes of all attachments, those that are arriving included.
    pub attachment_bytes: u64,
    /// What became of asking witnesses, if there are any.
    pub witnesses: Option<&'a Counters>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            requests: Family::default(),
            sent_bytes: Family::default(),
            refusals: Family::default(),
            entries: Counter::default(),
            entry_bytes: Counter::default(),
            commit_seconds: Histogram::new(exponential_buckets(COMMIT_SECONDS_MIN, 2.0, COMMIT_DOUBLINGS)),
        }
    }
}

impl Metrics {
    /// A request was answered.
    pub fn answered(&self, route: &str, status: u16, bytes: u64) {
        self.requests.get_or_create(&Answered { route: route.to_owned(), status }).inc();
        self.sent_bytes.get_or_create(&Route { route: route.to_owned() }).inc_by(bytes);
    }

    /// It was answered with a problem of this kind.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&Reason { reason: reason.to_owned() }).inc();
    }

    /// A commit is done.
    pub fn committed(&self, entries: u64, bytes: u64, took: Duration) {
        self.entries.inc_by(entries);
        self.entry_bytes.inc_by(bytes);
        self.commit_seconds.observe(took.as_secs_f64());
    }

    /// All of it as text.
    pub fn text(&self, levels: Levels<'_>) -> String {
        let mut registry = Registry::with_prefix("tallystick");
        let to = &mut registry;
        to.register("requests", "Requests answered", self.requests.clone());
        to.register("sent", "Bytes of answers, heads not counted", self.sent_bytes.clone());
        to.register("refusals", "Requests answered with a problem", self.refusals.clone());
        to.register("entries", "Entries added", self.entries.clone());
        to.register("entry_bytes", "Bytes of entries added", self.entry_bytes.clone());
        let seconds = self.commit_seconds.clone();
        to.register_with_unit(
            "commit",
            "How long commits took; their number is its count",
            Unit::Seconds,
            seconds,
        );
        level(to, "size", "Size of the published tree", levels.size);
        level(to, "pool_entries", "Submissions that wait for a place", levels.pool_entries);
        level(to, "pool_bytes", "Bytes of submissions that wait", levels.pool_bytes);
        level(to, "index_bytes", "Bytes of the index", levels.index_bytes);
        level(to, "attachment_bytes", "Bytes of attachments", levels.attachment_bytes);
        if let Some(witnesses) = levels.witnesses {
            of_witnesses(to, witnesses);
        }
        let mut text = String::new();
        encode(&mut text, &registry).expect("ledger: writing to memory cannot fail");
        text
    }
}

fn level(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let gauge: Gauge = Gauge::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    registry.register(name, help, gauge);
}

fn of_witnesses(registry: &mut Registry, counters: &Counters) {
    let answers: Family<WitnessOutcome, Counter> = Family::default();
    let sizes: Family<WitnessName, Gauge> = Family::default();
    for witness in &counters.witnesses {
        for (outcome, counter) in outcomes(witness) {
            let labels = WitnessOutcome { witness: witness.name.clone(), outcome: outcome.to_owned() };
            answers.get_or_create(&labels).inc_by(counter.value());
        }
        let size = i64::try_from(witness.size.value()).unwrap_or(i64::MAX);
        sizes.get_or_create(&WitnessName { witness: witness.name.clone() }).set(size);
    }
    registry.register("witness_answers", "What became of asking each witness", answers);
    registry.register("witness_size", "Size of the checkpoint that each witness cosigned last", sizes);
    let quorums: Counter = Counter::default();
    quorums.inc_by(counters.quorums.value());
    registry.register("quorums", "Checkpoints that a quorum has cosigned", quorums);
    level(registry, "witnessed_size", "Size of the latest of them", counters.witnessed_size.value());
    level(
        registry,
        "forked",
        "1 if it is proven that the log's key signed another history",
        counters.forked.value(),
    );
}

fn outcomes(witness: &WitnessCounters) -> [(&'static str, &WitnessCounter); 5] {
    [
        ("cosigned", &witness.cosigned),
        ("unreachable", &witness.unreachable),
        ("refused", &witness.refused),
        ("lied", &witness.lied),
        ("inconsistent", &witness.inconsistent),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_stands_under_its_own_name() {
        let witness = WitnessCounters { name: "w".to_owned(), ..WitnessCounters::default() };
        let counters = Counters { witnesses: vec![witness], ..Counters::default() };
        let witness = &counters.witnesses[0];
        let all = [
            (r#"witness_answers_total{witness="w",outcome="cosigned"}"#, &witness.cosigned),
            (r#"witness_answers_total{witness="w",outcome="unreachable"}"#, &witness.unreachable),
            (r#"witness_answers_total{witness="w",outcome="refused"}"#, &witness.refused),
            (r#"witness_answers_total{witness="w",outcome="lied"}"#, &witness.lied),
            (r#"witness_answers_total{witness="w",outcome="inconsistent"}"#, &witness.inconsistent),
            (r#"witness_size{witness="w"}"#, &witness.size),
            ("quorums_total", &counters.quorums),
            ("witnessed_size", &counters.witnessed_size),
            ("forked", &counters.forked),
        ];
        let mut expected: Vec<(&str, u64)> = Vec::new();
        for (value, (name, counter)) in (11..).zip(all) {
            counter.set(value);
            expected.push((name, value));
        }
        let levels = Levels {
            size: 1,
            pool_entries: 2,
            pool_bytes: 3,
            index_bytes: 4,
            attachment_bytes: 5,
            witnesses: Some(&counters),
        };
        let names = ["size", "pool_entries", "pool_bytes", "index_bytes", "attachment_bytes"];
        expected.extend(names.into_iter().zip(1..));
        let text = Metrics::default().text(levels);
        for (name, value) in expected {
            let line = format!("tallystick_{name} {value}");
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
