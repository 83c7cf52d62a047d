//! NVIDIA's run-time compiler, found and loaded when it is asked for.
//!
//! `unsafe` stands here because a library is loaded by name and called through pointers: each call is a function of
//! NVRTC's C interface, unchanged since CUDA 11.1, with the types of its documentation.

#![allow(unsafe_code)]

use crate::machine::Build;
use libloading::{Library, Symbol};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

/// Names the library's file, before every other place that is looked at.
pub const VARIABLE: &str = "TALLYSTICK_NVRTC";

/// Why there is no compiler, or nothing was compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NvrtcError {
    /// The library is nowhere.
    #[error("no libnvrtc.so found in {looked}; install CUDA's NVRTC or name its file in {VARIABLE}")]
    Absent {
        /// Where it was looked for.
        looked: String,
    },
    /// A file of that name is no such library.
    #[error("{path}: expected NVIDIA's run-time compiler, {found}")]
    Library {
        /// The file.
        path: String,
        /// What the loader said.
        found: String,
    },
    /// A call failed.
    #[error("{call}: {found}")]
    Call {
        /// Its name.
        call: &'static str,
        /// What it says of its result.
        found: String,
    },
    /// The source does not compile.
    #[error("kernels do not compile for {architecture}:\n{log}")]
    Source {
        /// For which architecture.
        architecture: String,
        /// What the compiler said.
        log: String,
    },
    /// The card is of a kind that this compiler does not know.
    #[error("expected one of the architectures that NVRTC {version} knows ({known}), found sm_{found}")]
    Architecture {
        /// The compiler's version.
        version: String,
        /// What it knows.
        known: String,
        /// The card's.
        found: u32,
    },
}

type Program = *mut c_void;
type Status = c_int;

/// The compiler.
pub struct Nvrtc {
    library: Library,
    /// Its file.
    pub path: PathBuf,
    /// Major and minor version.
    pub version: (u32, u32),
}

/// What became of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// Machine code for one architecture.
    pub cubin: Vec<u8>,
    /// The text in between, of NVIDIA's virtual machine.
    pub ptx: String,
}

impl Compiled {
    /// Bytes of each parameter of a kernel, as the text declares it; none where there is no such kernel.
    pub fn parameters(&self, kernel: &str) -> Option<Vec<u8>> {
        let (_, declared) = self.ptx.split_once(&format!(".entry {kernel}("))?;
        let declared = declared.split(')').next()?.split(".param").skip(1);
        let size = |one: &str| match one.split_whitespace().next() {
            Some(".u64" | ".b64" | ".s64" | ".f64") => 8,
            Some(".u32" | ".b32" | ".s32" | ".f32") => 4,
            _ => 0,
        };
        Some(declared.map(size).collect())
    }
}

/// The options that keep every operation as it is written. None may be left to its default: that of `fmad` contracts.
pub fn options(architecture: &str, build: Build) -> Vec<String> {
    let mut options = vec![format!("--gpu-architecture={architecture}"), "--std=c++14".into()];
    options.push(format!("--fmad={}", build.contracted));
    options.extend(["--ftz=false", "--prec-div=true", "--prec-sqrt=true"].map(String::from));
    let defined = [("RECORDED", build.recorded), ("CONTRACTED", build.contracted), ("STAGED", build.staged)];
    options.extend(defined.iter().filter(|(_, on)| *on).map(|(name, _)| format!("--define-macro={name}")));
    options
}

impl Nvrtc {
    /// The first in the usual places that a driver of CUDA version `major` understands, else the first.
    pub fn find(major: u32) -> Result<Nvrtc, NvrtcError> {
        if let Some(path) = std::env::var_os(VARIABLE) {
            return Nvrtc::open(Path::new(&path));
        }
        let folders = folders();
        let mut first = None;
        for path in folders.iter().flat_map(|folder| libraries(folder)).chain(by_loader()) {
            let Ok(nvrtc) = Nvrtc::open(&path) else { continue };
            if nvrtc.version.0 <= major {
                return Ok(nvrtc);
            }
            first = first.or(Some(nvrtc));
        }
        let looked: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let looked = format!("the loader's path, {}", looked.join(", "));
        first.ok_or(NvrtcError::Absent { looked })
    }

    /// The library in a file.
    pub fn open(path: &Path) -> Result<Nvrtc, NvrtcError> {
        let wrong = |found: String| NvrtcError::Library { path: path.display().to_string(), found };
        // SAFETY: loading runs the library's initialisers, which is what a file of this name is trusted with.
        let library = unsafe { Library::new(path) }.map_err(|error| wrong(error.to_string()))?;
        let mut nvrtc = Nvrtc { library, path: path.to_owned(), version: (0, 0) };
        let (mut major, mut minor) = (0, 0);
        let version = nvrtc
            .function::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status>("nvrtcVersion")
            .map_err(|error| wrong(error.to_string()))?;
        // SAFETY: two places for two numbers.
        let status = unsafe { version(&mut major, &mut minor) };
        nvrtc.check("nvrtcVersion", status)?;
        nvrtc.version = (major as u32, minor as u32);
        Ok(nvrtc)
    }

    /// The architecture to compile for so that a card of `capability` (90 for 9.0) runs it: its own, else an older one
    /// of its generation, whose machine code it runs, too.
    pub fn architecture(&self, capability: u32) -> Result<String, NvrtcError> {
        let known = self.architectures()?;
        let older = known.iter().filter(|&&one| one <= capability && one / 10 == capability / 10);
        if let Some(one) = older.max() {
            return Ok(format!("sm_{one}"));
        }
        let known: Vec<_> = known.iter().map(|one| format!("sm_{one}")).collect();
        let version = format!("{}.{}", self.version.0, self.version.1);
        Err(NvrtcError::Architecture { version, known: known.join(", "), found: capability })
    }

    fn architectures(&self) -> Result<Vec<u32>, NvrtcError> {
        let count =
            self.function::<unsafe extern "C" fn(*mut c_int) -> Status>("nvrtcGetNumSupportedArchs")?;
        let fill = self.function::<unsafe extern "C" fn(*mut c_int) -> Status>("nvrtcGetSupportedArchs")?;
        let mut number = 0;
        // SAFETY: a place for one number.
        self.check("nvrtcGetNumSupportedArchs", unsafe { count(&mut number) })?;
        let mut found = vec![0; number.max(0) as usize];
        // SAFETY: as many places as were asked for.
        self.check("nvrtcGetSupportedArchs", unsafe { fill(found.as_mut_ptr()) })?;
        Ok(found.into_iter().map(|one: c_int| one as u32).collect())
    }

    /// Compiles a source with the options given, for the architecture among them.
    pub fn compile(&self, source: &str, options: &[String]) -> Result<Compiled, NvrtcError> {
        let text = |text: &str| {
            let found = "expected text without a zero byte, found one".to_owned();
            CString::new(text).map_err(|_| NvrtcError::Call { call: "nvrtcCreateProgram", found })
        };
        let source = text(source)?;
        let words = options.iter().map(|option| text(option)).collect::<Result<Vec<_>, _>>()?;
        let program = Owned::new(self, &source)?;
        let compile = self.function::<unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status>(
            "nvrtcCompileProgram",
        )?;
        let pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
        // SAFETY: a program that exists, and as many strings that end in zero as are said to be there.
        let status = unsafe { compile(program.program, pointers.len() as c_int, pointers.as_ptr()) };
        if status != 0 {
            let log = program.take("nvrtcGetProgramLogSize", "nvrtcGetProgramLog")?;
            let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
            let architecture = options.first().map_or("?", |first| first.rsplit('=').next().unwrap_or(first));
            return Err(NvrtcError::Source { architecture: architecture.into(), log });
        }
        let cubin = program.take("nvrtcGetCUBINSize", "nvrtcGetCUBIN")?;
        let ptx = program.take("nvrtcGetPTXSize", "nvrtcGetPTX")?;
        let ptx = String::from_utf8_lossy(&ptx).trim_end_matches('\0').to_owned();
        Ok(Compiled { cubin, ptx })
    }

    fn function<F>(&self, name: &'static str) -> Result<Symbol<'_, F>, NvrtcError> {
        // SAFETY: `F` is the function's type by NVRTC's documentation, at every place that calls this.
        let symbol = unsafe { self.library.get(name.as_bytes()) };
        symbol.map_err(|error| NvrtcError::Call { call: name, found: error.to_string() })
    }

    fn check(&self, call: &'static str, status: Status) -> Result<(), NvrtcError> {
        if status == 0 {
            return Ok(());
        }
        let say = self.function::<unsafe extern "C" fn(Status) -> *const c_char>("nvrtcGetErrorString")?;
        // SAFETY: the answer is a string that lasts as long as the library.
        let found = unsafe { CStr::from_ptr(say(status)) };
        Err(NvrtcError::Call { call, found: found.to_string_lossy().into_owned() })
    }
}

/// A program of the compiler, given back when it is dropped.
struct Owned<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Owned<'_> {
    fn new<'a>(nvrtc: &'a Nvrtc, source: &CStr) -> Result<Owned<'a>, NvrtcError> {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> Status;
        let create = nvrtc.function::<Create>("nvrtcCreateProgram")?;
        let mut program = std::ptr::null_mut();
        let none = std::ptr::null();
        // SAFETY: a source that ends in zero, a name that does, and no headers. The source is copied.
        let status = unsafe { create(&mut program, source.as_ptr(), c"kernels".as_ptr(), 0, none, none) };
        nvrtc.check("nvrtcCreateProgram", status)?;
        Ok(Owned { nvrtc, program })
    }

    /// Bytes of the program by a pair of functions: how many, and which.
    fn take(&self, size: &'static str, bytes: &'static str) -> Result<Vec<u8>, NvrtcError> {
        let (nvrtc, program) = (self.nvrtc, self.program);
        let sizer = nvrtc.function::<unsafe extern "C" fn(Program, *mut usize) -> Status>(size)?;
        let filler = nvrtc.function::<unsafe extern "C" fn(Program, *mut c_char) -> Status>(bytes)?;
        let mut length = 0;
        // SAFETY: a program that exists and a place for a size.
        nvrtc.check(size, unsafe { sizer(program, &mut length) })?;
        let mut taken = vec![0u8; length];
        // SAFETY: as many bytes as were asked for.
        nvrtc.check(bytes, unsafe { filler(program, taken.as_mut_ptr().cast()) })?;
        Ok(taken)
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        type Destroy = unsafe extern "C" fn(*mut Program) -> Status;
        if let Ok(destroy) = self.nvrtc.function::<Destroy>("nvrtcDestroyProgram") {
            // SAFETY: a program that exists, and nobody uses after this.
            unsafe { destroy(&mut self.program) };
        }
    }
}

/// Where the library may lie beside the loader's own path: beside the program, with a toolkit, with Python's packages.
fn folders() -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Some(own) = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned)) {
        found.extend([own.clone(), own.join("cuda"), own.join("../cuda")]);
    }
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    found.extend(variable("CUDA_HOME").or(variable("CUDA_PATH")).map(|home| home.join("lib64")));
    found.push("/usr/local/cuda/lib64".into());
    found.push("/usr/lib/x86_64-linux-gnu".into());
    let pythons = ["/usr/local/lib", "/usr/lib", "/opt/conda/lib"].map(PathBuf::from).into_iter();
    let own = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).map(|env| env.join("lib"));
    let home = variable("HOME").map(|home| home.join(".local/lib"));
    for lib in own.chain(home).chain(pythons) {
        found.push(lib.clone());
        let python = |path: &PathBuf| name_of(path).starts_with("python3");
        for python in entries(&lib).into_iter().filter(python) {
            for packages in ["site-packages", "dist-packages"] {
                let nvidia = python.join(packages).join("nvidia");
                found.extend(["cuda_nvrtc/lib", "cu13/lib"].map(|below| nvidia.join(below)));
            }
        }
    }
    found.retain(|folder| folder.is_dir());
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn libraries(folder: &Path) -> Vec<PathBuf> {
    entries(folder).into_iter().filter(|path| name_of(path).starts_with("libnvrtc.so")).collect()
}

/// Names that the loader looks for in its own path.
fn by_loader() -> impl Iterator<Item = PathBuf> {
    ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"].into_iter().map(PathBuf::from)
}
