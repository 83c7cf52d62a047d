//! A machine of CUDA: one NVIDIA card, its kernels compiled at start for its own architecture.
//!
//! The driver is loaded when it is asked for, so that the program starts where there is none. `unsafe` stands here
//! because memory of a device is a number and a launch takes untyped pointers: every address is that of a buffer that
//! lives as long as the machine, copies are held to its size, and arguments have the sizes of `portable.cl`'s types.

#![allow(unsafe_code)]

use crate::backend::BackendError;
use crate::kernels;
use crate::machine::{Argument, Buffer, Build, Launch, Machine};
use crate::nvrtc::{self, Nvrtc};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute};
use cudarc::driver::{CudaContext, CudaStream};
use schemas::receipt::DeviceFacts;
use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;

/// One card.
pub struct Cuda {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    module: sys::CUmodule,
    functions: HashMap<&'static str, sys::CUfunction>,
    /// Address and size of each buffer.
    buffers: Vec<(sys::CUdeviceptr, u64)>,
    facts: DeviceFacts,
}

// SAFETY: the driver's handles may be used from any thread once the context is bound to it, which every call does first.
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

impl Cuda {
    /// Card `ordinal`, with the kernels of this program.
    pub fn open(ordinal: usize, build: Build) -> Result<Cuda, BackendError> {
        Cuda::with_source(ordinal, build, &kernels::source())
    }

    /// Card `ordinal`, with kernels of another text.
    pub fn with_source(ordinal: usize, build: Build, source: &str) -> Result<Cuda, BackendError> {
        let count = count()?;
        if ordinal >= count {
            return Err(BackendError(format!("cuda: expected a card below {count}, found {ordinal}")));
        }
        let context = CudaContext::new(ordinal).map_err(|error| wrong("opening the card", error))?;
        let driver = driver_version()?;
        let said = |error: nvrtc::NvrtcError| BackendError(format!("cuda: {error}"));
        let compiler = Nvrtc::find(driver.0).map_err(said)?;
        let asked = |what: Attribute| context.attribute(what).map_err(|error| wrong("asking the card", error));
        let capability = asked(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? as u32 * 10
            + asked(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)? as u32;
        let architecture = compiler.architecture(capability).map_err(said)?;
        let compiled = compiler.compile(source, &nvrtc::options(&architecture, build)).map_err(said)?;
        let facts = DeviceFacts {
            name: context.name().map_err(|error| wrong("asking the card", error))?,
            architecture: format!("sm_{capability}"),
            driver: format!(
                "CUDA {}.{}, NVRTC {}.{} for {architecture}",
                driver.0, driver.1, compiler.version.0, compiler.version.1
            ),
            units: asked(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u64,
            kernels: kernels::digest(),
        };
        let stream = context.new_stream().map_err(|error| wrong("opening a stream", error))?;
        // SAFETY: machine code in the form that the driver reads, as the compiler gave it.
        let module = unsafe { result::module::load_data(compiled.cubin.as_ptr().cast()) };
        let module = module.map_err(|error| {
            let newer = format!("loading kernels of NVRTC {}, driver {}", compiler.version.0, driver.0);
            wrong(&newer, error)
        })?;
        Ok(Cuda { context, stream, module, functions: HashMap::new(), buffers: Vec::new(), facts })
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
        // SAFETY: a kernel of the loaded module; that the arguments are its parameters is the caller's contract, which
        // the OpenCL machine's tests hold, since both are given the same launches.
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
