//! Where a text may be cut so that its parts, encoded one by one, give the tokens of the whole.
//!
//! A pre-tokenizer's pattern cuts a text into words from left to right, and words are encoded apart. A place is safe if
//! no word goes over it and no word before it depends on what follows. Each rule says why that holds for its patterns.

/// Most white-space characters in a row: programs for regular expressions keep one state for each.
pub const SPACES_MAX: usize = 1 << 16;
/// Longest part without a safe place.
pub const UNCUT_BYTES_MAX: usize = 16 << 20;

/// Which places are safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// GPT-2's pattern, `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: before white
    /// space that follows something else. No alternative has white space after something else, and those that end
    /// there do not look ahead.
    BeforeSpace,
    /// The pattern of Llama 3 and Qwen 2, which differs in `[^\r\n\p{L}\p{N}]?\p{L}+`, `[^\s\p{L}\p{N}]+[\r\n]*` and
    /// `\s*[\r\n]+`: the same, but not before a carriage return or line feed, which may belong to the punctuation
    /// before it. And between a line feed and what is no white space: whatever takes the line feed takes line ends to
    /// the last, and ends there without looking ahead.
    BeforeSpaceOrAfterLine,
    /// Nowhere: nothing is known of how words are made.
    Never,
}

impl Cut {
    fn between(self, before: char, after: char) -> bool {
        let before_space = !before.is_whitespace() && after.is_whitespace();
        match self {
            Cut::BeforeSpace => before_space,
            Cut::BeforeSpaceOrAfterLine => {
                before_space && after != '\r' && after != '\n' || before == '\n' && !after.is_whitespace()
            }
            Cut::Never => false,
        }
    }

    /// The last safe place of `text`.
    pub fn last(self, text: &str) -> Option<usize> {
        let mut after = None;
        for (at, c) in text.char_indices().rev() {
            if let Some((place, next)) = after
                && self.between(c, next)
            {
                return Some(place);
            }
            after = Some((at, c));
        }
        None
    }

    /// The first safe place of `text` at or after `from`, a character's beginning; its end if there is none.
    pub fn next(self, text: &str, from: usize) -> usize {
        let mut before = text[..from].chars().next_back();
        for (at, c) in text[from..].char_indices() {
            if before.is_some_and(|before| self.between(before, c)) {
                return from + at;
            }
            before = Some(c);
        }
        text.len()
    }

    /// `text` in parts of about `bytes` each, cut at safe places.
    pub fn parts(self, text: &str, bytes: usize) -> Vec<&str> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let mut from = bytes.min(rest.len());
            while !rest.is_char_boundary(from) {
                from += 1;
            }
            let (part, after) = rest.split_at(self.next(rest, from));
            parts.push(part);
            rest = after;
        }
        parts
    }
}

/// Where a run of more than [`SPACES_MAX`] white-space characters begins.
pub fn long_space(text: &str) -> Option<usize> {
    let (mut run, mut begins) = (0, 0);
    for (at, c) in text.char_indices() {
        run = if c.is_whitespace() { run + 1 } else { 0 };
        if run == 1 {
            begins = at;
        }
        if run > SPACES_MAX {
            return Some(begins);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(cut: Cut, text: &str) -> Vec<usize> {
        let starts = text.char_indices().map(|(at, _)| at).skip(1);
        starts.filter(|at| cut.next(text, *at) == *at).collect()
    }

    #[test]
    fn the_safe_places_are_those_of_the_rule() {
        let text = "ab  c.\n\nd\u{a0}e";
        assert_eq!(places(Cut::BeforeSpace, text), [2, 6, 9]);
        assert_eq!(places(Cut::BeforeSpaceOrAfterLine, text), [2, 8, 9]);
        assert_eq!(places(Cut::Never, text), [0; 0]);
        // A carriage return stays with what is before it and after it.
        assert_eq!(places(Cut::BeforeSpaceOrAfterLine, "a.\r\nb.\rc"), [4]);
        assert_eq!(Cut::BeforeSpace.last(text), Some(9));
        assert_eq!(Cut::BeforeSpace.last(" ab"), None);
        assert_eq!(Cut::BeforeSpace.last(""), None);
    }

    #[test]
    fn parts_are_the_text() {
        let text = "one two \u{e9}\u{e9}\u{e9} three";
        for bytes in 1..30 {
            for cut in [Cut::BeforeSpace, Cut::BeforeSpaceOrAfterLine, Cut::Never] {
                assert_eq!(cut.parts(text, bytes).concat(), text);
            }
        }
        assert_eq!(Cut::BeforeSpace.parts(text, 1), ["one", " two", " \u{e9}\u{e9}\u{e9}", " three"]);
        assert_eq!(Cut::Never.parts(text, 1), [text]);
    }

    #[test]
    fn a_long_run_of_white_space_is_found_where_it_begins() {
        let text = format!("a b{}c", " ".repeat(SPACES_MAX));
        assert_eq!(long_space(&text), None);
        assert_eq!(long_space(&text.replace('c', "\n")), Some(3));
    }
}
