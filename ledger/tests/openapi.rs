//! The OpenAPI document and the server say the same: routes, methods, statuses, content types and JSON.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use ledger::disk::durable::Files;
use ledger::disk::history::History;
use ledger::http::app::routes;
use ledger::http::server::start;
use schemas::attachment::AttachmentName;
use schemas::digest::EntryDigest;
use serde_json::{Value, json};
use support::{
    Answer, folder, get, key, opening_statement, options, prediction_statement, python, read_answer, request,
    run, run_statement, served, submit,
};
use tlog::cosignature::CosigningKey;
use tlog::note::{KeyName, SignedNote};
use tlog::tree::TreeSize;

const METHODS: [&str; 6] = ["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"];
const COSE: &str = "Content-Type: application/cose\r\n";

fn document() -> Value {
    serde_json::from_str(include_str!("../src/http/openapi.json")).unwrap()
}

/// Whether an address is of a template; how many of its letters are in the template itself.
fn letters_matched(template: &str, path: &str) -> Option<usize> {
    let Some((literal, rest)) = template.split_once('{') else {
        return (template == path).then_some(path.len());
    };
    let path = path.strip_prefix(literal)?;
    let (name, rest) = rest.split_once('}')?;
    // A tile's index has slashes.
    let most = if name == "tile" { path.len() } else { path.find('/').unwrap_or(path.len()) };
    let found = (1..=most).filter_map(|end| letters_matched(rest, path.get(end..)?)).max();
    found.map(|letters| literal.len() + letters)
}

/// The documented path that an address is of.
fn template_of(document: &Value, path: &str) -> Option<String> {
    let path = path.split('?').next().unwrap();
    let templates = document["paths"].as_object().unwrap().keys();
    let found = templates.filter_map(|template| Some((letters_matched(template, path)?, template)));
    found.max().map(|(_, template)| template.clone())
}

#[test]
fn every_route_is_documented_and_every_documented_path_has_a_route() {
    let document = document();
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    // As axum writes them: a star takes the rest, and a suffix is the handler's.
    let axum: Vec<String> =
        routes().iter().map(|(path, _)| path.replace("{*path}", "{level}/{tile}")).collect();
    let stem = |path: &str| {
        let segments = path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part });
        segments.collect::<Vec<_>>().join("/")
    };
    let routed: BTreeSet<String> = axum.iter().map(|path| stem(path)).collect();
    let documented: BTreeSet<String> = paths.iter().map(|path| stem(path)).collect();
    assert_eq!(routed, documented);
    assert_eq!(axum.len(), routed.len());
}

/// What a server was asked and answered.
struct Asked {
    document: Value,
    seen: BTreeSet<(String, String, u16)>,
    bodies: Vec<Value>,
}

impl Asked {
    /// The answer, which must be one that the document has.
    fn check(&mut self, method: &str, path: &str, answer: Answer) -> Answer {
        let template =
            template_of(&self.document, path).unwrap_or_else(|| panic!("{path} is not documented"));
        let method = method.to_lowercase();
        let status = answer.status.to_string();
        let operation = &self.document["paths"][&template][&method];
        let mut pointer = format!("/paths/{}/{method}/responses/{status}", template.replace('/', "~1"));
        let mut response = &operation["responses"][&status];
        if let Some(reference) = response["$ref"].as_str() {
            pointer = reference.trim_start_matches('#').to_owned();
            response = self.document.pointer(&pointer).unwrap();
        }
        let kind = answer.header("content-type").unwrap_or_default();
        let content = &response["content"][kind];
        assert!(!content.is_null(), "{method} {path}: {status} {kind:?} is not documented: {}", answer.head);
        for header in response["headers"].as_object().into_iter().flat_map(|headers| headers.keys()) {
            // A busy server need not know when it will not be.
            assert!(answer.header(header).is_some(), "{method} {path}: {status} without {header}");
        }
        if kind.ends_with("json") && !content["schema"].is_null() {
            let body: Value = serde_json::from_slice(&answer.body).unwrap();
            let kind = kind.replace('/', "~1");
            self.bodies.push(json!({ "schema": format!("{pointer}/content/{kind}/schema"), "body": body }));
        }
        self.seen.insert((method, template, answer.status));
        answer
    }

    fn ask(&mut self, address: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let answer = request(address, method, path, headers, body).unwrap();
        if method == "GET" {
            let head = request(address, "HEAD", path, headers, b"").unwrap();
            let same = |name| (head.header(name), answer.header(name));
            assert_eq!(head.status, answer.status, "HEAD {path}");
            assert_eq!(same("content-type").0, same("content-type").1, "HEAD {path}");
            assert_eq!(head.body, b"", "HEAD {path}");
        }
        self.check(method, path, answer)
    }

    fn get(&mut self, address: SocketAddr, path: &str) -> Answer {
        self.ask(address, "GET", path, "", b"")
    }
}

/// A body that is announced and does not come.
fn slow(address: SocketAddr, method: &str, path: &str, headers: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{headers}Content-Length: 9\r\n\r\n"
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    read_answer(&mut stream).unwrap()
}

/// Good and bad requests of every kind to a server with a few entries.
fn ask_all(asked: &mut Asked, address: SocketAddr) {
    let id = run(1).id();
    let prediction = prediction_statement(id, 0, 10, 2);
    let statement = run_statement(1);
    let (digest, none) = (EntryDigest::of(&statement), "00".repeat(32));
    let opening = opening_statement(id, EntryDigest::of(&prediction), b"body", 2);
    let accept = format!("{COSE}Accept: application/cose\r\n");
    for (headers, body, status) in [
        (COSE, &statement[..], 201),
        (COSE, &statement, 200),
        (&accept, &prediction, 201),
        (&accept, &prediction, 200),
        (COSE, &opening, 201),
        (COSE, &prediction_statement(id, 5, 6, 2), 409),
        (COSE, &opening_statement(id, EntryDigest::of(&prediction), b"other", 2), 409),
        (&accept, &prediction_statement(run(7).id(), 5, 6, 2), 409),
        (COSE, b"x", 400),
        (&accept, &statement[1..], 400),
        (COSE, &[0; 61_441], 413),
        ("", b"x", 415),
    ] {
        assert_eq!(asked.ask(address, "POST", "/entries", headers, body).status, status);
    }
    let genesis = format!("tallystick log v1\norigin {}\n", support::ORIGIN);
    let genesis = EntryDigest::of(genesis.as_bytes());
    let keys = asked.get(address, "/.well-known/scitt-keys").body;
    let kid = kid_of(&keys);
    for path in
        ["/checkpoint", "/log.json", "/metrics", "/openapi.json", "/", "/runs", "/entries", "/style.css"]
    {
        assert_eq!(asked.get(address, path).status, 200, "{path}");
    }
    for (good, bad) in [
        ("/checkpoint/2".to_owned(), &["/checkpoint/99", "/checkpoint/x", "/checkpoint/02"][..]),
        ("/tile/0/000.p/2".to_owned(), &["/tile/0/000", "/tile/0/x001/000", "/tile/9/9", "/tile/0/%ff"]),
        ("/tile/entries/000.p/1".to_owned(), &[]),
        (
            format!("/.well-known/scitt-keys/{kid}"),
            &["/.well-known/scitt-keys/x", "/.well-known/scitt-keys/%ff"],
        ),
        (format!("/entries/{digest}"), &["/entries/x", "/entries/%ff"]),
        (format!("/entries/{digest}.html"), &["/entries/x.html"]),
        (format!("/by-hash/{digest}"), &["/by-hash/x"]),
        (format!("/by-hash/{genesis}"), &[]),
        (format!("/by-hash/{digest}.json"), &["/by-hash/x.json"]),
        (format!("/by-hash/{genesis}.json"), &[]),
        ("/proof/1.tlog-proof".to_owned(), &["/proof/99.tlog-proof", "/proof/x.tlog-proof"]),
        ("/proof/1.tlog-proof?size=3".to_owned(), &["/proof/1.tlog-proof?size=99", "/proof/1.tlog-proof?a"]),
        ("/proof/1.cose".to_owned(), &["/proof/99.cose", "/proof/1.cose?size=", "/proof/x.cose"]),
        ("/consistency/1/3".to_owned(), &["/consistency/3/1", "/consistency/1/99", "/consistency/x/1"]),
        ("/bracket/1".to_owned(), &["/bracket/99", "/bracket/x"]),
        (format!("/run/{id}"), &["/run/x"]),
        (format!("/run/{id}/completeness"), &["/run/x/completeness"]),
        (format!("/run/{id}/completeness?entries=1"), &["/run/x/completeness?entries=2"]),
        (format!("/runs/{id}"), &["/runs/x", "/runs/%ff"]),
        ("/runs?before=9".to_owned(), &["/runs?x", "/?before=", "/entries?before=x"]),
    ] {
        assert_eq!(asked.get(address, &good).status, 200, "{good}");
        for path in bad {
            let status = asked.get(address, path).status;
            assert!(status == 404 || status == 400, "{path}: {status}");
        }
    }
    for path in [
        format!("/entries/{none}"),
        format!("/by-hash/{none}"),
        format!("/run/{none}"),
        format!("/run/{none}/completeness"),
        format!("/attachments/{none}"),
    ] {
        assert_eq!(asked.get(address, &path).status, 404);
        let cbor = asked.ask(address, "GET", &path, "Accept: application/cose\r\n", b"");
        assert_eq!(cbor.header("content-type"), Some("application/concise-problem-details+cbor"));
    }
    assert_eq!(asked.get(address, &format!("/by-hash/{none}.json")).status, 404);
    ask_attachments(asked, address);
}

fn ask_attachments(asked: &mut Asked, address: SocketAddr) {
    for (method, other) in [("PUT", "POST"), ("POST", "PUT")] {
        let bytes = method.as_bytes();
        let path = format!("/attachments/{}", AttachmentName::of(bytes).sha256);
        assert_eq!(asked.ask(address, method, &path, "", bytes).status, 201);
        assert_eq!(asked.ask(address, method, &path, "", bytes).status, 200);
        assert_eq!(asked.ask(address, other, &path, "", bytes).status, 200);
        assert_eq!(asked.ask(address, method, &path, "", b"x").status, 422);
        assert_eq!(asked.ask(address, method, "/attachments/x", "", bytes).status, 400);
        assert_eq!(asked.get(address, &path).status, 200);
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 67108865\r\n\r\n"
        );
        std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        assert_eq!(asked.check(method, &path, read_answer(&mut stream).unwrap()).status, 413);
    }
    assert_eq!(asked.get(address, "/attachments/x").status, 400);
}

/// The kid of a key set of one, as it stands in addresses.
fn kid_of(set: &[u8]) -> String {
    use base64::Engine as _;
    use schemas::cbor::{Value, decode};
    let Value::Array(keys) = decode(set, 1000).unwrap() else { panic!() };
    let Value::Map(fields) = &keys[0] else { panic!() };
    let kid = fields.iter().find_map(|(name, value)| match (name, value) {
        (Value::Uint(2), Value::Bytes(kid)) => Some(kid.clone()),
        _ => None,
    });
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(kid.unwrap())
}

#[test]
fn the_server_answers_what_the_document_says_and_nothing_else() {
    let folder = folder();
    let mut asked = Asked { document: document(), seen: BTreeSet::new(), bodies: Vec::new() };
    let server = served(folder.path());
    assert_eq!(asked.get(server.address(), "/checkpoint/witnessed").status, 404);
    ask_all(&mut asked, server.address());
    let note = get(server.address(), "/checkpoint/3").text().to_owned();
    server.stop().unwrap();

    // Cosigned; and with a list of who may submit, few requests, no room, and no patience.
    let name = KeyName::new("witness.example/w").unwrap();
    let line =
        CosigningKey::from_seed(name, &[5; 32]).cosign(SignedNote::parse(note.as_bytes()).unwrap().text(), 9);
    let history = History::open(folder.path(), Arc::new(Files::default())).unwrap();
    history.add_cosigned(TreeSize(3), &format!("{note}{line}")).unwrap();
    drop(history);
    let mut strict = options(folder.path());
    strict.rules.allowed = Some(BTreeSet::from([key(9).public()]));
    strict.limits.entry_timeout_ms = 100;
    strict.limits.upload_grace_ms = 100;
    strict.limits.attachments_bytes_max = 0;
    let server = start(strict).unwrap();
    let address = server.address();
    assert_eq!(asked.get(address, "/checkpoint/witnessed").status, 200);
    assert_eq!(asked.get(address, "/bracket/1").status, 200);
    assert_eq!(asked.get(address, "/bracket/3").status, 200);
    assert_eq!(asked.ask(address, "POST", "/entries", COSE, &run_statement(5)).status, 403);
    let late = slow(address, "POST", "/entries", COSE);
    assert_eq!(asked.check("POST", "/entries", late).status, 408);
    let path = format!("/attachments/{}", AttachmentName::of(b"new").sha256);
    for method in ["PUT", "POST"] {
        assert_eq!(asked.ask(address, method, &path, "", b"new").status, 507);
    }
    server.stop().unwrap();
    let mut strict = options(folder.path());
    strict.limits.upload_grace_ms = 100;
    let server = start(strict).unwrap();
    for method in ["PUT", "POST"] {
        let late = slow(server.address(), method, &path, "");
        assert_eq!(asked.check(method, &path, late).status, 408);
    }
    server.stop().unwrap();
    let mut strict = options(folder.path());
    strict.limits.uploads_max = 0;
    strict.limits.requests_per_peer_per_s = 1;
    let server = start(strict).unwrap();
    for method in ["PUT", "POST"] {
        assert_eq!(asked.ask(server.address(), method, &path, "", b"new").status, 503);
    }
    while get(server.address(), "/log.json").status == 200 {}
    let document = document();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let path =
            path.replace("{sha256}", &"00".repeat(32)).replace("{level}", "0").replace("{tile}", "000");
        let path = path.replace(['{', '}'], "");
        for method in operations.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            let answer = request(server.address(), &method, &path, "", b"").unwrap();
            assert_eq!(asked.check(&method, &path, answer).status, 429, "{method} {path}");
        }
    }
    server.stop().unwrap();
    all_was_seen(&asked);
    std::fs::write(folder.path().join("openapi.json"), asked.document.to_string()).unwrap();
    std::fs::write(folder.path().join("answers.json"), Value::from(asked.bodies).to_string()).unwrap();
    let (right, said) = python("openapi.py", folder.path());
    assert!(right, "{said}");
}

/// What is documented happens.
fn all_was_seen(asked: &Asked) {
    let mut unseen = BTreeMap::new();
    for (path, operations) in asked.document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            for status in operation["responses"].as_object().unwrap().keys() {
                let status: u16 = status.parse().unwrap();
                // A damaged log, and a pool that is full, are for other tests.
                let elsewhere = status == 500 || (status, path.as_str()) == (503, "/entries");
                if !elsewhere && !asked.seen.contains(&(method.clone(), path.clone(), status)) {
                    unseen.insert(format!("{method} {path}"), status);
                }
            }
        }
    }
    assert!(unseen.is_empty(), "{unseen:?}");
}

#[test]
fn an_address_takes_the_methods_that_are_documented_and_no_others() {
    let folder = folder();
    let server = served(folder.path());
    assert_eq!(submit(server.address(), &run_statement(1)).status, 201);
    let document = document();
    for (template, operations) in document["paths"].as_object().unwrap() {
        let path =
            template.replace("{sha256}", &"00".repeat(32)).replace("{level}", "0").replace("{tile}", "000");
        let path = path.replace(['{', '}'], "");
        for method in METHODS {
            let documented = !operations[method.to_lowercase()].is_null();
            let status = request(server.address(), method, &path, "", b"").unwrap().status;
            assert_eq!(status != 405, documented, "{method} {path}: {status}");
        }
    }
    server.stop().unwrap();
}
