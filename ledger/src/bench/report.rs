//! What is told of a load: as text for people, as one JSON object for machines.

use serde_json::{Value, json};

use crate::bench::load::Figures;
use crate::bench::server::Memory;

/// Bytes of a megabyte.
const MB: f64 = 1e6;

/// Everything that was measured.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Writers at once.
    pub writers: usize,
    /// The closed loop.
    pub full: Figures,
    /// The open loop.
    pub paced: Figures,
    /// Its rate, in entries a second.
    pub paced_per_s: u64,
    /// Entries in the log at the end.
    pub entries: u64,
    /// Bytes of the log's folder after the server has stopped.
    pub folder_bytes: u64,
    /// Bytes of one entry.
    pub entry_bytes: u64,
    /// The server's memory before the first entry.
    pub memory_start: Option<Memory>,
    /// And after the last one.
    pub memory_end: Option<Memory>,
    /// Processor time for an entry of the closed loop, in microseconds: the server's and this program's.
    pub processor_us: Option<(f64, f64)>,
    /// How the log grew, if it was made to grow.
    pub growth: Vec<Growth>,
    /// From the start of a server on the log of one that was killed to its first answer.
    pub start_after_kill_ms: Option<f64>,
    /// The file system of the log's folder.
    pub file_system: Option<String>,
}

/// The log while it grows.
#[derive(Debug, Clone, Copy)]
pub struct Growth {
    /// Its size.
    pub entries: u64,
    /// Entries a second since the size before.
    pub entries_per_s: f64,
    /// The server's memory.
    pub memory: Option<Memory>,
}

impl Report {
    /// Whether the server did all it said: no answer without a proof that holds, and none missing.
    pub fn holds(&self) -> bool {
        [&self.full, &self.paced].iter().all(|figures| figures.not_counted == 0 && figures.failed == 0)
    }

    fn bytes_per_entry(&self) -> f64 {
        self.folder_bytes as f64 / self.entries.max(1) as f64
    }

    fn network_bytes_per_entry(&self) -> f64 {
        let entries = self.full.acknowledged + self.full.late;
        self.full.network_bytes as f64 / entries.max(1) as f64
    }

    /// One object.
    pub fn json(&self) -> Value {
        let resident =
            |memory: Option<Memory>| memory.map(|memory| round(memory.resident_bytes as f64 / MB, 1));
        let peak = |memory: Option<Memory>| memory.map(|memory| round(memory.peak_bytes as f64 / MB, 1));
        let growth = self.growth.iter().map(|step| {
            json!({
                "entries": step.entries,
                "entries_per_s": step.entries_per_s.round(),
                "rss_mb": resident(step.memory),
                "rss_peak_mb": peak(step.memory),
            })
        });
        json!({
            "entries_per_s": self.full.entries_per_s().round(),
            "p50_ms": round(self.paced.wait_ms(0.5), 2),
            "p99_ms": round(self.paced.wait_ms(0.99), 2),
            "bytes_per_entry": round(self.bytes_per_entry(), 1),
            "rss_mb": resident(self.memory_end),
            "rss_start_mb": resident(self.memory_start),
            "rss_peak_mb": peak(self.memory_end),
            "writers": self.writers,
            "seconds": round(self.full.seconds, 2),
            "full_acknowledged": self.full.acknowledged,
            "full_slowest_second": self.full.slowest_second(),
            "full_p50_ms": round(self.full.wait_ms(0.5), 2),
            "full_p99_ms": round(self.full.wait_ms(0.99), 2),
            "paced_per_s": self.paced_per_s,
            "paced_seconds": round(self.paced.seconds, 2),
            "paced_acknowledged": self.paced.waits_us.len(),
            "paced_max_ms": round(self.paced.wait_ms(1.0), 2),
            "busy": self.full.busy + self.paced.busy,
            "not_counted": self.full.not_counted + self.paced.not_counted,
            "failed": self.full.failed + self.paced.failed,
            "entries": self.entries,
            "entry_bytes": self.entry_bytes,
            "network_bytes_per_entry": round(self.network_bytes_per_entry(), 1),
            "server_us_per_entry": self.processor_us.map(|(server, _)| round(server, 1)),
            "client_us_per_entry": self.processor_us.map(|(_, client)| round(client, 1)),
            "growth": growth.collect::<Vec<Value>>(),
            "start_after_kill_ms": self.start_after_kill_ms.map(|ms| round(ms, 1)),
            "file_system": self.file_system,
        })
    }

    /// Lines for people.
    pub fn text(&self) -> String {
        let json = self.json();
        let number =
            |name: &str| json[name].as_f64().map_or_else(|| "?".to_owned(), |value| value.to_string());
        let mut text = format!(
            "full load, {} writers: {} entries/s for {} s (slowest second {}), p50 {} ms, p99 {} ms\n",
            self.writers,
            number("entries_per_s"),
            number("seconds"),
            number("full_slowest_second"),
            number("full_p50_ms"),
            number("full_p99_ms"),
        );
        text += &format!(
            "at {} entries/s: p50 {} ms, p99 {} ms, longest {} ms ({} entries)\n",
            self.paced_per_s,
            number("p50_ms"),
            number("p99_ms"),
            number("paced_max_ms"),
            number("paced_acknowledged"),
        );
        text += &format!(
            "bytes per entry: {} on disk, {} over the network, {} of them the entry\n",
            number("bytes_per_entry"),
            number("network_bytes_per_entry"),
            number("entry_bytes"),
        );
        text += &format!(
            "server's memory: {} MB, {} MB before the load, {} MB at most\n",
            number("rss_mb"),
            number("rss_start_mb"),
            number("rss_peak_mb"),
        );
        text += &format!(
            "processor time per entry at full load: server {} us, load generator {} us\n",
            number("server_us_per_entry"),
            number("client_us_per_entry"),
        );
        text += &format!(
            "answers that asked to come again: {}; not counted: {}; missing: {}\n",
            number("busy"),
            number("not_counted"),
            number("failed"),
        );
        if self.start_after_kill_ms.is_some() {
            let at = number("start_after_kill_ms");
            text += &format!("first answer after a kill at {} entries: {at} ms\n", self.entries);
        }
        let file_system = self.file_system.as_deref().unwrap_or("unknown");
        text += &format!("entries in the log: {}; file system: {file_system}\n", self.entries);
        if file_system == "tmpfs" {
            text += "nothing reaches a disk on tmpfs: give --data a folder of a disk\n";
        }
        text
    }
}

fn round(value: f64, digits: i32) -> f64 {
    let unit = 10_f64.powi(digits);
    (value * unit).round() / unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_its_figures_both_ways() {
        let mut report = Report { writers: 4, entries: 100, folder_bytes: 120_050, ..Report::default() };
        report.full = Figures { acknowledged: 50, seconds: 0.5, ..Figures::default() };
        report.paced = Figures { waits_us: vec![1000, 2500], ..Figures::default() };
        report.memory_end = Some(Memory { resident_bytes: 20_000_000, peak_bytes: 30_000_000 });
        let json = report.json();
        assert_eq!(json["entries_per_s"], 100.0);
        assert_eq!((&json["p50_ms"], &json["p99_ms"]), (&json!(1.0), &json!(2.5)));
        assert_eq!((&json["bytes_per_entry"], &json["rss_mb"]), (&json!(1200.5), &json!(20.0)));
        assert!(json["start_after_kill_ms"].is_null());
        let text = report.text();
        assert!(text.contains("100 entries/s for 0.5 s") && text.contains("p99 2.5 ms"), "{text}");
        assert!(report.holds());
        report.paced.not_counted = 1;
        assert!(!report.holds());
    }
}
