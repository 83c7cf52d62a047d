//! What comes over a network: peers of other runs, peers that are none, peers that go, lie or fall silent. Nothing of
//! it ends in anything but links or an error that names what is wrong.

use device::link::frame::{Limits, header};
use device::link::handshake::{HELLO_BYTES, Hello, MeetError, Peers, meet};
use device::link::{Body, Cargo, Links, Lost, Message, Why};
use schemas::digest::{Challenge, RunId};
use schemas::run::Steps;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LIMITS: Limits = Limits { words: 5000, leaves: 4, taps: 95 };

/// An address that nobody else uses: a process of its own, and a number within it.
fn address(number: u16) -> String {
    let id = std::process::id();
    format!("127.{}.{}.{}:{}", 1 + (id >> 16) % 250, (id >> 8) % 256, 1 + id % 250, 7100 + number)
}

fn hello(from: u64) -> Hello {
    let (run, challenge) = (RunId([1; 32]), Challenge([2; 32]));
    Hello { run, challenge, devices: 2, steps: Steps { first: 0, end: 4 }, from, to: from ^ 1 }
}

fn peers(first: u16, patience: Duration) -> Peers {
    let addresses = (first..first + 4).map(address).collect();
    Peers { addresses, listen: None, patience }
}

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(1);

/// Two devices meet, each in a thread.
fn both(first: u16, hellos: [Hello; 2]) -> [Result<Links, MeetError>; 2] {
    let at = peers(first, LONG);
    let never = AtomicUsize::new(usize::MAX);
    std::thread::scope(|scope| {
        let threads = hellos.map(|hello| {
            let (at, never) = (&at, &never);
            scope.spawn(move || meet(hello, at, LIMITS, never))
        });
        threads.map(|thread| thread.join().unwrap())
    })
}

/// Device 0 and whatever a stranger does who says device 1's hello.
fn against(first: u16, patience: Duration, act: impl FnOnce(TcpStream) + Send) -> Result<Cargo, Lost> {
    let never = AtomicUsize::new(usize::MAX);
    std::thread::scope(|scope| {
        scope.spawn(move || act(shake(first, hello(1))));
        let links = meet(hello(0), &peers(first, patience), LIMITS, &never).unwrap();
        links.swap(0, 7, Cargo::Gradient(vec![3; 20_000]))
    })
}

/// Connects to device 0, says a hello and reads the answer, as a device would.
fn shake(first: u16, hello: Hello) -> TcpStream {
    let mut stream = reach(first);
    stream.write_all(&hello.encode()).unwrap();
    let mut answer = [0; HELLO_BYTES + 1];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[HELLO_BYTES], 1, "welcome");
    stream
}

/// A connection to device 0, as soon as it listens.
fn reach(first: u16) -> TcpStream {
    loop {
        if let Ok(stream) = TcpStream::connect(address(first)) {
            return stream;
        }
        std::thread::yield_now();
    }
}

#[test]
fn devices_that_meet_swap_what_they_send() {
    let [zero, one] = both(0, [hello(0), hello(1)]).map(Result::unwrap);
    let words = |byte| Cargo::Gradient(vec![byte; 20_000]);
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            (one.swap(0, 7, words(1)), one.share(1, 7, &[3, 4]), one.agree(&[0, 2]), one.done(8))
        });
        let mine =
            (zero.swap(0, 7, words(0)), zero.share(0, 7, &[1, 2]), zero.agree(&[0, 2, 4]), zero.done(8));
        assert_eq!(mine, (Ok(words(1)), Ok(vec![1, 2, 3, 4]), Ok(vec![0, 2]), Ok(())));
        assert_eq!(other.join().unwrap(), (Ok(words(0)), Ok(vec![1, 2, 3, 4]), Ok(vec![0, 2]), Ok(())));
    });
}

#[test]
fn four_devices_find_their_partners_in_any_order() {
    let at = peers(0, LONG);
    let never = AtomicUsize::new(usize::MAX);
    let got: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = [3, 0, 2, 1]
            .into_iter()
            .map(|from| {
                let (at, never) = (&at, &never);
                scope.spawn(move || {
                    let links = meet(Hello { devices: 4, ..hello(from) }, at, LIMITS, never).unwrap();
                    links.agree(&[0, from, 9]).unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(got.iter().all(|common| common.contains(&9) && !common.contains(&2)), "{got:?}");
}

#[test]
fn what_differs_between_two_devices_is_named_at_both_ends() {
    let other = hello(1);
    for (number, (what, other)) in [
        ("run", Hello { run: RunId([9; 32]), ..other }),
        ("challenge", Hello { challenge: Challenge([9; 32]), ..other }),
        ("number of devices", Hello { devices: 4, ..other }),
        ("range of steps", Hello { steps: Steps { first: 1, end: 4 }, ..other }),
    ]
    .into_iter()
    .enumerate()
    {
        let first = 10 * number as u16;
        // Device 1 of four would wait for device 3; here only what it says to device 0 matters.
        let ended = both(first, [hello(0), other]);
        for (rank, ended) in ended.into_iter().enumerate() {
            let error = ended.err().unwrap().to_string();
            let expected = format!("device {} at 127.", rank ^ 1);
            assert!(
                error.starts_with(&expected) && error.contains(&format!("has another {what}: ")),
                "{error}"
            );
            assert!(error.contains("expected ") && error.contains("found "), "{error}");
        }
    }
}

#[test]
fn a_device_of_a_wrong_rank_is_named_at_both_ends() {
    // A second device 0, which takes device 0 for its partner.
    let mistaken = Hello { from: 2, to: 0, devices: 2, ..hello(0) };
    let never = AtomicUsize::new(usize::MAX);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = reach(0);
            stream.write_all(&mistaken.encode()).unwrap();
            let mut answer = [0; HELLO_BYTES];
            stream.read_exact(&mut answer).unwrap();
        });
        let error = meet(hello(0), &peers(0, LONG), LIMITS, &never).err().unwrap().to_string();
        assert!(error.contains("has another rank: expected 1, found 2"), "{error}");
    });
}

#[test]
fn a_version_of_the_link_that_this_program_does_not_know_is_named() {
    let never = AtomicUsize::new(usize::MAX);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = reach(0);
            let mut bytes = hello(1).encode();
            bytes[8] = 9;
            stream.write_all(&bytes).unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer[8..], [1, 0, 0, 0], "it says which version it is of");
        });
        let error = meet(hello(0), &peers(0, LONG), LIMITS, &never).err().unwrap().to_string();
        assert!(error.contains("has another version of the link: expected 1, found 9"), "{error}");
    });
}

#[test]
fn garbage_and_half_a_hello_keep_no_device_from_the_others() {
    let never = AtomicUsize::new(usize::MAX);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = Vec::new();
            for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 300], &[], &hello(1).encode()[..40]] {
                let mut stream = reach(0);
                // The other end may have hung up already.
                let _ = stream.write_all(bytes);
                held.push(stream);
            }
            drop(held.pop());
            drop(shake(0, hello(1)));
            drop(held);
        });
        assert!(meet(hello(0), &peers(0, LONG), LIMITS, &never).is_ok());
    });
}

#[test]
fn a_second_device_of_one_rank_is_told_that_there_is_one() {
    // Device 0 of four has device 1 already and waits for device 2.
    let four = |from| Hello { devices: 4, from, to: 0, ..hello(from) };
    let at = peers(0, LONG);
    let stop = AtomicUsize::new(usize::MAX);
    std::thread::scope(|scope| {
        let zero = scope.spawn(|| meet(four(0), &at, LIMITS, &stop));
        let first = shake(0, four(1));
        let mut second = reach(0);
        second.write_all(&four(1).encode()).unwrap();
        let mut answer = [0; HELLO_BYTES + 1];
        second.read_exact(&mut answer).unwrap();
        assert_eq!(answer[HELLO_BYTES], 2, "taken");
        let third = shake(0, four(2));
        assert!(zero.join().unwrap().is_ok());
        drop((first, third));
    });
    // What a device makes of that answer.
    std::thread::scope(|scope| {
        let listener = TcpListener::bind(address(20)).unwrap();
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; HELLO_BYTES];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&hello(0).encode()).unwrap();
            stream.write_all(&[2]).unwrap();
        });
        let error = meet(hello(1), &peers(20, LONG), LIMITS, &stop).err().unwrap().to_string();
        assert!(error.contains("has a link to another device 1 already"), "{error}");
    });
}

#[test]
fn something_else_at_a_partners_address_is_named() {
    let listener = TcpListener::bind(address(0)).unwrap();
    let never = AtomicUsize::new(usize::MAX);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"220 mail.example ESMTP ready and waiting\r\n").unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let error = meet(hello(1), &peers(0, LONG), LIMITS, &never).err().unwrap().to_string();
        assert!(
            error.contains("expected device 0, found something else: it begins with \"220 mail\""),
            "{error}"
        );
    });
}

#[test]
fn a_partner_that_does_not_come_is_named_after_the_time_limit() {
    let never = AtomicUsize::new(usize::MAX);
    let error = meet(hello(0), &peers(0, SHORT), LIMITS, &never).err().unwrap();
    assert_eq!(error.to_string(), "no device 1 came within 1 s");
    let error = meet(hello(1), &peers(10, SHORT), LIMITS, &never).err().unwrap().to_string();
    assert!(
        error.starts_with("no device 0 answered at 127.") && error.contains("(last: Connection refused"),
        "{error}"
    );
    let taken = TcpListener::bind(address(20)).unwrap();
    let error = meet(hello(0), &peers(20, SHORT), LIMITS, &never).err().unwrap().to_string();
    assert!(error.starts_with("cannot listen on 127."), "{error}");
    drop(taken);
}

#[test]
fn a_process_that_is_told_to_stop_does_not_wait_for_partners() {
    let stop = AtomicUsize::new(usize::MAX);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| meet(hello(0), &peers(0, LONG), LIMITS, &stop));
        reach(0);
        stop.store(0, Ordering::Relaxed);
        assert!(matches!(waiting.join().unwrap(), Err(MeetError::Stopped)));
    });
}

#[test]
fn a_peer_that_goes_in_the_middle_of_a_frame_is_lost() {
    let message = Message { step: 7, body: Body::Cargo(Cargo::Gradient(vec![1; 20_000])) };
    for (number, sent) in [0, 5, 17, 18, 10_000].into_iter().enumerate() {
        let frame = [&header(&message)[..], &[1; 20_000]].concat();
        let error = against(10 * number as u16, LONG, move |mut stream| {
            stream.write_all(&frame[..sent]).unwrap();
        });
        assert_eq!(error.unwrap_err().to_string(), "device 1 was lost in step 7", "after {sent} bytes");
    }
}

#[test]
fn a_peer_that_falls_silent_is_lost_after_the_time_limit() {
    for (number, sent) in [0, 17, 1000].into_iter().enumerate() {
        let message = Message { step: 7, body: Body::Cargo(Cargo::Gradient(vec![1; 20_000])) };
        let frame = [&header(&message)[..], &[1; 20_000]].concat();
        let error = against(10 * number as u16, SHORT, move |mut stream| {
            stream.write_all(&frame[..sent]).unwrap();
            // Until the other end gives up.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let expected = "device 1 was lost in step 7: its part did not arrive within 1 s";
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_peer_that_lies_about_lengths_kinds_or_steps_is_lost_and_named() {
    let huge = |bytes: u64| {
        let mut frame = header(&Message { step: 7, body: Body::Cargo(Cargo::Gradient(vec![])) });
        frame[9..].copy_from_slice(&bytes.to_le_bytes());
        frame.to_vec()
    };
    let other = header(&Message { step: 8, body: Body::Cargo(Cargo::Ended) }).to_vec();
    let early = header(&Message { step: 7, body: Body::Done }).to_vec();
    for (number, (frame, expected)) in [
        (huge(u64::MAX), "it sent a gradient of 18446744073709551615 bytes, expected 20000 to 20000"),
        (huge(19_996), "it sent a gradient of 19996 bytes, expected 20000 to 20000"),
        (vec![b'G'; 100], "it sent a frame of kind 71, expected 1 to 7"),
        (other, "it is in step 8, expected 7"),
        (early, "expected its part of the meeting, found that it is done"),
    ]
    .into_iter()
    .enumerate()
    {
        let error = against(10 * number as u16, LONG, move |mut stream| {
            stream.write_all(&frame).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        assert_eq!(error, Err(Lost { partner: 1, step: 7, why: Why::Strange(expected.into()) }));
    }
}

#[test]
fn a_peer_that_was_told_to_stop_says_so_though_it_reads_nothing_any_more() {
    let [zero, one] = both(0, [hello(0), hello(1)]).map(Result::unwrap);
    std::thread::scope(|scope| {
        scope.spawn(move || one.stop(7));
        let error = zero.swap(0, 7, Cargo::Gradient(vec![3; 20_000])).unwrap_err();
        assert_eq!(error.to_string(), "device 1 was lost in step 7: it was told to stop before it");
        drop(zero);
    });
}
