//! What a work folder was begun for: a run that goes on has to be the same one, asked for in the same way.

use serde_json::{Map, Value};

/// Name of the file in a work folder.
pub const FILE: &str = "request.json";
/// Longest file that is read.
pub const BYTES_MAX: u64 = 1 << 20;

/// What a device was asked for, by name. All of it is text, for people to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(pub Vec<(&'static str, String)>);

impl Identity {
    /// The file's content.
    pub fn encode(&self) -> Vec<u8> {
        let pairs = self.0.iter().map(|(name, value)| ((*name).to_owned(), Value::String(value.clone())));
        let text = format!("{:#}\n", Value::Object(pairs.collect::<Map<_, _>>()));
        text.into_bytes()
    }

    /// The first thing in which a file differs: what, what is asked for now, what was asked for then. An error if the
    /// file is not one.
    pub fn difference(&self, bytes: &[u8]) -> Result<Option<(String, String, String)>, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let Value::Object(mut then) = value else { return Err("expected an object".into()) };
        for (name, now) in &self.0 {
            match then.remove(*name) {
                Some(Value::String(then)) if then == *now => {}
                Some(Value::String(then)) => return Ok(Some(((*name).to_owned(), now.clone(), then))),
                _ => return Err(format!("expected a text {name:?}, found none")),
            }
        }
        match then.into_iter().next() {
            Some((name, _)) => Err(format!("unknown field {:?}", name.chars().take(80).collect::<String>())),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity(vec![("run", "ab".into()), ("devices", "2".into()), ("faults", "silent:device=1".into())])
    }

    #[test]
    fn the_same_request_does_not_differ() {
        assert_eq!(identity().difference(&identity().encode()), Ok(None));
    }

    #[test]
    fn the_first_difference_is_named_with_both_values() {
        for at in 0..3 {
            let mut then = identity();
            then.0[at].1 = "other".into();
            let expected = (then.0[at].0.to_owned(), identity().0[at].1.clone(), "other".to_owned());
            assert_eq!(identity().difference(&then.encode()), Ok(Some(expected)));
        }
    }

    #[test]
    fn what_is_no_request_is_told_apart() {
        let whole = identity().encode();
        for end in 0..whole.len() - 1 {
            assert!(identity().difference(&whole[..end]).is_err(), "{end} bytes");
        }
        let mut more = identity();
        more.0.push(("more", "x".into()));
        assert_eq!(identity().difference(&more.encode()), Err("unknown field \"more\"".into()));
        assert_eq!(more.difference(&whole), Err("expected a text \"more\", found none".into()));
        assert!(identity().difference(b"[]").is_err());
    }
}
