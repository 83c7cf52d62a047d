//! The arrows that must never exist (docs/ARCHITECTURE.md), over `cargo metadata` and over the source.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// From, to, why not. Held for direct and transitive dependencies; dependencies of tests are free.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("step", "device", "two independent executions of one plan: shared code is a shared bug"),
    ("step", "tlog", NUMBERS),
    ("step", "ledger", NUMBERS),
    ("step", "verify", NUMBERS),
    ("step", "client", NUMBERS),
    ("device", "tlog", NUMBERS),
    ("device", "ledger", NUMBERS),
    ("device", "verify", NUMBERS),
    ("device", "client", NUMBERS),
    ("tlog", "schemas", "the log carries bytes"),
    ("ledger", "step", JUDGE),
    ("ledger", "oracle", JUDGE),
    ("ledger", "device", JUDGE),
    ("ledger", "verify", JUDGE),
    ("verify", "ledger", "offline means offline"),
    ("verify", "step", "what is recomputed comes in as an argument"),
    ("client", "ledger", "a client knows a log by its routes"),
    ("client", "device", "two independent executions of one plan: shared code is a shared bug"),
];
const NUMBERS: &str = "numbers do not know where they are published";
const JUDGE: &str = "the server admits and orders, it does not judge";

/// To, who may, why nobody else.
const ONLY: &[(&str, &[&str], &str)] = &[
    ("oracle", &["tests"], "a command, not a library"),
    ("tests", &[], "tests are last"),
    ("site", &["ledger", "tests"], "pages are served by the ledger alone"),
];

/// Packages that nothing below `verify` may be: network, clock, async, store, randomness.
const ONLINE: &[&str] = &["tokio", "reqwest", "redb", "rand", "getrandom", "mio", "socket2", "axum", "hyper"];

/// Normal dependencies by package: its name, or name and version where there are several, which need other things.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut command = Command::new(cargo);
    // For this machine's platform: the others' packages are not on it, and a test fetches nothing.
    let host = host();
    command.args(["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", &host]);
    command.current_dir(top());
    let output = command.output().unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn host() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let output = Command::new(rustc).arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().unwrap()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap()
}

/// Names of the workspace's packages.
fn members(metadata: &Value) -> BTreeSet<String> {
    let ids: BTreeSet<&str> =
        list(metadata, "workspace_members").iter().map(|id| id.as_str().unwrap()).collect();
    let packages = list(metadata, "packages").iter();
    packages.filter(|package| ids.contains(text(package, "id"))).map(|p| text(p, "name").to_owned()).collect()
}

/// The resolved graph of normal dependencies.
fn graph(metadata: &Value) -> Graph {
    let packages = list(metadata, "packages");
    let versions = |name: &str| packages.iter().filter(|package| text(package, "name") == name).count();
    let label = |package: &Value| match text(package, "name") {
        name if versions(name) == 1 => name.to_owned(),
        name => format!("{name} {}", text(package, "version")),
    };
    let names: BTreeMap<&str, String> = packages.iter().map(|p| (text(p, "id"), label(p))).collect();
    let mut graph = Graph::new();
    for node in list(&metadata["resolve"], "nodes") {
        let normal =
            |dependency: &&Value| list(dependency, "dep_kinds").iter().any(|kind| kind["kind"].is_null());
        let to = list(node, "deps").iter().filter(normal).map(|d| names[text(d, "pkg")].clone());
        graph.entry(names[text(node, "id")].clone()).or_default().extend(to);
    }
    graph
}

/// Everything below `from`.
fn reachable(graph: &Graph, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![from.to_owned()];
    while let Some(name) = waiting.pop() {
        for to in graph.get(&name).into_iter().flatten() {
            if found.insert(to.clone()) {
                waiting.push(to.clone());
            }
        }
    }
    found
}

/// Whether any version of a package is among them.
fn contains_package(packages: &BTreeSet<String>, name: &str) -> bool {
    packages.iter().any(|package| package.split(' ').next() == Some(name))
}

/// Every broken rule, in words.
fn wrong_arrows(graph: &Graph, members: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (from, to, why) in FORBIDDEN {
        if reachable(graph, from).contains(*to) {
            wrong.push(format!("{from} -> {to}: {why}"));
        }
    }
    for (to, may, why) in ONLY {
        let others = members.iter().filter(|from| from != to && !may.contains(&from.as_str()));
        let arrows = others.filter(|from| graph.get(*from).is_some_and(|direct| direct.contains(*to)));
        wrong.extend(arrows.map(|from| format!("{from} -> {to}: {why}")));
    }
    let below_schemas = reachable(graph, "schemas");
    wrong.extend(
        members.intersection(&below_schemas).map(|to| format!("schemas -> {to}: schemas stands first")),
    );
    let below_verify = reachable(graph, "verify");
    let online = ONLINE.iter().filter(|name| contains_package(&below_verify, name));
    wrong.extend(online.map(|name| format!("verify -> {name}: offline means offline")));
    wrong
}

#[test]
fn no_forbidden_arrow_exists() {
    let metadata = metadata();
    let (graph, members) = (graph(&metadata), members(&metadata));
    for name in FORBIDDEN.iter().flat_map(|(from, to, _)| [from, to]).chain(ONLY.iter().map(|(to, _, _)| to))
    {
        assert!(members.contains(*name), "a rule names {name}, which is no package here");
    }
    assert!(contains_package(&reachable(&graph, "verify"), "sha2"), "the graph reaches beyond the workspace");
    assert_eq!(wrong_arrows(&graph, &members), Vec::<String>::new());
}

/// The rules themselves: each arrow, added to the real graph, is found.
#[test]
fn every_forbidden_arrow_would_be_found() {
    let metadata = metadata();
    let (graph, members) = (graph(&metadata), members(&metadata));
    let clean = wrong_arrows(&graph, &members).len();
    let online = ONLINE.iter().map(|to| ("verify", *to));
    let below_schemas = members.iter().filter(|name| *name != "schemas").map(|to| ("schemas", to.as_str()));
    let to_last = [("client", "oracle"), ("ledger", "tests"), ("client", "site")];
    let arrows =
        FORBIDDEN.iter().map(|(from, to, _)| (*from, *to)).chain(online).chain(below_schemas).chain(to_last);
    for (from, to) in arrows {
        let mut graph = graph.clone();
        graph.entry(from.into()).or_default().insert("between".into());
        graph.entry("between".into()).or_default().insert(to.into());
        if !ONLY.iter().any(|(only, _, _)| *only == to) {
            assert!(wrong_arrows(&graph, &members).len() > clean, "{from} -> between -> {to}");
        }
        graph.entry(from.into()).or_default().insert(to.into());
        assert!(wrong_arrows(&graph, &members).len() > clean, "{from} -> {to}");
    }
}

/// A feature that changes a result would make two builds of one version disagree; the backend is a run-time value.
#[test]
fn no_package_has_cargo_features() {
    let metadata = metadata();
    let members = members(&metadata);
    let own = list(&metadata, "packages").iter().filter(|p| p["source"].is_null());
    let mut seen = 0;
    for package in own.filter(|package| members.contains(text(package, "name"))) {
        let features = package["features"].as_object().unwrap();
        assert!(features.is_empty(), "{} has features {:?}", text(package, "name"), features.keys());
        seen += 1;
    }
    assert_eq!(seen, members.len());
}

/// Source files below a folder of the workspace, with their text.
fn sources(below: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut waiting = vec![top().join(below)];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let name = path.strip_prefix(top()).unwrap().to_str().unwrap().to_owned();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Lines outside comments that name the path `<name>::`, or bring it in with `use <name>`.
fn naming<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let path = format!("{name}::");
    let names = |line: &&str| {
        let code = line.split("//").next().unwrap();
        let whole = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        let bare =
            code.trim_start().strip_prefix("use ").is_some_and(|rest| rest.trim_end() == format!("{name};"));
        bare || code.match_indices(&path).any(|(at, _)| whole(at))
            || code.contains(&format!("extern crate {name}"))
    };
    source.lines().filter(names).collect()
}

/// The one exception to "step and device share no code", in one file, which says `simulated` in every receipt.
#[test]
fn only_the_simulated_backend_of_the_device_names_step() {
    let sources = sources("device/src");
    let simulated = sources.iter().find(|(path, _)| path == "device/src/simulated.rs");
    assert!(
        simulated.is_some_and(|(_, source)| !naming(source, "step").is_empty()),
        "the scan finds what is there"
    );
    for (path, source) in sources.iter().filter(|(path, _)| path != "device/src/simulated.rs") {
        assert_eq!(naming(source, "step"), Vec::<&str>::new(), "{path}");
    }
}

/// The reference is the definition: it may lean on nothing that claims to equal it.
#[test]
fn the_reference_kernels_name_only_numbers_and_each_other() {
    let sources = sources("step/src/reference");
    assert!(sources.len() > 5);
    for (path, source) in sources {
        for line in source.lines().filter(|line| !line.trim_start().starts_with("//")) {
            assert!(!line.contains("simd"), "{path}: {line}");
            for (at, _) in line.match_indices("crate::") {
                let rest = &line[at + "crate::".len()..];
                assert!(rest.starts_with("number::") || rest.starts_with("reference::"), "{path}: {line}");
            }
            assert!(!line.contains("super::super"), "{path}: {line}");
        }
        for other in ["rayon", "std::arch", "std::thread", "schemas"] {
            assert_eq!(naming(&source, other), Vec::<&str>::new(), "{path}");
        }
    }
}

#[test]
fn the_scan_for_a_name_knows_code_from_comments_and_other_names() {
    let found = |source| naming(source, "step").len();
    assert_eq!([found("use step::plan;"), found("let s = step::x();"), found("use step;")], [1, 1, 1]);
    assert_eq!([found("/// see step::plan"), found("next_step::x"), found("crate::step::x")], [0, 0, 0]);
}
