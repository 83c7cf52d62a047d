//! Machine code of NVIDIA's cards, read without a card: what the compiler makes of the kernels, held to the rule that
//! each operation is rounded as it is written.
//!
//! Three texts are compiled, because loops are unrolled and calls are put in place, so that counting proves little:
//!
//! * the kernels as they are, of which the machine code is looked through;
//! * the kernels with every written `f_fma` marked, of which the text of the virtual machine is looked through: an fma
//!   without the mark was contracted;
//! * the kernels with `f_fma`, `f_div` and `f_sqrt` made of integer operations: whatever fused or imprecise operation
//!   is left in their machine code was made of a sum and a product.
//!
//! In the second and third, tiles of matrix products are less deep: a compiler takes long over loops that are
//! unrolled, and it contracts in short ones as in long ones.

use device::machine::Build;
use device::nvrtc::{self, Compiled, Nvrtc};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const FMA: &str = "#define f_fma(a, b, c) __fmaf_rn(a, b, c)\n";
const DIV: &str = "#define f_div(a, b) __fdiv_rn(a, b)\n";
const SQRT: &str = "#define f_sqrt(a) __fsqrt_rn(a)\n";

/// Stands after every fma that is written, in the text of the virtual machine.
const MARK: &str = "// written";
const MARKED_FMA: &str = "static __device__ __forceinline__ float f_fma(float a, float b, float c) { float d; \
    asm(\"fma.rn.f32 %0, %1, %2, %3; // written\" : \"=f\"(d) : \"f\"(a), \"f\"(b), \"f\"(c)); return d; }\n";
const INTEGER_FMA: &str = "static __device__ __forceinline__ float f_fma(float a, float b, float c) { \
    return __uint_as_float((__float_as_uint(a) * 3u + __float_as_uint(b)) ^ __float_as_uint(c)); }\n";
const INTEGER_DIV: &str = "static __device__ __forceinline__ float f_div(float a, float b) { \
    return __uint_as_float(__float_as_uint(a) - __float_as_uint(b)); }\n";
const INTEGER_SQRT: &str = "static __device__ __forceinline__ float f_sqrt(float a) { \
    return __uint_as_float(__float_as_uint(a) >> 1); }\n";

/// The parts of division and square root that the compiler keeps as functions of their own, by the ends of their names;
/// the last two divide integers.
const HELPERS: [&str; 5] = [
    "__cuda_sm3x_div_rn_noftz_f32_slowpath",
    "__cuda_sm20_sqrt_rn_f32_slowpath",
    "__cuda_sm20_rcp_rn_f32_slowpath",
    "__cuda_sm20_div_u64",
    "__cuda_sm20_rem_u64",
];

/// The tools, where `make test` puts them.
pub struct Tools {
    pub nvrtc: Nvrtc,
    nvdisasm: PathBuf,
}

impl Tools {
    pub fn find() -> Tools {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("cuda");
        let nvrtc = Nvrtc::open(&folder.join("libnvrtc.so.12"));
        let nvrtc = nvrtc.unwrap_or_else(|error| panic!("{error}; `tools/setup.sh test` fetches it"));
        Tools { nvrtc, nvdisasm: folder.join("nvdisasm") }
    }
}

/// One instruction: its name with all endings, and the rest of the line.
#[derive(Clone, Debug)]
struct Instruction {
    name: String,
    operands: String,
}

impl Instruction {
    /// Moves a constant: a product of nothing and nothing, added to it.
    fn is_move(&self) -> bool {
        self.name.starts_with("HFMA2")
            && self.operands.starts_with(['R', 'U'])
            && self.operands.contains(", -RZ, RZ, ")
    }

    /// Takes the smaller or larger of a value and a constant that is not zero, and a NaN if it is one: what comparing
    /// and choosing gives. Of two values it is not the same, since one zero is below the other.
    fn bounds(&self) -> bool {
        let constant = |operand: &str| operand.trim().parse::<f32>().is_ok_and(|value| value != 0.0);
        self.ends("NAN") && self.operands.split(',').any(constant)
    }

    fn is(&self, base: &str) -> bool {
        self.name.split('.').next() == Some(base)
    }

    fn ends(&self, ending: &str) -> bool {
        self.name.split('.').skip(1).any(|one| one == ending)
    }
}

/// What the machine code of a kernel is.
#[derive(Clone, Debug, Default)]
struct Code {
    body: Vec<Instruction>,
    /// Functions within, by name.
    helpers: BTreeMap<String, Vec<Instruction>>,
}

/// The kernels of a piece of machine code, by name.
fn disassemble(tools: &Tools, cubin: &[u8]) -> BTreeMap<String, Code> {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(file.path(), cubin).unwrap();
    let output = Command::new(&tools.nvdisasm).arg("-c").arg(file.path()).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", tools.nvdisasm.display()));
    assert!(output.status.success(), "nvdisasm: {}", String::from_utf8_lossy(&output.stderr));
    parse(&String::from_utf8(output.stdout).unwrap())
}

fn parse(listing: &str) -> BTreeMap<String, Code> {
    let mut kernels: BTreeMap<String, Code> = BTreeMap::new();
    let (mut kernel, mut helper) = (None, None);
    for line in listing.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix(".section\t") {
            let name = rest.trim().strip_prefix(".text.").and_then(|rest| rest.split(',').next());
            kernel = name.map(str::to_owned);
            helper = None;
            kernels.extend(kernel.clone().map(|name| (name, Code::default())));
        } else if let Some(label) = line.strip_suffix(':').filter(|label| label.starts_with('$')) {
            helper = Some(label.to_owned());
        } else if let (Some(kernel), Some(instruction)) = (&kernel, instruction(line)) {
            let code = kernels.get_mut(kernel).unwrap();
            match &helper {
                None => code.body.push(instruction),
                Some(helper) => code.helpers.entry(helper.clone()).or_default().push(instruction),
            }
        }
    }
    kernels
}

/// `/*0040*/ @!P0 NAME operands ;`
fn instruction(line: &str) -> Option<Instruction> {
    let (address, rest) = line.strip_prefix("/*")?.split_once("*/")?;
    u64::from_str_radix(address, 16).ok()?;
    let rest = rest.trim().trim_start_matches('{').trim();
    let rest = if rest.starts_with('@') { rest.split_once(' ')?.1.trim() } else { rest };
    let (name, operands) = rest.split_once([' ', ';']).unwrap_or((rest, ""));
    Some(Instruction { name: name.into(), operands: operands.trim().into() })
}

/// The instructions of each kernel in the text of the virtual machine.
fn instructions_of_text(ptx: &str) -> BTreeMap<String, Vec<&str>> {
    let mut kernels: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut kernel = String::new();
    for line in ptx.lines().map(str::trim) {
        if let Some((_, rest)) = line.split_once(".entry ").or(line.split_once(".func ")) {
            kernel = rest.split('(').next().unwrap().trim().to_owned();
            kernels.insert(kernel.clone(), vec![]);
        } else if line.contains(';') && !line.starts_with(['.', '/']) {
            let line = if line.starts_with('@') { line.split_once([' ', '\t']).unwrap().1 } else { line };
            kernels.get_mut(&kernel).unwrap_or_else(|| panic!("before any kernel: {line}")).push(line.trim());
        }
    }
    kernels
}

/// Operations of the virtual machine on floats that round once, to nearest, or not at all.
const TEXT_ALLOWED: [&str; 12] = [
    "add.rn.f32",
    "sub.rn.f32",
    "mul.rn.f32",
    "fma.rn.f32",
    "div.rn.f32",
    "sqrt.rn.f32",
    "rcp.rn.f32",
    "neg.f32",
    "abs.f32",
    "copysign.f32",
    "cvt.rn.f32.s32",
    "cvt.rn.f32.u32",
];
/// Those that move or compare: the ends of their names say of what.
const TEXT_MOVES: [&str; 7] = ["mov", "ld", "st", "selp", "setp", "shfl", "ldu"];

/// What is wrong with an instruction of the virtual machine. `marked`: every written fma bears a mark.
fn wrong_in_text(line: &str, marked: bool) -> Option<String> {
    let name = line.split([' ', '\t', ';']).next().unwrap();
    let mut parts = name.split('.');
    let base = parts.next().unwrap();
    let parts: Vec<&str> = parts.collect();
    if ["atom", "red", "mma", "wmma", "wgmma"].contains(&base) {
        return Some(format!("{name}: neither in any order nor many at once"));
    }
    if ["f16", "f16x2", "bf16", "bf16x2", "f32x2", "f64", "tf32"].iter().any(|kind| parts.contains(kind)) {
        return Some(format!("{name}: floats are f32"));
    }
    if !parts.contains(&"f32") {
        return None;
    }
    if parts.contains(&"ftz") {
        return Some(format!("{name}: subnormal numbers are kept"));
    }
    if !TEXT_ALLOWED.contains(&name) && !TEXT_MOVES.contains(&base) {
        return Some(format!("{name}: not rounded once to nearest, or open to contraction"));
    }
    (marked && name == "fma.rn.f32" && !line.ends_with(MARK))
        .then(|| format!("{name}: an fma that nobody wrote"))
}

fn count(code: &[Instruction], what: impl Fn(&Instruction) -> bool) -> usize {
    code.iter().filter(|one| what(one)).count()
}

/// What is wrong with the machine code of a kernel, given its text with marks.
fn wrong_in_code(code: &Code, text: &[&str]) -> Vec<String> {
    let written = |name: &str| text.iter().filter(|line| line.starts_with(name)).count();
    let written_fma = text.iter().filter(|line| line.ends_with(MARK)).count();
    let mut wrong = Vec::new();
    for helper in code.helpers.keys().filter(|name| !HELPERS.iter().any(|known| name.ends_with(known))) {
        wrong.push(format!("{helper}: expected none but the parts of division and root"));
    }
    let body = &code.body;
    // Each division begins with a reciprocal and a check of its range, each root with a reciprocal root; unsigned
    // integers are divided by way of a reciprocal of a number that is rounded up.
    let checks = count(body, |one| one.is("FCHK"));
    let whole = count(body, |one| one.is("I2F") && one.ends("RP"));
    let reciprocals = count(body, |one| one.is("MUFU") && one.ends("RCP"));
    let roots = count(body, |one| one.is("MUFU") && one.ends("RSQ"));
    let inverses = reciprocals.saturating_sub(checks + whole);
    let plain = body.iter().filter(|one| !one.is_move());
    let flushed = |base: &str| count(body, |one| one.is(base) && one.ends("FTZ"));
    for one in plain {
        let name = &one.name;
        let base = name.split('.').next().unwrap();
        let allowed = match base {
            "FADD" => !one.ends("FTZ") || flushed("FADD") <= inverses,
            "FMUL" => !one.ends("FTZ") || flushed("FMUL") <= 2 * roots,
            "FFMA" => !one.ends("FTZ"),
            "FSETP" | "FSET" => !one.ends("FTZ"),
            "FSEL" | "FCHK" | "FADD2" | "FMUL2" | "FFMA2" => !one.ends("FTZ"),
            "MUFU" => one.ends("RCP") || one.ends("RSQ"),
            "I2F" | "I2FP" => true,
            "FMNMX" => one.bounds(),
            "F2I" => one.ends("TRUNC") && whole > 0,
            _ => !is_float(base),
        };
        let rounded_otherwise =
            ["RZ", "RM", "SAT"].iter().any(|ending| one.ends(ending)) || one.ends("RP") && base != "I2F";
        if !allowed || rounded_otherwise && base.starts_with('F') {
            wrong.push(format!("{name} {}", one.operands));
        }
    }
    if checks > 0 && written("div.rn") == 0 || roots > 0 && written("sqrt.rn") == 0 {
        wrong.push(format!("{checks} divisions and {roots} roots, expected those that are written"));
    }
    if inverses > 0 && written("rcp.rn") + written("div.rn") == 0 {
        wrong.push(format!("{inverses} reciprocals, expected none"));
    }
    let fused = count(body, |one| one.name.starts_with("FFMA"));
    if written_fma == 0 && fused > 5 * reciprocals + 2 * roots {
        wrong.push(format!(
            "{fused} FFMA for {reciprocals} divisions and {roots} roots, and no fma is written"
        ));
    }
    wrong
}

/// Whether a name is that of an operation on floats, of any width, or one that adds in no order.
fn is_float(base: &str) -> bool {
    let others = ["FLO", "FENCE", "FOOTPRINT"];
    let double = ["DADD", "DMUL", "DFMA", "DSETP", "DMNMX", "DMMA"];
    let half =
        ["HADD2", "HMUL2", "HFMA2", "HSETP2", "HSET2", "HMNMX2", "HMMA", "QMMA", "OMMA", "UTCHMMA", "HGMMA"];
    let unordered = ["RED", "REDG", "ATOM", "ATOMG", "ATOMS", "F2F", "F2FP", "F2I", "F2IP", "FRND"];
    base.starts_with('F') && !others.contains(&base)
        || double.contains(&base)
        || half.contains(&base)
        || unordered.contains(&base)
}

/// What is wrong with the machine code of a kernel of which the written fma, divisions and roots were taken.
fn wrong_without_the_written(code: &Code) -> Vec<String> {
    let whole = code.body.iter().any(|one| one.is("I2F") && one.ends("RP"));
    let fused = |one: &&Instruction| {
        let base = one.name.split('.').next().unwrap();
        let divides = whole && (base == "MUFU" && one.ends("RCP") || base == "F2I");
        let made = ["FFMA", "FFMA2", "MUFU", "FCHK", "DFMA", "HFMA2"].contains(&base) || one.ends("FTZ");
        made && !divides && !one.is_move()
    };
    let found = code.body.iter().filter(fused);
    found.map(|one| format!("{} {}: made of what is written otherwise", one.name, one.operands)).collect()
}

fn replaced(source: &str, parts: &[(&str, &str)]) -> String {
    let source = source.replace("#define TILE_K 16\n", "#define TILE_K 4\n");
    parts.iter().fold(source, |text, (old, new)| {
        assert_eq!(text.matches(old).count(), 1, "portable.cl has one line {old}");
        text.replace(old, new)
    })
}

/// What was looked through, and everything that is wrong with it.
#[derive(Debug, Default)]
pub struct Report {
    pub kernels: Vec<String>,
    pub instructions: usize,
    pub written_fma: usize,
    pub wrong: Vec<String>,
}

/// Compiles a source for an architecture as a card's machine does, and looks through it.
pub fn inspect(tools: &Tools, source: &str, architecture: &str, build: Build) -> Report {
    inspect_with(tools, source, &nvrtc::options(architecture, build))
}

/// The same with any options, of which the first names the architecture.
pub fn inspect_with(tools: &Tools, source: &str, options: &[String]) -> Report {
    let compile = |source: &str, options: &[String]| -> Compiled {
        tools.nvrtc.compile(source, options).unwrap_or_else(|error| panic!("{error}"))
    };
    let (_, architecture) = options[0].split_once('=').unwrap();
    let plain = compile(source, options);
    let mut text_alone = options.to_vec();
    text_alone[0] = text_alone[0].replace("=sm_", "=compute_");
    let marked = compile(&replaced(source, &[(FMA, MARKED_FMA)]), &text_alone);
    let integer =
        compile(&replaced(source, &[(FMA, INTEGER_FMA), (DIV, INTEGER_DIV), (SQRT, INTEGER_SQRT)]), options);

    let mut report = Report::default();
    let texts = instructions_of_text(&plain.ptx);
    let mut say = |kernel: &str, text: &str, wrong: Vec<String>| {
        report.wrong.extend(wrong.into_iter().map(|one| format!("{architecture} {kernel}, {text}: {one}")));
    };
    for (kernel, lines) in &texts {
        say(kernel, "text", lines.iter().filter_map(|line| wrong_in_text(line, false)).collect());
    }
    let marked = instructions_of_text(&marked.ptx);
    for (kernel, lines) in &marked {
        report.written_fma += lines.iter().filter(|line| line.ends_with(MARK)).count();
        say(kernel, "marked text", lines.iter().filter_map(|line| wrong_in_text(line, true)).collect());
    }
    for (kernel, code) in disassemble(tools, &plain.cubin) {
        report.instructions += code.body.len();
        say(&kernel, "code", wrong_in_code(&code, &marked[&kernel]));
        report.kernels.push(kernel);
    }
    for (kernel, code) in disassemble(tools, &integer.cubin) {
        say(&kernel, "code without the written", wrong_without_the_written(&code));
    }
    report
}
