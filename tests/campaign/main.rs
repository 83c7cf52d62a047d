//! The fault campaign: thousands of random faults, each in a run of its own, and what the comparison says of each.
//!
//! Real parts throughout: the prediction is `oracle predict`'s, the run the device's own code with a fault planted, the
//! comparison the client's. Only the log is left out: receipts answer a checkpoint of a tree in memory, since a
//! prediction that was opened once in a log could not be used for a second run.
//!
//! usage: campaign [--runs N] [--clean N] [--seed S] [--backend simulated|opencl] [--show]

mod draw;
mod judge;
mod scene;
mod tally;

use draw::{Draw, Random};
use scene::Scene;
use std::process::ExitCode;
use std::time::Instant;
use tally::Tally;

struct Arguments {
    runs: u64,
    clean: u64,
    seed: u64,
    backend: String,
    show: bool,
}

fn arguments() -> Result<Arguments, String> {
    let mut found =
        Arguments { runs: 2000, clean: u64::MAX, seed: 1, backend: "simulated".into(), show: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word}: expected a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text:?}: expected a number"));
        match word.as_str() {
            "--runs" => found.runs = number(value()?)?,
            "--clean" => found.clean = number(value()?)?,
            "--seed" => found.seed = number(value()?)?,
            "--backend" => found.backend = value()?,
            "--show" => found.show = true,
            other => {
                return Err(format!(
                    "{other:?}: expected --runs N, --clean N, --seed S, --backend NAME or --show"
                ));
            }
        }
    }
    // One clean run for four faulty ones, unless another number is given.
    found.clean = if found.clean == u64::MAX { found.runs.div_ceil(4) } else { found.clean };
    Ok(found)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("campaign: error: {message}");
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let backend =
        device::backend::named(&arguments.backend, false).expect("campaign: a backend of this build");
    let scenes: Vec<Scene> = Scene::all();
    let mut tally = Tally::default();
    let mut random = Random::new(arguments.seed);
    for number in 0..arguments.clean {
        let scene = &scenes[number as usize % scenes.len()];
        let devices = scene.devices(&mut random);
        let located = scene.run(&*backend, devices, &[], &mut random);
        tally.clean(&located);
        progress(number + 1, arguments.clean, "clean", began);
    }
    let mut number = 0;
    while number < arguments.runs {
        let scene = &scenes[number as usize % scenes.len()];
        let devices = scene.devices(&mut random);
        let draws: Vec<Draw> = draw::draw(scene, devices, &mut random);
        let texts: Vec<String> = draws.iter().map(|draw| draw.text.clone()).collect();
        let located = scene.run(&*backend, devices, &texts, &mut random);
        if located.unchanged {
            tally.without_effect(&draws);
            continue;
        }
        let marks = judge::judge(&draws, &located);
        if arguments.show || marks.missed() {
            eprintln!("\n{}: {devices} devices: {}\n  {marks:?}", scene.name, texts.join(" "));
            eprintln!("  {:?} at step {:?}", located.decision.outcome, located.decision.step);
            located.decision.findings.iter().for_each(|finding| eprintln!("  {finding:?}"));
            located.decision.missing.iter().for_each(|missing| eprintln!("  missing: {missing}"));
        }
        tally.faulty(&draws, &marks);
        number += 1;
        progress(number, arguments.runs, "faulty", began);
    }
    println!("{}", tally.table());
    println!("{}", tally.json(arguments.seed));
    if tally.perfect() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says every so often how far it is.
fn progress(done: u64, all: u64, what: &str, began: Instant) {
    if done.is_multiple_of(100) || done == all {
        eprintln!("campaign: {done} of {all} {what} runs, {} s", began.elapsed().as_secs());
    }
}
