"""GPT-2 and Llama in PyTorch, as functions of a dictionary of tensors with Hugging Face's names. Written from the papers
(Radford et al. 2019; Touvron et al. 2023, Zhang and Sennrich 2019, Su et al. 2021, Shazeer 2020, Ainslie et al. 2023)
and the conventions of Hugging Face's checkpoints; no line is from this project's code.

The keys of a model's settings are those of Hugging Face's config.json.
"""

import math

import torch
import torch.nn.functional as F


def attention(q, k, v):
    """q: [B, heads, T, size]; k, v: [B, key heads, T, size]. Each key head serves heads / key heads queries."""
    groups, times = q.shape[1] // k.shape[1], q.shape[2]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    later = torch.ones(times, times, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -math.inf).softmax(-1) @ v


def split(x, heads):
    """[B, T, heads x size] to [B, heads, T, size]."""
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def join(x):
    return x.transpose(1, 2).flatten(2)


def gpt2(m, p, tokens):
    """Logits [B, T, V]. Weights of linear layers are [in, out], as in GPT-2's checkpoints."""
    eps, C = m["layer_norm_epsilon"], m["n_embd"]

    def norm(name, x):
        return F.layer_norm(x, (C,), p[name + ".weight"], p[name + ".bias"], eps)

    def linear(name, x):
        return F.linear(x, p[name + ".weight"].t(), p[name + ".bias"])

    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][: tokens.shape[1]]
    for i in range(m["n_layer"]):
        h = f"transformer.h.{i}."
        qkv = linear(h + "attn.c_attn", norm(h + "ln_1", x)).split(C, -1)
        x = x + linear(h + "attn.c_proj", join(attention(*(split(y, m["n_head"]) for y in qkv))))
        y = F.gelu(linear(h + "mlp.c_fc", norm(h + "ln_2", x)), approximate="tanh")
        x = x + linear(h + "mlp.c_proj", y)
    head = "transformer.wte.weight" if m.get("tie_word_embeddings", True) else "lm_head.weight"
    return F.linear(norm("transformer.ln_f", x), p[head])


def rotate(x, theta):
    """Rotary positions: element i and element i + size/2 of a head turn together by t / theta^(2i/size)."""
    half = x.shape[-1] // 2
    pace = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * pace
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    low, high = x[..., :half], x[..., half:]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def llama(m, p, tokens):
    """Logits [B, T, V]. Weights of linear layers are [out, in], as in Llama's checkpoints."""
    heads = m["num_attention_heads"]
    key_heads, theta = m.get("num_key_value_heads", heads), m.get("rope_theta", 10000.0)

    def norm(name, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + m["rms_norm_eps"]) * p[name + ".weight"]

    x = p["model.embed_tokens.weight"][tokens]
    for i in range(m["num_hidden_layers"]):
        h = f"model.layers.{i}."
        y = norm(h + "input_layernorm", x)
        q, k, v = (F.linear(y, p[f"{h}self_attn.{n}_proj.weight"]) for n in "qkv")
        q, k = rotate(split(q, heads), theta), rotate(split(k, key_heads), theta)
        y = join(attention(q, k, split(v, key_heads)))
        x = x + F.linear(y, p[h + "self_attn.o_proj.weight"])
        y = norm(h + "post_attention_layernorm", x)
        y = F.silu(F.linear(y, p[h + "mlp.gate_proj.weight"])) * F.linear(y, p[h + "mlp.up_proj.weight"])
        x = x + F.linear(y, p[h + "mlp.down_proj.weight"])
    head = "model.embed_tokens.weight" if m.get("tie_word_embeddings", False) else "lm_head.weight"
    return F.linear(norm("model.norm", x), p[head])


def loss(m, p, tokens, targets):
    """Mean cross entropy of one micro-batch."""
    logits = {"gpt2": gpt2, "llama": llama}[m["model_type"]](m, p, tokens)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
