//! A number of things, in words.

/// `1 step`, `2 steps`: the thing is named as one of its kind, and its plural ends in s.
pub fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_told_from_none_and_several() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "step")), ["0 steps", "1 step", "2 steps"]);
    }
}
