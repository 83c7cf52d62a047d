//! Which times are proven by which cosignatures.

mod support;

use schemas::object::Object as _;
use support::World;
use support::story::{Story, device_key};
use support::trust::policy;
use verify::bundle::check;
use verify::times::Times;

const AT: u64 = 1_800_000_000;

/// Cosignatures of two witnesses, so many seconds after `AT`.
fn both(first: u64, second: u64) -> [(u8, u64); 2] {
    [(0, AT + first), (1, AT + second)]
}

/// The times of a bundle in which device r answers a checkpoint with the cosignatures `receipts[r]`, the prediction's
/// first tree has those of `first` and the last tree those of `last`.
fn times(faulty: usize, first: &[(u8, u64)], receipts: &[[(u8, u64); 2]], last: &[(u8, u64)]) -> Times {
    let world = World::new(2, 2, 2);
    let mut story = Story::new();
    story.log_run(&world);
    story.log_prediction(&world, false);
    story.log.append(b"somebody else's".to_vec());
    let size = story.log.size();
    for (body, cosigners) in world.bodies(2).iter().zip(receipts) {
        let note = story.log.cosigned(size, cosigners);
        let receipt = story.receipt(&world, 2, body, &note);
        story.log_receipt(receipt, body, device_key(body.rank));
    }
    story.log_opening(&world);
    story.log_verdict(&world, None);
    let bundle = story.bundle_2(&world, first, last);
    let report = check(&bundle.encode(), &policy(&story.log, "none", &format!("faulty {faulty}\n")));
    report.times.clone().unwrap_or_else(|| panic!("{report}"))
}

#[test]
fn receipts_are_as_late_as_the_earliest_of_them() {
    for receipts in [[both(100, 90), both(60, 50)], [both(60, 50), both(100, 90)]] {
        for (faulty, after) in [(0, 60), (1, 50)] {
            let times = times(faulty, &both(0, 7), &receipts, &both(200, 201));
            assert_eq!(times.receipts_after_s, Some(AT + after));
        }
    }
    // One whose checkpoint too few have cosigned proves nothing, nor do receipts that are not there.
    let one = [both(100, 90), [(0, AT), (7, AT)]];
    assert_eq!(times(1, &both(0, 7), &one, &both(200, 201)).receipts_after_s, None);
    assert_eq!(times(0, &both(0, 7), &[], &both(200, 201)).receipts_after_s, None);
}

#[test]
fn a_prediction_is_as_old_as_any_cosigned_tree_that_holds_it() {
    let nobody = [(7, AT), (8, AT)];
    let by = |first: &[(u8, u64)], receipt, last: &[(u8, u64)]| {
        times(1, first, &[receipt, receipt], last).prediction_by_s.map(|time_s| time_s - AT)
    };
    assert_eq!(by(&both(0, 7), both(90, 100), &both(200, 201)), Some(7));
    assert_eq!(by(&[], both(90, 100), &both(200, 201)), Some(100));
    assert_eq!(by(&[], nobody, &both(200, 201)), Some(201));
    // Each witness counts once, by its earliest time, wherever that is.
    assert_eq!(by(&[(0, AT)], [(0, AT + 90), (7, AT)], &[(1, AT + 201)]), Some(201));
    assert_eq!(by(&[], nobody, &[(0, AT)]), None);
}

#[test]
fn a_lead_is_told_only_above_nothing() {
    let lead = |faulty, receipt| times(faulty, &both(10, 10), &[receipt, receipt], &both(200, 201)).lead_s();
    assert_eq!([lead(0, both(11, 11)), lead(0, both(10, 10)), lead(0, both(9, 9))], [Some(1), None, None]);
    // If one may be wrong, the receipts are proven from second 5 on only, the prediction by second 9.
    assert_eq!(lead(1, both(5, 9)), None);
}
