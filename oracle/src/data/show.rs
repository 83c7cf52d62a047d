//! What a leaf reads, for people and as JSON.

use client::output::printable;
use schemas::counted::counted;
use serde_json::{Value, json};
use std::fmt::Write as _;
use step::tokens::tokenizer::Tokenizer;
use step::tokens::{Shard, Stream};
use verify::window::Sequence;

/// Tokens of a sequence that are shown to people.
const SHOWN_TOKENS: usize = 12;
/// Characters of a sequence's text that are shown to people.
const SHOWN_CHARS: usize = 72;

/// What one leaf reads.
pub struct Leaf {
    /// The step.
    pub step: u64,
    /// The leaf.
    pub leaf: u64,
    /// T.
    pub time: u64,
    /// B sequences.
    pub sequences: Vec<Shown>,
}

/// One sequence.
pub struct Shown {
    /// Its number in the run.
    number: u64,
    /// How often the whole data has been read before it.
    epoch: u64,
    sequence: Sequence,
    /// File, first and last token in it; empty where only the stream is known.
    from: Vec<(String, u64, u64)>,
    text: Option<String>,
}

impl Shown {
    /// Sequence `number` of a run whose epochs have `windows` sequences.
    pub fn new(number: u64, windows: u64, sequence: Sequence, tokenizer: Option<&Tokenizer>) -> Shown {
        let text = tokenizer.and_then(|tokenizer| tokenizer.decode(&sequence.inputs));
        Shown { number, epoch: number / windows, sequence, from: vec![], text }
    }

    /// The same, with the files that its tokens come from.
    pub fn located(mut self, stream: &Stream, time: u64) -> Shown {
        let (first, last) = (self.sequence.window * time, self.sequence.window * time + time);
        let part = |shard: &Shard| {
            let name = printable(&shard.path.to_string_lossy());
            (
                name,
                first.max(shard.first) - shard.first,
                last.min(shard.first + shard.tokens - 1) - shard.first,
            )
        };
        self.from = stream.shards_of(first..=last).iter().map(part).collect();
        self
    }

    fn to_json(&self, time: u64) -> Value {
        let first = self.sequence.window * time;
        let from: Vec<Value> = self
            .from
            .iter()
            .map(|(file, first, last)| json!({"file": file, "first": first, "last": last}))
            .collect();
        let mut object = json!({
            "sequence": self.number, "epoch": self.epoch, "window": self.sequence.window, "first": first,
            "last": first + time, "inputs": self.sequence.inputs, "targets": self.sequence.targets,
        });
        if !from.is_empty() {
            object["from"] = from.into();
        }
        if let Some(text) = &self.text {
            object["text"] = text.as_str().into();
        }
        object
    }
}

impl Leaf {
    /// For people: the first tokens of every sequence.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "step {} leaf {}: {} of {}\n",
            self.step,
            self.leaf,
            counted(self.sequences.len() as u64, "sequence"),
            counted(self.time, "token")
        );
        let mut line = |name: &str, value: &str| {
            writeln!(text, "{name:<12} {value}").expect("show: a text takes everything");
        };
        for shown in &self.sequences {
            let first = shown.sequence.window * self.time;
            line(
                &format!("sequence {}", shown.number),
                &format!(
                    "window {}, epoch {}: tokens {first} to {} of the data",
                    shown.sequence.window,
                    shown.epoch,
                    first + self.time
                ),
            );
            for (file, first, last) in &shown.from {
                line("  from", &format!("{file}, tokens {first} to {last}"));
            }
            line("  inputs", &numbers(&shown.sequence.inputs));
            line("  targets", &numbers(&shown.sequence.targets));
            if let Some(text) = &shown.text {
                line("  text", &quoted(text));
            }
        }
        text
    }

    /// Everything.
    pub fn to_json(&self) -> Value {
        let sequences: Vec<Value> = self.sequences.iter().map(|shown| shown.to_json(self.time)).collect();
        json!({ "step": self.step, "leaf": self.leaf, "sequences": sequences })
    }
}

fn numbers(tokens: &[u32]) -> String {
    let mut text: Vec<String> = tokens.iter().take(SHOWN_TOKENS).map(u32::to_string).collect();
    if tokens.len() > SHOWN_TOKENS {
        text.push("...".into());
    }
    text.join(" ")
}

/// The beginning of a text in quotes; nothing in it moves a terminal.
fn quoted(text: &str) -> String {
    let mut beginning: String = text.chars().take(SHOWN_CHARS).collect();
    if beginning.len() < text.len() {
        beginning.push_str("...");
    }
    printable(&format!("{beginning:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_text_shows_is_harmless_and_short() {
        assert_eq!(quoted("a\u{1b}[31m\nb\u{202e}\u{9b}"), "\"a\\u{1b}[31m\\nb\\u{202e}\\u{9b}\"");
        assert_eq!(quoted(&"x".repeat(100)), format!("\"{}...\"", "x".repeat(72)));
        assert_eq!(numbers(&[7; 12]), ["7"; 12].join(" "));
        assert_eq!(numbers(&[7; 13]), ["7"; 12].join(" ") + " ...");
    }
}
