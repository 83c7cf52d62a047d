//! How much time is left to open a sealed prediction. The log has no clock: this machine's is used, and that is said.

use schemas::time::utc;
use std::time::{SystemTime, UNIX_EPOCH};

/// This machine's clock, POSIX seconds.
pub fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Whether a prediction that is still sealed counts as `unopened` (docs/spec/prediction.md).
pub fn is_over(reveal_by: u64, now_unix_s: u64) -> bool {
    now_unix_s > reveal_by
}

/// How a prediction that is still sealed stands, in words that go on from "it is sealed: ".
pub fn tell(reveal_by: u64, now_unix_s: u64) -> String {
    let by = utc(reveal_by);
    match is_over(reveal_by, now_unix_s) {
        false => format!("{} left to open it, by {by}", span(reveal_by - now_unix_s)),
        true => format!(
            "it had to be opened by {by}, {} ago, and counts as unopened",
            span(now_unix_s - reveal_by)
        ),
    }
}

/// A time in its two largest units.
pub fn span(seconds: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)];
    let counted = |count: u64, name: &str| format!("{count} {name}{}", if count == 1 { "" } else { "s" });
    let largest = UNITS.iter().position(|(_, unit)| seconds >= *unit).unwrap_or(UNITS.len() - 1);
    let (name, unit) = UNITS[largest];
    let mut text = counted(seconds / unit, name);
    if let Some((name, smaller)) = UNITS.get(largest + 1)
        && seconds % unit >= *smaller
    {
        text = format!("{text} {}", counted(seconds % unit / smaller, name));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_its_two_largest_units() {
        for (seconds, text) in [
            (0, "0 seconds"),
            (1, "1 second"),
            (59, "59 seconds"),
            (60, "1 minute"),
            (3_599, "59 minutes 59 seconds"),
            (3_600, "1 hour"),
            (86_399, "23 hours 59 minutes"),
            (86_401, "1 day"),
            (30 * 86_400 - 1, "29 days 23 hours"),
            (2 * 86_400 + 3_600, "2 days 1 hour"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn the_last_second_still_counts() {
        let by = 1_800_000_000;
        assert_eq!(tell(by, by - 61), "1 minute 1 second left to open it, by 2027-01-15T08:00:00Z");
        assert_eq!(tell(by, by), "0 seconds left to open it, by 2027-01-15T08:00:00Z");
        assert_eq!(
            tell(by, by + 1),
            "it had to be opened by 2027-01-15T08:00:00Z, 1 second ago, and counts as unopened"
        );
    }
}
