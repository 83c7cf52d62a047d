"""A PyTorch training step of the same work, timed whenever a line arrives: f32, forward, backward, AdamW.

usage: torch_step.py THREADS LAYERS CHANNELS HEADS VOCABULARY POSITIONS SEQUENCES LENGTH
protocol: prints one JSON line with the version once a first step is done; then, for each line of input, takes one
step and prints a JSON line of seconds: step, forward, backward, update. Ends when its input does.
"""
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional

THREADS, LAYERS, CHANNELS, HEADS, VOCABULARY, POSITIONS, SEQUENCES, LENGTH = map(int, sys.argv[1:9])


def attend(q, k, v):
    """The library's fused attention where this version has one, plain softmax otherwise."""
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    later = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ v


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(CHANNELS)
        self.qkv = nn.Linear(CHANNELS, 3 * CHANNELS)
        self.projection = nn.Linear(CHANNELS, CHANNELS)
        self.norm2 = nn.LayerNorm(CHANNELS)
        self.expand = nn.Linear(CHANNELS, 4 * CHANNELS)
        self.contract = nn.Linear(4 * CHANNELS, CHANNELS)

    def forward(self, x):
        heads = (SEQUENCES, LENGTH, HEADS, CHANNELS // HEADS)
        q, k, v = (part.view(heads).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(CHANNELS, -1))
        mixed = attend(q, k, v).transpose(1, 2).reshape(x.shape)
        x = x + self.projection(mixed)
        return x + self.contract(functional.gelu(self.expand(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, CHANNELS)
        self.positions = nn.Embedding(POSITIONS, CHANNELS)
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(CHANNELS)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions(torch.arange(LENGTH))
        x = self.norm(self.layers(x))
        logits = functional.linear(x, self.tokens.weight)  # the head is tied to the token table
        return functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


torch.set_num_threads(THREADS)
torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
tokens, targets = torch.randint(0, VOCABULARY, (2, SEQUENCES, LENGTH))


def step():
    start = time.perf_counter()
    loss = model(tokens, targets)
    forward = time.perf_counter()
    optimizer.zero_grad()
    loss.backward()
    backward = time.perf_counter()
    optimizer.step()
    end = time.perf_counter()
    return {"step": end - start, "forward": forward - start, "backward": backward - forward, "update": end - backward}


step()
print(json.dumps({"version": torch.__version__}), flush=True)
for _ in sys.stdin:
    print(json.dumps(step()), flush=True)
