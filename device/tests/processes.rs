//! One process for each device: the receipts of one process for all, however often one of them is killed.

mod tiny;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tiny::{Tiny, files};

const STEPS: u64 = 24;

fn job() -> Tiny {
    job_of(STEPS)
}

fn job_of(steps: u64) -> Tiny {
    let tiny = Tiny::of_steps(steps);
    std::fs::write(tiny.path("challenge.note"), tiny::CHECKPOINT).unwrap();
    tiny
}

/// Addresses of devices that nobody else uses: a process of its own for each test.
fn peers(devices: u64) -> String {
    let id = std::process::id();
    let host = format!("127.{}.{}.{}", 1 + (id >> 16) % 250, (id >> 8) % 256, 1 + id % 250);
    (0..devices).map(|rank| format!("{host}:{}", 7200 + rank)).collect::<Vec<_>>().join(",")
}

/// The command of device `rank`, or of all devices.
fn command(tiny: &Tiny, out: &str, devices: u64, rank: Option<u64>, more: &[&str]) -> Command {
    let words = "run --job job --challenge challenge.note --keys keys --traces";
    let mut command = Command::new(env!("CARGO_BIN_EXE_device"));
    command.current_dir(tiny.folder.path()).args(words.split(' '));
    command.args(["--devices", &devices.to_string(), "--out", out]).args(more);
    for (flag, usual) in [("--snapshot-every", "2"), ("--backend", "simulated")] {
        if !more.contains(&flag) {
            command.args([flag, usual]);
        }
    }
    if let Some(rank) = rank {
        command.args(["--rank", &rank.to_string(), "--peers", &peers(devices), "--peer-timeout", "120"]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Receipts and traces: everything that anybody else will judge.
fn judged(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let judged = |name: &String| name.starts_with("receipt-") || name.starts_with("traces/");
    let names = files(folder).into_iter().filter(judged);
    names.map(|name| (name.clone(), std::fs::read(folder.join(name)).unwrap())).collect()
}

fn all_in_one(tiny: &Tiny, devices: u64, more: &[&str]) -> PathBuf {
    let output = command(tiny, "whole", devices, None, more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    tiny.path("whole")
}

/// Starts the devices that have work left.
fn start(tiny: &Tiny, devices: u64, more: &[&str]) -> Vec<(u64, Child)> {
    let out = tiny.path("out");
    let left = |rank: &u64| {
        !out.join(format!("receipt-{rank}.cose")).exists() || out.join(format!("work/rank-{rank}")).exists()
    };
    let ranks: Vec<u64> = (0..devices).filter(left).collect();
    ranks
        .iter()
        .map(|&rank| (rank, command(tiny, "out", devices, Some(rank), more).spawn().unwrap()))
        .collect()
}

fn end(children: Vec<(u64, Child)>) -> Vec<(u64, Output)> {
    children.into_iter().map(|(rank, child)| (rank, child.wait_with_output().unwrap())).collect()
}

fn expect_done(children: Vec<(u64, Child)>) {
    for (rank, output) in end(children) {
        assert!(output.status.success(), "device {rank}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn processes_give_the_receipts_of_one_process() {
    for (devices, more) in [
        (2, &[][..]),
        (4, &["--steps", "3..20"]),
        (2, &["--fault", "corrupted-link:device=0,step=3,element=100,bit=22"]),
        (2, &["--keep-traces", "3"]),
    ] {
        let tiny = job();
        let keep = more.contains(&"--keep-traces");
        let whole = all_in_one_of(&tiny, devices, more, keep);
        let children = (0..devices).map(|rank| {
            let mut command = command(&tiny, "out", devices, Some(rank), more);
            if keep {
                command = without_traces(command, &tiny);
            }
            (rank, command.spawn().unwrap())
        });
        expect_done(children.collect());
        assert_eq!(judged(&tiny.path("out")), judged(&whole), "{devices} devices, {more:?}");
        let left = files(&tiny.path("out"));
        assert!(left.iter().all(|name| !name.contains("work")), "{left:?}");
        for name in ["log.jsonl", "log-1.jsonl", "loss.svg", "loss-1.svg"] {
            assert!(left.contains(&name.to_owned()), "{name} in {left:?}");
        }
        let losses = |path: PathBuf| {
            let text = std::fs::read_to_string(path).unwrap();
            let loss =
                |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["loss"].to_string();
            text.lines().map(loss).collect::<Vec<_>>()
        };
        assert_eq!(losses(tiny.path("out/log-1.jsonl")), losses(whole.join("log.jsonl")));
    }
}

/// The same command with `--keep-traces` alone.
fn without_traces(command: Command, tiny: &Tiny) -> Command {
    let mut other = Command::new(command.get_program());
    other.current_dir(tiny.folder.path()).args(command.get_args().filter(|word| *word != "--traces"));
    other.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    other
}

fn all_in_one_of(tiny: &Tiny, devices: u64, more: &[&str], keep: bool) -> PathBuf {
    if !keep {
        return all_in_one(tiny, devices, more);
    }
    let output = without_traces(command(tiny, "whole", devices, None, more), tiny).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    tiny.path("whole")
}

/// Bytes of the records that a device has so far.
fn records(tiny: &Tiny, rank: u64) -> u64 {
    std::fs::metadata(tiny.path(&format!("out/work/rank-{rank}/records"))).map_or(0, |file| file.len())
}

/// Waits until a device has more than so many bytes of records, or has ended.
fn wait_for_records(tiny: &Tiny, rank: u64, bytes: u64, child: &mut Child) {
    while child.try_wait().unwrap().is_none() && records(tiny, rank) <= bytes {
        std::thread::yield_now();
    }
}

#[test]
fn a_device_that_is_killed_is_named_and_all_go_on_to_the_same_bits() {
    let tiny = job();
    let whole = all_in_one(&tiny, 2, &[]);
    let mut lost = 0;
    // A device that has more records than before has met the other. The record of a step has some 700 bytes here.
    for (round, more) in [0, 0, 700, 0, 2000, 0, 700, 3000, 0].into_iter().enumerate() {
        let victim = round % 2;
        let before = records(&tiny, victim as u64);
        let mut children = start(&tiny, 2, &[]);
        if children.len() < 2 {
            break;
        }
        wait_for_records(&tiny, victim as u64, before + more, &mut children[victim].1);
        children[victim].1.kill().unwrap();
        for (rank, output) in end(children) {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if rank != victim as u64 && !output.status.success() {
                assert_eq!(output.status.code(), Some(2), "{said}");
                assert!(said.contains(&format!("device {victim} was lost ")), "{said}");
                assert!(said.contains("device: hint: what is finished is kept"), "{said}");
                lost += 1;
            }
        }
    }
    assert!(lost >= 4, "a kill is noticed: {lost} times");
    expect_done(start(&tiny, 2, &[]));
    assert_eq!(judged(&tiny.path("out")), judged(&whole));
}

#[test]
fn one_process_for_all_devices_goes_on_after_a_kill() {
    let tiny = job();
    let whole = all_in_one(&tiny, 2, &[]);
    for bytes in [0, 3000, 6000, 9000, 12_000] {
        let mut child = command(&tiny, "out", 2, None, &[]).spawn().unwrap();
        wait_for_records(&tiny, 1, bytes, &mut child);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    if !tiny.path("out/receipt-1.cose").exists() || tiny.path("out/work").exists() {
        expect_done(vec![(0, command(&tiny, "out", 2, None, &[]).spawn().unwrap())]);
    }
    assert_eq!(judged(&tiny.path("out")), judged(&whole));
}

/// Tells one of two processes to stop, in the middle of a run.
fn stopped_and_kept(backend: &str, signal: &str) {
    let tiny = job_of(2000);
    let mut children = start(&tiny, 2, &["--snapshot-every", "0", "--backend", backend]);
    wait_for_records(&tiny, 0, 5000, &mut children[0].1);
    let told = Command::new("kill").args([signal, &children[1].1.id().to_string()]).status().unwrap();
    assert!(told.success());
    let ended = end(children);
    let said: Vec<_> = ended.iter().map(|(_, output)| String::from_utf8_lossy(&output.stderr)).collect();
    assert!(ended.iter().all(|(_, output)| output.status.code() == Some(2)), "{said:?}");
    let (_, step) = said[1].lines().next().unwrap().rsplit_once(' ').unwrap();
    let expected = format!("device: error: device 1 was told to stop before step {step}\n");
    assert!(said[1].starts_with(&expected) && said[1].contains("the same command goes on"), "{}", said[1]);
    let expected = format!("device 1 was lost in step {step}: it was told to stop before it");
    assert!(said[0].contains(&expected), "{}", said[0]);
    for rank in 0..2 {
        let step: u64 = step.parse().unwrap();
        assert!(tiny.path(&format!("out/work/rank-{rank}/snapshots/step-{step:06}.digest")).exists());
    }
}

#[test]
fn a_process_that_is_told_to_stop_finishes_its_step_and_says_how_to_go_on() {
    stopped_and_kept("simulated", "-TERM");
}

#[test]
fn a_terminal_that_goes_away_stops_a_run_in_order_unless_it_was_started_to_outlive_it() {
    stopped_and_kept("simulated", "-HUP");
    let tiny = job_of(60);
    let mut nohup = Command::new("nohup");
    let run = command(&tiny, "out", 1, None, &[]);
    nohup.arg(run.get_program()).args(run.get_args()).current_dir(tiny.folder.path());
    nohup.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = nohup.stderr(Stdio::piped()).spawn().unwrap();
    wait_for_records(&tiny, 0, 1000, &mut child);
    assert!(Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap().success());
    expect_done(vec![(0, child)]);
}

#[test]
fn a_compiler_of_kernels_in_the_process_takes_no_signal_away() {
    stopped_and_kept("opencl", "-TERM");
}

#[test]
fn a_device_that_has_finished_hands_in_without_the_others_if_they_have_or_it_is_told_to() {
    let tiny = job();
    let whole = all_in_one(&tiny, 2, &[]);
    for told in [false, true] {
        // Device 0 cannot put its receipt in its place and is left with its work.
        std::fs::create_dir_all(tiny.path("out/receipt-0.cose/in-the-way")).unwrap();
        std::fs::create_dir_all(tiny.path("out/work/rank-0")).unwrap();
        let children = (0..2).map(|rank| (rank, command(&tiny, "out", 2, Some(rank), &[]).spawn().unwrap()));
        let codes = end(children.collect()).into_iter().map(|(_, output)| output.status.code());
        assert_eq!(codes.collect::<Vec<_>>(), [Some(2), Some(0)]);
        std::fs::remove_dir_all(tiny.path("out/receipt-0.cose")).unwrap();
        let mut more = vec![];
        if told {
            // As on another machine, where device 0 does not see that device 1 has handed in.
            std::fs::rename(tiny.path("out/receipt-1.cose"), tiny.path("elsewhere")).unwrap();
            more.push("--hand-in");
        }
        expect_done(vec![(0, command(&tiny, "out", 2, Some(0), &more).spawn().unwrap())]);
        if told {
            std::fs::rename(tiny.path("elsewhere"), tiny.path("out/receipt-1.cose")).unwrap();
        }
        assert_eq!(judged(&tiny.path("out")), judged(&whole));
        std::fs::remove_dir_all(tiny.path("out")).unwrap();
    }
}

#[test]
fn flags_of_processes_go_together() {
    let tiny = job();
    let refuse = |more: &[&str], message: &str| {
        let output = command(&tiny, "out", 2, None, more).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(message), "{said}");
        assert!(!tiny.path("out").exists());
    };
    refuse(&["--rank", "0"], "--peers");
    refuse(&["--peers", "127.0.0.1:1,127.0.0.1:2"], "--rank");
    refuse(&["--listen", "127.0.0.1:1"], "--rank");
    refuse(
        &["--rank", "0", "--peers", "127.0.0.1:1"],
        "expected an address for each of the 2 devices in --peers, found 1",
    );
    refuse(
        &["--rank", "2", "--peers", "127.0.0.1:1,127.0.0.1:2"],
        "expected a --rank below the number of devices, 2",
    );
    refuse(&["--rank", "0", "--peers", "127.0.0.1:1,127.0.0.1:2", "--peer-timeout", "0"], "--peer-timeout");
    refuse(&["--keep-traces", "2"], "--traces");
}
