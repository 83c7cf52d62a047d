//! What a long bundle weighs, and how long checking it takes (docs/PERFORMANCE.md has the figures of a release build).

mod support;

use schemas::object::Object as _;
use std::time::Instant;
use support::World;
use support::log::witness;
use support::story::{Story, predictor_key};
use verify::bundle::check;
use verify::policy_file::parse;
use verify::report::Class;

#[test]
fn a_bundle_of_300_steps_8_leaves_and_4_devices_is_at_most_350_kb() {
    let world = World::new(8, 4, 300);
    let mut story = Story::new();
    story.cosigners = vec![(0, 1_800_000_000), (1, 1_800_000_001)];
    story.tell(&world, &world.bodies(4), vec![], true);
    let mut bundle = story.bundle_2(&world, &[(0, 1_800_000_000)], &[(0, 1_800_000_002)]);
    story.leave_out_implied(&world, &mut bundle);
    assert_eq!(bundle.attachments.len(), 1, "every receipt's body follows from the prediction");
    let bytes = bundle.encode();
    let (log, predictor) = (story.log.key(), predictor_key().public());
    let witness = witness(0);
    let policy = format!(
        "log {log}\nwitness w {}\nquorum w\npredictor {predictor}\ncomplete yes\n",
        witness.verifier()
    );
    let policy = parse(policy.as_bytes()).unwrap();
    let start = Instant::now();
    let report = check(&bytes, &policy);
    let ms = start.elapsed().as_secs_f64() * 1e3;
    println!("bundle of {} bytes, checked in {ms:.1} ms", bytes.len());
    assert_eq!(report.class, Class::Agreeing, "{report}");
    assert!(bytes.len() <= 350_000, "{} bytes", bytes.len());
}
