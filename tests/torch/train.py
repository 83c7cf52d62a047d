"""Trains with PyTorch what a run.toml describes, from the job folder that `oracle predict` writes.

usage: python3 train.py RUN.toml JOB STEPS [float32|float64]
reads  RUN.toml                    settings of model, data and optimizer
       JOB/initial.safetensors     parameters before step 0
       JOB/tokens.bin              the token stream, uint32
prints one JSON object a step: {"step", "losses" of its leaves, "norm" of the gradient before clipping}

Nothing of the plan is read: the order of windows (order.py), the schedule and the groups of the optimizer are computed
here again. AdamW, SGD and clipping are PyTorch's own.
"""

import json
import math
import re
import sys

import numpy as np
import tomllib
import torch

import model
import order
import tensors


def rate(o, step, steps):
    """Linear warm-up to the highest rate, then down to a fraction of it, reached at `steps`."""
    if step < o["warmup_steps"]:
        return o["learning_rate"] * (step + 1) / o["warmup_steps"]
    done = (step - o["warmup_steps"]) / (steps - o["warmup_steps"])
    left = {"cosine": 0.5 * (1.0 + math.cos(math.pi * done)), "linear": 1.0 - done, "constant": 1.0}[o["schedule"]]
    last = 1.0 if o["schedule"] == "constant" else o["final_fraction"]
    return o["learning_rate"] * (last + (1.0 - last) * left)


def group_of(o, name, tensor):
    """Weight decay of a parameter and the factor of its rate. The first of the run's groups that matches its name has
    it; of the others matrices decay, gains and biases do not."""
    for group in o.get("groups", []):
        patterns = (re.escape(pattern).replace(r"\*", ".*") for pattern in group["match"])
        if any(re.fullmatch(pattern, name) for pattern in patterns):
            return group.get("weight_decay", o["weight_decay"]), group.get("learning_rate_factor", 1.0)
    return (o["weight_decay"] if tensor.dim() == 2 else 0.0), 1.0


def optimizer(o, parameters):
    groups = {}
    for name, tensor in parameters.items():
        groups.setdefault(group_of(o, name, tensor), []).append(tensor)
    groups = [{"params": tensors, "weight_decay": d, "factor": f} for (d, f), tensors in groups.items()]
    if o["kind"] == "adamw":
        return torch.optim.AdamW(groups, lr=0.0, betas=(o["beta1"], o["beta2"]), eps=o["epsilon"])
    if o["kind"] == "sgd":
        return torch.optim.SGD(groups, lr=0.0, momentum=o["momentum"], nesterov=o.get("nesterov", False))
    raise SystemExit(f"optimizer.kind: expected adamw or sgd, found {o['kind']}")


def train(run, job, steps, dtype):
    """Yields each step's losses, norm and, for step 0, the gradient by name."""
    data, o = run["data"], run["optimizer"]
    leaves, T = run["leaves"], data["length"]
    stream = torch.from_numpy(np.fromfile(job + "/tokens.bin", "<u4").astype(np.int64))
    windows = (len(stream) - 1) // T
    p = {
        name: torch.tensor(words).to(dtype).requires_grad_()
        for name, words in tensors.read(job + "/initial.safetensors").items()
    }
    update = optimizer(o, p)
    for step in range(steps):
        update.zero_grad()
        losses = []
        for leaf in range(leaves):
            first = torch.tensor(order.leaf_windows(step, leaf, leaves, data["sequences"], windows, data["seed"])) * T
            at = first[:, None] + torch.arange(T)
            loss = model.loss(run["model"], p, stream[at], stream[at + 1])
            (loss / leaves).backward()
            losses.append(loss.item())
        gradient = {name: w.grad.double().numpy().copy() for name, w in p.items()} if step == 0 else None
        norm = torch.nn.utils.clip_grad_norm_(p.values(), o.get("clip", math.inf)).item()
        for group in update.param_groups:
            group["lr"] = rate(o, step, run["steps"]) * group["factor"]
        update.step()
        yield {"step": step, "losses": losses, "norm": norm}, gradient


def main(path, job, steps, dtype="float32"):
    run = tomllib.load(open(path, "rb"))
    for line, _ in train(run, job, int(steps), getattr(torch, dtype)):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    main(*sys.argv[1:])
