//! A number of things, in words.

/// `1 step`, `2 steps`, `3 entries`, `4 leaves`: the thing is named as one of its kind.
pub fn counted(count: u64, thing: &str) -> String {
    let (stem, end) = match (thing.strip_suffix('y'), thing.strip_suffix("af")) {
        _ if count == 1 => (thing, ""),
        (Some(stem), _) => (stem, "ies"),
        (_, Some(stem)) => (stem, "aves"),
        _ => (thing, "s"),
    };
    format!("{count} {stem}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_told_from_none_and_several() {
        let told = |thing: &str| [0, 1, 2].map(|count| counted(count, thing));
        assert_eq!(told("step"), ["0 steps", "1 step", "2 steps"]);
        assert_eq!(told("entry"), ["0 entries", "1 entry", "2 entries"]);
        assert_eq!(told("leaf"), ["0 leaves", "1 leaf", "2 leaves"]);
        assert_eq!(
            told("inclusion proof"),
            ["0 inclusion proofs", "1 inclusion proof", "2 inclusion proofs"]
        );
    }
}
