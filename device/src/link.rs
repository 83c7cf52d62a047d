//! Links between devices, in one process or in several: each pair that meets has one, and what crosses it is bytes.
//!
//! Written from docs/spec/link.md. Within a process a link is a pair of channels; between processes it is a TCP
//! connection ([`tcp`]) that a handshake has opened ([`handshake`]).

pub mod frame;
pub mod tcp;
pub mod handshake;

use std::sync::mpsc::{Receiver, Sender, channel};
use tcp::Wire;

/// What crosses a link at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The step it belongs to.
    pub step: u64,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// A device's part in a meeting.
    Cargo(Cargo),
    /// Loss bits of the leaves under the sender's node, in ascending order; for people to read.
    Losses(Vec<u32>),
    /// Steps that the sender, and all it has heard of, can start from.
    Starts(Vec<u64>),
    /// The sender, and all it has heard of, have all their records on disk.
    Done,
    /// The sender was told to stop before this step.
    Stopped,
}

impl Body {
    fn name(&self) -> &'static str {
        match self {
            Body::Cargo(Cargo::Gradient(_)) => "a gradient",
            Body::Cargo(Cargo::NonFinite(_)) => "a leaf that was not finite",
            Body::Cargo(Cargo::Ended) => "the run's early end",
            Body::Losses(_) => "losses",
            Body::Starts(_) => "steps to start from",
            Body::Done => "that it is done",
            Body::Stopped => "that it was stopped",
        }
    }
}

/// A device's part in a meeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cargo {
    /// A tree node: f32 words, little-endian.
    Gradient(Vec<u8>),
    /// There is no gradient in this step: a leaf met a NaN or an infinity.
    NonFinite(BadLeaf),
    /// There is no such step: some device's run ended before it.
    Ended,
}

/// A leaf that was not finite. Ordered by leaf, so that all devices agree on the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BadLeaf {
    /// Which leaf of the step.
    pub leaf: u64,
    /// The first of its taps that was not finite.
    pub tap: u64,
}

/// One device's ends of its links, nearest partner first.
pub struct Links {
    ends: Vec<End>,
}

struct End {
    partner: u64,
    way: Way,
}

enum Way {
    Channels { out: Sender<Message>, back: Receiver<Message> },
    Tcp(Wire),
}

/// The partner at the other end is gone, or might as well be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device {partner} was lost in step {step}{why}")]
pub struct Lost {
    /// Which device.
    pub partner: u64,
    /// The step in which it was missed.
    pub step: u64,
    /// What was seen of it.
    pub why: Why,
}

/// What was seen of a lost partner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Its end is closed.
    Gone,
    /// It said that it was told to stop.
    Stopped,
    /// It sent nothing, or not all, for so many seconds.
    Silent(u64),
    /// It sent what it must not.
    Strange(String),
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Gone => Ok(()),
            Why::Stopped => write!(f, ": it was told to stop before it"),
            Why::Silent(seconds) => write!(f, ": its part did not arrive within {seconds} s"),
            Why::Strange(what) => write!(f, ": {what}"),
        }
    }
}

/// The links of `devices` devices (a power of two): at level l, device r meets device r xor 2^l.
pub fn connect(devices: u64) -> Vec<Links> {
    assert!(devices.is_power_of_two(), "link: recursive doubling needs a power of two");
    let mut links: Vec<Links> = (0..devices).map(|_| Links { ends: Vec::new() }).collect();
    for level in 0..devices.ilog2() {
        for low in (0..devices).filter(|rank| rank & (1 << level) == 0) {
            let high = low | (1 << level);
            let (up, from_low) = channel();
            let (down, from_high) = channel();
            let end = |partner, out, back| End { partner, way: Way::Channels { out, back } };
            links[low as usize].ends.push(end(high, up, from_high));
            links[high as usize].ends.push(end(low, down, from_low));
        }
    }
    links
}

impl Links {
    /// Links over connections, in the order of levels.
    pub fn over(wires: Vec<(u64, Wire)>) -> Links {
        let end = |(partner, wire)| End { partner, way: Way::Tcp(wire) };
        Links { ends: wires.into_iter().map(end).collect() }
    }

    /// How many partners there are: log2 of the number of devices.
    pub fn levels(&self) -> usize {
        self.ends.len()
    }

    /// The partner at `level`.
    pub fn partner(&self, level: usize) -> u64 {
        self.ends[level].partner
    }

    /// Sends `cargo` to the partner at `level` and waits for the partner's of the same step.
    pub fn swap(&self, level: usize, step: u64, cargo: Cargo) -> Result<Cargo, Lost> {
        match self.exchange(level, step, Body::Cargo(cargo))? {
            Body::Cargo(cargo) => Ok(cargo),
            other => Err(self.strange(level, step, "its part of the meeting", &other)),
        }
    }

    /// Takes part in the meeting of `step`, of which this device only says that there is none for it. A partner that is
    /// gone misses nothing.
    pub fn end(&self, step: u64) {
        for level in 0..self.levels() {
            let _ = self.swap(level, step, Cargo::Ended);
        }
    }

    /// The losses of all leaves of `step`, in order, given those of this device's own.
    pub fn share(&self, rank: u64, step: u64, own: &[u32]) -> Result<Vec<u32>, Lost> {
        let mut known = own.to_vec();
        for level in 0..self.levels() {
            let theirs = match self.exchange(level, step, Body::Losses(known.clone()))? {
                Body::Losses(losses) if losses.len() == known.len() => losses,
                other => return Err(self.strange(level, step, "the losses of as many leaves", &other)),
            };
            known = if rank < self.partner(level) { [known, theirs] } else { [theirs, known] }.concat();
        }
        Ok(known)
    }

    /// The steps that all devices can start from, given those of this one.
    pub fn agree(&self, own: &[u64]) -> Result<Vec<u64>, Lost> {
        let mut common = own.to_vec();
        for level in 0..self.levels() {
            let theirs = match self.exchange(level, 0, Body::Starts(common.clone()))? {
                Body::Starts(steps) => steps,
                other => return Err(self.strange(level, 0, "steps to start from", &other)),
            };
            common.retain(|step| theirs.contains(step));
        }
        Ok(common)
    }

    /// Waits until all devices have their records on disk, as this one has.
    pub fn done(&self, step: u64) -> Result<(), Lost> {
        for level in 0..self.levels() {
            let other = self.exchange(level, step, Body::Done)?;
            if other != Body::Done {
                return Err(self.strange(level, step, "that it is done", &other));
            }
        }
        Ok(())
    }

    /// Tells every partner that this device was told to stop before `step`.
    pub fn stop(self, step: u64) {
        for end in &self.ends {
            match &end.way {
                // Nobody may be listening any more.
                Way::Channels { out, .. } => drop(out.send(Message { step, body: Body::Stopped })),
                Way::Tcp(wire) => wire.say(&Message { step, body: Body::Stopped }),
            }
        }
    }

    fn exchange(&self, level: usize, step: u64, body: Body) -> Result<Body, Lost> {
        let End { partner, way } = &self.ends[level];
        let lost = |why| Lost { partner: *partner, step, why };
        let message = match way {
            Way::Channels { out, back } => {
                // A partner that has ended is not listening, and what it said at its end is still waiting here.
                let _ = out.send(Message { step, body });
                back.recv().map_err(|_| lost(Why::Gone))?
            }
            Way::Tcp(wire) => wire.exchange(&Message { step, body }).map_err(lost)?,
        };
        if message.body == Body::Stopped {
            return Err(lost(Why::Stopped));
        }
        if message.step != step {
            return Err(lost(Why::Strange(format!("it is in step {}, expected {step}", message.step))));
        }
        Ok(message.body)
    }

    fn strange(&self, level: usize, step: u64, expected: &str, found: &Body) -> Lost {
        let why = Why::Strange(format!("expected {expected}, found {}", found.name()));
        Lost { partner: self.partner(level), step, why }
    }
}

/// A vector as the bytes that cross a link.
pub fn to_bytes(words: &[f32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The vector of bytes that crossed a link.
pub fn from_bytes(bytes: &[u8]) -> Vec<f32> {
    let (words, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty(), "link: a gradient is whole words");
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `act` on a thread for each device and returns what each says, by rank.
    fn on_all<T: Send>(devices: u64, act: impl Fn(u64, Links) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let act = &act;
            let threads: Vec<_> = (0..)
                .zip(connect(devices))
                .map(|(rank, links)| scope.spawn(move || act(rank, links)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn every_device_meets_each_partner_of_recursive_doubling_once() {
        for devices in [1, 2, 4, 8, 16] {
            for (rank, links) in connect(devices).into_iter().enumerate() {
                let partners: Vec<u64> = (0..links.levels()).map(|level| links.partner(level)).collect();
                let expected: Vec<u64> =
                    (0..devices.ilog2()).map(|level| rank as u64 ^ (1 << level)).collect();
                assert_eq!(partners, expected, "device {rank} of {devices}");
            }
        }
    }

    #[test]
    fn partners_swap_what_they_send() {
        let cargo = |leaf| Cargo::NonFinite(BadLeaf { leaf, tap: 0 });
        let got = on_all(2, |rank, links| links.swap(0, 5, cargo(rank)));
        assert_eq!(got, [Ok(cargo(1)), Ok(cargo(0))]);
    }

    #[test]
    fn all_devices_learn_all_losses_in_the_order_of_the_leaves() {
        let got = on_all(4, |rank, links| links.share(rank, 3, &[10 * rank as u32, 10 * rank as u32 + 1]));
        for losses in got {
            assert_eq!(losses, Ok(vec![0, 1, 10, 11, 20, 21, 30, 31]));
        }
    }

    #[test]
    fn all_devices_agree_on_what_all_can_start_from() {
        let own: [&[u64]; 4] = [&[0, 4, 8], &[0, 4, 8, 9], &[0, 2, 4], &[0, 4, 8]];
        for common in on_all(4, |rank, links| links.agree(own[rank as usize])) {
            assert_eq!(common, Ok(vec![0, 4]));
        }
    }

    #[test]
    fn a_device_that_is_done_waits_for_all_and_misses_who_is_not() {
        assert_eq!(on_all(4, |_, links| links.done(9)), [Ok(()), Ok(()), Ok(()), Ok(())]);
        let got = on_all(2, |rank, links| match rank {
            0 => links.done(9),
            _ => {
                links.stop(8);
                Ok(())
            }
        });
        assert_eq!(got[0], Err(Lost { partner: 1, step: 9, why: Why::Stopped }));
    }

    #[test]
    fn a_partner_that_is_gone_is_named() {
        let mut links = connect(4);
        drop(links.remove(2));
        let error = links[0].swap(1, 7, Cargo::Ended).unwrap_err();
        assert_eq!(error.to_string(), "device 2 was lost in step 7");
    }

    #[test]
    fn a_partner_in_another_step_or_at_another_place_of_it_is_named() {
        let got = on_all(2, |rank, links| links.swap(0, 5 + rank, Cargo::Ended));
        assert_eq!(
            got[0].clone().unwrap_err().to_string(),
            "device 1 was lost in step 5: it is in step 6, expected 5"
        );
        let got = on_all(2, |rank, links| match rank {
            0 => links.swap(0, 5, Cargo::Ended).map(drop),
            _ => links.done(5),
        });
        let expected = "device 1 was lost in step 5: expected its part of the meeting, found that it is done";
        assert_eq!(got[0].clone().unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_partner_that_ended_takes_part_in_the_meeting_that_follows() {
        let bad = || Cargo::NonFinite(BadLeaf { leaf: 0, tap: 0 });
        let got = on_all(2, |rank, links| match rank {
            0 => links.swap(0, 8, bad()).and_then(|cargo| links.done(9).map(|()| cargo)),
            _ => {
                links.end(8);
                links.done(9).map(|()| Cargo::Ended)
            }
        });
        assert_eq!(got, [Ok(Cargo::Ended), Ok(Cargo::Ended)]);
    }

    #[test]
    fn bytes_keep_every_bit() {
        let words = [0.0, -0.0, f32::from_bits(0xffc1_2345), f32::from_bits(1)];
        let bits = |words: &[f32]| words.iter().map(|word| word.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&from_bytes(&to_bytes(&words))), bits(&words));
        assert_eq!(to_bytes(&[1.0]), [0, 0, 128, 63]);
    }
}
