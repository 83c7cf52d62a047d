//! Whom an address stands for, and how many connections each peer has, so that no single one takes them all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};

/// Whom an address stands for: one host commonly has a whole IPv6 /64 to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(IpAddr);

impl Peer {
    /// Whom an address stands for.
    pub fn of(address: IpAddr) -> Peer {
        Peer(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            address => address,
        })
    }
}

/// Connections by peer.
#[derive(Debug, Clone)]
pub struct Peers {
    connections_max: usize,
    counts: Arc<Mutex<HashMap<Peer, usize>>>,
}

/// One connection's place, given back when dropped.
#[derive(Debug)]
pub struct Place {
    peer: Peer,
    peers: Peers,
}

impl Peers {
    /// No connections, and at most so many for each peer.
    pub fn new(connections_max: usize) -> Peers {
        Peers { connections_max, counts: Arc::default() }
    }

    /// A place for a connection of this peer; none if it has as many as it may.
    pub fn enter(&self, address: IpAddr) -> Option<Place> {
        let peer = Peer::of(address);
        let mut counts = self.counts();
        // Only peers that have a connection are kept, so there are no more of them than connections.
        let count = counts.get(&peer).copied().unwrap_or(0);
        if count >= self.connections_max {
            return None;
        }
        counts.insert(peer, count + 1);
        Some(Place { peer, peers: self.clone() })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Peer, usize>> {
        // Nothing between taking and releasing it can leave a count half changed.
        self.counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.peers.counts();
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_so_many_places_and_gets_them_back() {
        let peers = Peers::new(2);
        let enter = |text: &str| peers.enter(text.parse().unwrap());
        let first = enter("192.0.2.1").unwrap();
        let second = enter("::ffff:192.0.2.1").unwrap();
        assert!(enter("192.0.2.1").is_none());
        let other = enter("192.0.2.2").unwrap();
        drop(first);
        let third = enter("192.0.2.1").unwrap();
        assert!(enter("192.0.2.1").is_none());
        drop((second, third, other));
        assert!(peers.counts().is_empty());
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_peer() {
        let peers = Peers::new(1);
        let _place = peers.enter("2001:db8::1".parse().unwrap()).unwrap();
        assert!(peers.enter("2001:db8::2:0:0:1".parse().unwrap()).is_none());
        assert!(peers.enter("2001:db8:0:1::1".parse().unwrap()).is_some());
    }
}
