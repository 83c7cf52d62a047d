//! What the tests of this crate and the files under fixtures/ are made of.

// Each test file uses a part of it.
#![allow(dead_code)]

pub mod diagnostic;
pub mod implied;
pub mod network;
pub mod objects;
pub mod rejected;
pub mod small_plan;
pub mod tensor;
pub mod tree;
pub mod window;
pub mod witness;

use objects::Sample;
use schemas::cbor::{self, Value};
use schemas::object::Object;
use schemas::plan::Plan;
use schemas::receipt::ReceiptBody;
use schemas::record::{NonFinite, StepRecord};
use schemas::trace::Trace;
use schemas::verdict::{Cause, Finding, Outcome, Phase, Verdict, WrongWord};
use schemas::{
    bundle::Bundle, completeness::Completeness, config::Config, opened::OpenedStep, opening::Opening,
    prediction, receipt::Receipt, register::Register, run::Run, statement,
};

/// An encoded object, and how it is read.
pub struct Encoded {
    /// Folder under fixtures/.
    pub stem: &'static str,
    /// File name without an ending.
    pub name: &'static str,
    /// The encoding.
    pub bytes: Vec<u8>,
    /// Reads bytes as this kind of object and encodes what it read.
    pub read: fn(&[u8]) -> Result<Vec<u8>, String>,
    /// The object's digest in words, where it has one.
    pub digest: Option<(&'static str, String)>,
}

fn read<T: Object>(bytes: &[u8]) -> Result<Vec<u8>, String> {
    T::decode(bytes).map(|object| object.encode()).map_err(|error| error.to_string())
}

/// A statement has nothing to encode from: what was opened stands for the bytes that were.
fn open(bytes: &[u8]) -> Result<Vec<u8>, String> {
    statement::Statement::open(bytes).map(|_| bytes.to_vec()).map_err(|error| error.to_string())
}

fn value(bytes: &[u8]) -> Result<Vec<u8>, String> {
    cbor::decode(bytes, 1 << 20).map(|value| cbor::encode(&value)).map_err(|error| error.to_string())
}

/// The decoder of a stem in fixtures/<stem>/rejected: of statements for `statement`, of bare values for `cbor`.
pub fn reader(stem: &str) -> fn(&[u8]) -> Result<Vec<u8>, String> {
    match stem {
        "cbor" => value,
        "plan" => read::<Plan>,
        "prediction" => read::<prediction::Prediction>,
        "prediction-body" => read::<prediction::PredictionBody>,
        "receipt" => read::<Receipt>,
        "receipt-body" => read::<ReceiptBody>,
        "verdict" => read::<Verdict>,
        "register" => read::<Register>,
        "completeness" => read::<Completeness>,
        "bundle" => read::<Bundle>,
        "opened" => read::<OpenedStep>,
        "trace" => read::<Trace>,
        "window" => read::<schemas::window::WindowProof>,
        "run" => read::<Run>,
        "config" => read::<Config>,
        "statement" => open,
        other => panic!("no reader for {other}"),
    }
}

fn encoded<T: Object>(stem: &'static str, name: &'static str, object: &T) -> Encoded {
    Encoded { stem, name, bytes: object.encode(), read: read::<T>, digest: None }
}

/// Every object of the sample.
pub fn all(sample: &Sample) -> Vec<Encoded> {
    let small = small_plan::plan();
    let with = |mut object: Encoded, what: &'static str, digest: String| {
        object.digest = Some((what, digest));
        object
    };
    let (receipt, receipt_body) = &sample.receipts[1];
    let mut list = vec![
        with(encoded("config", "tiny", &sample.config), "config digest", sample.config.digest().to_string()),
        with(encoded("plan", "tiny", &sample.plan), "plan digest", sample.plan.digest().to_string()),
        with(encoded("plan", "small", &small), "plan digest", small.digest().to_string()),
        with(encoded("trace", "trace", &sample.trace), "trace root", sample.trace.root().to_string()),
        with(encoded("trace", "meeting", &sample.meeting), "meeting root", sample.meeting.root().to_string()),
        encoded("window", "window", &window::proof()),
        with(encoded("run", "run", &sample.run), "run id", sample.run.id().to_string()),
        encoded("prediction", "open", &sample.open),
        encoded("prediction", "sealed", &prediction::Prediction { open: None, ..sample.open.clone() }),
        encoded("prediction", "computed", &computed(sample)),
        with(encoded("prediction", "body", &sample.body), "seal", sample.open.seal.to_string()),
        encoded("prediction", "body-invalid", &invalid_body(&sample.body)),
        encoded("opening", "opening", &opening(sample)),
        with(encoded("receipt", "receipt", receipt), "challenge", receipt.challenge().to_string()),
        encoded("receipt", "body", receipt_body),
        encoded("verdict", "agree", &sample.verdict),
        encoded("verdict", "diverge", &diverging(sample)),
        encoded("register", "register", &register(sample)),
        encoded("bundle", "agree", &sample.bundle),
        encoded("bundle", "implied", &implied::implied(sample)),
        encoded("completeness", "run", &sample.completeness),
        encoded("completeness", "short", &Completeness { entries: None, ..sample.completeness.clone() }),
        encoded("opened", "step", &sample.opened),
    ];
    for (name, text) in network::tomls().into_iter().skip(1) {
        let config = Config::from_toml(&text).unwrap();
        list.push(with(encoded("config", name, &config), "config digest", config.digest().to_string()));
    }
    let names =
        ["run", "prediction", "receipt-0", "receipt-1", "opening", "register-0", "verdict", "register-1"];
    list.extend(sample.statements.iter().zip(names).map(|(bytes, name)| {
        let opened = statement::Statement::open(bytes).unwrap();
        let digest = Some(("entry digest", opened.digest.to_string()));
        Encoded { stem: "statement", name, bytes: bytes.clone(), read: open, digest }
    }));
    list
}

/// Plans of further configs: files, too long to flip every bit of.
pub fn further(sample: &Sample) -> Vec<Encoded> {
    let tomls = network::tomls().into_iter().skip(1);
    tomls
        .map(|(name, text)| {
            let config = Config::from_toml(&text).unwrap();
            let plan = network::plan(&config, objects::TOKENS, sample.plan.data.dataset);
            let digest = Some(("plan digest", plan.digest().to_string()));
            Encoded { digest, ..encoded("plan", name, &plan) }
        })
        .collect()
}

fn opening(sample: &Sample) -> Opening {
    let statement::Payload::Opening(opening) =
        statement::Statement::open(&sample.statements[4]).unwrap().payload
    else {
        panic!("the fifth statement is an opening")
    };
    opening
}

fn register(sample: &Sample) -> Register {
    let last = sample.statements.last().unwrap();
    let statement::Payload::Register(register) = statement::Statement::open(last).unwrap().payload else {
        panic!("the last statement is a register")
    };
    register
}

/// The same body, ending in step 1 at the 12th tap of leaf 2.
pub fn invalid_body(body: &prediction::PredictionBody) -> prediction::PredictionBody {
    let mut records = body.records[..2].to_vec();
    let last = &mut records[1];
    last.outcome = None;
    last.losses[2] = 0x7fc0_0000;
    last.non_finite = Some(NonFinite::Tap { leaf: 2, tap: 11 });
    prediction::PredictionBody { records, ..body.clone() }
}

/// A verdict with a finding in which every field is used.
fn diverging(sample: &Sample) -> Verdict {
    let finding = Finding {
        device: objects::key("device-1").public(),
        rank: 1,
        phase: Phase::Leaf,
        peer: None,
        leaf: Some(3),
        operation: Some("forward.layer1.mlp.gelu".into()),
        tensor: Some("layer1.mlp.gelu.out".into()),
        word: Some(WrongWord { element: 57, expected: 0x3f8c_cccd, found: 0x3f9c_cccd }),
        cause: Cause::Fault,
        note: "one wrong word explains the difference".into(),
    };
    let link = Finding {
        device: objects::key("device-0").public(),
        rank: 0,
        phase: Phase::Link,
        peer: Some(1),
        leaf: None,
        operation: None,
        tensor: None,
        word: None,
        cause: Cause::Undetermined,
        note: "what arrived is not what device 1 sent".into(),
    };
    Verdict {
        outcome: Outcome::Diverge,
        step: Some(1),
        findings: vec![link, finding],
        missing: vec!["device rank 0: the trace of step 1, leaf 0".into()],
        answer: sample.receipts[0].0.answer,
        evidence: vec![schemas::attachment::AttachmentName::of(&sample.trace.encode())],
        ..sample.verdict.clone()
    }
}

/// The records of a body, as the values they are encoded from.
pub fn record_values(records: &[StepRecord]) -> Vec<Value> {
    records.iter().map(StepRecord::to_value).collect()
}

/// A sealed prediction that says what computed it.
fn computed(sample: &Sample) -> prediction::Prediction {
    let by = prediction::Maker { program: "oracle 0.1.0".into(), backend: "avx2".into() };
    prediction::Prediction { by: Some(by), open: None, ..sample.open.clone() }
}
