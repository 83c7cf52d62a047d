//! What is printed on stdout: for people, and as JSON for machines.

use crate::backend::{Backend, Candidate};
use crate::estimate::{Disk, Estimate};
use crate::fault::{FORMS, Form};
use crate::job::Job;
use crate::measure::Pace;
use crate::progress::{Loss, Seen, time_text};
use crate::run::{Invalid, Request, Summary};
use schemas::checksum::Dtype;
use schemas::counted::counted;
use schemas::plan::Plan;
use schemas::receipt::DeviceFacts;
use schemas::record::NonFinite;
use schemas::run::Steps;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A finished run, for people.
pub fn summary_text(
    job: &Job,
    request: &Request,
    backend: &dyn Backend,
    summary: &Summary,
    seen: &Seen,
) -> String {
    let mut lines = vec![
        format!("run {} ({:?}, signed by {})", job.run_id, job.run.name, job.signer),
        format!("steps {} on {}, {}", request.steps, counted(request.devices, "device"), backend.name()),
    ];
    lines.extend(summary.resumed.map(|step| format!("went on from step {step}")));
    if let (Some(first), Some(last)) = (seen.first, seen.last) {
        lines.push(format!(
            "loss {:.4} at step {}, {:.4} at step {}",
            first.mean, first.step, last.mean, last.step
        ));
    }
    lines.push(format!(
        "{} in {:.1} s, {:.0} tokens/s",
        counted(seen.tokens, "token"),
        seen.spent.as_secs_f64(),
        seen.tokens_per_s()
    ));
    lines.extend(summary.invalid.map(|invalid| format!("ended: {}", invalid_text(&job.plan, invalid))));
    for fault in &request.faults {
        lines.push(format!("rehearsed fault: {fault}"));
    }
    for device in &summary.devices {
        let (rank, key) = (device.rank, device.key);
        lines.push(match device.entry {
            Some(_) => {
                let file = request.out.join(format!("receipt-{rank}.cose"));
                let records = counted(device.records as u64, "record");
                format!("device {rank} {key}: {records}, {}", file.display())
            }
            None => format!("device {rank} {key}: no receipt"),
        });
    }
    lines.join("\n") + "\n"
}

/// A finished run, for machines.
pub fn summary_json(
    job: &Job,
    request: &Request,
    backend: &dyn Backend,
    summary: &Summary,
    seen: &Seen,
) -> Value {
    let devices: Vec<Value> = summary
        .devices
        .iter()
        .map(|device| {
            let file = request.out.join(format!("receipt-{}.cose", device.rank)).display().to_string();
            json!({
                "rank": device.rank,
                "key": device.key.to_string(),
                "records": device.records,
                "receipt": device.entry.map(|entry| json!({"file": file, "entry": entry.to_string()})),
            })
        })
        .collect();
    let loss = |loss: Option<Loss>| loss.map(|loss| json!({"step": loss.step, "mean": loss.mean}));
    json!({
        "run": job.run_id.to_string(),
        "name": job.run.name,
        "signer": job.signer.to_string(),
        "steps": [request.steps.first, request.steps.end],
        "backend": backend.name(),
        "simulated": backend.simulated(),
        "resumed": summary.resumed,
        "loss_first": loss(seen.first),
        "loss_last": loss(seen.last),
        "tokens": seen.tokens,
        "seconds": seen.spent.as_secs_f64(),
        "tokens_per_s": seen.tokens_per_s(),
        "invalid": summary.invalid.map(|invalid| json!({
            "step": invalid.step,
            "rank": invalid.rank,
            "where": invalid_text(&job.plan, invalid),
        })),
        "faults": request.faults,
        "devices": devices,
    })
}

/// Where a run stopped being finite.
fn invalid_text(plan: &Plan, invalid: Invalid) -> String {
    let Invalid { step, rank, at } = invalid;
    match at {
        NonFinite::Tap { leaf, tap } => {
            let place = plan.taps().nth(tap as usize).map(|tap| {
                let operation = &plan.operations[tap.operation].name;
                format!("{operation} ({})", plan.operand_name(tap.operand))
            });
            let place = place.unwrap_or_else(|| format!("tap {tap}"));
            format!("step {step} met a NaN or an infinity in leaf {leaf}, operation {place}")
        }
        NonFinite::Update { stage } => {
            let place = match stage {
                0 => "the reduced gradient",
                1 => "the norm",
                _ => "the new parameters or moments",
            };
            format!("step {step} met a NaN or an infinity in {place} of device {rank}")
        }
    }
}

/// What a run would need, for people.
pub fn estimate_text(
    job: &Job,
    devices: u64,
    steps: Steps,
    estimate: &Estimate,
    disk: &Disk,
    plan: &TimePlan,
) -> String {
    let e = estimate;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<22}{value}").expect("report: a string takes every write");
    };
    line("run", format!("{} ({:?}, signed by {})", job.run_id, job.run.name, job.signer));
    line("job", "whole: every digest is the run statement's".into());
    line("steps", format!("{steps} of {}", job.run.steps));
    line("devices", format!("{devices}, {} each", counted(e.leaves_per_device, "leaf")));
    line("parameters", e.parameters.to_string());
    line("memory, each device", bytes_text(e.state_bytes + e.gradient_bytes + e.leaf_bytes));
    line("  state", bytes_text(e.state_bytes));
    line("  gradients", bytes_text(e.gradient_bytes));
    line("  one leaf, at most", bytes_text(e.leaf_bytes));
    line("memory, shared", bytes_text(e.shared_bytes));
    line("memory, all", bytes_text(e.total_bytes));
    let work = format!("{} tokens, {} multiply-accumulates", e.step_tokens, grouped(e.step_fma));
    line("work, each step", work);
    line("work, all steps", format!("{} multiply-accumulates", grouped(e.run_fma)));
    line("links, each step", bytes_text(e.step_link_bytes));
    line("traces, if all kept", format!("{}, {}", counted(e.trace_files, "file"), bytes_text(e.trace_bytes)));
    line("disk, all devices", bytes_text(disk.total_bytes()));
    line("  snapshots", bytes_text(disk.snapshot_bytes));
    line("  traces", bytes_text(disk.trace_bytes));
    line("  records, at most", bytes_text(disk.record_bytes));
    line("time, estimated", plan.text(steps, e.leaves_per_device));
    text
}

/// What the time of a run is estimated from.
pub struct TimePlan {
    /// Name of the backend that was measured.
    pub backend: String,
    /// What was measured.
    pub pace: Pace,
    /// How many devices one process runs.
    pub devices: u64,
}

impl TimePlan {
    fn text(&self, steps: Steps, leaves: u64) -> String {
        let time = self.pace.time_s(steps.end, self.devices, leaves);
        match (&self.pace, time) {
            (Pace::Measured { leaf_s, .. }, Some((time, _))) => format!(
                "{} (one leaf on {}: {leaf_s:.3} s; {} in this process)",
                time_text(time),
                self.backend,
                counted(self.devices, "device"),
            ),
            (Pace::Longer { leaf_s }, Some((time, _))) => {
                format!("more than {} (one leaf on {}: over {leaf_s:.0} s)", time_text(time), self.backend)
            }
            (Pace::Unknown(why), _) => format!("unknown: {why}"),
            (_, None) => "unknown".to_owned(),
        }
    }

    fn json(&self, steps: Steps, leaves: u64) -> Value {
        let time = self.pace.time_s(steps.end, self.devices, leaves);
        time.map_or(
            Value::Null,
            |(time, is_all)| json!({"seconds": time, "at_least": !is_all, "backend": self.backend}),
        )
    }
}

/// What a run would need, for machines.
pub fn estimate_json(
    job: &Job,
    devices: u64,
    steps: Steps,
    estimate: &Estimate,
    disk: &Disk,
    plan: &TimePlan,
) -> Value {
    let e = estimate;
    json!({
        "run": job.run_id.to_string(),
        "name": job.run.name,
        "signer": job.signer.to_string(),
        "steps": [steps.first, steps.end],
        "devices": devices,
        "leaves_per_device": e.leaves_per_device,
        "parameters": e.parameters,
        "taps": e.taps,
        "state_bytes": e.state_bytes,
        "gradient_bytes": e.gradient_bytes,
        "leaf_bytes": e.leaf_bytes,
        "shared_bytes": e.shared_bytes,
        "total_bytes": e.total_bytes,
        "step_tokens": e.step_tokens,
        "step_fma": e.step_fma as f64,
        "run_fma": e.run_fma as f64,
        "step_link_bytes": e.step_link_bytes,
        "trace_files": e.trace_files,
        "trace_bytes": e.trace_bytes,
        "disk_bytes": disk.total_bytes(),
        "disk_snapshot_bytes": disk.snapshot_bytes,
        "disk_trace_bytes": disk.trace_bytes,
        "disk_record_bytes": disk.record_bytes,
        "time_estimated": plan.json(steps, e.leaves_per_device),
    })
}

/// A count of bytes, in the units that `oracle plan` prints: powers of ten.
fn bytes_text(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.0} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// A count with a comma after every three digits, as `oracle plan` prints it.
fn grouped(count: u128) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The backends and their devices, for people.
pub fn backends_text(backends: &[Box<dyn Backend>]) -> String {
    let mut text = String::new();
    for backend in backends {
        writeln!(text, "{}: {}", backend.name(), backend.description())
            .expect("report: a string takes every write");
        for Candidate { facts, refused } in backend.devices() {
            let device = facts.map(|facts| {
                let DeviceFacts { name, architecture, driver, units, .. } = facts;
                format!("{name} ({architecture}, {units} units; {driver})")
            });
            let exact = match &refused {
                Some(why) => format!("cannot run the profile exactly: {why}"),
                None => "runs the profile exactly".into(),
            };
            // Without a device there is only the reason.
            let line =
                device.map_or_else(|| refused.unwrap_or_default(), |device| format!("{device}: {exact}"));
            writeln!(text, "  {line}").expect("report: a string takes every write");
        }
    }
    text
}

/// The backends and their devices, for machines.
pub fn backends_json(backends: &[Box<dyn Backend>]) -> Value {
    let facts = |facts: DeviceFacts| {
        json!({
            "name": facts.name,
            "architecture": facts.architecture,
            "driver": facts.driver,
            "units": facts.units,
            "kernels": facts.kernels,
        })
    };
    let device = |Candidate { facts: found, refused }: Candidate| {
        let exact = found.is_some() && refused.is_none();
        json!({"facts": found.map(facts), "exact": exact, "refused": refused})
    };
    let one = |backend: &dyn Backend| {
        json!({
            "name": backend.name(),
            "description": backend.description(),
            "simulated": backend.simulated(),
            "devices": backend.devices().into_iter().map(device).collect::<Vec<_>>(),
        })
    };
    backends.iter().map(|backend| one(&**backend)).collect()
}

/// The faults, and the taps of a plan if there is one, for people.
pub fn faults_text(plan: Option<&Plan>) -> String {
    let mut text = String::new();
    for form in &FORMS {
        let keys = form.required.iter().map(|key| format!("{key}=..."));
        let optional = form.optional.iter().map(|key| format!("[{key}=0]"));
        let keys = keys.chain(optional).collect::<Vec<_>>().join(",");
        let Form { name, what, verdict, example, .. } = form;
        write!(text, "{name}:{keys}\n  {what}\n  verdict: {verdict}\n  --fault {example}\n\n")
            .expect("report: a string takes every write");
    }
    if let Some(plan) = plan {
        text.push_str("operations:\n");
        for tap in taps(plan) {
            writeln!(
                text,
                "  operation={},output={}  {} {:?}",
                tap.operation, tap.output, tap.tensor, tap.shape
            )
            .expect("report: a string takes every write");
        }
    }
    text
}

/// The faults, and the taps of a plan if there is one, for machines.
pub fn faults_json(plan: Option<&Plan>) -> Value {
    let form = |form: &Form| {
        json!({
            "name": form.name,
            "required": form.required,
            "optional": form.optional,
            "what": form.what,
            "verdict": form.verdict,
            "example": form.example,
        })
    };
    let tap = |tap: TapName| {
        let TapName { operation, output, tensor, shape } = tap;
        json!({"operation": operation, "output": output, "tensor": tensor, "shape": shape})
    };
    json!({
        "faults": FORMS.iter().map(form).collect::<Vec<_>>(),
        "taps": plan.map(|plan| taps(plan).into_iter().map(tap).collect::<Vec<_>>()),
    })
}

/// A tap that a fault can change.
struct TapName {
    operation: String,
    output: usize,
    tensor: String,
    shape: Vec<u64>,
}

fn taps(plan: &Plan) -> Vec<TapName> {
    let outputs = plan.operations.iter().flat_map(|operation| {
        operation.outputs.iter().enumerate().map(move |(output, &operand)| (operation, output, operand))
    });
    outputs
        .filter(|(_, _, operand)| plan.dtype(*operand) == Dtype::F32)
        .map(|(operation, output, operand)| TapName {
            operation: operation.name.clone(),
            output,
            tensor: plan.operand_name(operand),
            shape: plan.shape(operand).to_vec(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_read_as_those_of_the_oracle() {
        let sizes = [0, 9_999, 10_000, 9_999_499, 10_000_000, 9_999_000_000, 10_000_000_000];
        let texts = ["0 bytes", "9999 bytes", "10 kB", "9999 kB", "10 MB", "9999 MB", "10.0 GB"];
        assert_eq!(sizes.map(bytes_text), texts);
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
