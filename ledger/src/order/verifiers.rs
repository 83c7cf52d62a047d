//! Checking statements on threads of their own: a signature takes some 35 microseconds, for which the threads that
//! serve connections must not stand still.

use std::collections::VecDeque;
use std::io;
use std::panic::catch_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use schemas::statement::Statement;
use tokio::sync::oneshot;

use crate::order::admission::{self, Refusal};
use crate::order::sequencer::SubmitError;

/// Most statements that may wait; together at most 60 MiB.
const WAITING_MAX: usize = 1024;
/// Most threads. Fewer where there are fewer processors.
const THREADS_MAX: usize = 8;
/// Taken at once by a thread, so that it need not ask for each.
const TAKEN_MAX: usize = 8;

/// What a statement was opened to, with its bytes.
type Opened = Result<(Vec<u8>, Statement), Refusal>;

/// A statement that waits to be checked.
struct Waiting {
    bytes: Vec<u8>,
    answer: oneshot::Sender<Opened>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Threads that wait for work: when there are none, nobody need be woken, which takes a system call.
    idle: usize,
    closed: bool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing between taking and releasing it can leave the state half changed.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The way to the threads. They end with the last of its clones.
#[derive(Clone)]
pub struct Verifiers(Arc<Handle>);

struct Handle(Arc<Queue>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.state().closed = true;
        self.0.changed.notify_all();
    }
}

impl Verifiers {
    /// Starts the threads: one for each processor, up to a few.
    pub fn start() -> io::Result<Verifiers> {
        let count = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let verifiers = Verifiers::without_threads();
        for number in 0..count {
            let queue = verifiers.0.0.clone();
            thread::Builder::new().name(format!("verifier {number}")).spawn(move || run(&queue))?;
        }
        Ok(verifiers)
    }

    fn without_threads() -> Verifiers {
        Verifiers(Arc::new(Handle(Arc::default())))
    }

    /// Opens a statement: its form, and its signature under its own key.
    pub async fn open(&self, bytes: Vec<u8>) -> Result<(Vec<u8>, Statement), SubmitError> {
        let (answer, answered) = oneshot::channel();
        let wake = {
            let mut state = self.0.0.state();
            if state.waiting.len() >= WAITING_MAX {
                return Err(SubmitError::PoolFull);
            }
            state.waiting.push_back(Waiting { bytes, answer });
            state.idle > 0
        };
        if wake {
            self.0.0.changed.notify_one();
        }
        match answered.await {
            Ok(opened) => Ok(opened?),
            // Only a mistake in the reading of statements drops an answer: this one cannot be taken.
            Err(_) => Err(SubmitError::NotStored(None)),
        }
    }
}

impl From<Refusal> for SubmitError {
    fn from(refusal: Refusal) -> SubmitError {
        SubmitError::Refused(refusal)
    }
}

/// Checks what waits until nobody can send more.
fn run(queue: &Queue) {
    let mut taken = Vec::with_capacity(TAKEN_MAX);
    while take(queue, &mut taken) {
        for Waiting { bytes, answer } in taken.drain(..) {
            // Whoever has gone away costs nothing more.
            if answer.is_closed() {
                continue;
            }
            let opened = catch_unwind(|| match admission::open(&bytes) {
                Ok(statement) => Ok((bytes, statement)),
                Err(refusal) => Err(refusal),
            });
            match opened {
                Ok(opened) => drop(answer.send(opened)),
                Err(_) => tracing::error!("a statement could not be checked: reading it panicked"),
            }
        }
    }
}

/// Takes some of what waits, or waits for it; false when there is nothing left and no more can come.
fn take(queue: &Queue, taken: &mut Vec<Waiting>) -> bool {
    let mut state = queue.state();
    while state.waiting.is_empty() && !state.closed {
        state.idle += 1;
        state = queue.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        state.idle -= 1;
    }
    // A share only: the other threads are to have some of a short queue too.
    let count = state.waiting.len().div_ceil(2).min(TAKEN_MAX);
    taken.extend(state.waiting.drain(..count));
    !taken.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::entries::{LoadId, sign};

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn statements_come_back_with_their_own_bytes_and_wrong_ones_are_refused() {
        let verifiers = Verifiers::start().unwrap();
        let entries = sign(LoadId([0; 8]), 0, 100, |_| ());
        runtime().block_on(async {
            let mut opened = Vec::new();
            for (at, entry) in entries.iter().enumerate() {
                let mut bytes = entry.clone();
                if at % 10 == 3 {
                    *bytes.last_mut().unwrap() ^= 1;
                }
                let verifiers = verifiers.clone();
                opened.push(tokio::spawn(async move { verifiers.open(bytes).await }));
            }
            for (at, (opened, entry)) in opened.into_iter().zip(&entries).enumerate() {
                match opened.await.unwrap() {
                    Ok((bytes, statement)) => {
                        assert_eq!(&bytes, entry);
                        assert_eq!(statement, Statement::open(entry).unwrap());
                        assert_ne!(at % 10, 3);
                    }
                    Err(SubmitError::Refused(Refusal::NotAStatement(_))) => assert_eq!(at % 10, 3),
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
    }

    #[test]
    fn a_full_queue_says_so_and_threads_end_with_the_last_handle() {
        let verifiers = Verifiers::without_threads();
        let queue = verifiers.0.0.clone();
        let entry = sign(LoadId([0; 8]), 0, 1, |_| ()).remove(0);
        runtime().block_on(async {
            let mut waiting = Vec::new();
            for _ in 0..WAITING_MAX {
                let (verifiers, entry) = (verifiers.clone(), entry.clone());
                waiting.push(tokio::spawn(async move { verifiers.open(entry).await }));
            }
            while queue.state().waiting.len() < WAITING_MAX {
                tokio::task::yield_now().await;
            }
            let refused = verifiers.open(entry.clone()).await;
            assert!(matches!(refused, Err(SubmitError::PoolFull)), "{refused:?}");
            // One that has gone away is passed over, all others are answered, and then the thread ends.
            waiting.remove(0).abort();
            tokio::task::yield_now().await;
            let thread = std::thread::spawn(move || run(&queue));
            for waiting in waiting {
                assert!(waiting.await.unwrap().is_ok());
            }
            drop(verifiers);
            thread.join().unwrap();
        });
    }
}
