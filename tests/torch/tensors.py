"""Tensor files: the safetensors format (eight bytes of length, a JSON header, the data) read with numpy."""

import json

import numpy as np


def read(path):
    """Tensors by name, as float32. The optimizer's moments in a snapshot are left out: they start at zero."""
    raw = open(path, "rb").read()
    length = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    out = {}
    for name, entry in header.items():
        if name == "__metadata__" or name.startswith(("adamw.", "sgd.")):
            continue
        if entry["dtype"] != "F32":
            raise SystemExit(f"{path}: {name} is {entry['dtype']}, expected F32")
        begin, end = entry["data_offsets"]
        out[name] = np.frombuffer(data[begin:end], "<f4").reshape(entry["shape"])
    return out
