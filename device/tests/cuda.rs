//! The kernels as NVIDIA's compiler makes them, for five generations of cards and without one.

mod machine_code;

use device::kernels;
use device::machine::Build;
use device::nvrtc;
use machine_code::{Report, Tools, inspect, inspect_with};

/// Ampere (A100 and the smaller ones), Ada, Hopper, Blackwell.
const ARCHITECTURES: [&str; 5] = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100"];

const BUILD: Build = Build { recorded: true, contracted: false, staged: true };

/// Kernels that use every operation of `portable.cl`, each with all that it compiles to.
const EVERY_OPERATION: &str = "
KERNEL plain(TENSOR(float, x), TENSOR(float, y), uint n) {
    AT(float, x); AT(float, y);
    uint i = GROUP_X * ITEMS + ITEM;
    if (i < n) y[i] = f_sub(f_add(f_mul(x[i], x[i + 1]), x[i + 2]), x[i + 3]);
}
KERNEL fused(TENSOR(float, x), TENSOR(float, y), uint n) {
    AT(float, x); AT(float, y);
    float acc = 0.0f;
    for (uint i = 0; i < n; i++) acc = f_fma(x[i], x[n + i], acc);
    y[ITEM] = f_add(f_mul(acc, x[0]), x[1]);
}
KERNEL divided(TENSOR(float, x), TENSOR(float, y), uint n) {
    AT(float, x); AT(float, y);
    uint i = GROUP_X * ITEMS + ITEM;
    if (i < n) y[i] = f_add(f_mul(f_div(x[i], x[i + 1]), x[i + 2]), f_div(1.0f, x[i]));
}
KERNEL rooted(TENSOR(float, x), TENSOR(float, y), uint n) {
    AT(float, x); AT(float, y);
    uint i = GROUP_X * ITEMS + ITEM;
    if (i < n) y[i] = f_add(f_mul(f_sqrt(x[i]), x[i + 1]), x[i + 2]);
}
KERNEL whole(TENSOR(float, x), TENSOR(float, y), uint n, ulong m) {
    AT(float, x); AT(float, y);
    uint i = GROUP_X * ITEMS + ITEM;
    y[i % n] = x[i / n] > x[m / n] ? x[i / n] : -x[m % n];
    y[n] = (float)(int)m;
}";

fn with_portable(kernels: &str) -> String {
    format!("{}{kernels}", kernels::FILES[0].1)
}

/// The options of a card's machine and one more, and less some.
fn with(architecture: &str, option: &str, without: &[&str]) -> Vec<String> {
    let mut options = nvrtc::options(architecture, BUILD);
    options.retain(|option| !without.contains(&option.as_str()));
    options.push(option.into());
    options
}

fn assert_wrong(report: &Report, words: &[&str]) {
    for word in words {
        assert!(report.wrong.iter().any(|one| one.contains(word)), "{word}: {:#?}", report.wrong);
    }
}

/// Every kernel of this program, for one architecture.
fn look_through(architecture: &str) {
    let (tools, source) = (Tools::find(), kernels::source());
    let report = inspect(&tools, &source, architecture, BUILD);
    let wrong = &report.wrong;
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
    let written = source.matches("\nKERNEL ").count() + source.matches("\nPRODUCT(").count();
    assert!(report.kernels.len() > 30 && report.kernels.len() <= written, "every kernel was looked through");
    println!("{} kernels, {} instructions", report.kernels.len(), report.instructions);
}

#[test]
fn the_machine_code_rounds_every_operation_as_it_is_written_on_sm_80() {
    look_through(ARCHITECTURES[0]);
}

#[test]
fn the_machine_code_rounds_every_operation_as_it_is_written_on_sm_86() {
    look_through(ARCHITECTURES[1]);
}

#[test]
fn the_machine_code_rounds_every_operation_as_it_is_written_on_sm_89() {
    look_through(ARCHITECTURES[2]);
}

#[test]
fn the_machine_code_rounds_every_operation_as_it_is_written_on_sm_90() {
    look_through(ARCHITECTURES[3]);
}

#[test]
fn the_machine_code_rounds_every_operation_as_it_is_written_on_sm_100() {
    look_through(ARCHITECTURES[4]);
}

#[test]
fn every_operation_of_the_portable_header_passes() {
    let (tools, source) = (Tools::find(), with_portable(EVERY_OPERATION));
    for architecture in ARCHITECTURES {
        let report = inspect(&tools, &source, architecture, BUILD);
        assert_eq!(report.wrong, Vec::<String>::new());
        assert_eq!(report.kernels, ["divided", "fused", "plain", "rooted", "whole"]);
        assert!(report.written_fma > 0 && report.instructions > 100, "{report:?}");
    }
}

#[test]
fn a_contraction_is_found_in_every_architecture() {
    let (tools, source) = (Tools::find(), with_portable(EVERY_OPERATION));
    let contracted = Build { contracted: true, ..BUILD };
    let plain = with_portable(
        "KERNEL planted(TENSOR(float, x), TENSOR(float, y)) {
            AT(float, x); AT(float, y);
            y[ITEM] = x[ITEM] * x[ITEM + 1] + x[ITEM + 2];
        }",
    );
    for architecture in ARCHITECTURES {
        // Built as the self-test's drill builds it: in kernels with an fma of their own as well as in those without.
        let report = inspect(&tools, &source, architecture, contracted);
        for kernel in ["plain", "fused", "divided", "rooted"] {
            assert_wrong(&report, &[&format!("{architecture} {kernel}, marked text")]);
            assert_wrong(&report, &[&format!("{architecture} {kernel}, code without the written: FFMA")]);
        }
        assert_wrong(&report, &["plain, code: 1 FFMA for 0 divisions and 0 roots"]);
        // One line of plain C in a build that may contract.
        let report = inspect_with(&tools, &plain, &with(architecture, "--fmad=true", &["--fmad=false"]));
        assert_wrong(
            &report,
            &["planted, marked text: fma.rn.f32: an fma that nobody wrote", "planted, code: 1 FFMA"],
        );
    }
}

/// What a card's machine says of the arithmetic.
const OWN: [&str; 4] = ["--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

#[test]
fn fast_mathematics_is_found_in_every_kernel() {
    let (tools, source) = (Tools::find(), with_portable(EVERY_OPERATION));
    for architecture in ["sm_80", "sm_90", "sm_100"] {
        let report = inspect_with(&tools, &source, &with(architecture, "--use_fast_math", &OWN));
        let own = inspect_with(&tools, &source, &with(architecture, "--use_fast_math", &[]));
        assert_eq!(own.wrong, Vec::<String>::new(), "what is said of each operation goes before it");
        for (kernel, word) in
            [("plain", "FMUL.FTZ"), ("fused", "FFMA.FTZ"), ("divided", "FADD.FTZ"), ("rooted", "FADD.FTZ")]
        {
            assert_wrong(
                &report,
                &[&format!("{architecture} {kernel}, code: {word}"), "subnormal numbers are kept"],
            );
        }
    }
}

/// Lines of a kernel, and a word of what is said of each.
const PLANTED: [(&str, &str); 9] = [
    ("y[0] = expf(x[0]);", "code: MUFU.EX2"),
    ("y[0] = __fdividef(x[0], x[1]);", concat!("text: div.app", "rox.f32")),
    ("y[0] = rsqrtf(x[0]);", concat!("text: rsqrt.app", "rox.f32")),
    ("y[0] = __fadd_rz(x[0], x[1]);", "code: FADD.RZ"),
    ("y[0] = (float)((double)x[0] + 0.1);", "floats are f32"),
    ("atomicAdd(y, x[0]);", "neither in any order"),
    ("y[0] = __saturatef(x[0]);", "code: FADD.SAT"),
    ("y[0] = fmaxf(x[0], x[1]);", "code: FMNMX"),
    ("y[0] = rintf(x[0]);", "code: FRND"),
];

#[test]
fn what_is_not_an_operation_of_the_profile_is_found() {
    let tools = Tools::find();
    for (line, word) in PLANTED {
        let kernel = format!(
            "KERNEL planted(TENSOR(float, x), TENSOR(float, y)) {{ AT(float, x); AT(float, y); {line} }}"
        );
        assert_wrong(&inspect(&tools, &with_portable(&kernel), "sm_90", BUILD), &[word]);
    }
}

#[test]
fn a_text_that_does_not_compile_is_told_with_the_compilers_words() {
    let error = Tools::find()
        .nvrtc
        .compile("nonsense", &["--gpu-architecture=sm_90".into()])
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("kernels do not compile for sm_90:") && error.contains("nonsense"), "{error}");
}

#[test]
fn a_card_gets_code_of_its_own_generation_or_a_refusal() {
    let nvrtc = Tools::find().nvrtc;
    assert_eq!(nvrtc.version, (12, 9));
    for (capability, expected) in
        [(80, "sm_80"), (87, "sm_87"), (90, "sm_90"), (100, "sm_100"), (99, "sm_90")]
    {
        assert_eq!(nvrtc.architecture(capability).unwrap(), expected);
    }
    let error = nvrtc.architecture(990).unwrap_err().to_string();
    assert!(error.contains("sm_90") && error.ends_with("found sm_990"), "{error}");
}

#[test]
fn the_sizes_of_parameters_are_read_from_the_text() {
    let kernel = "KERNEL one(TENSOR(float, x), uint n, float a, ulong m) {
            AT(float, x);
            x[n] = f_add(a, float_of((uint)m));
        }
        KERNEL none() {}";
    let options = nvrtc::options("sm_90", BUILD);
    let compiled = Tools::find().nvrtc.compile(&with_portable(kernel), &options).unwrap();
    assert_eq!(compiled.parameters("one"), Some(vec![8, 8, 4, 4, 8]));
    assert_eq!(compiled.parameters("none"), Some(vec![]));
    assert_eq!(compiled.parameters("on"), None);
}
