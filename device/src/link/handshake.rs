//! How devices of several processes find each other: each connects to its partners of lower rank and listens for those
//! of higher rank, and both ends of a connection say which run they are in before it becomes a link
//! (docs/spec/link.md#handshake).

use super::Links;
use super::frame::Limits;
use super::tcp::{Wire, read_exact_within, write_all_within};
use schemas::digest::{Challenge, RunId};
use schemas::run::Steps;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// What every hello begins with.
const MAGIC: [u8; 8] = *b"tallylnk";
/// The version of the link's protocol.
pub const VERSION: u32 = 1;
/// Bytes of a hello: magic, version, run, challenge, devices, first and end step, from and to.
pub const HELLO_BYTES: usize = 8 + 4 + 32 + 32 + 5 * 8;
/// Says that the connection is a link from here on.
const WELCOME: u8 = 1;
/// Says that a device of that rank has come already.
const TAKEN: u8 = 2;
/// How long a connection may take to say its hello.
const HELLO_TIME: Duration = Duration::from_secs(10);
/// How long to wait between two tries.
const PAUSE: Duration = Duration::from_millis(25);
/// Most connections that are listened to before they have said who they are.
const STRANGERS_MAX: usize = 64;

/// What a device says of itself and of whom it takes the other end for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Which run.
    pub run: RunId,
    /// What its receipts answer.
    pub challenge: Challenge,
    /// How many devices share each step.
    pub devices: u64,
    /// Which steps the receipts are about.
    pub steps: Steps,
    /// Its own rank.
    pub from: u64,
    /// The rank it takes the other end for.
    pub to: u64,
}

/// Why the devices of a run did not find each other.
#[derive(Debug, thiserror::Error)]
pub enum MeetError {
    /// An address that cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// Something else listens there.
    #[error("{address}: expected device {partner}, found something else: {what}")]
    Strange {
        /// Which address.
        address: String,
        /// Who should be there.
        partner: u64,
        /// What it said.
        what: String,
    },
    /// A device of another run, or of this one with other flags.
    #[error("device {partner} at {address} has another {what}: expected {expected}, found {found}")]
    Differs {
        /// Where it is.
        address: String,
        /// Which device it should be.
        partner: u64,
        /// What differs.
        what: &'static str,
        /// This device's.
        expected: String,
        /// Its.
        found: String,
    },
    /// There is another of this rank.
    #[error("device {partner} at {address} has a link to another device {rank} already")]
    Taken {
        /// Where it is.
        address: String,
        /// Who says so.
        partner: u64,
        /// This device's rank.
        rank: u64,
    },
    /// Nobody came in time.
    #[error("no device {partner} {where_} within {seconds} s{last}")]
    Missing {
        /// Who.
        partner: u64,
        /// Where it was looked for.
        where_: String,
        /// How long.
        seconds: u64,
        /// What was seen last, if anything.
        last: String,
    },
    /// This process was told to stop meanwhile.
    #[error("told to stop while waiting for the other devices")]
    Stopped,
}

impl Hello {
    /// Its bytes, as docs/spec/link.md has them.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let numbers = [self.devices, self.steps.first, self.steps.end, self.from, self.to];
        let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let parts = [&MAGIC[..], &VERSION.to_le_bytes(), &self.run.0, &self.challenge.0, &numbers].concat();
        parts.try_into().expect("handshake: a hello has one length")
    }

    fn decode(bytes: &[u8; HELLO_BYTES]) -> Hello {
        let number = |at: usize| {
            u64::from_le_bytes(bytes[76 + 8 * at..84 + 8 * at].try_into().expect("handshake: eight bytes"))
        };
        Hello {
            run: RunId(bytes[12..44].try_into().expect("handshake: a run id is 32 bytes")),
            challenge: Challenge(bytes[44..76].try_into().expect("handshake: a challenge is 32 bytes")),
            devices: number(0),
            steps: Steps { first: number(1), end: number(2) },
            from: number(3),
            to: number(4),
        }
    }

    /// What differs between what this device expects of device `partner` and what it found.
    fn difference(&self, partner: u64, found: &Hello) -> Option<(&'static str, String, String)> {
        let differs = |what, expected: &dyn ToString, found: &dyn ToString| {
            let (expected, found) = (expected.to_string(), found.to_string());
            (expected != found).then_some((what, expected, found))
        };
        differs("run", &self.run, &found.run)
            .or(differs("challenge", &self.challenge, &found.challenge))
            .or(differs("number of devices", &self.devices, &found.devices))
            .or(differs("range of steps", &self.steps, &found.steps))
            .or(differs("rank", &partner, &found.from))
            .or(differs("device in mind at this end", &self.from, &found.to))
    }
}

/// What came of reading a hello.
enum Heard {
    Hello(Box<Hello>),
    Version(u32),
    Strange(String),
    Failed(io::Error),
}

fn hear(stream: &TcpStream, deadline: Instant) -> Heard {
    let mut bytes = [0; HELLO_BYTES];
    if let Err(error) = read_exact_within(stream, &mut bytes[..12], deadline) {
        return Heard::Failed(error);
    }
    if bytes[..8] != MAGIC {
        let first: String = bytes[..8].iter().map(|byte| byte.escape_ascii().to_string()).collect();
        return Heard::Strange(format!("it begins with \"{first}\""));
    }
    let version = u32::from_le_bytes(bytes[8..12].try_into().expect("handshake: four bytes"));
    if version != VERSION {
        return Heard::Version(version);
    }
    match read_exact_within(stream, &mut bytes[12..], deadline) {
        Ok(()) => Heard::Hello(Box::new(Hello::decode(&bytes))),
        Err(error) => Heard::Failed(error),
    }
}

/// Where the devices are, and how long one waits for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    /// HOST:PORT of each device, by rank.
    pub addresses: Vec<String>,
    /// Where to listen instead of at the device's own address.
    pub listen: Option<String>,
    /// How long a device waits for another, at the start and in each step.
    pub patience: Duration,
}

/// What a thread that looks for partners says.
enum News {
    /// A connection whose other end said a hello that fits.
    Came { partner: u64, stream: TcpStream, accepted: bool },
    /// Something that no waiting will mend.
    Wrong(MeetError),
    /// A try that failed, and is repeated.
    Noted(u64, String),
}

/// Finds the partners of device `hello.from` (its `to` is not looked at) and makes links of the connections.
pub fn meet(hello: Hello, peers: &Peers, limits: Limits, stop: &AtomicUsize) -> Result<Links, MeetError> {
    let rank = hello.from;
    let partners: Vec<u64> = (0..hello.devices.ilog2()).map(|level| rank ^ (1 << level)).collect();
    let deadline = Instant::now() + peers.patience;
    let (news, heard) = channel();
    let over = Arc::new(AtomicBool::new(false));
    let _over = Over(Arc::clone(&over));
    for &partner in partners.iter().filter(|&&partner| partner < rank) {
        let (news, over) = (news.clone(), Arc::clone(&over));
        let address = peers.addresses[partner as usize].clone();
        let hello = Hello { to: partner, ..hello };
        std::thread::spawn(move || call(hello, &address, deadline, &news, &over));
    }
    let listener = match partners.iter().any(|&partner| rank < partner) {
        true => Some(listen(peers.listen.as_ref().unwrap_or(&peers.addresses[rank as usize]))?),
        false => None,
    };
    gather(hello, peers, &partners, listener, (news, heard), deadline, stop).map(|mut streams| {
        let wire = |partner: &u64| {
            let stream = streams.remove(partner).expect("handshake: all partners have come");
            (*partner, Wire::new(stream, limits, peers.patience))
        };
        Links::over(partners.iter().map(wire).collect())
    })
}

/// Tells threads that still look for somebody that it is over.
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn listen(address: &str) -> Result<TcpListener, MeetError> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|source| MeetError::Listen { address: address.to_owned(), source })
}

/// Waits until each partner has come, one way or the other.
fn gather(
    hello: Hello,
    peers: &Peers,
    partners: &[u64],
    listener: Option<TcpListener>,
    (news, heard): (Sender<News>, Receiver<News>),
    deadline: Instant,
    stop: &AtomicUsize,
) -> Result<BTreeMap<u64, TcpStream>, MeetError> {
    let strangers = Arc::new(AtomicUsize::new(0));
    let mut come: BTreeMap<u64, TcpStream> = BTreeMap::new();
    let mut last: BTreeMap<u64, String> = BTreeMap::new();
    while come.len() < partners.len() {
        if stop.load(Ordering::Relaxed) == 0 {
            return Err(MeetError::Stopped);
        }
        let missing = partners.iter().find(|partner| !come.contains_key(partner)).copied();
        if let Some(partner) = missing.filter(|_| deadline <= Instant::now()) {
            let where_ = match partner < hello.from {
                true => format!("answered at {}", peers.addresses[partner as usize]),
                false => "came".to_owned(),
            };
            let last = last.remove(&partner).map(|last| format!(" (last: {last})")).unwrap_or_default();
            return Err(MeetError::Missing { partner, where_, seconds: peers.patience.as_secs(), last });
        }
        while let Some(Ok((stream, address))) = listener.as_ref().map(TcpListener::accept) {
            // Beyond the limit, a connection is closed at once: its other end will try again.
            if strangers.fetch_add(1, Ordering::Relaxed) < STRANGERS_MAX {
                let (news, strangers) = (news.clone(), Arc::clone(&strangers));
                std::thread::spawn(move || {
                    receive(hello, stream, &address.to_string(), &news);
                    strangers.fetch_sub(1, Ordering::Relaxed);
                });
            } else {
                strangers.fetch_sub(1, Ordering::Relaxed);
            }
        }
        match heard.recv_timeout(PAUSE) {
            Ok(News::Came { partner, stream, accepted }) => {
                let word = if come.contains_key(&partner) { TAKEN } else { WELCOME };
                let said =
                    !accepted || write_all_within(&stream, &[word], Instant::now() + HELLO_TIME).is_ok();
                if word == WELCOME && said {
                    come.insert(partner, stream);
                }
            }
            Ok(News::Wrong(error)) => return Err(error),
            Ok(News::Noted(partner, what)) => drop(last.insert(partner, what)),
            Err(_) => {}
        }
    }
    Ok(come)
}

/// Looks for a partner at its address until it is there.
fn call(hello: Hello, address: &str, deadline: Instant, news: &Sender<News>, over: &AtomicBool) {
    let partner = hello.to;
    while !over.load(Ordering::Relaxed) && Instant::now() < deadline {
        let said = match try_call(hello, address) {
            Ok(stream) => {
                // Nobody may be waiting any more.
                let _ = news.send(News::Came { partner, stream, accepted: false });
                return;
            }
            Err(Trial::Wrong(error)) => {
                let _ = news.send(News::Wrong(error));
                return;
            }
            Err(Trial::Again(error)) => news.send(News::Noted(partner, error.to_string())),
        };
        if said.is_err() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// What a try came to that gave no link.
enum Trial {
    Again(io::Error),
    Wrong(MeetError),
}

impl From<io::Error> for Trial {
    fn from(error: io::Error) -> Trial {
        Trial::Again(error)
    }
}

fn try_call(hello: Hello, address: &str) -> Result<TcpStream, Trial> {
    let mut last = io::Error::from(ErrorKind::NotFound);
    let stream = address.to_socket_addrs()?.find_map(|address| {
        TcpStream::connect_timeout(&address, HELLO_TIME).map_err(|error| last = error).ok()
    });
    let Some(stream) = stream else { return Err(Trial::Again(last)) };
    stream.set_nodelay(true)?;
    let deadline = Instant::now() + HELLO_TIME;
    write_all_within(&stream, &hello.encode(), deadline)?;
    fits(hello, hello.to, hear(&stream, deadline), address)?;
    let mut word = [0];
    read_exact_within(&stream, &mut word, deadline)?;
    let (address, partner, rank) = (address.to_owned(), hello.to, hello.from);
    match word[0] {
        WELCOME => Ok(stream),
        TAKEN => Err(Trial::Wrong(MeetError::Taken { address, partner, rank })),
        word => {
            let what = format!("it answers with {word}");
            Err(Trial::Wrong(MeetError::Strange { address, partner, what }))
        }
    }
}

/// Hears what a connection that came in has to say.
fn receive(hello: Hello, stream: TcpStream, address: &str, news: &Sender<News>) {
    let ready = stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true));
    let deadline = Instant::now() + HELLO_TIME;
    let heard = match ready {
        Ok(()) => hear(&stream, deadline),
        Err(error) => Heard::Failed(error),
    };
    // Whoever does not even say a hello is no device: there may be anybody on a network.
    let claimed = match &heard {
        Heard::Hello(theirs) => theirs.from,
        Heard::Version(_) => hello.from ^ 1,
        Heard::Strange(_) | Heard::Failed(_) => return,
    };
    // The other end is told what this one is, so that both can say what differs. If it is gone, it will come again.
    if write_all_within(&stream, &Hello { to: claimed, ..hello }.encode(), deadline).is_err() {
        return;
    }
    // A rank that has no business here is told apart from the right one with another run.
    let is_partner =
        claimed < hello.devices && hello.from < claimed && (claimed ^ hello.from).is_power_of_two();
    let partner = if is_partner { claimed } else { hello.from ^ 1 };
    let _ = news.send(match fits(hello, partner, heard, address) {
        Ok(()) => News::Came { partner, stream, accepted: true },
        Err(Trial::Wrong(error)) => News::Wrong(error),
        Err(Trial::Again(error)) => News::Noted(partner, error.to_string()),
    });
}

/// Whether what was heard is device `partner` of this run.
fn fits(hello: Hello, partner: u64, heard: Heard, address: &str) -> Result<(), Trial> {
    let address = address.to_owned();
    let differs = |what, expected, found| MeetError::Differs {
        address: address.clone(),
        partner,
        what,
        expected,
        found,
    };
    Err(Trial::Wrong(match heard {
        Heard::Failed(error) => return Err(Trial::Again(error)),
        Heard::Strange(what) => MeetError::Strange { address, partner, what },
        Heard::Version(found) => differs("version of the link", VERSION.to_string(), found.to_string()),
        Heard::Hello(theirs) => match hello.difference(partner, &theirs) {
            None => return Ok(()),
            Some((what, expected, found)) => differs(what, expected, found),
        },
    }))
}
