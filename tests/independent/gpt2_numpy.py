"""GPT-2 training steps in double precision with numpy: written from the published architecture (Radford et al. 2019,
Hugging Face's GPT-2 layout) and AdamW (Loshchilov and Hutter 2019), not from this project's code or specification.

It asks whether our mathematics is right, so its results are compared by closeness, never by bits.

usage: python3 gpt2_numpy.py CASE_DIR
reads  CASE_DIR/case.json          {"n_head", "eps", "time", "tokens": [...], "adamw": {...}, "steps": [leaves of a step]};
                                   a leaf is a list of windows, and window w starts at token w * time
       CASE_DIR/initial.safetensors
writes CASE_DIR/numpy.json         [{"losses": [...], "norm": x, "gradient": {name: [...]}, "parameters": {name: [...]}}]
"""

import json
import math
import sys

import numpy as np


def read_safetensors(path):
    raw = open(path, "rb").read()
    length = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    out = {}
    for name, entry in header.items():
        if name == "__metadata__" or name.startswith("adamw."):
            continue
        assert entry["dtype"] == "F32", entry
        begin, end = entry["data_offsets"]
        out[name] = np.frombuffer(data[begin:end], "<f4").astype(np.float64).reshape(entry["shape"])
    return out


def norm_forward(x, gain, bias, eps):
    mean = x.mean(-1, keepdims=True)
    rstd = 1.0 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps)
    hat = (x - mean) * rstd
    return hat * gain + bias, (hat, rstd)


def norm_backward(dy, cache, gain):
    hat, rstd = cache
    dhat = dy * gain
    dx = rstd * (dhat - dhat.mean(-1, keepdims=True) - hat * (dhat * hat).mean(-1, keepdims=True))
    axes = tuple(range(dy.ndim - 1))
    return dx, (dy * hat).sum(axes), dy.sum(axes)


def gelu(x):
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def gelu_slope(x):
    k = math.sqrt(2.0 / math.pi)
    t = np.tanh(k * (x + 0.044715 * x**3))
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t**2) * k * (1.0 + 3 * 0.044715 * x**2)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def leaf(p, tokens, targets, heads, eps):
    """Mean loss of one micro-batch and its gradient by name."""
    B, T = tokens.shape
    C = p["transformer.wte.weight"].shape[1]
    layers = 1 + max(int(n.split(".")[2]) for n in p if n.startswith("transformer.h."))
    g = {n: np.zeros_like(w) for n, w in p.items()}
    mask = np.triu(np.full((T, T), -np.inf), 1)
    scale = 1.0 / math.sqrt(C // heads)

    def split(y):
        return y.reshape(B, T, heads, C // heads).transpose(0, 2, 1, 3)

    def join(y):
        return y.transpose(0, 2, 1, 3).reshape(B, T, C)

    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][:T]
    saved = []
    for i in range(layers):
        h = f"transformer.h.{i}."
        a, norm1 = norm_forward(x, p[h + "ln_1.weight"], p[h + "ln_1.bias"], eps)
        q, k, v = map(split, np.split(a @ p[h + "attn.c_attn.weight"] + p[h + "attn.c_attn.bias"], 3, -1))
        att = softmax(q @ k.transpose(0, 1, 3, 2) * scale + mask)
        o = join(att @ v)
        mid = x + o @ p[h + "attn.c_proj.weight"] + p[h + "attn.c_proj.bias"]
        b, norm2 = norm_forward(mid, p[h + "ln_2.weight"], p[h + "ln_2.bias"], eps)
        u = b @ p[h + "mlp.c_fc.weight"] + p[h + "mlp.c_fc.bias"]
        x = mid + gelu(u) @ p[h + "mlp.c_proj.weight"] + p[h + "mlp.c_proj.bias"]
        saved.append((a, norm1, q, k, v, att, o, b, norm2, u))
    y, norm_f = norm_forward(x, p["transformer.ln_f.weight"], p["transformer.ln_f.bias"], eps)
    prob = softmax(y @ p["transformer.wte.weight"].T)
    picked = np.take_along_axis(prob, targets[..., None], -1)[..., 0]
    loss = -np.log(picked).mean()

    d_logits = prob.copy()
    np.put_along_axis(d_logits, targets[..., None], picked[..., None] - 1.0, -1)
    d_logits /= B * T
    g["transformer.wte.weight"] += np.einsum("btv,btc->vc", d_logits, y)
    dx, g["transformer.ln_f.weight"], g["transformer.ln_f.bias"] = norm_backward(
        d_logits @ p["transformer.wte.weight"], norm_f, p["transformer.ln_f.weight"]
    )
    for i in reversed(range(layers)):
        h = f"transformer.h.{i}."
        a, norm1, q, k, v, att, o, b, norm2, u = saved[i]
        g[h + "mlp.c_proj.weight"] = np.einsum("bti,bto->io", gelu(u), dx)
        g[h + "mlp.c_proj.bias"] = dx.sum((0, 1))
        du = (dx @ p[h + "mlp.c_proj.weight"].T) * gelu_slope(u)
        g[h + "mlp.c_fc.weight"] = np.einsum("bti,bto->io", b, du)
        g[h + "mlp.c_fc.bias"] = du.sum((0, 1))
        d, g[h + "ln_2.weight"], g[h + "ln_2.bias"] = norm_backward(
            du @ p[h + "mlp.c_fc.weight"].T, norm2, p[h + "ln_2.weight"]
        )
        dx = dx + d
        g[h + "attn.c_proj.weight"] = np.einsum("bti,bto->io", o, dx)
        g[h + "attn.c_proj.bias"] = dx.sum((0, 1))
        do = split(dx @ p[h + "attn.c_proj.weight"].T)
        dv = att.transpose(0, 1, 3, 2) @ do
        datt = do @ v.transpose(0, 1, 3, 2)
        ds = att * (datt - (datt * att).sum(-1, keepdims=True)) * scale
        dqkv = np.concatenate([join(ds @ k), join(ds.transpose(0, 1, 3, 2) @ q), join(dv)], -1)
        g[h + "attn.c_attn.weight"] = np.einsum("bti,bto->io", a, dqkv)
        g[h + "attn.c_attn.bias"] = dqkv.sum((0, 1))
        d, g[h + "ln_1.weight"], g[h + "ln_1.bias"] = norm_backward(
            dqkv @ p[h + "attn.c_attn.weight"].T, norm1, p[h + "ln_1.weight"]
        )
        dx = dx + d
    np.add.at(g["transformer.wte.weight"], tokens, dx)
    g["transformer.wpe.weight"][:T] += dx.sum(0)
    return loss, g


def rate(o, step, steps):
    """Linear warm-up, then half a cosine down to a fraction."""
    if step < o["warmup_steps"]:
        return o["learning_rate"] * (step + 1) / o["warmup_steps"]
    done = (step - o["warmup_steps"]) / (steps - o["warmup_steps"])
    cosine = 0.5 * (1.0 + math.cos(math.pi * done))
    return o["learning_rate"] * (o["final_fraction"] + (1.0 - o["final_fraction"]) * cosine)


def main(folder):
    case = json.load(open(folder + "/case.json"))
    p = read_safetensors(folder + "/initial.safetensors")
    m, v = ({n: np.zeros_like(w) for n, w in p.items()} for _ in range(2))
    stream, o, T = np.array(case["tokens"]), case["adamw"], case["time"]
    flat = lambda tensors: {n: t.ravel().tolist() for n, t in tensors.items()}
    out = []
    for step, leaves in enumerate(case["steps"]):
        losses, total = [], {n: np.zeros_like(w) for n, w in p.items()}
        for windows in leaves:
            at = np.array(windows)[:, None] * T + np.arange(T)
            loss, g = leaf(p, stream[at], stream[at + 1], case["n_head"], case["eps"])
            losses.append(loss)
            for n in total:
                total[n] += g[n] / len(leaves)
        norm = math.sqrt(sum(float((w**2).sum()) for w in total.values()))
        scale = min(1.0, o["clip"] / (norm + 1e-6)) if o["clip"] is not None else 1.0
        lr, after = rate(o, step, len(case["steps"])), {}
        for n, w in p.items():
            g = total[n] * scale
            m[n] = o["beta1"] * m[n] + (1 - o["beta1"]) * g
            v[n] = o["beta2"] * v[n] + (1 - o["beta2"]) * g * g
            m_hat, v_hat = m[n] / (1 - o["beta1"] ** (step + 1)), v[n] / (1 - o["beta2"] ** (step + 1))
            decay = o["weight_decay"] if w.ndim == 2 else 0.0
            after[n] = w * (1 - lr * decay) - lr * m_hat / (np.sqrt(v_hat) + o["epsilon"])
        p = after
        out.append({"losses": losses, "norm": norm, "gradient": flat(total), "parameters": flat(p)})
    json.dump(out, open(folder + "/numpy.json", "w"))


main(sys.argv[1])
