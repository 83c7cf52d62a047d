//! Times as people read them; in objects they are POSIX seconds.

/// POSIX seconds as RFC 3339 in UTC; what lies beyond the year 9999 as the number it is.
pub fn utc(time_s: u64) -> String {
    const LAST_S: u64 = 253_402_300_799;
    if time_s > LAST_S {
        return format!("second {time_s}");
    }
    let (days, second) = (time_s / 86_400, time_s % 86_400);
    // Years that begin in March end with the day that comes and goes; 400 of them have 146097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_utc() {
        for (time_s, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_800_000_007, "2027-01-15T08:00:07Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            (253_402_300_800, "second 253402300800"),
        ] {
            assert_eq!(utc(time_s), text);
        }
    }
}
