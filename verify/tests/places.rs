//! Where in a flat vector a wrong word is said to be, by which name, and on what evidence.

mod support;

use schemas::object::Object as _;
use schemas::plan::Rule;
use schemas::trace::Meeting;
use schemas::verdict::WrongWord;
use support::judged::{judge, only};
use support::story::Story;
use support::{Vector, World, outcome};
use verify::case::Need;

fn world() -> World {
    World::new(8, 4, 3)
}

#[test]
fn elements_are_counted_from_the_start_of_their_parameter() {
    let world = world();
    let vectors = [(Vector::Reduced, "d_"), (Vector::Parameters, "")];
    for (flat, parameter, element) in [(0, "wte", 0), (14, "wte", 14), (15, "wpe", 0), (20, "wpe", 5)] {
        for (vector, prefix) in vectors {
            let mut bodies = world.bodies(2);
            let wrong = world.sum_with(1, vector, &[(flat, 1)]);
            match vector {
                Vector::Reduced => outcome(&mut bodies, 1, 1).reduced = wrong,
                _ => outcome(&mut bodies, 1, 1).parameters = wrong,
            }
            let finding = only(judge(&world, &bodies));
            assert_eq!(finding.tensor, Some(format!("{prefix}{parameter}")));
            let expected = world.vector(1, vector)[flat];
            assert_eq!(finding.word, Some(WrongWord { element, expected, found: expected ^ 1 }));
        }
    }
}

#[test]
fn a_wrong_norm_is_told_with_both_values() {
    let world = world();
    let mut bodies = world.bodies(2);
    outcome(&mut bodies, 1, 1).norm ^= 6;
    let expected = world.body.records[1].outcome.as_ref().unwrap().norm;
    let word = WrongWord { element: 0, expected, found: expected ^ 6 };
    assert_eq!(only(judge(&world, &bodies)).word, Some(word));
}

#[test]
fn an_update_is_named_by_the_plans_optimizer() {
    let mut plan = world().plan;
    plan.update.rule = Rule::Sgd { momentum: 0x3f66_6666, nesterov: false };
    let world = World::of_plan(plan);
    let changes: [fn(&World, &mut schemas::receipt::DeviceOutcome); 2] = [
        |world, found| found.first_moment = world.sum_of(&[1; 21]).fold,
        |world, found| found.parameters = world.sum_of(&[1; 21]),
    ];
    for change in changes {
        let mut bodies = world.bodies(1);
        change(&world, outcome(&mut bodies, 0, 1));
        assert_eq!(only(judge(&world, &bodies)).operation.as_deref(), Some("sgd"));
    }
}

#[test]
fn a_predicted_meeting_of_another_step_or_form_is_not_taken() {
    let honest = world();
    let short = Meeting { nodes: honest.meetings[1].nodes[..3].to_vec(), ..honest.meetings[1].clone() };
    for meeting in [honest.meetings[2].clone(), short] {
        let mut world = world();
        world.body.records[1].outcome.as_mut().unwrap().meeting = meeting.root();
        let mut bodies = world.bodies(1);
        outcome(&mut bodies, 0, 1).partial = world.sum_with(1, Vector::Node(6), &[(0, 1)]);
        let decision = Story::whole(&world, &bodies, vec![meeting.encode()], false).decision(&world, None);
        assert_eq!(decision.needed, [Need::Meeting { step: 1 }]);
        let finding = only(decision);
        assert!(finding.note.ends_with("the predicted folds are not at hand"), "{}", finding.note);
    }
}
