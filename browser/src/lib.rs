//! Checks a bundle, or an opened step, in a web page: the answer of `client verify --json`, by the same code, compiled
//! to WebAssembly.
//!
//! The module imports nothing, so it has no network, clock or file to ask. `check.mjs` beside this folder is the page's
//! side of it; `make wasm-check` holds its answers against this machine's own, byte for byte.

mod exports;

use serde::Deserialize;
use serde_json::json;
use verify::policy::Policy;
use verify::report::Class;

/// Longest policy that is read.
pub const POLICY_BYTES_MAX: usize = 1 << 20;
/// Longest bundle that is checked here. The page has it and the module a copy, of 4 GiB at most; a longer one is for
/// `client verify`, which reads it where it lies.
pub const BUNDLE_BYTES_MAX: usize = 256 << 20;

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The exit status that `client verify` has: 0 agreeing, 1 not so, 2 could not be checked.
    pub status: u8,
    /// A report as JSON; or, if there was nothing to begin with, an object with `verified`, `status` and `error`.
    pub json: String,
}

/// The keys a bundle is checked against, as text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    /// The log's vkey.
    log_key: String,
    /// Of whoever may predict, at least one.
    predictor_keys: Vec<String>,
    /// None means any device.
    #[serde(default)]
    device_keys: Vec<String>,
    /// None means the predictors.
    #[serde(default)]
    verdict_keys: Vec<String>,
}

/// Checks a bundle, or an opened step, against a policy: a policy file as `client verify --policy` reads it; or, as a
/// shorthand, an object of JSON with `log_key` and `predictor_keys`, and `device_keys` and `verdict_keys` where there
/// are any, each key as text.
pub fn check(policy: &[u8], bundle: &[u8]) -> Answer {
    let policy = match read_policy(policy) {
        Ok(policy) => policy,
        Err(why) => return could_not(&format!("policy: {why}")),
    };
    if bundle.len() > BUNDLE_BYTES_MAX {
        let found = bundle.len();
        return could_not(&format!(
            "bundle: {found} bytes, expected at most {BUNDLE_BYTES_MAX} here; `client verify` reads longer ones"
        ));
    }
    if verify::opened::begins(bundle) {
        let report = verify::opened::check(bundle, &policy);
        return Answer { status: report.class as u8, json: verify::json::opened(&report).to_string() };
    }
    let report = verify::bundle::check(bundle, &policy);
    Answer { status: report.class as u8, json: verify::json::report(&report).to_string() }
}

fn could_not(error: &str) -> Answer {
    let status = Class::CouldNot as u8;
    Answer { status, json: json!({ "verified": false, "status": status, "error": error }).to_string() }
}

fn read_policy(bytes: &[u8]) -> Result<Policy, String> {
    if bytes.len() > POLICY_BYTES_MAX {
        return Err(format!("{} bytes, expected at most {POLICY_BYTES_MAX}", bytes.len()));
    }
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first.is_some_and(|byte| byte.is_ascii_lowercase() || *byte == b'#') {
        return verify::policy_file::parse(bytes).map_err(|error| error.to_string());
    }
    let keys: Keys = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let [predictors, devices, signers] = [&keys.predictor_keys, &keys.device_keys, &keys.verdict_keys]
        .map(|texts| texts.iter().map(String::as_str).collect::<Vec<_>>());
    Policy::parse(&keys.log_key, &predictors, &devices, &signers).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_is_not_usable_is_told_in_place_of_a_report() {
        let log = "log.example/test+fae20353+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c";
        for (policy, why) in [
            (
                json!({ "log_key": log, "predictor_keys": [] }),
                "expected at least one predictor key, found none",
            ),
            (json!({ "log_key": log }), "missing field `predictor_keys` at line 1 column "),
            (json!({ "log_key": "log", "predictor_keys": [] }), "log key \"log\": "),
            (json!({ "log_key": log, "predictor_keys": ["ed25519:00"] }), "predictor key: "),
            (json!({ "device_key": [] }), "unknown field `device_key`, expected one of `log_key`, "),
        ] {
            let answer = check(policy.to_string().as_bytes(), b"");
            let value: serde_json::Value = serde_json::from_str(&answer.json).unwrap();
            assert_eq!((answer.status, &value["status"], &value["verified"]), (2, &json!(2), &json!(false)));
            let error = value["error"].as_str().unwrap();
            assert!(error.starts_with(&format!("policy: {why}")), "{error}");
        }
        let file = check(b"log x\n", b"");
        assert!(file.json.contains("policy: line 1: "), "{}", file.json);
        let long = vec![b' '; POLICY_BYTES_MAX + 1];
        assert!(check(&long, b"").json.contains("policy: 1048577 bytes, expected at most 1048576"));
    }
}
