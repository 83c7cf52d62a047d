//! The model really trains: loss on real text, the project's own documents and sources, falls.

use step::dispatch::Backend;
use step::session::Session;
use step::setup::Setup;
use tests::workshop::workspace;

#[test]
fn the_loss_on_real_text_falls_over_fifty_steps() {
    let setup = Setup::load(&workspace().join("demo/run.toml")).unwrap();
    let session = Session::new(&setup.plan, &setup.tokens, Backend::detect()).unwrap();
    let mut state = setup.state.clone();
    let mut losses = Vec::new();
    while state.step < setup.config.steps {
        let step = session.step(&mut state).unwrap();
        assert_eq!(step.record.non_finite, None);
        let sum: f32 = step.record.losses.iter().map(|bits| f32::from_bits(*bits)).sum();
        losses.push(sum / setup.config.leaves as f32);
    }
    println!("loss at every tenth step: {:?}", losses.iter().step_by(10).collect::<Vec<_>>());
    // A model that knows nothing gives every byte 1/256: ln 256 = 5.545.
    assert!((losses[0] - 256_f32.ln()).abs() < 0.2, "first loss {}", losses[0]);
    let end = losses[45..].iter().sum::<f32>() / 5.0;
    assert!(end < losses[0] - 1.5, "the last five steps have a mean loss of {end}");
}
