//! The sample's bundle with both receipts' bodies left out, by the words of docs/spec/bundle.md ("Implied bodies"): no
//! code is shared with whoever reads them.

use super::objects::Sample;
use schemas::attachment::AttachmentName;
use schemas::bundle::Bundle;
use schemas::object::Object as _;

/// Two devices: for each step the folds of both partials, of the root, of the reduced gradient and of the parameters.
pub fn implied(sample: &Sample) -> Bundle {
    let bodies = [0, 1].map(|rank| &sample.receipts[rank].1);
    let outcome = |rank: usize, step: usize| bodies[rank].records[step].outcome.as_ref().unwrap();
    let folds = (0..sample.body.records.len()).flat_map(|step| {
        let (left, right) = (outcome(0, step), outcome(1, step));
        let root = left.exchanges[0].sum;
        assert_eq!((root, left.exchanges[0].received), (right.exchanges[0].sum, right.partial));
        [left.partial, right.partial, root, left.reduced, left.parameters].map(|sum| sum.fold)
    });
    let mut bundle = sample.bundle.clone();
    bundle.folds = folds.collect();
    let left_out = bodies.map(|body| AttachmentName::of(&body.encode()));
    bundle.attachments.retain(|bytes| !left_out.contains(&AttachmentName::of(bytes)));
    bundle
}
