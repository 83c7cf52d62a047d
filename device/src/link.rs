//! Links between devices: one channel for each direction of each pair that meets, carrying little-endian bytes.

use std::sync::mpsc::{Receiver, Sender, channel};

/// What crosses a link in one step.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// The step it belongs to.
    pub step: u64,
    /// What it carries.
    pub cargo: Cargo,
}

/// What a message carries.
#[derive(Debug, PartialEq, Eq)]
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
    out: Sender<Message>,
    back: Receiver<Message>,
}

/// The partner at the other end is gone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device {partner} was lost in step {step}")]
pub struct Lost {
    /// Which device.
    pub partner: u64,
    /// The step in which it was missed.
    pub step: u64,
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
            links[low as usize].ends.push(End { partner: high, out: up, back: from_high });
            links[high as usize].ends.push(End { partner: low, out: down, back: from_low });
        }
    }
    links
}

impl Links {
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
        let end = &self.ends[level];
        // A partner that has ended is not listening, and what it said at its end is still waiting here.
        let _ = end.out.send(Message { step, cargo });
        let message = end.back.recv().map_err(|_| Lost { partner: end.partner, step })?;
        assert_eq!(message.step, step, "link: partners run the same step");
        Ok(message.cargo)
    }

    /// Tells every partner that there is no `step` any more. Partners that know it already are not listening.
    pub fn end(&self, step: u64) {
        for end in &self.ends {
            let _ = end.out.send(Message { step, cargo: Cargo::Ended });
        }
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
        let mut links = connect(2).into_iter();
        let (zero, one) = (links.next().unwrap(), links.next().unwrap());
        let cargo = |leaf| Cargo::NonFinite(BadLeaf { leaf, tap: 0 });
        std::thread::scope(|scope| {
            let other = scope.spawn(move || one.swap(0, 5, cargo(1)));
            assert_eq!(zero.swap(0, 5, cargo(0)), Ok(cargo(1)));
            assert_eq!(other.join().unwrap(), Ok(cargo(0)));
        });
    }

    #[test]
    fn a_partner_that_is_gone_is_named() {
        let mut links = connect(4);
        drop(links.remove(2));
        let error = links[0].swap(1, 7, Cargo::Ended).unwrap_err();
        assert_eq!(error.to_string(), "device 2 was lost in step 7");
    }

    #[test]
    fn a_partner_that_ended_is_heard_though_it_is_gone() {
        let mut links = connect(2);
        let one = links.remove(1);
        one.end(8);
        drop(one);
        assert_eq!(links[0].swap(0, 8, Cargo::NonFinite(BadLeaf { leaf: 0, tap: 0 })), Ok(Cargo::Ended));
        assert!(links[0].swap(0, 9, Cargo::Ended).is_err());
    }

    #[test]
    fn bytes_keep_every_bit() {
        let words = [0.0, -0.0, f32::from_bits(0xffc1_2345), f32::from_bits(1)];
        let bits = |words: &[f32]| words.iter().map(|word| word.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&from_bytes(&to_bytes(&words))), bits(&words));
        assert_eq!(to_bytes(&[1.0]), [0, 0, 128, 63]);
    }
}
