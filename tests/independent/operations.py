"""The operations of the profile f32-fma in numpy, from docs/spec/profile.md and the table of kinds of docs/spec/plan.md.

Every value is a float32 and every operation numpy's own, which rounds once, but fma. Loops run where an order is to be
kept; what stands beside each other in an array is independent.
"""

import numpy as np

f32 = np.float32


def bits(pattern):
    return np.array(pattern, np.uint32).view(f32)[()]


def fma(a, b, c):
    """a * b + c with one rounding. The product of two f32 is exact in binary64; the sum is rounded to odd there: cut off,
    with the last bit set if anything was lost. 53 bits are more than two over 24, so rounding that to f32 is rounding the
    exact sum once."""
    product, c = np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64)
    total = product + c
    # What the addition lost, exactly (Knuth's two-sum).
    part = total - product
    lost = (product - (total - part)) + (c - part)
    word = np.atleast_1d(total).view(np.int64)
    lost = np.broadcast_to(lost, total.shape).reshape(word.shape)
    even = np.isfinite(np.atleast_1d(total)) & (lost != 0) & (word & 1 == 0)
    # Away from zero if what was lost has the sum's sign, towards zero otherwise: either way to the odd neighbour.
    away = (lost > 0) == (np.atleast_1d(total) > 0)
    odd = np.where(even, word + np.where(away, 1, -1), word).view(np.float64)
    return odd.reshape(total.shape).astype(f32)


def chain(a, b):
    """out[i][j] = chain over k of fma(a[i][k], b[k][j], acc)."""
    acc = np.zeros((a.shape[0], b.shape[1]), f32)
    for k in range(a.shape[1]):
        acc = fma(a[:, k, None], b[None, k, :], acc)
    return acc


def ascending(rows):
    """+0 and the rows added to it in ascending order."""
    acc = np.zeros(rows.shape[1:], f32)
    for row in rows:
        acc = acc + row
    return acc


# Sums and maxima of rows: the last axis.


def warp32(row, start, step, join):
    lanes = np.full(row[0].shape[:-1] + (32,), start, f32)
    length = row[0].shape[-1]
    for first in range(0, length, 32):
        parts = [x[..., first : first + 32] for x in row]
        width = parts[0].shape[-1]
        lanes[..., :width] = step(lanes[..., :width], *parts)
    for s in (16, 8, 4, 2, 1):
        lanes[..., :s] = join(lanes[..., :s], lanes[..., s : 2 * s])
    return lanes[..., 0]


def larger(a, b):
    return np.where(b > a, b, a)


def warp32_sum(x):
    return warp32([x], 0, np.add, np.add)


def warp32_dot(a, b):
    return warp32([a, b], 0, lambda lane, a, b: fma(a, b, lane), np.add)


def warp32_max(x):
    return warp32([x], -np.inf, larger, larger)


# Elementary functions.

MAGIC, LOG2E, LN2HI, LN2LO = map(bits, (0x4B400000, 0x3FB8AA3B, 0x3F317200, 0x35BFBE8E))
EXP = list(map(bits, (0x3AB511E9, 0x3C091D10, 0x3D2AAC79, 0x3E2AAA49, 0x3EFFFFFE, 0x3F800000, 0x3F800000)))
HALF, P2, P1, P0 = map(bits, (0x3F3504F3, 0x3E98F33C, 0x3ECCAF4E, 0x3F2AAABD))
K, CUBIC, CUBIC3 = map(bits, (0x3F4C422A, 0x3D372713, 0x3E095D4F))
NAN = bits(0x7FC00000)


def exp(x):
    x = np.asarray(x, f32)
    # Below -87 the result is thrown away.
    clamped = np.where(x > f32(88), f32(88), np.where(x >= f32(-87), x, f32(0)))
    n = (clamped * LOG2E + MAGIC) - MAGIC
    r = fma(n, -LN2LO, fma(n, -LN2HI, clamped))
    p = EXP[0]
    for coefficient in EXP[1:]:
        p = fma(p, r, coefficient)
    power = ((n.astype(np.int32) + 127) << 23).view(f32)
    return np.where(np.isnan(x), NAN, np.where(x < f32(-87), f32(0), p * power))


def log(x):
    x = np.asarray(x, f32)
    usual = np.where((x > 0) & (x < np.inf), x, f32(1))
    subnormal = usual < bits(0x00800000)
    scaled = np.where(subnormal, usual * f32(2**23), usual)
    offset = scaled.view(np.uint32) - HALF.view(np.uint32)
    n = ((offset.view(np.int32) >> 23) + np.where(subnormal, -23, 0)).astype(f32)
    m = ((offset & 0x007FFFFF) + HALF.view(np.uint32)).view(f32)
    f = m - f32(1)
    s = f / (m + f32(1))
    z = s * s
    q = z * fma(fma(P2, z, P1), z, P0)
    result = fma(n, LN2HI, fma(n, LN2LO, fma(-s, f - q, f)))
    special = np.where(x == 0, f32(-np.inf), np.where(x == np.inf, x, NAN))
    return np.where((x > 0) & (x < np.inf), result, special)


def tanh(u):
    magnitude = np.abs(u)
    e = exp(magnitude + magnitude)
    return np.copysign(f32(1) - f32(2) / (e + f32(1)), u)


def gelu_tanh(x):
    return tanh((K * x) * fma(CUBIC, x * x, f32(1)))


# Operations by their kind: inputs and constants as the plan gives them, a list of outputs.


def row_vector(x):
    return x[:, None]


def layernorm(_, x, gain, bias, inv_c, eps):
    mean = warp32_sum(x) * inv_c
    d = x - row_vector(mean)
    rstd = f32(1) / np.sqrt(warp32_dot(d, d) * inv_c + eps)
    return [fma(d * row_vector(rstd), gain, bias), mean, rstd]


def layernorm_backward(_, dy, x, mean, rstd, gain, inv_c):
    xhat = (x - row_vector(mean)) * row_vector(rstd)
    g = dy * gain
    m1, m2 = warp32_sum(g) * inv_c, warp32_dot(g, xhat) * inv_c
    dx = row_vector(rstd) * ((g - row_vector(m1)) - xhat * row_vector(m2))
    return [dx, chain_of_columns(dy, xhat), ascending(dy)]


def rmsnorm(_, x, gain, inv_c, eps):
    rstd = f32(1) / np.sqrt(warp32_dot(x, x) * inv_c + eps)
    return [(x * row_vector(rstd)) * gain, rstd]


def rmsnorm_backward(_, dy, x, rstd, gain, inv_c):
    xhat = x * row_vector(rstd)
    g = dy * gain
    m = warp32_dot(g, xhat) * inv_c
    return [row_vector(rstd) * (g - xhat * row_vector(m)), chain_of_columns(dy, xhat)]


def chain_of_columns(a, b):
    acc = np.zeros(a.shape[1], f32)
    for n in range(a.shape[0]):
        acc = fma(a[n], b[n], acc)
    return acc


def gelu_backward(_, dy, x):
    th, h = gelu_tanh(x), f32(0.5) * x
    s = fma(-th, th, f32(1)) * (K * fma(CUBIC3, x * x, f32(1)))
    return [dy * fma(h, s, f32(0.5) * (f32(1) + th))]


def swiglu(_, gate, up):
    return [(gate * sigmoid(gate)) * up]


def swiglu_backward(_, dy, gate, up):
    s = sigmoid(gate)
    t = fma(gate, f32(1) - s, f32(1))
    return [(dy * up) * (s * t), dy * (gate * s)]


def sigmoid(x):
    return f32(1) / (f32(1) + exp(-x))


def turn(plan, x, cos, sin, sign):
    """Channel i of a head against channel i + HS/2; `sign` is that of the first half's product with the sine."""
    half = cos.shape[1]
    heads = x.reshape(-1, plan.T, x.shape[1] // (2 * half), 2, half)
    first, second = heads[..., 0, :], heads[..., 1, :]
    c, s = cos[:, None, :], sin[:, None, :]
    turned = np.stack([fma(first, c, sign * (second * s)), fma(second, c, -sign * (first * s))], -2)
    return [turned.reshape(x.shape)]


def heads_of(plan, x):
    """[B][heads] of [T,HS]."""
    heads = x.reshape(plan.B, plan.T, -1, plan.HS)
    return [[np.ascontiguousarray(heads[b, :, h]) for h in range(heads.shape[2])] for b in range(plan.B)]


def rows_of(plan, heads):
    """The inverse."""
    return np.stack([np.stack(b, 1) for b in heads]).reshape(plan.B * plan.T, -1)


def attend(plan, q, k, v, scale):
    out, top, total = [], [], []
    for b in range(plan.B):
        heads = [attend_head(q[b][h], k[b][h * len(k[b]) // len(q[b])], v[b][h * len(v[b]) // len(q[b])], scale)
                 for h in range(len(q[b]))]
        out.append([head[0] for head in heads])
        top.append([head[1] for head in heads])
        total.append([head[2] for head in heads])
    return [rows_of(plan, out), np.array(top, f32), np.array(total, f32)]


def attend_head(q, k, v, scale):
    scores = chain(q, k.T) * scale
    p = np.zeros_like(scores)
    top, total = np.zeros(len(q), f32), np.zeros(len(q), f32)
    for t in range(len(q)):
        s = scores[t, : t + 1]
        top[t] = warp32_max(s)
        e = exp(s - top[t])
        total[t] = warp32_sum(e)
        p[t, : t + 1] = e / total[t]
    out = np.zeros_like(q)
    for u in range(len(k)):
        out[u:] = fma(p[u:, u, None], v[None, u], out[u:])
    return out, top, total


def attend_backward(plan, d_out, q, k, v, out, top, total, scale):
    d_q = [[None] * len(heads) for heads in q]
    d_k, d_v = ([[np.zeros_like(head) for head in heads] for heads in side] for side in (k, v))
    for b in range(plan.B):
        for h in range(len(q[b])):
            g = h * len(k[b]) // len(q[b])
            p = exp(chain(q[b][h], k[b][g].T) * scale - top[b, h][:, None]) / total[b, h][:, None]
            d = warp32_dot(d_out[b][h], out[b][h])
            ds = (p * (chain(d_out[b][h], v[b][g].T) - d[:, None])) * scale
            d_q[b][h] = np.zeros_like(q[b][h])
            for u in range(plan.T):
                d_q[b][h][u:] = fma(ds[u:, u, None], k[b][g][None, u], d_q[b][h][u:])
            for t in range(plan.T):
                d_k[b][g][: t + 1] = fma(ds[t, : t + 1, None], q[b][h][None, t], d_k[b][g][: t + 1])
                d_v[b][g][: t + 1] = fma(p[t, : t + 1, None], d_out[b][h][None, t], d_v[b][g][: t + 1])
    return [rows_of(plan, side) for side in (d_q, d_k, d_v)]


def attention(plan, qkv, scale):
    return attend(plan, *(heads_of(plan, x) for x in np.split(qkv, 3, 1)), scale)


def attention_backward(plan, d_out, qkv, out, top, total, scale):
    q, k, v = (heads_of(plan, x) for x in np.split(qkv, 3, 1))
    d = attend_backward(plan, heads_of(plan, d_out), q, k, v, heads_of(plan, out), top, total, scale)
    return [np.concatenate(d, 1)]


def grouped_attention(plan, q, k, v, scale):
    return attend(plan, *(heads_of(plan, x) for x in (q, k, v)), scale)


def grouped_attention_backward(plan, d_out, q, k, v, out, top, total, scale):
    d_out, q, k, v, out = (heads_of(plan, x) for x in (d_out, q, k, v, out))
    return attend_backward(plan, d_out, q, k, v, out, top, total, scale)


def cross_entropy(_, logits, targets):
    top = warp32_max(logits)
    total = warp32_sum(exp(logits - row_vector(top)))
    picked = logits[np.arange(len(targets)), targets]
    return [(log(total) + top) - picked, top, total]


def cross_entropy_backward(_, logits, targets, top, total, inv_n):
    p = exp(logits - row_vector(top)) / row_vector(total)
    one_hot = (np.arange(logits.shape[1])[None] == targets[:, None]).astype(f32)
    return [(p - one_hot) * inv_n]


def token_embedding_backward(plan, tokens, dx):
    d_table = np.zeros((plan.V, plan.C), f32)
    for n, token in enumerate(tokens):
        d_table[token] = d_table[token] + dx[n]
    return [d_table]


def embedding_backward(plan, tokens, dx):
    d_wpe = np.zeros((plan.positions, plan.C), f32)
    d_wpe[: plan.T] = ascending(dx.reshape(plan.B, plan.T, plan.C))
    return token_embedding_backward(plan, tokens, dx) + [d_wpe]


KINDS = {
    "embedding": lambda plan, tokens, wte, wpe: [wte[tokens] + np.tile(wpe[: plan.T], (plan.B, 1))],
    "embedding_backward": embedding_backward,
    "token_embedding": lambda _, tokens, table: [table[tokens]],
    "token_embedding_backward": token_embedding_backward,
    "layernorm": layernorm,
    "layernorm_backward": layernorm_backward,
    "rmsnorm": rmsnorm,
    "rmsnorm_backward": rmsnorm_backward,
    "linear": lambda _, x, w, bias: [chain(x, w) + bias],
    "linear_backward_input": lambda _, dy, w: [chain(dy, w.T)],
    "linear_backward_weight": lambda _, x, dy: [chain(x.T, dy)],
    "linear_backward_bias": lambda _, dy: [ascending(dy)],
    "project": lambda _, x, w: [chain(x, w.T)],
    "project_backward_input": lambda _, dy, w: [chain(dy, w)],
    "project_backward_weight": lambda _, dy, x: [chain(dy.T, x)],
    "attention": attention,
    "attention_backward": attention_backward,
    "grouped_attention": grouped_attention,
    "grouped_attention_backward": grouped_attention_backward,
    "rope": lambda plan, x, cos, sin: turn(plan, x, cos, sin, f32(-1)),
    "rope_backward": lambda plan, dy, cos, sin: turn(plan, dy, cos, sin, f32(1)),
    "gelu": lambda _, x: [(f32(0.5) * x) * (f32(1) + gelu_tanh(x))],
    "gelu_backward": gelu_backward,
    "swiglu": swiglu,
    "swiglu_backward": swiglu_backward,
    "add": lambda _, left, right: [left + right],
    "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward,
}
