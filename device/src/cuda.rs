//! A machine of CUDA: one NVIDIA card, its kernels compiled at start for its own architecture.
//!
//! The driver is loaded when it is asked for, so that the program starts where there is none. `unsafe` stands here
//! because memory of a device is a number and a launch takes untyped pointers: every address is that of a buffer that
//! lives as long as the machine, copies are held to its size, and arguments to the sizes of the kernel's parameters.
//! That a kernel stays within the tensors it is given is the kernels' own business, held by their tests.

#![allow(unsafe_code)]

use crate::backend::BackendError;
use crate::kernels;
use crate::machine::{Argument, Buffer, Build, Found, Launch, Machine, Machines};
use crate::nvrtc::{self, Compiled, Nvrtc};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute};
use cudarc::driver::{CudaContext, CudaStream};
use schemas::receipt::DeviceFacts;
use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock};

/// CUDA's cards, in the driver's order.
pub struct CudaDevices;

impl Machines for CudaDevices {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn devices(&self) -> Result<Vec<Found>, BackendError> {
        (0..count()?)
            .map(|place| Ok(Found { place, facts: Card::open(place)?.facts, staged: true }))
            .collect()
    }

    fn open(&self, place: usize, build: Build) -> Result<Box<dyn Machine>, BackendError> {
        Ok(Box::new(Cuda::open(place, build)?))
    }
}

/// What was compiled, by options and source.
type Programs = HashMap<(Vec<String>, String), Arc<Compiled>>;

/// A card, what it is, and the compiler for it.
struct Card {
    context: Arc<CudaContext>,
    compiler: Nvrtc,
    /// What to compile for.
    architecture: String,
    facts: DeviceFacts,
}

/// One card with the kernels built for it.
pub struct Cuda {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    module: sys::CUmodule,
    functions: HashMap<&'static str, sys::CUfunction>,
    built: Arc<Compiled>,
    /// Address and size of each buffer.
    buffers: Vec<(sys::CUdeviceptr, u64)>,
    facts: DeviceFacts,
}

// SAFETY: the driver's handles may be used from any thread that the context is bound to, which every call does first.
unsafe impl Send for Cuda {}

/// Whether the system has a driver of CUDA.
pub fn has_driver() -> bool {
    // SAFETY: tries to load the driver's library and nothing more.
    unsafe { sys::is_culib_present() }
}

/// How many cards there are; an error where there is no driver, or one that does not work.
pub fn count() -> Result<usize, BackendError> {
    start()?;
    let count = result::device::get_count().map_err(|error| wrong("counting the cards", error))?;
    Ok(count.max(0) as usize)
}

fn start() -> Result<(), BackendError> {
    if !has_driver() {
        return Err(BackendError("expected a driver of CUDA (libcuda.so), found none".into()));
    }
    result::init().map_err(|error| wrong("starting CUDA's driver", error))
}

fn wrong(what: &str, error: DriverError) -> BackendError {
    let said = error.error_string().map_or("unknown".into(), |said| said.to_string_lossy().into_owned());
    BackendError(format!("cuda: {what}: {said} ({:?})", error.0))
}

/// CUDA's version as the driver has it, such as (12, 8).
fn driver_version() -> Result<(u32, u32), BackendError> {
    let mut version: c_int = 0;
    // SAFETY: a place for one number.
    let status = unsafe { sys::cuDriverGetVersion(&mut version) };
    status.result().map_err(|error| wrong("asking for the driver's version", error))?;
    Ok((version as u32 / 1000, version as u32 % 1000 / 10))
}

impl Card {
    fn open(ordinal: usize) -> Result<Card, BackendError> {
        let count = count()?;
        if ordinal >= count {
            return Err(BackendError(format!("cuda: expected a card below {count}, found {ordinal}")));
        }
        let context = CudaContext::new(ordinal).map_err(|error| wrong("opening the card", error))?;
        let (major, minor) = driver_version()?;
        let compiler = Nvrtc::find(major).map_err(said)?;
        let asked =
            |what: Attribute| context.attribute(what).map_err(|error| wrong("asking the card", error));
        let capability = asked(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? as u32 * 10
            + asked(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)? as u32;
        let architecture = compiler.architecture(capability).map_err(said)?;
        let version = compiler.version;
        let facts = DeviceFacts {
            name: context.name().map_err(|error| wrong("asking the card", error))?,
            architecture: format!("sm_{capability}"),
            driver: format!("CUDA {major}.{minor}, NVRTC {}.{} for {architecture}", version.0, version.1),
            units: asked(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u64,
            kernels: format!("cuda {}", kernels::digest()),
        };
        Ok(Card { context, compiler, architecture, facts })
    }

    /// The kernels compiled for this card: once in a process, for all ranks on cards like it.
    fn built(&self, source: &str, build: Build) -> Result<Arc<Compiled>, BackendError> {
        static BUILT: OnceLock<Mutex<Programs>> = OnceLock::new();
        let options = nvrtc::options(&self.architecture, build);
        let mut all = BUILT.get_or_init(Mutex::default).lock().expect("cuda: nobody panics here");
        let key = (options, source.to_owned());
        if let Some(built) = all.get(&key) {
            return Ok(Arc::clone(built));
        }
        let built = Arc::new(self.compiler.compile(source, &key.0).map_err(said)?);
        all.insert(key, Arc::clone(&built));
        Ok(built)
    }
}

fn said(error: nvrtc::NvrtcError) -> BackendError {
    BackendError(format!("cuda: {error}"))
}

impl Cuda {
    /// Card `ordinal`, with the kernels of this program.
    pub fn open(ordinal: usize, build: Build) -> Result<Cuda, BackendError> {
        Cuda::with_source(ordinal, build, &kernels::source())
    }

    /// Card `ordinal`, with kernels of another text.
    pub fn with_source(ordinal: usize, build: Build, source: &str) -> Result<Cuda, BackendError> {
        let card = Card::open(ordinal)?;
        let built = card.built(source, build)?;
        let Card { context, compiler, facts, .. } = card;
        let stream = context.new_stream().map_err(|error| wrong("opening a stream", error))?;
        // SAFETY: machine code in the form that the driver reads, as the compiler gave it.
        let module = unsafe { result::module::load_data(built.cubin.as_ptr().cast()) };
        let module = module.map_err(|error| {
            let (major, minor) = compiler.version;
            let place = compiler.path.display();
            wrong(
                &format!("loading kernels made by NVRTC {major}.{minor} ({place}) for {}", facts.driver),
                error,
            )
        })?;
        let (functions, buffers) = (HashMap::new(), Vec::new());
        Ok(Cuda { context, stream, module, functions, built, buffers, facts })
    }

    fn bind(&self) -> Result<(), BackendError> {
        self.context.bind_to_thread().map_err(|error| wrong("binding the card", error))
    }

    /// Bytes of the card's memory that are free, and all.
    pub fn memory(&self) -> Result<(u64, u64), BackendError> {
        let (free, all) = self.context.mem_get_info().map_err(|error| wrong("asking for memory", error))?;
        Ok((free as u64, all as u64))
    }

    /// The address of bytes [at, at + length) of a buffer. A place beyond it is a mistake of this program's.
    fn address(&self, buffer: Buffer, at: u64, length: usize) -> sys::CUdeviceptr {
        let (address, bytes) = self.buffers[buffer.0];
        let end = at.checked_add(length as u64);
        assert!(end.is_some_and(|end| end <= bytes), "cuda: {length} bytes at {at} of a buffer of {bytes}");
        address + at
    }

    fn function(&mut self, name: &'static str) -> Result<sys::CUfunction, BackendError> {
        if let Some(function) = self.functions.get(name) {
            return Ok(*function);
        }
        let text = CString::new(name).map_err(|_| BackendError(format!("cuda: kernel {name:?}")))?;
        // SAFETY: a module that is loaded.
        let function = unsafe { result::module::get_function(self.module, text) };
        let function = function.map_err(|error| wrong(&format!("kernel {name}"), error))?;
        self.functions.insert(name, function);
        Ok(function)
    }
}

/// Bytes of the parameters that an argument is.
fn sizes(argument: &Argument) -> &'static [u8] {
    match argument {
        Argument::Tensor(..) => &[8, 8],
        Argument::U32(_) | Argument::F32(_) => &[4],
        Argument::U64(_) => &[8],
    }
}

impl Machine for Cuda {
    fn facts(&self) -> DeviceFacts {
        self.facts.clone()
    }

    fn allocate(&mut self, bytes: u64) -> Result<Buffer, BackendError> {
        self.bind()?;
        let size = usize::try_from(bytes.max(1)).map_err(|_| BackendError(format!("cuda: {bytes} bytes")))?;
        // SAFETY: memory of this context, given back when the machine is dropped.
        let address = unsafe { result::malloc_sync(size) };
        let address = address.map_err(|error| wrong(&format!("{bytes} bytes of memory"), error))?;
        self.buffers.push((address, bytes));
        // SAFETY: as many bytes as were just got, after what the stream was given before.
        let zeroed = unsafe { result::memset_d8_async(address, 0, size, self.stream.cu_stream()) };
        zeroed.map_err(|error| wrong("setting memory to zero", error))?;
        Ok(Buffer(self.buffers.len() - 1))
    }

    fn write(&mut self, to: Buffer, at: u64, bytes: &[u8]) -> Result<(), BackendError> {
        self.bind()?;
        let address = self.address(to, at, bytes.len());
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: within the buffer, by `address`; the bytes are not let go before the copy is done, by `finish`.
        let copied = unsafe { result::memcpy_htod_async(address, bytes, self.stream.cu_stream()) };
        copied.map_err(|error| wrong("copying to the card", error))?;
        self.finish()
    }

    fn read(&mut self, from: Buffer, at: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.bind()?;
        let address = self.address(from, at, bytes.len());
        if !bytes.is_empty() {
            // SAFETY: within the buffer, by `address`; nothing looks at the bytes before the copy is done, by `finish`.
            let copied = unsafe { result::memcpy_dtoh_async(bytes, address, self.stream.cu_stream()) };
            copied.map_err(|error| wrong("copying from the card", error))?;
        }
        self.finish()
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), BackendError> {
        self.bind()?;
        let function = self.function(launch.kernel)?;
        let given: Vec<u8> = launch.arguments.iter().flat_map(sizes).copied().collect();
        let expected = self.built.parameters(launch.kernel);
        if expected.as_ref() != Some(&given) {
            let expected = expected.unwrap_or_default();
            let what = format!("expected parameters of {expected:?} bytes, found {given:?}");
            return Err(BackendError(format!("cuda: kernel {}: {what}", launch.kernel)));
        }
        // Each parameter by its address, in eight bytes of which the small ones use the first four (little-endian).
        let mut words = Vec::with_capacity(2 * launch.arguments.len());
        for argument in &launch.arguments {
            match *argument {
                Argument::Tensor(buffer, at) => words.extend([self.buffers[buffer.0].0, at]),
                Argument::U32(word) | Argument::F32(word) => words.push(u64::from(word)),
                Argument::U64(word) => words.push(word),
            }
        }
        let mut parameters: Vec<*mut c_void> =
            words.iter_mut().map(|word| std::ptr::from_mut(word).cast()).collect();
        let ([x, y], stream) = (launch.groups, self.stream.cu_stream());
        // SAFETY: a kernel of the loaded module, and arguments of the sizes of its parameters.
        let launched = unsafe {
            result::launch_kernel(function, (x, y, 1), (launch.items, 1, 1), 0, stream, &mut parameters)
        };
        launched.map_err(|error| {
            wrong(&format!("kernel {}, {x} x {y} groups of {}", launch.kernel, launch.items), error)
        })
    }

    fn finish(&mut self) -> Result<(), BackendError> {
        self.bind()?;
        self.stream.synchronize().map_err(|error| wrong("running kernels", error))
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // A card that failed fails here as well, and there is nobody left to tell.
        if self.bind().is_err() {
            return;
        }
        let _ = self.stream.synchronize();
        for (address, _) in self.buffers.drain(..) {
            // SAFETY: got by `malloc_sync`, given back once, with nothing left to run.
            let _ = unsafe { result::free_sync(address) };
        }
        // SAFETY: loaded once, and its functions go with it.
        let _ = unsafe { result::module::unload(self.module) };
    }
}
