//! Frames: how a message is bytes, and which bytes are no message. Limits come first: a length is looked at before
//! anything of it is read or allocated (docs/spec/link.md#frames).

use super::{BadLeaf, Body, Cargo, Message};

/// Bytes before a body: kind, step, length.
pub const HEADER_BYTES: usize = 17;
/// Most steps in a list of steps to start from.
pub const STARTS_MAX: usize = 16;

const GRADIENT: u8 = 1;
const NON_FINITE: u8 = 2;
const ENDED: u8 = 3;
const LOSSES: u8 = 4;
const STARTS: u8 = 5;
const DONE: u8 = 6;
const STOPPED: u8 = 7;

/// How large things of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// P: words of a gradient.
    pub words: u64,
    /// Leaves of a step.
    pub leaves: u64,
    /// Taps of a leaf.
    pub taps: u64,
}

/// A frame's beginning, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    kind: u8,
    step: u64,
    /// Bytes of the body.
    pub length: u64,
}

/// The bytes before a message's body.
pub fn header(message: &Message) -> [u8; HEADER_BYTES] {
    let (kind, length) = match &message.body {
        Body::Cargo(Cargo::Gradient(bytes)) => (GRADIENT, bytes.len()),
        Body::Cargo(Cargo::NonFinite(_)) => (NON_FINITE, 16),
        Body::Cargo(Cargo::Ended) => (ENDED, 0),
        Body::Losses(losses) => (LOSSES, 4 * losses.len()),
        Body::Starts(steps) => (STARTS, 8 * steps.len()),
        Body::Done => (DONE, 0),
        Body::Stopped => (STOPPED, 0),
    };
    let mut bytes = [kind; HEADER_BYTES];
    bytes[1..9].copy_from_slice(&message.step.to_le_bytes());
    bytes[9..].copy_from_slice(&(length as u64).to_le_bytes());
    bytes
}

/// A message's body.
pub fn body(message: &Message) -> std::borrow::Cow<'_, [u8]> {
    match &message.body {
        Body::Cargo(Cargo::Gradient(bytes)) => bytes.into(),
        Body::Cargo(Cargo::NonFinite(BadLeaf { leaf, tap })) => {
            [leaf.to_le_bytes(), tap.to_le_bytes()].concat().into()
        }
        Body::Losses(losses) => losses.iter().flat_map(|loss| loss.to_le_bytes()).collect(),
        Body::Starts(steps) => steps.iter().flat_map(|step| step.to_le_bytes()).collect(),
        Body::Cargo(Cargo::Ended) | Body::Done | Body::Stopped => [].as_slice().into(),
    }
}

/// Reads a frame's beginning: a kind there is, and a length that a body of it can have. What is wrong is said of the
/// sender.
pub fn read_header(bytes: &[u8; HEADER_BYTES], limits: &Limits) -> Result<Header, String> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("frame: eight bytes"));
    let header = Header { kind: bytes[0], step: number(1), length: number(9) };
    let (what, least, most, unit) = match header.kind {
        GRADIENT => ("a gradient", 4 * limits.words, 4 * limits.words, 4),
        NON_FINITE => ("a leaf that was not finite", 16, 16, 16),
        ENDED => ("the run's early end", 0, 0, 1),
        LOSSES => ("losses", 4, 4 * limits.leaves, 4),
        STARTS => ("steps to start from", 0, 8 * STARTS_MAX as u64, 8),
        DONE => ("that it is done", 0, 0, 1),
        STOPPED => ("that it was stopped", 0, 0, 1),
        kind => return Err(format!("it sent a frame of kind {kind}, expected 1 to {STOPPED}")),
    };
    if header.length < least || most < header.length || !header.length.is_multiple_of(unit) {
        let found = header.length;
        return Err(format!("it sent {what} of {found} bytes, expected {least} to {most}"));
    }
    Ok(header)
}

/// The message of a frame, given its whole body.
pub fn message(header: Header, bytes: Vec<u8>, limits: &Limits) -> Result<Message, String> {
    assert_eq!(header.length, bytes.len() as u64, "frame: a whole body");
    let numbers = || bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let body = match header.kind {
        GRADIENT => Body::Cargo(Cargo::Gradient(bytes)),
        NON_FINITE => {
            let [leaf, tap] = [0, 1].map(|at| numbers().nth(at).expect("frame: two numbers"));
            if limits.leaves <= leaf || limits.taps <= tap {
                let most = [limits.leaves, limits.taps].map(|count| count.saturating_sub(1));
                return Err(format!(
                    "it sent leaf {leaf} and tap {tap}, expected at most {} and {}",
                    most[0], most[1]
                ));
            }
            Body::Cargo(Cargo::NonFinite(BadLeaf { leaf, tap }))
        }
        ENDED => Body::Cargo(Cargo::Ended),
        LOSSES => {
            Body::Losses(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
        }
        STARTS => Body::Starts(numbers().collect()),
        DONE => Body::Done,
        STOPPED => Body::Stopped,
        kind => unreachable!("frame: kind {kind} was refused with its header"),
    };
    Ok(Message { step: header.step, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { words: 3, leaves: 4, taps: 95 };

    fn messages() -> Vec<Message> {
        let bodies = [
            Body::Cargo(Cargo::Gradient(vec![7; 12])),
            Body::Cargo(Cargo::NonFinite(BadLeaf { leaf: 3, tap: 94 })),
            Body::Cargo(Cargo::Ended),
            Body::Losses(vec![1, u32::MAX, 3, 4]),
            Body::Starts(vec![0, u64::MAX]),
            Body::Starts(vec![]),
            Body::Done,
            Body::Stopped,
        ];
        bodies.into_iter().map(|body| Message { step: 0x0102_0304_0506_0708, body }).collect()
    }

    #[test]
    fn every_message_is_read_as_it_was_written() {
        for sent in messages() {
            let header = read_header(&header(&sent), &LIMITS).unwrap();
            let bytes = body(&sent).into_owned();
            assert_eq!(message(header, bytes, &LIMITS), Ok(sent));
        }
        let first = &messages()[0];
        assert_eq!(header(first), [1, 8, 7, 6, 5, 4, 3, 2, 1, 12, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_length_that_a_body_cannot_have_is_refused_before_it_is_read() {
        for sent in messages() {
            let mut bytes = header(&sent);
            let whole = body(&sent).len() as u64;
            for length in [whole + 1, whole.wrapping_sub(1), 1 << 40, u64::MAX] {
                bytes[9..].copy_from_slice(&length.to_le_bytes());
                assert!(read_header(&bytes, &LIMITS).is_err(), "{sent:?} with {length} bytes");
            }
        }
        let mut bytes = header(&messages()[0]);
        bytes[9..].copy_from_slice(&8_u64.to_le_bytes());
        let error = read_header(&bytes, &LIMITS).unwrap_err();
        assert_eq!(error, "it sent a gradient of 8 bytes, expected 12 to 12");
    }

    #[test]
    fn kinds_and_numbers_that_there_are_not_are_refused() {
        for kind in [0, 8, 255] {
            let mut bytes = header(&messages()[6]);
            bytes[0] = kind;
            assert!(read_header(&bytes, &LIMITS).unwrap_err().contains("expected 1 to 7"));
        }
        for (leaf, tap) in [(4, 0), (0, 95), (u64::MAX, 0)] {
            let sent = Message { step: 0, body: Body::Cargo(Cargo::NonFinite(BadLeaf { leaf, tap })) };
            let header = read_header(&header(&sent), &LIMITS).unwrap();
            let error = message(header, body(&sent).into_owned(), &LIMITS).unwrap_err();
            assert!(error.ends_with("expected at most 3 and 94"), "{error}");
        }
    }

    #[test]
    fn lists_have_as_many_entries_as_a_run_can_have_and_no_more() {
        for (body, unit, least, most) in
            [(Body::Losses(vec![0]), 4, 1, LIMITS.leaves), (Body::Starts(vec![]), 8, 0, STARTS_MAX as u64)]
        {
            let mut bytes = header(&Message { step: 0, body });
            for count in 0..most + 3 {
                bytes[9..].copy_from_slice(&(unit * count).to_le_bytes());
                let fits = (least..=most).contains(&count);
                assert_eq!(read_header(&bytes, &LIMITS).is_ok(), fits, "{count} of {unit} bytes");
            }
        }
    }
}
