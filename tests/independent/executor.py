"""An executor of plans written from docs/spec alone, bit for bit, in numpy float32. It shares no code with the rest of the
repository: if its records are the oracle's, the pages say enough.

usage: python3 executor.py examples FILE       computes the worked examples of fixtures/step/operations.json
       python3 executor.py steps CASE_DIR STEPS
reads  CASE_DIR/config.cbor, CASE_DIR/plan.cbor, CASE_DIR/tokens.u32 (little-endian words)
writes CASE_DIR/executor.json  {"first_state", "last_state", "steps": [{"record": hex, "folds": [hex, one a leaf]}]}
"""

import json
import struct
import sys
from types import SimpleNamespace

import numpy as np
from operations import KINDS, ascending, bits, f32, fma, warp32_dot
from sums import NAN, Folds, checksum, decode, digest, encode, words_of

LETTERS = ("B", "T", "C", "V", "L", "NH", "positions", "I", "KVH", "HS")


class Plan:
    """A decoded plan and what follows from it."""

    def __init__(self, encoded):
        self.digest = digest("plan", encoded)
        self.__dict__.update(decode(encoded))
        self.__dict__.update(zip(LETTERS, self.dimensions))
        self.folds = Folds(self.digest)
        self.flat = slices([parameter["shape"] for parameter in self.parameters])
        self.words = self.flat[-1].stop

    def by_tensor(self, flat):
        return [flat[at].reshape(p["shape"]) for at, p in zip(self.flat, self.parameters)]


def table_of(table):
    return np.frombuffer(table["words"], "<f4").reshape(table["shape"])


def slices(shapes):
    ends = np.cumsum([0] + [int(np.prod(shape)) for shape in shapes])
    return [slice(a, b) for a, b in zip(ends[:-1], ends[1:])]


def philox(counter, key):
    """Philox4x32-10 over arrays of counters."""
    c, k = [np.asarray(word, np.uint64) for word in counter], list(key)
    mask, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [p1 >> high ^ c[1] ^ np.uint64(k[0]), p1 & mask, p0 >> high ^ c[3] ^ np.uint64(k[1]), p0 & mask]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def words_of_seed(seed):
    return seed % 2**32, seed // 2**32


def initial_parameters(plan, config):
    """profile.md, init."""
    stddev = struct.unpack("<d", struct.pack("<Q", config["model"]["initializer_range"]))[0]
    flat = np.zeros(plan.words, f32)
    for j, (parameter, at) in enumerate(zip(plan.parameters, plan.flat)):
        name = parameter["name"]
        if len(parameter["shape"]) == 2:
            narrow = name.endswith(".c_proj.weight")
            spread = stddev / np.sqrt(2.0 * plan.L) if narrow else stddev
            i = np.arange(at.stop - at.start)
            words = philox((i % 2**32, i // 2**32, j, 0x696E6974), words_of_seed(config["state"]["seed"]))
            halves = sum((word & np.uint64(0xFFFF)) + (word >> np.uint64(16)) for word in words)
            factor = f32(spread / np.sqrt(8 * 4294967295 / 12))
            flat[at] = (halves.astype(np.int64) - 262140).astype(f32) * factor
        elif name.endswith(".weight"):
            flat[at] = 1
    return flat


def window_of(plan, q):
    """plan.md, order: the window of sequence number q."""
    windows = (plan.data["tokens"] - 1) // plan.T
    epoch, slot = divmod(q, windows)
    h = ((windows - 1).bit_length() + 1) // 2
    while True:
        left, right = slot >> h, slot % 2**h
        for round_number in range(8):
            counter = (right, round_number, epoch % 2**32, epoch // 2**32)
            f = int(philox(counter, words_of_seed(plan.data["seed"]))[0]) % 2**h
            left, right = right, left ^ f
        slot = (left << h) + right
        if slot < windows:
            return slot


def run_leaf(plan, stream, parameters, step, leaf):
    """Folds of every tap, the loss, the flat gradient, and the tap that is not finite; the last two or None."""
    first = (step * plan.leaves + leaf) * plan.B
    starts = [window_of(plan, first + b) * plan.T for b in range(plan.B)]
    window = [np.concatenate([stream[at + i : at + i + plan.T] for at in starts]) for i in (0, 1)]
    values = {(0, i): tensor for i, tensor in enumerate(plan.by_tensor(parameters))}
    values |= {(3, i): table for i, table in enumerate(map(table_of, plan.tables))}
    folds = []
    for operation in plan.operations:
        inputs = [values[tuple(operand)] for operand in operation["inputs"]]
        constants = list(map(bits, operation["constants"]))
        kind = operation["kind"]
        outputs = window if kind == "window" else KINDS[kind](plan, *inputs, *constants)
        for operand, output in zip(operation["outputs"], outputs, strict=True):
            assert output.dtype in (f32, np.uint32), (kind, output.dtype)
            values[tuple(operand)] = output
            folds.append(plan.folds(output))
            if output.dtype == f32 and not np.isfinite(output).all():
                return folds, NAN, None, len(folds) - 1
        if kind == "cross_entropy":
            loss = ascending(outputs[0]) * bits(plan.update["inverse_rows"])
    gradient = np.concatenate([values[1, j].reshape(-1) for j in range(len(plan.parameters))])
    return folds, int(loss.view(np.uint32)), gradient, None


def tree(plan, gradients, low, high, nodes):
    """The node over the leaves [low, high); all nodes are put into `nodes`."""
    if high - low == 1:
        node = gradients[low]
    else:
        middle = low + (high - low + 1) // 2
        node = tree(plan, gradients, low, middle, nodes) + tree(plan, gradients, middle, high, nodes)
    nodes[low, high] = node
    return node


def meeting_nodes(plan, nodes):
    """Of the levels of devices_max nodes, half as many, ... and the root."""
    found, w = [], plan.devices_max
    while w:
        each = plan.leaves // w
        found += [nodes[i * each, (i + 1) * each] for i in range(w)]
        w //= 2
    return found


def global_norm(plan, gradient):
    whole = f32(0)
    for parameter, at in zip(plan.parameters, plan.flat):
        rows = gradient[at].reshape(-1, parameter["shape"][-1])
        squares = warp32_dot(rows, rows)
        chunks = [ascending(squares[i : i + 1024]) for i in range(0, len(squares), 1024)]
        whole = whole + ascending(np.array(chunks))
    return np.sqrt(whole)


def update(plan, step, scale, gradient, state):
    """profile.md, adamw and sgd."""
    g = gradient * scale
    p, m, v = state
    rate, decay = (np.zeros(plan.words, f32) for _ in range(2))
    for parameter, at in zip(plan.parameters, plan.flat):
        rate[at], decay[at] = row(plan.update["groups"][parameter["group"]], step)
    rule = plan.update["rule"]
    if rule["kind"] == "sgd":
        momentum = bits(rule["momentum"])
        g = fma(decay, p, g)
        m = fma(momentum, m, g)
        return [fma(-rate, fma(momentum, m, g) if rule["nesterov"] else m, p), m, v]
    first_correction, second_correction = row(rule["corrections"], step)
    m = fma(bits(rule["beta1"]), m, bits(rule["one_minus_beta1"]) * g)
    v = fma(bits(rule["beta2"]), v, bits(rule["one_minus_beta2"]) * (g * g))
    den = np.sqrt(v * second_correction) + bits(rule["epsilon"])
    return [fma(-rate, (m * first_correction) / den, p * decay), m, v]


def row(words, step):
    return np.frombuffer(words, "<f4").reshape(-1, 2)[step]


def run_step(plan, stream, step, state):
    """The encoded record, the folds of each leaf, the next state."""
    leaves = [run_leaf(plan, stream, state[0], step, leaf) for leaf in range(plan.leaves)]
    traces = [
        digest("trace", encode({"step": step, "leaf": leaf, "folds": b"".join(folds)}))
        for leaf, (folds, *_) in enumerate(leaves)
    ]
    losses = b"".join(struct.pack("<I", loss) for _, loss, *_ in leaves)
    record = [b"".join(traces), losses]
    folds = [b"".join(folds) for folds, *_ in leaves]
    for leaf, (_, _, _, tap) in enumerate(leaves):
        if tap is not None:
            return encode(record + [[leaf, tap]]), folds, None

    nodes = {}
    root = tree(plan, [gradient for _, _, gradient, _ in leaves], 0, plan.leaves, nodes)
    reduced = root * bits(plan.update["inverse_leaves"])
    norm = global_norm(plan, reduced)
    clip = bits(plan.update["clip"])
    scale = clip / (norm + bits(plan.update["clip_epsilon"])) if norm > clip else f32(1)
    state = update(plan, step, scale, reduced, state)

    fold, meeting = plan.folds, meeting_nodes(plan, nodes)
    meeting_root = digest("meeting", encode({
        "step": step, "nodes": b"".join(map(fold, meeting)), "reduced": fold(reduced), "parameters": fold(state[0]),
    }))
    record += [
        b"".join(map(checksum, meeting)), checksum(reduced), NAN if np.isnan(norm) else int(norm.view(np.uint32)),
        checksum(state[0]), fold(state[1]) + fold(state[2]), meeting_root,
    ]
    finite = [np.isfinite(np.concatenate([root, reduced])).all(), np.isfinite(norm), np.isfinite(np.stack(state)).all()]
    if not all(finite):
        return encode(record + [[finite.index(False)]]), folds, None
    return encode(record), folds, state


def state_digest(step, state):
    return digest("state", struct.pack("<Q", step) + b"".join(map(checksum, state))).hex()


def examples(file):
    """Computes every worked example from its inputs; says which differs."""
    for number, example in enumerate(json.load(open(file))):
        plan = SimpleNamespace(**dict(zip(LETTERS, example["dimensions"])))
        inputs = list(map(tensor_of, example["inputs"]))
        constants = [bits(int(word, 16)) for word in example["constants"].split()]
        outputs = KINDS[example["kind"]](plan, *inputs, *constants)
        for output, expected in zip(outputs, example["outputs"], strict=True):
            found = " ".join(f"{word:08x}" for word in words_of(output))
            if [list(output.shape), found] != [expected["shape"], expected["words"]]:
                sys.exit(f"example {number}, {example['kind']}: expected {expected['words']}, found {found}")
    print(f"{number + 1} examples")


def tensor_of(example):
    words = np.array([int(word, 16) for word in example["words"].split()], np.uint32).reshape(example["shape"])
    return words if example["dtype"] == "u32" else words.view(f32)


def steps(folder, count):
    config = decode(open(f"{folder}/config.cbor", "rb").read())
    plan = Plan(open(f"{folder}/plan.cbor", "rb").read())
    stream = np.fromfile(f"{folder}/tokens.u32", "<u4")
    assert checksum(stream) == plan.data["dataset"], "tokens are not those of the plan"
    state = [initial_parameters(plan, config), np.zeros(plan.words, f32), np.zeros(plan.words, f32)]
    out = {"first_state": state_digest(0, state), "last_state": None, "steps": []}
    for step in range(count):
        record, folds, state = run_step(plan, stream, step, state)
        out["steps"].append({"record": record.hex(), "folds": [leaf.hex() for leaf in folds]})
        if state is None:
            break
        out["last_state"] = state_digest(step + 1, state)
    json.dump(out, open(f"{folder}/executor.json", "w"))


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        examples(*sys.argv[2:]) if sys.argv[1] == "examples" else steps(sys.argv[2], int(sys.argv[3]))
