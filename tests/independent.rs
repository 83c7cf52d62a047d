//! Is the mathematics right? Losses, gradients and new parameters of three steps against an implementation of its own
//! in numpy and double precision (`tests/independent/gpt2_numpy.py`). The one place where closeness is the right
//! question.
//!
//! Its figures are recorded in `fixtures/step/numpy.json` and stand in where numpy is missing;
//! `UPDATE_FIXTURES=1 cargo nextest run -p tests --test independent` writes them again.

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use step::dispatch::Backend;
use step::order::Order;
use step::session::Session;
use step::setup::Setup;
use tests::workshop::{Workshop, workspace};

/// Largest error of a gradient tensor, as a fraction of its largest element.
const CLOSE: f64 = 3e-6;
const STEPS: u64 = 3;

/// One step would not do: AdamW's first depends neither on the betas nor on clipping, only on the gradient's signs.
#[test]
fn three_steps_are_close_to_an_independent_implementation() {
    let shop = Workshop::open();
    shop.write_run("run", 1);
    // Fixed text: the fixture must not change with the documents.
    let text: String =
        (0..40).map(|i| format!("the {i}th notch of the tally, and {} more. ", i * i)).collect();
    std::fs::write(shop.path("corpus.txt"), text).unwrap();
    let setup = Setup::load(&shop.path("run.toml")).unwrap();
    let session = Session::new(&setup.plan, &setup.tokens, Backend::detect()).unwrap();
    let mut state = setup.state.clone();
    let ours: Vec<Ours> = (0..STEPS)
        .map(|_| {
            let step = session.step(&mut state).unwrap();
            Ours {
                losses: step.record.losses.iter().map(|bits| f32::from_bits(*bits).into()).collect(),
                norm: f32::from_bits(step.record.outcome.as_ref().unwrap().norm).into(),
                gradient: by_name(&setup, step.reduced.as_ref().unwrap()),
                parameters: by_name(&setup, &state.parameters),
            }
        })
        .collect();
    write_case(&setup, &shop.path(""));
    let fixture = workspace().join("fixtures/step/numpy.json");
    if let Some(python) = python_with_numpy() {
        let program = workspace().join("tests/independent/gpt2_numpy.py");
        let status = Command::new(python).arg(program).arg(shop.path("")).status().unwrap();
        assert!(status.success());
        let theirs: Value = serde_json::from_slice(&std::fs::read(shop.path("numpy.json")).unwrap()).unwrap();
        let theirs = theirs.as_array().unwrap();
        assert_eq!(theirs.len(), ours.len());
        ours.iter().zip(theirs).for_each(|(ours, theirs)| ours.compare(theirs));
        let figures: Value = theirs.iter().map(figures).collect();
        if std::env::var_os("UPDATE_FIXTURES").is_some() {
            std::fs::create_dir_all(fixture.parent().unwrap()).unwrap();
            std::fs::write(&fixture, serde_json::to_string_pretty(&figures).unwrap() + "\n").unwrap();
        }
        close_figures(&recorded(&fixture), &figures, "the recorded figures and numpy's");
    } else {
        println!("no python with numpy: comparing with the recorded figures only");
    }
    close_figures(
        &recorded(&fixture),
        &ours.iter().map(Ours::figures).collect(),
        "the recorded figures and ours",
    );
}

struct Ours {
    losses: Vec<f64>,
    norm: f64,
    gradient: Vec<(String, Vec<f64>)>,
    parameters: Vec<(String, Vec<f64>)>,
}

impl Ours {
    fn compare(&self, theirs: &Value) {
        for (leaf, loss) in self.losses.iter().enumerate() {
            let other = theirs["losses"][leaf].as_f64().unwrap();
            assert!((loss - other).abs() < 1e-6 * other, "leaf {leaf}: {loss} and {other}");
        }
        let mut worst = 0.0_f64;
        for (name, gradient) in &self.gradient {
            let error = error(gradient, &numbers(&theirs["gradient"][name]));
            assert!(error < CLOSE, "gradient of {name}: {error}");
            worst = worst.max(error);
        }
        println!("largest error of a gradient tensor, as a fraction of its largest element: {worst:.2e}");
        for (name, parameters) in &self.parameters {
            let gradient = numbers(&theirs["gradient"][name]);
            let other = numbers(&theirs["parameters"][name]);
            assert_eq!((parameters.len(), gradient.len()), (other.len(), other.len()), "{name}");
            for (i, (found, expected)) in parameters.iter().zip(&other).enumerate() {
                // AdamW steps by about the sign of the gradient: where that is noise, so is the step.
                if gradient[i].abs() > 1e-5 {
                    assert!((found - expected).abs() < 1e-6, "{name}[{i}]: {found} and {expected}");
                }
            }
        }
    }

    fn figures(&self) -> Value {
        let norms: serde_json::Map<String, Value> =
            self.gradient.iter().map(|(name, words)| (name.clone(), json!(length(words)))).collect();
        json!({"losses": self.losses, "norm": self.norm, "gradient_norms": norms})
    }
}

fn figures(theirs: &Value) -> Value {
    let gradient = theirs["gradient"].as_object().unwrap();
    let norms: serde_json::Map<String, Value> =
        gradient.iter().map(|(name, words)| (name.clone(), json!(length(&numbers(words))))).collect();
    json!({"losses": theirs["losses"], "norm": theirs["norm"], "gradient_norms": norms})
}

fn recorded(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("the fixture is there")).unwrap()
}

/// Compares two sets of figures number by number.
fn close_figures(a: &Value, b: &Value, what: &str) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>(), "{what}");
            a.iter().for_each(|(name, value)| close_figures(value, &b[name], &format!("{what}: {name}")));
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{what}");
            a.iter().zip(b).for_each(|(a, b)| close_figures(a, b, what));
        }
        _ => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!((a - b).abs() <= 1e-5 * a.abs().max(1e-6), "{what}: {a} and {b}");
        }
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect()
}

fn length(words: &[f64]) -> f64 {
    words.iter().map(|w| w * w).sum::<f64>().sqrt()
}

/// Largest difference as a fraction of the largest element.
fn error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0_f64, |most, w| most.max(w.abs()));
    found.iter().zip(expected).fold(0.0_f64, |most, (a, b)| most.max((a - b).abs())) / largest
}

fn by_name(setup: &Setup, flat: &[f32]) -> Vec<(String, Vec<f64>)> {
    let spans = step::state::spans(&setup.plan.parameters);
    let named = |(parameter, span): (&schemas::plan::Parameter, std::ops::Range<usize>)| {
        (parameter.name.clone(), flat[span].iter().map(|w| f64::from(*w)).collect())
    };
    setup.plan.parameters.iter().zip(spans).map(named).collect()
}

/// Writes what the numpy program reads. Which windows a leaf reads is ours to say; what stands in them is not.
fn write_case(setup: &Setup, folder: &Path) {
    let (plan, d) = (&setup.plan, &setup.plan.dimensions);
    let order = Order::new(plan.data.tokens, d.time, plan.data.seed).unwrap();
    let leaves = |step: u64| {
        let leaf = |leaf| order.leaf_windows(step, leaf, plan.leaves, d.batch);
        (0..plan.leaves).map(leaf).collect::<Vec<_>>()
    };
    let o = &setup.config.optimizer;
    assert_eq!((o.schedule.as_str(), setup.config.steps), ("cosine", STEPS));
    let case = json!({
        "n_head": d.heads, "eps": setup.config.model.norm_epsilon(), "time": d.time, "tokens": setup.tokens,
        "steps": (0..setup.config.steps).map(leaves).collect::<Vec<_>>(),
        "adamw": {"learning_rate": o.learning_rate, "beta1": o.beta1, "beta2": o.beta2, "epsilon": o.epsilon,
            "weight_decay": o.weight_decay, "clip": o.clip, "warmup_steps": o.warmup_steps,
            "final_fraction": o.final_fraction},
    });
    std::fs::write(folder.join("case.json"), case.to_string()).unwrap();
    step::snapshot::write(&folder.join("initial.safetensors"), &plan.parameters, &setup.state).unwrap();
}

fn python_with_numpy() -> Option<&'static str> {
    let has_numpy = |python: &&str| {
        let asked =
            Command::new(python).args(["-c", "import numpy"]).stderr(std::process::Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has_numpy)
}
