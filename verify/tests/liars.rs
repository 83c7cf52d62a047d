//! Devices that are faulty and devices that lie, at random: whom the findings name.

mod support;

use schemas::digest::digest;
use schemas::receipt::{ReceiptBody, Sum};
use schemas::verdict::{Outcome, Phase};
use support::judged::judge;
use support::{World, outcome};

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 += 1;
        let bytes = digest("test/liars", &[&self.0.to_le_bytes()]);
        u64::from_le_bytes(bytes[..8].try_into().unwrap()) % end
    }
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Device {
    Honest,
    /// Honest, with a wrong leaf.
    Faulty,
    /// Sends, and says, now this and now that.
    Liar,
}

/// A sum that is the predicted one, or wrong in a way of its own.
type Value = Option<u32>;

fn wrong(random: &mut Random) -> Value {
    Some(1000 + random.below(1 << 20) as u32)
}

/// What each of `devices` says of step 1.
fn say(world: &World, devices: &[Device], random: &mut Random) -> Vec<ReceiptBody> {
    let count = devices.len() as u64;
    let mut bodies = world.bodies(count);
    let mut has: Vec<Value> =
        devices.iter().map(|device| if *device == Device::Faulty { wrong(random) } else { None }).collect();
    let told = |value: Value, predicted: Sum| value.map_or(predicted, |tag| world.sum_of(&[tag; 21]));
    for (rank, device) in devices.iter().enumerate() {
        let lies = *device == Device::Liar;
        if *device == Device::Faulty || lies && random.below(3) == 0 {
            bodies[rank].records[1].losses[0] ^= 1;
        }
        let claim = if lies && random.below(2) == 0 { wrong(random) } else { has[rank] };
        let partial = &mut outcome(&mut bodies, rank, 1).partial;
        *partial = told(claim, *partial);
    }
    for level in 0..count.ilog2() as usize {
        let sent: Vec<Value> = (0..devices.len())
            .map(|rank| match devices[rank] {
                Device::Liar if random.below(2) == 0 => wrong(random),
                Device::Liar => None,
                _ => has[rank],
            })
            .collect();
        for (rank, device) in devices.iter().enumerate() {
            let received = sent[rank ^ (1 << level)];
            let sum = if has[rank].is_none() && received.is_none() { None } else { wrong(random) };
            has[rank] = sum;
            let mut claims = [received, sum];
            if *device == Device::Liar {
                claims = [0, 1].map(|_| if random.below(2) == 0 { wrong(random) } else { None });
            }
            let exchange = &mut outcome(&mut bodies, rank, 1).exchanges[level];
            exchange.received = told(claims[0], exchange.received);
            exchange.sum = told(claims[1], exchange.sum);
        }
    }
    for (rank, device) in devices.iter().enumerate() {
        let wrong_end = has[rank].is_some() || *device == Device::Liar && random.below(2) == 0;
        if wrong_end {
            let tag = wrong(random);
            let end = outcome(&mut bodies, rank, 1);
            end.reduced = told(tag, end.reduced);
            end.norm ^= 1;
            end.parameters = told(tag, end.parameters);
        }
    }
    bodies
}

#[test]
fn an_honest_device_is_named_only_where_its_word_stands_against_anothers() {
    let world = World::new(8, 4, 3);
    let mut random = Random(0);
    let (mut named, mut contradicted) = (0, 0);
    for case in 0..600 {
        let devices: Vec<Device> = (0..[2, 4][case % 2])
            .map(|_| [Device::Honest, Device::Honest, Device::Faulty, Device::Liar][random.below(4) as usize])
            .collect();
        let decision = judge(&world, &say(&world, &devices, &mut random));
        if devices.contains(&Device::Faulty) {
            assert_ne!(decision.outcome, Outcome::Agree, "{devices:?}");
        }
        if devices.iter().all(|device| *device == Device::Honest) {
            assert_eq!(decision.outcome, Outcome::Agree, "{decision:?}");
        }
        for finding in &decision.findings {
            if devices[finding.rank as usize] != Device::Honest {
                continue;
            }
            named += 1;
            contradicted += u32::from(finding.phase == Phase::Receipt);
            assert!(matches!(finding.phase, Phase::Link | Phase::Receipt), "{devices:?}: {finding:?}");
            // Whoever says otherwise is no honest device.
            let peer = finding.peer.expect("the other is named") as usize;
            assert_eq!(devices[peer], Device::Liar, "{devices:?}: {finding:?}");
        }
        // If nobody lies, exactly the faulty ones are named.
        if !devices.contains(&Device::Liar) {
            let found: Vec<usize> = decision.findings.iter().map(|finding| finding.rank as usize).collect();
            let faulty: Vec<usize> =
                (0..devices.len()).filter(|rank| devices[*rank] == Device::Faulty).collect();
            assert_eq!(found, faulty, "{devices:?}");
        }
    }
    assert!(
        named > 20 && contradicted > 0,
        "{named} honest devices were named, {contradicted} as contradicted"
    );
}
