#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The trainer's "small" GPT in PyTorch, one thread a rank: prints the tokens per second of each step.

Alone, or as a rank of a DistributedDataParallel job over Gloo (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)."""

import math
import os
import sys
import time

import torch
from torch import distributed, nn
from torch.nn import functional

LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY = 6, 384, 6, 256, 256
LATER = torch.triu(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool), 1)  # no buffer: Gloo cannot broadcast booleans


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        samples = x.size(0)
        query, key, value = (part.view(samples, CONTEXT, HEADS, WIDTH // HEADS).transpose(1, 2)
                             for part in self.qkv(self.norm1(x)).split(WIDTH, 2))
        scores = query @ key.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        mixed = scores.masked_fill(LATER, float("-inf")).softmax(-1) @ value
        x = x + self.projection(mixed.transpose(1, 2).reshape(samples, CONTEXT, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, targets):
        x = self.blocks(self.tokens(tokens) + self.positions(torch.arange(CONTEXT)))
        return functional.cross_entropy(self.head(self.norm(x)).view(-1, VOCABULARY), targets.reshape(-1))


def main():
    steps, samples = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    model = Gpt()
    parameters = list(model.parameters())
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    for _ in range(steps):
        text = torch.randint(VOCABULARY, (samples, CONTEXT + 1))
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(text[:, :-1], text[:, 1:]).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        seconds = time.perf_counter() - start
        if os.environ.get("RANK", "0") == "0":
            print(ranks * samples * CONTEXT / seconds, flush=True)


main()
