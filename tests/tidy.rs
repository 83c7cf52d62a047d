//! The form of the repository's files (docs/STYLE.md), held by tests and by no other tool.
//!
//! Each rule is a function from a file to what is wrong with it; the last test shows that each can fail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Longest file, in lines.
const LINES_MAX: usize = 700;
/// Longest line of Rust, in columns.
const COLUMNS_MAX: usize = 120;
/// The objects: each has a page, a grammar, a source file and a folder of fixtures, all of one name.
const STEMS: [&str; 16] = [
    "config",
    "plan",
    "profile",
    "checksum",
    "trace",
    "window",
    "run",
    "prediction",
    "opening",
    "statement",
    "receipt",
    "verdict",
    "register",
    "bundle",
    "completeness",
    "opened",
];
/// Texts of the log that are no objects of schemas: a page and a folder of fixtures each.
const LOG_STEMS: [&str; 3] = ["checkpoint", "ledger", "witness"];
/// Left where they stand by mistake. Written in two parts, so that this file may name them.
const LEFTOVERS: [&str; 7] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("dbg", "!("),
    concat!("#[ig", "nore"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
];
/// Where bits decide, nearness has no word.
const NEARNESS: [&str; 2] = [concat!("toler", "ance"), concat!("appr", "ox")];
const BIT_EXACT: [&str; 3] = ["step/", "device/", "verify/"];
/// Files that may hold `unsafe`, each with its one reason stated at its top.
const UNSAFE: [&str; 11] = [
    "browser/src/exports.rs",
    "device/src/cuda.rs",
    "device/src/nvrtc.rs",
    "device/src/opencl.rs",
    "step/src/checksum/sha256_pair.rs",
    "step/src/checksum/sha256_wide.rs",
    "step/src/dispatch.rs",
    "step/src/simd/avx2.rs",
    "step/src/simd/avx512.rs",
    "step/src/simd/neon.rs",
    "step/src/snapshot/map.rs",
];
/// Characters beyond ASCII in Rust, by file: the em dash of a signed note, and letters that tests feed to parsers.
const BEYOND_ASCII: [(&str, &str); 3] = [
    ("tlog/src/note.rs", "\u{2014}"),
    ("schemas/src/digest.rs", "\u{e9}"),
    ("schemas/src/cbor.rs", "\u{e9}"),
];

/// A text file of the repository: path from its root, content.
type File = (String, String);

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every text file but what is built, fetched or generated.
fn files() -> Vec<File> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(top().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            let name = path.to_str().unwrap().to_owned();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && !left_out(&name) {
                waiting.push(path);
            } else if kind.is_file() && is_text(&name) {
                let text = std::fs::read_to_string(top().join(&path));
                found.push((name, text.expect("a text file is UTF-8")));
            }
        }
    }
    found.sort();
    assert!(found.len() > 100, "only {} files found", found.len());
    found
}

fn left_out(folder: &str) -> bool {
    [".git", "shared"].contains(&folder) || folder.rsplit('/').next().unwrap().starts_with("target")
}

fn is_text(path: &str) -> bool {
    let ending = path.rsplit('.').next().unwrap();
    ["rs", "md", "toml", "cddl", "sh", "py"].contains(&ending) || ["Makefile", ".ci/run"].contains(&path)
}

fn is_rust(path: &str) -> bool {
    path.ends_with(".rs")
}

/// All complaints of `rule` over the repository.
fn assert_clean(rule: impl Fn(&File) -> Vec<String>) {
    let wrong: Vec<String> = files().iter().flat_map(rule).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

fn on_lines((path, text): &File, wrong: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let say = |(i, line)| wrong(line).map(|what| format!("{path}:{}: {what}", i + 1));
    text.lines().enumerate().filter_map(say).collect()
}

fn too_long(file: &File) -> Vec<String> {
    let (path, text) = file;
    let lines = text.lines().count();
    if lines > LINES_MAX {
        return vec![format!("{path}: {lines} lines, expected at most {LINES_MAX}")];
    }
    vec![]
}

fn too_wide(file: &File) -> Vec<String> {
    let wide = |line: &str| {
        let columns = line.chars().count();
        (columns > COLUMNS_MAX).then(|| format!("{columns} columns, expected at most {COLUMNS_MAX}"))
    };
    if is_rust(&file.0) { on_lines(file, wide) } else { vec![] }
}

fn leftovers(file: &File) -> Vec<String> {
    on_lines(file, |line| {
        LEFTOVERS.iter().find(|word| line.contains(**word)).map(|word| format!("{word} is left over"))
    })
}

fn nearness(file: &File) -> Vec<String> {
    if !is_rust(&file.0) || !BIT_EXACT.iter().any(|folder| file.0.starts_with(folder)) {
        return vec![];
    }
    let near = |line: &str| {
        let line = line.to_lowercase();
        NEARNESS.iter().find(|word| line.contains(**word)).map(|word| format!("{word:?}: compare bits"))
    };
    on_lines(file, near)
}

fn beyond_ascii(file: &File) -> Vec<String> {
    let allowed = BEYOND_ASCII.iter().find(|(path, _)| *path == file.0).map_or("", |(_, letters)| letters);
    let strange = |line: &str| {
        let found = line.chars().find(|c| !c.is_ascii() && !allowed.contains(*c));
        found.map(|c| format!("{c:?} (U+{:04X}) is not ASCII", u32::from(c)))
    };
    if is_rust(&file.0) { on_lines(file, strange) } else { vec![] }
}

/// The code of a line: what stands before a comment. (A `//` within a string ends it too early, never too late.)
fn code(line: &str) -> &str {
    line.split("//").next().unwrap()
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

fn unsafe_code(file: &File) -> Vec<String> {
    // The workspace denies `unsafe_code`; to lift that somewhere is to use it. Strings of this file do not count.
    if !is_rust(&file.0) || UNSAFE.contains(&file.0.as_str()) || file.0 == "tests/tidy.rs" {
        return vec![];
    }
    let found = |line: &str| {
        let used = has_word(code(line), "unsafe") || code(line).contains("allow(unsafe_code");
        used.then(|| "unsafe outside the files that may hold it".into())
    };
    on_lines(file, found)
}

/// Which of `wanted` is not among the paths.
fn absent(wanted: impl IntoIterator<Item = String>, there: impl Fn(&str) -> bool) -> Vec<String> {
    wanted.into_iter().filter(|path| !there(path)).map(|path| format!("{path} is missing")).collect()
}

fn wanted_of_stems() -> Vec<String> {
    let objects = STEMS.iter().flat_map(|stem| {
        [
            format!("docs/spec/{stem}.md"),
            format!("schemas/cddl/{stem}.cddl"),
            format!("schemas/src/{stem}.rs"),
            format!("fixtures/{stem}/README.md"),
        ]
    });
    let log = LOG_STEMS
        .iter()
        .flat_map(|stem| [format!("docs/spec/{stem}.md"), format!("fixtures/{stem}/README.md")]);
    objects.chain(log).collect()
}

/// Dependencies of the workspace, by the root manifest, that docs/DESIGN.md gives no sentence.
fn unexplained(manifest: &str, design: &str) -> Vec<String> {
    let (_, table) = manifest.split_once("[workspace.dependencies]\n").unwrap();
    let table = table.split("\n[").next().unwrap();
    let names =
        table.lines().filter_map(|line| line.split_once('=').filter(|(_, rest)| !rest.contains("path =")));
    let names = names.map(|(name, _)| name.trim()).filter(|name| !name.starts_with('#'));
    names
        .filter(|name| !design.contains(&format!("`{name}`")))
        .map(|name| format!("`{name}` has no sentence"))
        .collect()
}

/// The anchors of a page's headings, as web views of repositories make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = outside_fences(page)
        .filter_map(|line| line.strip_prefix('#'))
        .map(|line| line.trim_start_matches('#'));
    let anchor = |heading: &str| {
        let kept = heading.trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

fn outside_fences(page: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// The targets of `[text](target)` outside fenced blocks.
fn links(page: &str) -> Vec<&str> {
    outside_fences(page)
        .flat_map(|line| line.split("](").skip(1))
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
        .collect()
}

/// Pages that Rust comments and strings name: `docs/<path>.md`, with an anchor or without.
fn citations(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices("docs/") {
        let rest = &source[at..];
        let end =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && !"/.-_#".contains(c)).unwrap_or(rest.len());
        let target = rest[..end].trim_end_matches('.');
        if target.contains(".md") {
            found.push(target);
        }
    }
    found
}

/// `from`'s folder and `target` as one path, without `.` and `..`.
fn resolved(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Links and citations that lead nowhere.
fn dead_links(
    file: &File,
    pages: &BTreeMap<&str, BTreeSet<String>>,
    there: impl Fn(&str) -> bool,
) -> Vec<String> {
    let (path, text) = file;
    let inside = |target: &&str| !target.contains("://") && !target.starts_with("mailto:");
    let targets: Vec<(String, &str)> = if path.ends_with(".md") {
        links(text).into_iter().filter(inside).map(|target| (path.clone(), target)).collect()
    } else if is_rust(path) && path != "tests/tidy.rs" {
        citations(text).into_iter().map(|target| (String::new(), target)).collect()
    } else {
        vec![]
    };
    let mut wrong = Vec::new();
    for (from, target) in targets {
        let (page, anchor) = target.split_once('#').unwrap_or((target, ""));
        let page = if page.is_empty() { path.clone() } else { resolved(&from, page) };
        let known =
            anchor.is_empty() || pages.get(page.as_str()).is_some_and(|anchors| anchors.contains(anchor));
        if !there(&page) || !known {
            wrong.push(format!("{path}: {target} leads nowhere"));
        }
    }
    wrong
}

fn exists(path: &str) -> bool {
    top().join(path).exists()
}

#[test]
fn files_are_short() {
    assert_clean(too_long);
}

#[test]
fn lines_of_rust_are_short() {
    assert_clean(too_wide);
}

#[test]
fn nothing_is_left_over() {
    assert_clean(leftovers);
}

#[test]
fn the_bit_exact_crates_have_no_word_for_nearness() {
    assert_clean(nearness);
}

#[test]
fn rust_is_ascii() {
    assert_clean(beyond_ascii);
}

#[test]
fn unsafe_code_stands_only_where_it_may() {
    assert_clean(unsafe_code);
    assert!(UNSAFE.iter().all(|path| exists(path)), "the list names files that are there");
}

#[test]
fn every_stem_is_complete() {
    assert_eq!(absent(wanted_of_stems(), exists), Vec::<String>::new());
    // And the other way round: no page, grammar or folder of fixtures without a stem.
    let known = |name: &str, also: &[&str]| {
        STEMS.contains(&name) || LOG_STEMS.contains(&name) || also.contains(&name)
    };
    let names = |folder: &str| {
        let entries = std::fs::read_dir(top().join(folder)).unwrap();
        entries
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for (folder, also) in [
        ("docs/spec", &["snapshot", "link", "work", "variants", "README"][..]),
        ("schemas/cddl", &[][..]),
        ("fixtures", &["cbor", "step", "README"]),
    ] {
        let strange: Vec<String> = names(folder).into_iter().filter(|name| !known(name, also)).collect();
        assert_eq!(strange, Vec::<String>::new(), "{folder}");
    }
}

#[test]
fn every_dependency_has_a_sentence() {
    let read = |path: &str| std::fs::read_to_string(top().join(path)).unwrap();
    assert_eq!(unexplained(&read("Cargo.toml"), &read("docs/DESIGN.md")), Vec::<String>::new());
}

#[test]
fn links_and_citations_lead_somewhere() {
    let files = files();
    let pages = files.iter().filter(|(path, _)| path.ends_with(".md"));
    let pages: BTreeMap<&str, BTreeSet<String>> =
        pages.map(|(path, text)| (path.as_str(), anchors(text))).collect();
    let wrong: Vec<String> = files.iter().flat_map(|file| dead_links(file, &pages, exists)).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// Each rule, given a file that breaks it and one that does not.
#[test]
fn every_rule_can_fail() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let fails = |rule: fn(&File) -> Vec<String>, path: &str, bad: &str, good: &str| {
        assert_eq!(rule(&file(path, bad)).len(), 1, "{path}: {bad:.60}");
        assert!(rule(&file(path, good)).is_empty(), "{path}: {good:.60}");
    };
    fails(too_long, "a.rs", &"x\n".repeat(701), &"x\n".repeat(700));
    fails(too_wide, "a.rs", &"x".repeat(121), &"\u{e9}".repeat(120));
    for word in LEFTOVERS {
        fails(leftovers, "a.md", &format!("one\n{word}x)\n"), "todo list, ignored");
    }
    for folder in BIT_EXACT {
        let word = NEARNESS[0].to_uppercase();
        fails(nearness, &format!("{folder}a.rs"), &word, "bits");
        assert!(nearness(&file("ledger/a.rs", &word)).is_empty());
    }
    fails(beyond_ascii, "a.rs", "let caf\u{e9};", "let cafe;");
    fails(beyond_ascii, "tlog/src/note.rs", "\u{e9}", "\u{2014}");
    fails(unsafe_code, "a.rs", "let x = unsafe { y };", "// unsafe\nunsafe_words()");
    fails(unsafe_code, "a.rs", "#![allow(unsafe_code)]", "#![deny(unsafe_code)]");
    assert!(unsafe_code(&file(UNSAFE[0], "unsafe {}")).is_empty());

    assert_eq!(absent(["a".into(), "b".into()], |path| path == "a"), ["b is missing"]);
    let own = "own = { path = \"own\" }";
    let manifest =
        format!("[workspace.dependencies]\n{own}\n# why\nsha2 = \"1\"\nhex = \"1\"\n\n[other]\nx = 1");
    assert_eq!(unexplained(&manifest, "`hex` writes digits"), ["`sha2` has no sentence"]);

    let page = "# Top\n[a](b.md#two-words) [c](#top) [d](https://e) ![f](../g.png)\n```\n[not](a link)\n# none\n```\n";
    assert_eq!(links(page), ["b.md#two-words", "#top", "https://e", "../g.png"]);
    assert_eq!(anchors("# Two `words`\n## exp-v1\n"), BTreeSet::from(["two-words".into(), "exp-v1".into()]));
    let pages = BTreeMap::from([("x/a.md", anchors(page)), ("x/b.md", anchors("# Two words"))]);
    let there = |path: &str| ["x/a.md", "x/b.md", "g.png", "docs/y.md"].contains(&path);
    assert!(dead_links(&file("x/a.md", page), &pages, there).is_empty());
    for bad in ["[a](c.md)", "[a](b.md#three)", "[a](#nowhere)", "[a](../h.png)"] {
        assert_eq!(dead_links(&file("x/a.md", bad), &pages, there).len(), 1, "{bad}");
    }
    assert_eq!(
        citations("/// Source docs/y.md#z. And (docs/a/b.md), docs/c.txt"),
        ["docs/y.md#z", "docs/a/b.md"]
    );
    assert_eq!(
        dead_links(&file("a.rs", "// docs/y.md#z"), &pages, there),
        ["a.rs: docs/y.md#z leads nowhere"]
    );
    assert!(dead_links(&file("a.rs", "// docs/y.md"), &pages, there).is_empty());
}
