//! Bodies that follow from a prediction, and by whose folds.

mod support;

use schemas::object::Object as _;
use schemas::receipt::ReceiptBody;
use schemas::record::NonFinite;
use support::story::Story;
use support::{Vector, World, invalid_bodies, invalid_world, outcome};
use verify::bundle::check;
use verify::implied::Terms;

fn terms(world: &World, devices: u64) -> Terms<'_> {
    Terms { run: &world.run, id: world.id, body: &world.body, devices }
}

/// Which bodies are implied, and how many folds that takes.
fn implied(world: &World, bodies: &[ReceiptBody]) -> (Vec<bool>, usize) {
    let devices = bodies.len() as u64;
    let (folds, which) = terms(world, devices).folds(&bodies.iter().collect::<Vec<_>>());
    for (body, implied) in bodies.iter().zip(&which) {
        let made = terms(world, devices).body(body.rank, &folds);
        assert_eq!(made.as_ref() == Some(body), *implied);
    }
    (which, folds.len())
}

#[test]
fn a_wrong_sum_of_one_device_does_not_stand_in_for_the_right_ones() {
    let world = World::new(4, 4, 3);
    let wrong = world.sum_with(1, Vector::Parameters, &[(0, 1)]);
    for rank in 0..4 {
        let mut bodies = world.bodies(4);
        outcome(&mut bodies, rank, 1).parameters = wrong;
        let mut expected = vec![true; 4];
        expected[rank] = false;
        assert_eq!(implied(&world, &bodies).0, expected, "device {rank}");
    }
    // The right checksum with another fold: the first that states one counts.
    let mut bodies = world.bodies(4);
    outcome(&mut bodies, 3, 1).parameters.fold = wrong.fold;
    assert_eq!(implied(&world, &bodies).0, [true, true, true, false]);
}

#[test]
fn where_no_body_is_implied_there_are_no_folds() {
    let world = World::new(4, 4, 3);
    let mut bodies = world.bodies(2);
    outcome(&mut bodies, 0, 1).norm ^= 1;
    assert_eq!(implied(&world, &bodies), (vec![false, true], 15));
    outcome(&mut bodies, 1, 2).norm ^= 1;
    assert_eq!(implied(&world, &bodies), (vec![false, false], 0));
}

#[test]
fn a_rank_beyond_the_devices_is_not_implied() {
    let world = World::new(4, 4, 3);
    let (folds, _) = terms(&world, 2).folds(&world.bodies(2).iter().collect::<Vec<_>>());
    assert!(terms(&world, 2).body(1, &folds).is_some());
    assert!(terms(&world, 2).body(2, &folds).is_none());
    assert!(terms(&world, 2).body(9, &folds).is_none());
    // One fold more than there are sums, and be it none.
    let more = [&folds[..], &[schemas::fold::Fold { a: 0, b: 0 }]].concat();
    assert!(terms(&world, 2).body(1, &more).is_none());
    let four = world.bodies(4);
    let (folds, which) = terms(&world, 2).folds(&four.iter().skip(2).collect::<Vec<_>>());
    assert_eq!((folds.len(), which), (0, vec![false, false]));
    for rank in [3, 1023] {
        let far = ReceiptBody { rank, ..four[3].clone() };
        let (folds, which) = terms(&world, 1).folds(&[&far]);
        assert_eq!((folds.len(), which), (0, vec![false]), "device {rank}");
    }
}

#[test]
fn bodies_of_an_invalid_run_follow_from_its_prediction() {
    for at in [NonFinite::Tap { leaf: 5, tap: 3 }, NonFinite::Update { stage: 1 }] {
        let world = invalid_world(at);
        let bodies = invalid_bodies(&world, 4, at);
        let folds = if matches!(at, NonFinite::Tap { .. }) { 9 } else { 18 };
        assert_eq!(implied(&world, &bodies), (vec![true; 4], folds));
        let mut story = Story::new();
        story.tell(&world, &bodies, vec![], false);
        let mut bundle = story.bundle_2(&world, &[], &[]);
        story.leave_out_implied(&world, &mut bundle);
        assert_eq!(bundle.attachments.len(), 1);
        let report = check(&bundle.encode(), &support::story::policy(story.log.key()));
        assert!(report.summary().starts_with("genuine, but verdict is invalid at step 1"), "{report}");
    }
}
