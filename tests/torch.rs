//! Is the mathematics right, as far as the field's own framework says? Two hundred steps on real text, beside PyTorch's
//! (`tests/torch`). Like `independent.rs`, a place where closeness is the right question.
//!
//! PyTorch is asked only where `TORCH_PYTHON` names a python that has it: `make torch-check`. Otherwise our losses are
//! compared with its recorded ones, `fixtures/step/torch.json`. `make torch-record` writes those and the pictures of
//! docs/PERFORMANCE.md again.

use serde_json::{Value, json};
use std::process::Command;
use step::dispatch::Backend;
use step::session::Session;
use step::setup::Setup;
use step::snapshot;
use step::state::State;
use tests::workshop::{Workshop, workspace};

/// Largest error of a gradient tensor at step 0, as a fraction of its largest element.
const GRADIENT_CLOSE: f64 = 5e-6;
/// Largest error of a leaf's loss at step 0, as a fraction of it.
const FIRST_LOSS_CLOSE: f64 = 2e-6;
/// Largest error of a loss in the first steps, and in all. Training widens any difference, also that of PyTorch's own
/// float32 from its float64; a wrong term shows early.
const EARLY: (usize, f64) = (25, 1e-5);
const LOSS_CLOSE: f64 = 1e-3;

#[test]
fn gpt2_trains_as_with_pytorch() {
    compare("gpt2", "A GPT-2 of 0.12M parameters on the text of a licence");
}

#[test]
fn llama_trains_as_with_pytorch() {
    compare("llama", "A Llama of 0.13M parameters on the text of a licence");
}

#[test]
fn llama_trains_by_sgd_as_with_pytorch() {
    compare("llama-sgd", "The same Llama, its head tied, by SGD");
}

/// Ours beside the recorded figures, and beside PyTorch's where it is asked.
fn compare(name: &str, title: &str) {
    let shop = Workshop::open();
    let program = workspace().join("tests/torch");
    std::fs::copy(program.join(format!("{name}.toml")), shop.path("run.toml")).unwrap();
    // Real text that does not change: the recorded losses would move with it.
    std::fs::copy(workspace().join("LICENSE-APACHE"), shop.path("corpus.txt")).unwrap();
    let setup = Setup::load(&shop.path("run.toml")).unwrap();
    let (losses, norms, gradient) = train(&setup);

    let fixture = workspace().join("fixtures/step/torch.json");
    let recorded = || -> Value { serde_json::from_slice(&std::fs::read(&fixture).unwrap()).unwrap() };
    if let Some(python) = std::env::var_os("TORCH_PYTHON") {
        let ours = json!({"losses": losses, "norms": norms});
        std::fs::write(shop.path("ours.json"), ours.to_string()).unwrap();
        write_job(&shop, &setup, gradient.clone());
        let status = Command::new(python)
            .arg(program.join("compare.py"))
            .args([title, &shop.text("")])
            .status()
            .unwrap();
        assert!(status.success());
        let figures: Value =
            serde_json::from_slice(&std::fs::read(shop.path("figures.json")).unwrap()).unwrap();
        print(name, &figures);
        let ours = |what: &str| figures[what]["ours"].as_f64().unwrap();
        assert!(figures["gradient"]["ours"]["error"].as_f64().unwrap() < GRADIENT_CLOSE, "gradient");
        assert!(ours("loss_first") < FIRST_LOSS_CLOSE && ours("loss") < LOSS_CLOSE, "losses");
        if std::env::var_os("UPDATE_FIXTURES").is_some() {
            let mut all = if fixture.exists() { recorded() } else { json!({}) };
            all[name] = figures;
            std::fs::write(&fixture, serde_json::to_string_pretty(&all).unwrap() + "\n").unwrap();
            let picture = workspace().join(format!("docs/pictures/loss-{name}.svg"));
            std::fs::create_dir_all(picture.parent().unwrap()).unwrap();
            std::fs::copy(shop.path("loss.svg"), picture).unwrap();
        }
    }

    let recorded = &recorded()[name];
    let theirs = numbers(&recorded["losses"]);
    assert_eq!(theirs.len(), losses.len());
    for (step, (ours, theirs)) in losses.iter().map(|leaves| mean(leaves)).zip(theirs).enumerate() {
        let close = match step {
            0 => FIRST_LOSS_CLOSE,
            step if step < EARLY.0 => EARLY.1,
            _ => LOSS_CLOSE,
        };
        assert!((ours - theirs).abs() < close * theirs, "step {step}: {ours}, recorded {theirs}");
    }
    let lengths = recorded["gradient_norms"].as_object().unwrap();
    assert_eq!(lengths.len(), setup.plan.parameters.len());
    for (parameter, span) in setup.plan.parameters.iter().zip(step::state::spans(&setup.plan.parameters)) {
        let ours = gradient[span].iter().map(|w| f64::from(*w).powi(2)).sum::<f64>().sqrt();
        let theirs = lengths[&parameter.name].as_f64().unwrap();
        assert!(
            (ours - theirs).abs() < GRADIENT_CLOSE * theirs,
            "{}: {ours}, recorded {theirs}",
            parameter.name
        );
    }
}

/// Losses of leaves and norms by step, and the reduced gradient of step 0.
fn train(setup: &Setup) -> (Vec<Vec<f64>>, Vec<f64>, Vec<f32>) {
    let session = Session::new(&setup.plan, &setup.tokens, Backend::detect()).unwrap();
    let mut state = setup.state.clone();
    let (mut losses, mut norms, mut gradient) = (vec![], vec![], None);
    for _ in 0..setup.config.steps {
        let step = session.step(&mut state).unwrap();
        losses.push(step.record.losses.iter().map(|bits| f32::from_bits(*bits).into()).collect());
        norms.push(f32::from_bits(step.record.outcome.as_ref().unwrap().norm).into());
        gradient = gradient.or(step.reduced);
    }
    (losses, norms, gradient.unwrap().to_vec())
}

/// The job as `oracle predict` writes it, and the gradient in the same form.
fn write_job(shop: &Workshop, setup: &Setup, gradient: Vec<f32>) {
    let tokens: Vec<u8> = setup.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    std::fs::write(shop.path("tokens.bin"), tokens).unwrap();
    let layout = &setup.plan.parameters;
    snapshot::write(&shop.path("initial.safetensors"), layout, &setup.state).unwrap();
    snapshot::write(&shop.path("gradient.safetensors"), layout, &State::fresh(gradient)).unwrap();
}

fn print(name: &str, figures: &Value) {
    println!("{name} beside PyTorch {}, {} steps", figures["torch"].as_str().unwrap(), figures["steps"]);
    let [ours, theirs] = ["ours", "torch"].map(|side| {
        let figure = |what: &str| figures[what][side].as_f64().unwrap();
        let gradient = figures["gradient"][side]["error"].as_f64().unwrap();
        [gradient, figure("loss_first"), figure("loss"), figure("norm")]
    });
    println!("largest error against float64, as a fraction   ours      torch float32");
    let rows = ["a gradient tensor, step 0", "a loss, step 0", "a loss, any step", "a norm, any step"];
    for ((what, ours), theirs) in rows.iter().zip(ours).zip(theirs) {
        println!("{what:46} {ours:.1e}   {theirs:.1e}");
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
