"""How long PyTorch takes for one training step on the CPU: float32, forward, backward, clipping by norm and AdamW.

usage: python3 step_time.py [--model 124M|10M] [--layers L --channels C --heads H --vocabulary V] [--batch B] [--time T]
                            [--threads N] [--repeats R]
prints one JSON object: the settings; of `step` and its parts the median, least and most seconds; `peak_bytes`

GPT-2 as people write it: nn.Linear, the built-in attention where this PyTorch has one, the optimizer's own defaults.
The first step is a warm-up and is not counted.
"""

import argparse
import json
import math
import resource
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

SHAPES = {"124M": (12, 768, 12, 50257), "10M": (6, 384, 6, 65)}
PARTS = ("forward", "backward", "update")


def attend(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    return scores.masked_fill(later, -math.inf).softmax(-1) @ v


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.projection = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.expand, self.contract = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        batch, length, channels = x.shape
        parts = self.qkv(self.norm_attention(x)).split(channels, -1)
        q, k, v = (y.view(batch, length, self.heads, -1).transpose(1, 2) for y in parts)
        x = x + self.projection(attend(q, k, v).transpose(1, 2).reshape(x.shape))
        return x + self.contract(F.gelu(self.expand(self.norm_mlp(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers, channels, heads, vocabulary, positions):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, channels), nn.Embedding(positions, channels)
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(channels)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, 0.0, 0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def measure(model, batch, length, vocabulary, repeats):
    """Seconds of each part, by step; the warm-up is left out."""
    decaying = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": decaying, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95))
    tokens, targets = torch.randint(0, vocabulary, (2, batch, length))
    steps = []
    for _ in range(repeats + 1):
        at = [time.perf_counter()]
        loss = model(tokens, targets)
        at.append(time.perf_counter())
        optimizer.zero_grad()
        loss.backward()
        at.append(time.perf_counter())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        at.append(time.perf_counter())
        steps.append([after - before for before, after in zip(at, at[1:])])
    return steps[1:]


def spread(seconds):
    return {"median_s": statistics.median(seconds), "min_s": min(seconds), "max_s": max(seconds)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--model", choices=SHAPES, default="124M")
    for name in ("layers", "channels", "heads", "vocabulary"):
        parser.add_argument("--" + name, type=int)
    for name, value in (("batch", 4), ("time", 64), ("threads", 2), ("repeats", 5)):
        parser.add_argument("--" + name, type=int, default=value)
    args = parser.parse_args()
    own = (args.layers, args.channels, args.heads, args.vocabulary)
    layers, channels, heads, vocabulary = (a or b for a, b in zip(own, SHAPES[args.model]))
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = Model(layers, channels, heads, vocabulary, max(1024, args.time))
    steps = measure(model, args.batch, args.time, vocabulary, args.repeats)
    out = {"torch": torch.__version__, "parameters": sum(p.numel() for p in model.parameters())}
    out |= {"layers": layers, "channels": channels, "heads": heads, "vocabulary": vocabulary}
    out |= {"batch": args.batch, "time": args.time, "threads": args.threads, "repeats": args.repeats}
    out["step"] = spread([sum(parts) for parts in steps])
    out |= {name: spread([parts[i] for parts in steps]) for i, name in enumerate(PARTS)}
    out["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(out))


main()
