//! A device that fails in the middle of a run: the cause is named, the others end, and the run can be gone on with.

mod tiny;

use device::backend::{Backend, BackendError, Candidate, Device, Given, Leaf, Moments, Spoil, Which};
use device::checksum::Digested;
use device::run::{Request, RunError};
use device::simulated::Simulated;
use device::snapshot::State;
use schemas::digest::Challenge;
use schemas::fold::Fold;
use schemas::receipt::DeviceFacts;
use schemas::record::NonFinite;
use std::ops::Range;
use tiny::{Tiny, files};

/// The simulated backend, except that one device fails in one step.
struct Failing {
    inner: Simulated,
    rank: u64,
    step: u64,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    NoStart,
    InLeaves,
    InNorm,
    InUpdate,
    Panic,
    /// Finds an infinity in the new parameters.
    InfiniteParameters,
    /// Finds an infinity in a new moment.
    InfiniteMoments,
}

struct FailingDevice<'a> {
    inner: Box<dyn Device + 'a>,
    fails: Option<(u64, How)>,
    now: u64,
}

impl FailingDevice<'_> {
    fn at(&self, how: How) -> Result<(), BackendError> {
        match self.fails {
            Some((step, fails)) if step == self.now && fails == how => {
                Err(BackendError("out of luck".into()))
            }
            _ => Ok(()),
        }
    }
}

impl Backend for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }
    fn description(&self) -> String {
        "fails".into()
    }
    fn simulated(&self) -> bool {
        true
    }
    fn facts(&self, rank: u64) -> DeviceFacts {
        self.inner.facts(rank)
    }
    fn devices(&self) -> Vec<Candidate> {
        vec![]
    }
    fn open<'a>(&self, given: Given<'a>) -> Result<Box<dyn Device + 'a>, BackendError> {
        let rank = given.rank;
        if rank == self.rank && self.how == How::NoStart {
            return Err(BackendError("out of luck".into()));
        }
        let fails = (rank == self.rank).then_some((self.step, self.how));
        Ok(Box::new(FailingDevice { inner: self.inner.open(given)?, fails, now: 0 }))
    }
}

impl Device for FailingDevice<'_> {
    fn leaves(
        &mut self,
        step: u64,
        leaves: Range<u64>,
        spoil: &dyn Spoil,
    ) -> Result<Vec<Leaf>, BackendError> {
        self.now = step;
        self.at(How::InLeaves)?;
        assert!(self.at(How::Panic).is_ok(), "a broken device");
        self.inner.leaves(step, leaves, spoil)
    }
    fn digest(&mut self, which: Which) -> Result<Digested, BackendError> {
        let mut digested = self.inner.digest(which)?;
        digested.finite &= which != Which::Parameters || self.at(How::InfiniteParameters).is_ok();
        Ok(digested)
    }
    fn node_bytes(&mut self) -> Result<Vec<u8>, BackendError> {
        self.inner.node_bytes()
    }
    fn arrive(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.arrive(bytes)
    }
    fn join(&mut self, mine_is_left: bool) -> Result<(), BackendError> {
        self.inner.join(mine_is_left)
    }
    fn reduce(&mut self) -> Result<(), BackendError> {
        self.inner.reduce()
    }
    fn norm(&mut self) -> Result<f32, BackendError> {
        self.at(How::InNorm)?;
        self.inner.norm()
    }
    fn update(&mut self, step: u64) -> Result<(), BackendError> {
        self.at(How::InUpdate)?;
        self.inner.update(step)
    }
    fn moments(&mut self) -> Result<Moments, BackendError> {
        let mut moments = self.inner.moments()?;
        moments.finite &= self.at(How::InfiniteMoments).is_ok();
        Ok(moments)
    }
    fn keyed(&mut self, challenge: Challenge) -> Result<[Fold; 2], BackendError> {
        self.inner.keyed(challenge)
    }
    fn flip(&mut self, which: Which, element: u64, bit: u32) -> Result<(), BackendError> {
        self.inner.flip(which, element, bit)
    }
    fn state(&mut self) -> Result<State, BackendError> {
        self.inner.state()
    }
}

fn failing(rank: u64, step: u64, how: How) -> Failing {
    Failing { inner: Simulated::detect(), rank, step, how }
}

fn fail(devices: u64, rank: u64, step: u64, how: How) -> RunError {
    let tiny = Tiny::new();
    let backend = failing(rank, step, how);
    let request = tiny.request("out", devices, &[]);
    let error = tiny.run_on(&request, &backend).err().unwrap();
    let left = files(&request.out);
    assert!(left.iter().all(|name| name.starts_with("work/") || name.starts_with("lo")), "{left:?}");
    // The same once more, on devices that do not fail.
    let resumed = tiny.run_on(&request, &failing(99, 0, How::NoStart)).unwrap();
    let whole = tiny.run_on(&tiny.request("whole", devices, &[]), &failing(99, 0, How::NoStart)).unwrap();
    for rank in 0..devices as usize {
        assert_eq!(resumed.receipts[rank], whole.receipts[rank], "device {rank}");
    }
    let traces = |output: &tiny::Output| {
        let names = files(&output.folder).into_iter().filter(|name| name.starts_with("traces/"));
        names.map(|name| std::fs::read(output.folder.join(&name)).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(traces(&resumed), traces(&whole));
    error
}

#[test]
fn a_failing_device_is_named_and_its_run_can_be_gone_on_with() {
    for (devices, rank) in [(1, 0), (2, 0), (2, 1), (4, 2)] {
        for step in [0, 2, 3] {
            for how in [How::InLeaves, How::InNorm, How::InUpdate] {
                let error = fail(devices, rank, step, how).to_string();
                assert_eq!(error, format!("device {rank} stopped in step {step}: out of luck"));
            }
        }
    }
}

#[test]
fn a_panicking_device_is_named_and_its_run_can_be_gone_on_with() {
    for (devices, rank, step) in [(1, 0, 0), (2, 1, 1), (4, 3, 2)] {
        let error = fail(devices, rank, step, How::Panic);
        assert!(matches!(error, RunError::Panic { rank: named, .. } if named == rank), "{error}");
        assert!(error.to_string().contains("a broken device"), "{error}");
    }
}

#[test]
fn a_device_that_does_not_start_ends_the_run() {
    let error = fail(4, 1, 0, How::NoStart).to_string();
    assert_eq!(error, "device 1 did not start: out of luck");
}

#[test]
fn a_run_that_was_refused_before_its_first_step_was_finished_leaves_no_work_behind() {
    let tiny = Tiny::new();
    for (step, how, left) in [(0, How::NoStart, false), (0, How::InLeaves, false), (1, How::InLeaves, true)] {
        let request = Request { snapshot_every: 0, ..tiny.request("out", 2, &[]) };
        assert!(tiny.run_on(&request, &failing(1, step, how)).is_err());
        assert_eq!(request.out.join("work").exists(), left, "step {step}");
    }
    // Work that had begun stays, whatever the next start is refused for.
    let request = tiny.request("begun", 2, &[]);
    for failing in [failing(1, 2, How::InLeaves), failing(1, 0, How::NoStart)] {
        assert!(tiny.run_on(&request, &failing).is_err());
        assert!(request.out.join("work/rank-0/records").metadata().unwrap().len() > 0);
    }
}

#[test]
fn an_infinity_in_any_part_of_the_new_state_ends_the_run_with_a_whole_record() {
    for how in [How::InfiniteParameters, How::InfiniteMoments] {
        let tiny = Tiny::new();
        let output = tiny.run_on(&tiny.request("out", 2, &[]), &failing(1, 1, how)).unwrap();
        for rank in 0..2 {
            assert_eq!(output.records(rank).len(), 2, "{how:?}, rank {rank}");
            let at = (rank == 1).then_some(NonFinite::Update { stage: 2 });
            assert_eq!(output.record(rank, 1).non_finite, at, "{how:?}, rank {rank}");
            assert!(output.record(rank, 1).outcome.is_some());
        }
    }
}
