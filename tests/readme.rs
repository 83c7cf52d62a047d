//! The commands of the README, as they stand there.

use std::process::Command;
use tests::workshop::{Workshop, workspace};

/// "Every one explains itself with `--help` and an example."
#[test]
fn every_command_of_the_four_programs_has_help_with_an_example() {
    let shop = Workshop::open();
    let mut asked: Vec<(&str, String)> =
        ["client", "device", "ledger", "oracle"].map(|name| (name, String::new())).into();
    let mut seen = 0;
    while let Some((program, command)) = asked.pop() {
        let help = shop.run(program, &format!("{command} --help")).expect_code(0).stdout;
        assert!(
            help.contains(&format!("\n  {program}{command} ")),
            "{program}{command} has no example: {help}"
        );
        assert!(
            help.contains("\nExample:\n") || help.contains("\nExamples:\n"),
            "{program}{command}: {help}"
        );
        seen += 1;
        let Some((_, list)) = help.split_once("\nCommands:\n") else { continue };
        let lines = list.lines().take_while(|line| !line.is_empty());
        let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        asked.extend(names.map(|name| (program, format!("{command} {name}"))));
    }
    assert!(seen >= 4 + 12 + 5 + 5 + 6 + 2, "found {seen} commands");
}

#[test]
fn the_commands_of_the_readme_end_in_a_verified_bundle() {
    let shop = Workshop::open();
    let log = shop.ledger();
    std::fs::copy(workspace().join("docs/VERIFY.md"), shop.path("corpus.txt")).unwrap();
    let readme = std::fs::read_to_string(workspace().join("README.md")).unwrap();
    let (_, section) = readme.split_once("## By hand").expect("the README has the section");
    let (section, _) = section.split_once("\n## ").expect("another section follows");
    let blocks = section.split("```console\n").skip(1);
    let blocks: Vec<&str> = blocks.map(|rest| rest.split_once("```").expect("the commands end").0).collect();
    assert_eq!(blocks.len(), 2, "the path, and what else the predictor may do");
    // The template names corpus.txt; the log is the test's own, on a port of its own.
    let commands: Vec<String> = blocks
        .concat()
        .replace("\\\n", " ")
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .filter(|command| !command.starts_with("ledger serve"))
        .map(|command| command.replace("http://127.0.0.1:7180", &log.url))
        .collect();
    assert!(commands.len() >= 13, "{commands:?}");
    let script = format!("set -e\n{}\n", commands.join("\n"));
    let path = format!("{}:{}", shop.binaries().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(shop.path(""))
        .env("PATH", path)
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
    for text in [
        "\nverified: steps 0..3 of run ",
        " was open already, by entry ",
        "\nverified: this is step 1 of run ",
    ] {
        assert!(stdout.contains(text), "{text} in {stdout}");
    }
}
