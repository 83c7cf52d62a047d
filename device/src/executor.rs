//! One device at work on a machine: the plan's operations as launches, in order; every tensor stays in its memory.

pub mod flat;
pub mod update;

use crate::backend::{BackendError, Device, Given, Leaf, Moments, Spoil, Which};
use crate::checksum::Digested;
use crate::launches::{self, Shapes, Step, Tap};
use crate::machine::{Argument, Buffer, Build, Launch, Machine};
use crate::order;
use crate::places::{self, Layout, Memories, Place, Places};
use crate::snapshot::State;
use flat::Flat;
use schemas::checksum::Dtype;
use schemas::digest::Challenge;
use schemas::fold::{Fold, FoldKey, NAN_WORD};
use schemas::plan::Plan;
use std::ops::Range;
use update::Update;

/// A device of a run, on a machine.
pub struct Executor<'a> {
    machine: Box<dyn Machine>,
    plan: &'a Plan,
    tokens: &'a [u32],
    shapes: Shapes,
    build: Build,
    layout: Layout,
    /// Where a leaf works; its gradient is in a slot.
    memories: Memories,
    /// Flat vectors for nodes of the tree, each with the launches of a leaf whose gradient it takes.
    slots: Vec<Slot>,
    /// Slots that hold nothing.
    free: Vec<usize>,
    /// The slot of the node, once there is one.
    node: Option<usize>,
    /// The slot of what arrived, once something did.
    arrived: Option<usize>,
    flat: Flat,
    update: Update<'a>,
    state: update::State,
    /// Coefficients under a challenge, once there was one.
    keyed: Option<Buffer>,
    /// Where each tap's triples begin and how many they are; and their sums, a triple for each tap.
    taps: [Buffer; 2],
    tap_count: usize,
}

struct Slot {
    vector: Buffer,
    /// Every operation of a leaf; empty until a leaf is run there.
    steps: Vec<Step>,
}

/// What a node needs while it is computed.
struct Work<'w> {
    step: u64,
    spoil: &'w dyn Spoil,
    reports: Vec<Leaf>,
}

/// The bytes of words, as memory holds them.
fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn bytes_of_floats(words: &[f32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn floats_of(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

/// New memory with these bytes.
fn filled(machine: &mut dyn Machine, bytes: &[u8]) -> Result<Buffer, BackendError> {
    let buffer = machine.allocate(bytes.len() as u64)?;
    machine.write(buffer, 0, bytes)?;
    Ok(buffer)
}

/// New memory for leaves of a plan, with the coefficients of a key in it. Parameters and gradient are where they are.
pub fn memories(
    machine: &mut dyn Machine,
    plan: &Plan,
    layout: &Layout,
    key: FoldKey,
    [parameters, gradient]: [Place; 2],
) -> Result<Memories, BackendError> {
    let needs = &layout.bytes;
    Ok(Memories {
        tensors: machine.allocate(needs.tensors)?,
        tables: machine.allocate(needs.tables)?,
        starts: machine.allocate(needs.starts)?,
        sorted: machine.allocate(needs.sorted)?,
        scratch: machine.allocate(needs.scratch)?,
        sums: machine.allocate(needs.sums)?,
        loss: machine.allocate(needs.loss)?,
        stream: machine.allocate(4 * plan.data.tokens)?,
        coefficients: filled(machine, &flat::coefficients(key, places::coefficient_words(plan)))?,
        parameters,
        gradient,
    })
}

impl<'a> Executor<'a> {
    /// Brings a plan, its tokens and a state to a machine whose kernels were built so.
    pub fn new(
        mut machine: Box<dyn Machine>,
        given: Given<'a>,
        shapes: Shapes,
        build: Build,
    ) -> Result<Executor<'a>, BackendError> {
        let Given { plan, tokens, state, .. } = given;
        let layout = Layout::of(plan, &shapes, &build)?;
        let m = &mut *machine;
        let state = update::State {
            parameters: filled(m, &bytes_of_floats(&state.parameters))?,
            first_moment: filled(m, &bytes_of_floats(&state.first_moment))?,
            second_moment: filled(m, &bytes_of_floats(&state.second_moment))?,
        };
        let parameters = Place { buffer: state.parameters, at: 0 };
        // Every slot has launches of its own, with its own gradient.
        let memories = memories(m, plan, &layout, FoldKey::from(plan.digest()), [parameters; 2])?;
        m.write(memories.stream, 0, &bytes_of(tokens))?;
        m.write(memories.tables, 0, &bytes_of(&places::tables(plan)))?;
        let flat = Flat::new(m, plan.parameter_count(), &shapes, &build)?;
        let update = Update::new(m, plan, &shapes)?;
        let tap_count = plan.taps().count();
        let taps = [m.allocate(16 * tap_count as u64)?, m.allocate(24 * tap_count as u64)?];
        let (slots, free, node, arrived, keyed) = (vec![], vec![], None, None, None);
        Ok(Executor {
            machine,
            plan,
            tokens,
            shapes,
            build,
            layout,
            memories,
            slots,
            free,
            node,
            arrived,
            flat,
            update,
            state,
            keyed,
            taps,
            tap_count,
        })
    }

    /// Waits for everything that was started.
    pub fn finish(&mut self) -> Result<(), BackendError> {
        self.machine.finish()
    }

    fn take_slot(&mut self) -> Result<usize, BackendError> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        let vector = self.machine.allocate(4 * self.plan.parameter_count())?;
        self.slots.push(Slot { vector, steps: vec![] });
        Ok(self.slots.len() - 1)
    }

    /// The node over some leaves (docs/spec/plan.md#tree); none if one of them was not finite. Every leaf is run and
    /// reported all the same.
    fn node_over(&mut self, leaves: Range<u64>, work: &mut Work<'_>) -> Result<Option<usize>, BackendError> {
        let Range { start, end } = leaves;
        if end - start == 1 {
            let slot = self.take_slot()?;
            let leaf = self.leaf(slot, start, work)?;
            let finite = leaf.finite;
            work.reports.push(leaf);
            if !finite {
                self.free.push(slot);
            }
            return Ok(finite.then_some(slot));
        }
        let middle = start + (end - start).div_ceil(2);
        let left = self.node_over(start..middle, work)?;
        let right = self.node_over(middle..end, work)?;
        if let (Some(left), Some(right)) = (left, right) {
            let launch = self.update.add(self.slots[left].vector, self.slots[right].vector, true);
            self.machine.launch(&launch)?;
            self.free.push(right);
            return Ok(Some(left));
        }
        self.free.extend(left.into_iter().chain(right));
        Ok(None)
    }

    /// Launches of a leaf whose gradient goes to a slot.
    fn prepare(&mut self, slot: usize) -> Result<(), BackendError> {
        if !self.slots[slot].steps.is_empty() {
            return Ok(());
        }
        let gradient = Place { buffer: self.slots[slot].vector, at: 0 };
        let places = Places { layout: &self.layout, memories: Memories { gradient, ..self.memories } };
        let steps = launches::launches(self.plan, &places, &self.shapes, &self.build);
        // The same for every slot.
        let lists = steps.iter().flat_map(|step| &step.taps).flat_map(|tap| [tap.sums_at, tap.sums]);
        let lists: Vec<u8> = lists.flat_map(u64::to_le_bytes).collect();
        self.machine.write(self.taps[0], 0, &lists)?;
        self.slots[slot].steps = steps;
        Ok(())
    }

    /// Runs one leaf; its gradient goes to a slot.
    fn leaf(&mut self, slot: usize, leaf: u64, work: &Work<'_>) -> Result<Leaf, BackendError> {
        self.prepare(slot)?;
        let dimensions = self.plan.dimensions;
        let starts = order::starts(self.plan, work.step, work.spoil.data_of(leaf));
        let tokens = order::tokens(&starts, dimensions.time, self.tokens);
        let starts: Vec<u8> = starts.iter().flat_map(|start| start.to_le_bytes()).collect();
        let sorted = bytes_of(&order::sorted(&tokens, dimensions.vocabulary));
        let m = &mut *self.machine;
        m.write(self.memories.starts, 0, &starts)?;
        m.write(self.memories.sorted, 0, &sorted)?;
        for step in &self.slots[slot].steps {
            step.launches.iter().try_for_each(|launch| m.launch(launch))?;
            for tap in &step.taps {
                if tap.dtype == Dtype::F32 && work.spoil.wants(leaf, tap.tap) {
                    spoil_tap(m, &self.memories, tap, &self.shapes, |words| {
                        work.spoil.spoil(leaf, tap.tap, words)
                    })?;
                }
            }
            step.after.iter().try_for_each(|launch| m.launch(launch))?;
        }
        let [lists, sums] = self.taps;
        let arguments = [self.memories.sums, lists, sums].map(|buffer| Argument::Tensor(buffer, 0)).to_vec();
        let (groups, items) = ([self.tap_count as u32, 1], self.shapes.items);
        m.launch(&Launch { kernel: "finish_folds", groups, items, arguments })?;
        let (mut bytes, mut loss) = (vec![0; 24 * self.tap_count], [0; 4]);
        m.read(sums, 0, &mut bytes)?;
        m.read(self.memories.loss, 0, &mut loss)?;
        let mut folds = Vec::with_capacity(self.tap_count);
        for triple in bytes.as_chunks::<24>().0 {
            let (fold, finite) = flat::added(triple);
            folds.push(fold);
            if !finite {
                return Ok(Leaf { folds, finite, loss: NAN_WORD });
            }
        }
        let loss = f32::from_le_bytes(loss);
        let loss = if loss.is_nan() { NAN_WORD } else { loss.to_bits() };
        Ok(Leaf { folds, finite: true, loss })
    }

    /// The place of a vector that must be there by now.
    fn place(&self, which: Which) -> Place {
        let slot =
            |slot: Option<usize>| self.slots[slot.expect("executor: calls come in their order")].vector;
        let buffer = match which {
            Which::Node | Which::Reduced => slot(self.node),
            Which::Arrived => slot(self.arrived),
            Which::Parameters => self.state.parameters,
            Which::FirstMoment => self.state.first_moment,
            Which::SecondMoment => self.state.second_moment,
        };
        Place { buffer, at: 0 }
    }

    fn read_flat(&mut self, buffer: Buffer) -> Result<Vec<u8>, BackendError> {
        let mut bytes = vec![0; 4 * self.plan.parameter_count() as usize];
        self.machine.read(buffer, 0, &mut bytes)?;
        Ok(bytes)
    }
}

/// Changes a tap's tensor in memory and takes its fold anew: one triple, and the others of the tap zero.
fn spoil_tap(
    machine: &mut dyn Machine,
    memories: &Memories,
    tap: &Tap,
    shapes: &Shapes,
    change: impl FnOnce(&mut [f32]),
) -> Result<(), BackendError> {
    let Tap { place, elements, sums_at, sums, .. } = *tap;
    let mut bytes = vec![0; 4 * elements as usize];
    machine.read(place.buffer, 4 * place.at, &mut bytes)?;
    let mut words = floats_of(&bytes);
    change(&mut words);
    machine.write(place.buffer, 4 * place.at, &bytes_of_floats(&words))?;
    machine.write(memories.sums, 8 * sums_at, &vec![0; 24 * sums as usize])?;
    let (key, into) = (memories.coefficients, (memories.sums, sums_at));
    machine.launch(&flat::fold_words(place, elements, key, into, elements.div_ceil(1024), shapes.items))
}

impl Device for Executor<'_> {
    fn leaves(
        &mut self,
        step: u64,
        leaves: Range<u64>,
        spoil: &dyn Spoil,
    ) -> Result<Vec<Leaf>, BackendError> {
        self.free.extend(self.node.take().into_iter().chain(self.arrived.take()));
        let mut work = Work { step, spoil, reports: Vec::new() };
        self.node = self.node_over(leaves, &mut work)?;
        Ok(work.reports)
    }

    fn digest(&mut self, which: Which) -> Result<Digested, BackendError> {
        let place = self.place(which);
        self.flat.digest(&mut *self.machine, place, self.memories.coefficients)
    }

    fn node_bytes(&mut self) -> Result<Vec<u8>, BackendError> {
        self.read_flat(self.place(Which::Node).buffer)
    }

    fn arrive(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        let expected = 4 * self.plan.parameter_count();
        if bytes.len() as u64 != expected {
            return Err(BackendError(format!("a node of {expected} bytes expected, found {}", bytes.len())));
        }
        if self.arrived.is_none() {
            self.arrived = Some(self.take_slot()?);
        }
        let to = self.place(Which::Arrived).buffer;
        self.machine.write(to, 0, bytes)
    }

    fn join(&mut self, mine_is_left: bool) -> Result<(), BackendError> {
        let (node, arrived) = (self.place(Which::Node).buffer, self.place(Which::Arrived).buffer);
        self.machine.launch(&self.update.add(node, arrived, mine_is_left))
    }

    fn reduce(&mut self) -> Result<(), BackendError> {
        self.machine.launch(&self.update.reduce(self.place(Which::Node).buffer))
    }

    fn norm(&mut self) -> Result<f32, BackendError> {
        let gradient = self.place(Which::Reduced).buffer;
        self.update.norm(&mut *self.machine, gradient)
    }

    fn update(&mut self, step: u64) -> Result<(), BackendError> {
        let gradient = self.place(Which::Reduced).buffer;
        self.update.optimize(&mut *self.machine, step, gradient, &self.state)
    }

    fn moments(&mut self) -> Result<Moments, BackendError> {
        let mut fold = |buffer| {
            let place = Place { buffer, at: 0 };
            self.flat.fold(&mut *self.machine, place, self.memories.coefficients)
        };
        let (first, second) = (fold(self.state.first_moment)?, fold(self.state.second_moment)?);
        Ok(Moments { first: first.0, second: second.0, finite: first.1 && second.1 })
    }

    fn keyed(&mut self, challenge: Challenge) -> Result<[Fold; 2], BackendError> {
        let coefficients = flat::coefficients(FoldKey::from(challenge), self.plan.parameter_count());
        let key = match self.keyed {
            Some(key) => key,
            None => *self.keyed.insert(self.machine.allocate(coefficients.len() as u64)?),
        };
        self.machine.write(key, 0, &coefficients)?;
        let (reduced, parameters) = (self.place(Which::Reduced), self.place(Which::Parameters));
        let mut fold = |place| Ok(self.flat.fold(&mut *self.machine, place, key)?.0);
        Ok([fold(reduced)?, fold(parameters)?])
    }

    fn flip(&mut self, which: Which, element: u64, bit: u32) -> Result<(), BackendError> {
        let Place { buffer, at } = self.place(which);
        let mut word = [0; 4];
        self.machine.read(buffer, 4 * (at + element), &mut word)?;
        let flipped = u32::from_le_bytes(word) ^ (1 << bit);
        self.machine.write(buffer, 4 * (at + element), &flipped.to_le_bytes())
    }

    fn state(&mut self) -> Result<State, BackendError> {
        let update::State { parameters, first_moment, second_moment } = self.state;
        let mut read = |buffer| Ok::<_, BackendError>(floats_of(&self.read_flat(buffer)?));
        Ok(State {
            parameters: read(parameters)?,
            first_moment: read(first_moment)?,
            second_moment: read(second_moment)?,
        })
    }
}
