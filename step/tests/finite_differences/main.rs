//! Is every backward kernel the derivative of its forward? The slope of an independent forward in f64, measured by
//! central differences, against what our backward computes in f32.
//!
//! The forwards (`forward64`) are written from the papers. What a backward kernel takes over from its forward (means,
//! maxima, sums) comes from our own forward, as in a step.

mod case;
mod forward64;
mod gpt2;
// Shared with tests that use more of it.
#[path = "../inputs/mod.rs"]
mod inputs;
mod llama;

use case::Case;

/// Largest error of a gradient, as a fraction of its largest element. Some 2^-24 a rounding, and sums of up to 70
/// terms; the differences themselves are good to 1e-9.
const ERROR_MAX: f64 = 1e-6;

fn cases() -> Vec<Case> {
    [gpt2::cases(), llama::cases()].into_iter().flatten().collect()
}

#[test]
fn every_backward_kernel_is_the_slope_of_its_forward() {
    let mut wrong = Vec::new();
    for case in cases() {
        for (of, gradient) in &case.gradients {
            let error = case.error(*of, gradient);
            println!("{:?}, input {of}: largest error {error:.1e}", case.kernels);
            if error.is_nan() || error > ERROR_MAX {
                wrong.push(format!("{:?}, input {of}: largest error {error:e}", case.kernels));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn every_backward_kernel_has_a_case() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/reference");
    let mut found = 0;
    for file in std::fs::read_dir(folder).expect("the reference is there") {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("a text");
        let names = text.lines().filter_map(|line| line.strip_prefix("pub fn ")?.split(['(', '<']).next());
        for name in names.filter(|name| name.contains("backward")) {
            assert!(cases().iter().any(|case| case.kernels.contains(&name)), "{name} has no case");
            found += 1;
        }
    }
    assert!(found >= 11, "only {found} backward kernels found");
}

#[test]
fn a_broken_backward_is_seen() {
    let seen = |case: &Case, of: usize, gradient: &[f32], how: &str| {
        let error = case.error(of, gradient);
        assert!(error > 100.0 * ERROR_MAX, "{:?}, input {of}, {how}: largest error {error:e}", case.kernels);
    };
    for case in cases() {
        for (of, gradient) in &case.gradients {
            let negated: Vec<f32> = gradient.iter().map(|d| -d).collect();
            seen(&case, *of, &negated, "the wrong sign");
            let larger: Vec<f32> = gradient.iter().map(|d| d * 1.001).collect();
            seen(&case, *of, &larger, "a wrong factor");
            let mut turned = gradient.clone();
            turned.rotate_left(1);
            seen(&case, *of, &turned, "the wrong place");
        }
    }
    // Without the means of the gradient along a row.
    let case = gpt2::layernorm_with(0.0);
    seen(&case, 0, &case.gradients[0].1, "a missing term");
    let case = llama::rmsnorm_with(0.0);
    seen(&case, 0, &case.gradients[0].1, "a missing term");
    // Without the softmax's own slope: D = d_o . o.
    let case = gpt2::attention_with(|o| vec![0.0; o.len()]);
    seen(&case, 0, &case.gradients[0].1, "a missing term");
    seen(&case, 1, &case.gradients[1].1, "a missing term");
    // Bare probabilities: without the one of the target.
    let case = gpt2::cross_entropy();
    let bare: Vec<f32> = case.gradients[0].1.iter().map(|d| d.max(0.0)).collect();
    seen(&case, 0, &bare, "a missing term");
}
