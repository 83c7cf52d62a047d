//! PyTorch's step of the same work, in a child process that takes a step whenever it is asked to.

use super::workload::Shape;
use anyhow::{Context, bail};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The program the child runs.
const PROGRAM: &str = include_str!("torch_step.py");

/// A child that holds a model and waits.
pub struct Torch {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// What torch calls itself.
    pub version: String,
}

/// A Python that can import torch: the one named, or the first of the usual ones that can.
pub fn find_python(named: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let imports = |python: &Path| {
        let mut probe = Command::new(python);
        probe.args(["-c", "import torch"]).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    };
    if let Some(python) = named {
        anyhow::ensure!(
            imports(python),
            "--python: {} cannot import torch; install it there, or leave --python out to go on without PyTorch",
            python.display()
        );
        return Ok(Some(python.to_owned()));
    }
    Ok(["python3", "/usr/bin/python3"].map(PathBuf::from).into_iter().find(|python| imports(python)))
}

impl Torch {
    /// Starts the child and waits until its first step, which is not counted, is done.
    pub fn start(python: &Path, shape: &Shape, threads: usize) -> anyhow::Result<Torch> {
        let numbers = [
            threads as u64,
            shape.layers,
            shape.channels,
            shape.heads,
            shape.vocabulary,
            shape.positions,
            shape.sequences,
            shape.length,
        ];
        let mut child = Command::new(python)
            .args(["-c", PROGRAM])
            .args(numbers.map(|number| number.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start {}", python.display()))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("torch: the child has no output")?);
        let mut torch = Torch { child, input, output, version: String::new() };
        let first = torch.line()?;
        torch.version = first["version"].as_str().context("torch: expected a version first")?.to_owned();
        Ok(torch)
    }

    /// One step: seconds of forward, backward and update together.
    pub fn step(&mut self) -> anyhow::Result<f64> {
        let input = self.input.as_mut().context("torch: the child has no input")?;
        writeln!(input, "step").and_then(|()| input.flush()).context("torch: the child ended early")?;
        let line = self.line()?;
        line["step"].as_f64().with_context(|| format!("torch: expected the seconds of a step, found {line}"))
    }

    fn line(&mut self) -> anyhow::Result<serde_json::Value> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("torch: could not read what the child says")?;
        if line.is_empty() {
            bail!("torch: the child ended without an answer; what it said stands above");
        }
        serde_json::from_str(&line).with_context(|| format!("torch: expected JSON, found {line:?}"))
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        // The child ends when its input does; one that hangs is not waited for.
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
