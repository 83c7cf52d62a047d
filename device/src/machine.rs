//! What runs kernels: memory that lasts as long as the machine, and kernels that are launched on it in order.

use crate::backend::BackendError;
use schemas::receipt::DeviceFacts;

/// Memory of a machine, by number. It lasts as long as the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer(pub usize);

/// A value given to a kernel, in the order of its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// `TENSOR(type, name)`: memory, and how many elements of the kernel's type into it the tensor begins.
    Tensor(Buffer, u64),
    /// `uint`.
    U32(u32),
    /// `ulong`.
    U64(u64),
    /// `float`, by its bits.
    F32(u32),
}

/// One kernel, the shape of its launch and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Groups along x and y.
    pub groups: [u32; 2],
    /// Work-items in a group.
    pub items: u32,
    /// What it is given.
    pub arguments: Vec<Argument>,
}

/// How kernels are built. None of it may change a bit of a result but `contracted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Build {
    /// Whether kernels add up the folds of what they write, and look for what is not finite.
    pub recorded: bool,
    /// Whether a product and a sum may be contracted into one operation: wrong on purpose, for the self-test's drill.
    pub contracted: bool,
    /// Whether matrix products bring their factors into a group's shared memory first: good for a GPU, a waste on a processor.
    pub staged: bool,
}

/// A device that may become a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its place among those of one kind.
    pub place: usize,
    /// What it says of itself.
    pub facts: DeviceFacts,
    /// How kernels are best built for it: [`Build::staged`].
    pub staged: bool,
}

/// All devices of one kind.
pub trait Machines: Sync {
    /// What the kind is called: the backend's name.
    fn name(&self) -> &'static str;

    /// Those of this system. An error says why there is none.
    fn devices(&self) -> Result<Vec<Found>, BackendError>;

    /// The device at a place, with this crate's kernels.
    fn open(&self, place: usize, build: Build) -> Result<Box<dyn Machine>, BackendError>;
}

impl<M: Machines + ?Sized> Machines for Box<M> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn devices(&self) -> Result<Vec<Found>, BackendError> {
        (**self).devices()
    }

    fn open(&self, place: usize, build: Build) -> Result<Box<dyn Machine>, BackendError> {
        (**self).open(place, build)
    }
}

/// A device with the kernels built for it.
pub trait Machine: Send {
    /// What it says of itself.
    fn facts(&self) -> DeviceFacts;

    /// New memory of so many bytes, all zero.
    fn allocate(&mut self, bytes: u64) -> Result<Buffer, BackendError>;

    /// Copies bytes to memory, from byte `at` on, after all launches before.
    fn write(&mut self, to: Buffer, at: u64, bytes: &[u8]) -> Result<(), BackendError>;

    /// Copies bytes from memory, from byte `at` on, after all launches before.
    fn read(&mut self, from: Buffer, at: u64, bytes: &mut [u8]) -> Result<(), BackendError>;

    /// Starts a kernel after all launches before. Whether it went well may show only at the next `read` or `finish`.
    fn launch(&mut self, launch: &Launch) -> Result<(), BackendError>;

    /// Waits for all launches.
    fn finish(&mut self) -> Result<(), BackendError>;
}
