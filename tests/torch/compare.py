"""How far is our training from PyTorch's? Trains again with PyTorch, in float32 and in float64, and compares.

usage: python3 compare.py TITLE FOLDER
reads  FOLDER/run.toml, FOLDER/initial.safetensors, FOLDER/tokens.bin     as train.py
       FOLDER/ours.json             {"losses": [[of a leaf, ...] of a step, ...], "norms": [of a step, ...]}
       FOLDER/gradient.safetensors  our reduced gradient of step 0
writes FOLDER/figures.json, FOLDER/loss.svg

float64 stands for the truth; PyTorch's own float32 beside it says how large an honest error is. An error of a gradient
tensor is its largest difference as a fraction of the tensor's largest element; one of a loss or a norm is a fraction of
it.
"""

import json
import sys

import numpy as np
import tomllib
import torch

import curve
import tensors
import train


def worst(found, expected):
    """Name and error of the gradient tensor that is furthest off."""
    errors = {n: float(np.abs(found[n] - w).max() / np.abs(w).max()) for n, w in expected.items()}
    name = max(errors, key=errors.get)
    return {"tensor": name, "error": errors[name]}


def apart(found, expected):
    return float(np.max(np.abs(np.array(found) - np.array(expected)) / np.array(expected)))


def curves(run, folder, steps, dtype):
    lines = list(train.train(run, folder, steps, dtype))
    return [line["losses"] for line, _ in lines], [line["norm"] for line, _ in lines], lines[0][1]


def main(title, folder):
    torch.set_num_threads(1)  # small matrices: more threads only wait for each other
    run = tomllib.load(open(folder + "/run.toml", "rb"))
    ours = json.load(open(folder + "/ours.json"))
    gradient = tensors.read(folder + "/gradient.safetensors")
    steps = len(ours["losses"])
    losses, norms, truth = curves(run, folder, steps, torch.float64)
    losses32, norms32, gradient32 = curves(run, folder, steps, torch.float32)
    if sorted(gradient) != sorted(truth):
        raise SystemExit(f"gradients: expected {sorted(truth)}, found {sorted(gradient)}")
    figures = {
        "torch": torch.__version__,
        "steps": steps,
        "gradient": {"ours": worst(gradient, truth), "torch": worst(gradient32, truth)},
        "loss_first": {"ours": apart(ours["losses"][0], losses[0]), "torch": apart(losses32[0], losses[0])},
        "loss": {"ours": apart(ours["losses"], losses), "torch": apart(losses32, losses)},
        "norm": {"ours": apart(ours["norms"], norms), "torch": apart(norms32, norms)},
        "losses": [float(f"{np.mean(loss):.9g}") for loss in losses],
        "gradient_norms": {n: float(f"{np.linalg.norm(w):.9g}") for n, w in sorted(truth.items())},
    }
    json.dump(figures, open(folder + "/figures.json", "w"))
    mean = lambda table: [float(np.mean(row)) for row in table]
    open(folder + "/loss.svg", "w").write(curve.draw(title, mean(ours["losses"]), mean(losses32), mean(losses)))


main(*sys.argv[1:])
