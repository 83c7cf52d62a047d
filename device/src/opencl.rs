//! OpenCL: the devices that a system's OpenCL loader knows, each as a machine.
//!
//! The loader is opened at run time (`libOpenCL.so`), so this program starts where there is none. `unsafe` stands here
//! because giving a kernel its arguments and starting it are calls whose arguments the library cannot check. What is
//! checked here instead: the number of arguments, their sizes (by OpenCL), and that every copy lies within its buffer.
//! That a kernel stays within the tensors it is given is the kernels' own business, held by their tests.
#![allow(unsafe_code)]

use crate::backend::BackendError;
use crate::kernels;
use crate::machine::{Argument, Buffer, Build, Found, Launch, Machine, Machines};
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT, Device};
use opencl3::error_codes::ClError;
use opencl3::kernel::Kernel;
use opencl3::memory::{Buffer as Memory, CL_MEM_READ_WRITE, ClMem as _};
use opencl3::platform::{Platform, get_platforms};
use opencl3::program::Program;
use opencl3::types::{CL_BLOCKING, cl_device_id};
use schemas::receipt::DeviceFacts;
use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock};

/// Lines of a compiler's log that are shown.
const LOG_LINES_MAX: usize = 12;

/// OpenCL's devices: those of a platform after those of the platform before, as the loader lists them.
pub struct OpenClDevices;

impl Machines for OpenClDevices {
    fn name(&self) -> &'static str {
        "opencl"
    }

    fn devices(&self) -> Result<Vec<Found>, BackendError> {
        devices()
    }

    fn open(&self, place: usize, build: Build) -> Result<Box<dyn Machine>, BackendError> {
        Ok(Box::new(OpenCl::open(place, build)?))
    }
}

/// Every device of this system. An error says that there is no OpenCL, or that it does not answer.
pub fn devices() -> Result<Vec<Found>, BackendError> {
    let mut found = Vec::new();
    for (place, (platform, id)) in all_devices()?.into_iter().enumerate() {
        let device = Device::new(id);
        let kind = device.dev_type().map_err(failed("device type"))?;
        let facts = facts(&platform, &device);
        // A processor has no memory of its own to bring factors into.
        found.push(Found { place, facts, staged: kind & CL_DEVICE_TYPE_CPU == 0 });
    }
    Ok(found)
}

fn all_devices() -> Result<Vec<(Platform, cl_device_id)>, BackendError> {
    let none = |error| BackendError(format!("no OpenCL: expected a platform, found {error}"));
    let platforms = get_platforms().map_err(none)?;
    let mut found = Vec::new();
    for platform in platforms {
        // A platform without a device of its own says so by an error.
        let Ok(ids) = platform.get_devices(CL_DEVICE_TYPE_ALL) else { continue };
        found.extend(ids.into_iter().map(|id| (platform, id)));
    }
    match found.is_empty() {
        true => Err(BackendError("no OpenCL: expected a device, found a loader that knows none".into())),
        false => Ok(found),
    }
}

fn facts(platform: &Platform, device: &Device) -> DeviceFacts {
    let text = |value: Result<String, ClError>| value.unwrap_or_default().trim().to_owned();
    let processor = device.dev_type().is_ok_and(|kind| kind & CL_DEVICE_TYPE_CPU != 0);
    let version = text(platform.version());
    DeviceFacts {
        name: cut(text(device.name()), 200),
        architecture: match processor {
            true => std::env::consts::ARCH.into(),
            false => cut(text(device.vendor()), 80),
        },
        driver: cut(format!("{version}, driver {}", text(device.driver_version())), 200),
        units: device.max_compute_units().unwrap_or(1).into(),
        kernels: format!("opencl {}", kernels::digest()),
    }
}

/// At most so many bytes of a text, as a receipt may hold.
fn cut(mut text: String, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text.truncate(end.unwrap_or(0));
    text
}

fn failed(what: &str) -> impl Fn(ClError) -> BackendError + '_ {
    move |error| BackendError(format!("OpenCL {what}: {error}"))
}

/// What is built once in a process for a device and a build, and shared by all machines on it.
struct Built {
    context: Context,
    program: Program,
    facts: DeviceFacts,
    /// Most work-items in a group.
    items_max: usize,
}

/// What was built, by place and build. Each has a lock of its own: to build takes seconds.
type Programs = HashMap<(usize, Build, String), Arc<Mutex<Option<Arc<Built>>>>>;

/// A device with the kernels built for it.
pub struct OpenCl {
    built: Arc<Built>,
    queue: CommandQueue,
    kernels: HashMap<&'static str, Ready>,
    memory: Vec<(Memory<u8>, u64)>,
}

/// A kernel of this machine: arguments are set on it, so machines do not share it.
struct Ready {
    kernel: Kernel,
    /// How many arguments OpenCL expects.
    arguments: u32,
}

impl OpenCl {
    /// The device at a place of [`devices`], with this crate's kernels.
    pub fn open(place: usize, build: Build) -> Result<OpenCl, BackendError> {
        OpenCl::with_source(place, build, &kernels::source())
    }

    /// The same with kernels of another text, for tests of single files and for the self-test.
    pub fn with_source(place: usize, build: Build, source: &str) -> Result<OpenCl, BackendError> {
        static PROGRAMS: OnceLock<Mutex<Programs>> = OnceLock::new();
        let slot = {
            let mut programs =
                PROGRAMS.get_or_init(Mutex::default).lock().expect("opencl: nobody panics here");
            Arc::clone(programs.entry((place, build, source.to_owned())).or_default())
        };
        let mut slot = slot.lock().expect("opencl: nobody panics here");
        let built = match &*slot {
            Some(built) => Arc::clone(built),
            None => Arc::clone(slot.insert(Arc::new(compile(place, build, source)?))),
        };
        drop(slot);
        // SAFETY: the queue has no properties, and its device is the context's own. It runs in order.
        #[allow(deprecated)] // What takes its place is not in OpenCL 1.2.
        let queue = unsafe { CommandQueue::create(&built.context, built.context.default_device(), 0) };
        let queue = queue.map_err(failed("queue"))?;
        Ok(OpenCl { built, queue, kernels: HashMap::new(), memory: Vec::new() })
    }

    fn ready(&mut self, name: &'static str) -> Result<(), BackendError> {
        if self.kernels.contains_key(name) {
            return Ok(());
        }
        let failed = |error| BackendError(format!("OpenCL kernel {name}: {error}"));
        let kernel = Kernel::create(&self.built.program, name).map_err(failed)?;
        let arguments = kernel.num_args().map_err(failed)?;
        self.kernels.insert(name, Ready { kernel, arguments });
        Ok(())
    }

    /// Memory by number, having checked that bytes `at` to `at + bytes` are in it.
    fn within(&mut self, buffer: Buffer, at: u64, bytes: usize) -> &mut Memory<u8> {
        let (memory, size) = &mut self.memory[buffer.0];
        assert!(
            at.checked_add(bytes as u64).is_some_and(|end| end <= *size),
            "opencl: a copy within its buffer"
        );
        memory
    }
}

fn compile(place: usize, build: Build, source: &str) -> Result<Built, BackendError> {
    let all = all_devices()?;
    let count = all.len();
    let missing = || BackendError(format!("OpenCL: expected a device below {count}, found {place}"));
    let (platform, id) = all.into_iter().nth(place).ok_or_else(missing)?;
    let device = Device::new(id);
    let context = Context::from_device(&device).map_err(failed("context"))?;
    let config = device.single_fp_config().map_err(failed("device"))?;
    let mut options = String::from("-cl-std=CL1.2");
    // A device that cannot be asked for it may still do it; the self-test sees.
    if config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0 {
        options += " -cl-fp32-correctly-rounded-divide-sqrt";
    }
    for (set, name) in
        [(build.recorded, "RECORDED"), (build.contracted, "CONTRACTED"), (build.staged, "STAGED")]
    {
        if set {
            options += &format!(" -D{name}");
        }
    }
    let program = Program::create_and_build_from_source(&context, source, &options);
    let program = program.map_err(|log| BackendError(format!("OpenCL kernels: {}", first_lines(&log))))?;
    let items_max = device.max_work_group_size().map_err(failed("device"))?;
    Ok(Built { context, program, facts: facts(&platform, &device), items_max })
}

fn first_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).take(LOG_LINES_MAX).collect();
    lines.join("\n")
}

impl Machine for OpenCl {
    fn facts(&self) -> DeviceFacts {
        self.built.facts.clone()
    }

    fn allocate(&mut self, bytes: u64) -> Result<Buffer, BackendError> {
        // OpenCL has no empty memory, and fills whole words.
        let size = bytes.max(1).next_multiple_of(16);
        let told = |error| BackendError(format!("OpenCL memory of {bytes} bytes: {error}"));
        // SAFETY: no memory of the host is handed over.
        let memory = unsafe {
            Memory::<u8>::create(&self.built.context, CL_MEM_READ_WRITE, size as usize, null_mut())
        };
        let mut memory = memory.map_err(told)?;
        // SAFETY: the pattern is copied by the call, and the fill is as long as the memory.
        let filled =
            unsafe { self.queue.enqueue_fill_buffer(&mut memory, &[0_u8; 16], 0, size as usize, &[]) };
        filled.map_err(told)?;
        self.memory.push((memory, size));
        Ok(Buffer(self.memory.len() - 1))
    }

    fn write(&mut self, to: Buffer, at: u64, bytes: &[u8]) -> Result<(), BackendError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.within(to, at, bytes.len());
        let memory = &mut self.memory[to.0].0;
        // SAFETY: the range lies in the memory, and the call returns when `bytes` were read.
        let done = unsafe { self.queue.enqueue_write_buffer(memory, CL_BLOCKING, at as usize, bytes, &[]) };
        done.map(drop).map_err(failed("write"))
    }

    fn read(&mut self, from: Buffer, at: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.within(from, at, bytes.len());
        let memory = &self.memory[from.0].0;
        // SAFETY: the range lies in the memory, and the call returns when `bytes` were written.
        let done = unsafe { self.queue.enqueue_read_buffer(memory, CL_BLOCKING, at as usize, bytes, &[]) };
        done.map(drop).map_err(failed("read"))
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), BackendError> {
        let Launch { kernel: name, groups, items, arguments } = launch;
        let told = |error| BackendError(format!("OpenCL kernel {name}: {error}"));
        self.ready(name)?;
        let Ready { kernel, arguments: expected } = &self.kernels[name];
        let given: u32 =
            arguments.iter().map(|argument| 1 + u32::from(matches!(argument, Argument::Tensor(..)))).sum();
        if *expected != given {
            return Err(BackendError(format!(
                "OpenCL kernel {name}: expected {expected} arguments, found {given}"
            )));
        }
        let items = *items as usize;
        if !(1..=self.built.items_max).contains(&items) {
            let most = self.built.items_max;
            return Err(BackendError(format!(
                "OpenCL kernel {name}: expected 1 to {most} items, found {items}"
            )));
        }
        let mut index = 0;
        for argument in arguments {
            // SAFETY: the index is below the kernel's number of arguments, and OpenCL compares the value's size with
            // the parameter's. Memory outlives the launch: it is released when the machine is.
            let set = unsafe {
                match argument {
                    Argument::Tensor(buffer, at) => {
                        let set = kernel.set_arg(index, &self.memory[buffer.0].0.get());
                        index += 1;
                        set.and_then(|()| kernel.set_arg(index, at))
                    }
                    Argument::U32(value) | Argument::F32(value) => kernel.set_arg(index, value),
                    Argument::U64(value) => kernel.set_arg(index, value),
                }
            };
            set.map_err(told)?;
            index += 1;
        }
        let all = [groups[0] as usize * items, groups[1] as usize];
        let group = [items, 1];
        // SAFETY: two sizes are given for two dimensions, and all arguments are set.
        let started = unsafe {
            let (all, group) = (all.as_ptr(), group.as_ptr());
            self.queue.enqueue_nd_range_kernel(kernel.get(), 2, std::ptr::null(), all, group, &[])
        };
        started.map(drop).map_err(told)
    }

    fn finish(&mut self) -> Result<(), BackendError> {
        self.queue.finish().map_err(failed("finish"))
    }
}

impl Drop for OpenCl {
    fn drop(&mut self) {
        // Memory goes after the launches that use it. A queue that has failed has told so already.
        let _ = self.queue.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
        KERNEL fill(TENSOR(float, y), uint n, float a, ulong unused) {
            AT(float, y);
            uint i = GROUP_X * ITEMS + ITEM;
            if (i < n) y[i] = f_add(f_mul(a, float_of(0x3f800001u)), float_of(i));
        }";

    fn machine(build: Build) -> OpenCl {
        let source = format!("{}{SOURCE}", kernels::FILES[0].1);
        OpenCl::with_source(0, build, &source).expect("an OpenCL device, such as PoCL's")
    }

    fn plain() -> Build {
        Build { recorded: false, contracted: false, staged: false }
    }

    fn fill(y: Buffer, at: u64) -> Launch {
        let arguments = vec![
            Argument::Tensor(y, at),
            Argument::U32(5),
            Argument::F32(1.5_f32.to_bits()),
            Argument::U64(0),
        ];
        Launch { kernel: "fill", groups: [2, 1], items: 4, arguments }
    }

    #[test]
    fn a_launch_writes_what_it_is_given_and_new_memory_is_zero() {
        let mut machine = machine(plain());
        let y = machine.allocate(4 * 9).unwrap();
        machine.write(y, 4, &7_u32.to_le_bytes()).unwrap();
        machine.launch(&fill(y, 3)).unwrap();
        let mut bytes = [1; 4 * 9];
        machine.read(y, 0, &mut bytes).unwrap();
        let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let sum = |i| (1.5_f32 * f32::from_bits(0x3f80_0001) + f32::from_bits(i)).to_bits();
        assert_eq!(words, [0, 7, 0, sum(0), sum(1), sum(2), sum(3), sum(4), 0]);
    }

    #[test]
    fn a_launch_with_other_arguments_than_the_kernels_is_refused() {
        let mut machine = machine(plain());
        let y = machine.allocate(64).unwrap();
        let mut launch = fill(y, 0);
        launch.arguments.pop();
        assert_eq!(
            machine.launch(&launch).unwrap_err().0,
            "OpenCL kernel fill: expected 5 arguments, found 4"
        );
        let mut launch = fill(y, 0);
        launch.arguments[1] = Argument::U64(5);
        assert!(machine.launch(&launch).unwrap_err().0.starts_with("OpenCL kernel fill: "));
        let launch = Launch { kernel: "none", ..fill(y, 0) };
        assert!(machine.launch(&launch).unwrap_err().0.starts_with("OpenCL kernel none: "));
        let launch = Launch { items: 0, ..fill(y, 0) };
        assert!(machine.launch(&launch).unwrap_err().0.contains("found 0"));
    }

    #[test]
    fn a_text_that_does_not_compile_is_told_with_the_compilers_words() {
        let error = OpenCl::with_source(0, plain(), "__kernel void a() { nonsense; }").err().unwrap();
        assert!(error.0.contains("nonsense"), "{error}");
        assert!(error.0.lines().count() <= LOG_LINES_MAX);
    }

    #[test]
    fn a_place_without_a_device_is_refused() {
        let error = OpenCl::with_source(99, plain(), "").err().unwrap();
        assert!(error.0.contains("found 99"), "{error}");
        let found = devices().unwrap();
        assert!(!found.is_empty() && found.iter().all(|one| one.facts.kernels.len() <= 80));
    }
}
