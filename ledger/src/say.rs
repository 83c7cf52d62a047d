//! What the command says on stderr beside its diagnostics: lines for people, or a JSON object on each line.
//!
//! With JSON everything is one: errors, hints, progress, and panics with their place. Whoever collects the lines needs
//! one parser.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::level_filters::LevelFilter;

static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Sets up messages, once, before there are any.
pub fn begin(as_json: bool, level: LevelFilter) {
    let messages = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level);
    if !as_json {
        return messages.init();
    }
    messages.json().init();
    AS_JSON.store(true, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|panic| {
        // Taken only if the environment asks for it (RUST_BACKTRACE).
        let backtrace = Backtrace::capture();
        let asked = backtrace.status() == BacktraceStatus::Captured;
        let backtrace = asked.then(|| backtrace.to_string());
        tracing::error!(target: "ledger", backtrace, "{}", of_panic(panic));
    }));
}

/// Whether messages are JSON.
pub fn is_json() -> bool {
    AS_JSON.load(Ordering::Relaxed)
}

/// What went wrong, and what to do about it.
pub fn error(error: &str, hint: Option<&str>) {
    if is_json() {
        tracing::error!(target: "ledger", hint, "{error}");
        return;
    }
    eprintln!("ledger: error: {error}");
    if let Some(text) = hint {
        eprintln!("ledger: hint: {text}");
    }
}

/// What to do about something, or to know of it.
pub fn hint(text: &str) {
    if is_json() {
        tracing::info!(target: "ledger", "{text}");
    } else {
        eprintln!("ledger: hint: {text}");
    }
}

/// How far something has come.
pub fn progress(text: &str) {
    if is_json() {
        tracing::info!(target: "ledger", "{text}");
    } else {
        eprintln!("ledger: {text}");
    }
}

fn of_panic(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("without a name");
    let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
    let what = panic.payload_as_str().unwrap_or("no text");
    format!("thread {thread} panicked{place}: {what}")
}
