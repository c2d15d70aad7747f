# SPDX-License-Identifier: Apache-2.0
"""The Llama architecture in PyTorch, as the C++ beside this folder computes it, and its export."""

import dataclasses
import struct

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Config:
    dim: int = 256
    hidden_dim: int = 208
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    vocab_size: int = 1152
    max_positions: int = 4096
    rope_theta: float = 10000.0

    @property
    def head_dim(self):
        return self.dim // self.heads


def rotate(x, cos, sin):
    """Rotary encoding of the pairs (2i, 2i+1).

    x: [batch, position, head, head_dim]; tables: [position, head_dim/2].
    """
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.attention_norm = nn.Parameter(torch.ones(c.dim))
        self.ffn_norm = nn.Parameter(torch.ones(c.dim))
        self.wq = nn.Linear(c.dim, c.heads * c.head_dim, bias=False)
        self.wk = nn.Linear(c.dim, c.kv_heads * c.head_dim, bias=False)
        self.wv = nn.Linear(c.dim, c.kv_heads * c.head_dim, bias=False)
        self.wo = nn.Linear(c.dim, c.dim, bias=False)
        self.w1 = nn.Linear(c.dim, c.hidden_dim, bias=False)
        self.w2 = nn.Linear(c.hidden_dim, c.dim, bias=False)
        self.w3 = nn.Linear(c.dim, c.hidden_dim, bias=False)

    def forward(self, x, cos, sin):
        c = self.c
        batch, length, _ = x.shape
        h = F.rms_norm(x, (c.dim,), self.attention_norm, 1e-5)
        q = rotate(self.wq(h).view(batch, length, c.heads, c.head_dim), cos, sin)
        k = rotate(self.wk(h).view(batch, length, c.kv_heads, c.head_dim), cos, sin)
        v = self.wv(h).view(batch, length, c.kv_heads, c.head_dim)
        group = c.heads // c.kv_heads
        k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
        a = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        x = x + self.wo(a.transpose(1, 2).reshape(batch, length, c.dim))
        h = F.rms_norm(x, (c.dim,), self.ffn_norm, 1e-5)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embedding = nn.Embedding(c.vocab_size, c.dim)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.final_norm = nn.Parameter(torch.ones(c.dim))
        exponent = -torch.arange(0, c.head_dim, 2, dtype=torch.float64) / c.head_dim
        frequency = c.rope_theta ** exponent
        angle = torch.outer(torch.arange(c.max_positions, dtype=torch.float64), frequency)
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                residual = name.endswith(("wo.weight", "w2.weight"))
                nn.init.normal_(p, std=0.02 / (2 * c.layers) ** 0.5 if residual else 0.02)

    def forward(self, tokens, targets):
        """The loss of every position: [batch, position]."""
        length = tokens.shape[1]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos[:length], self.sin[:length])
        x = F.rms_norm(x, (self.c.dim,), self.final_norm, 1e-5)
        logits = x @ self.embedding.weight.T
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        return losses.view(targets.shape)

    def _header(self):
        """llama2.c version 0: seven int32, then float32 tensors in the order below.

        A positive vocabulary size says that the classifier is the embedding.
        """
        c = self.c
        return struct.pack("<7i", c.dim, c.hidden_dim, c.layers, c.heads, c.kv_heads, c.vocab_size,
                           c.max_positions)

    def _tensors(self):
        """The two rotary tables are part of the format; readers skip them."""
        tensors = [self.embedding.weight]
        for name in ("attention_norm", "wq", "wk", "wv", "wo", "ffn_norm", "w1", "w2", "w3"):
            for block in self.blocks:
                value = getattr(block, name)
                tensors.append(value if isinstance(value, nn.Parameter) else value.weight)
        return tensors + [self.final_norm, self.cos, self.sin]

    def export(self, path):
        with open(path, "wb") as file:
            file.write(self._header())
            for tensor in self._tensors():
                file.write(tensor.detach().contiguous().numpy().astype("<f4").tobytes())

    @torch.no_grad()
    def load(self, path):
        with open(path, "rb") as file:
            header = self._header()
            if file.read(len(header)) != header:
                raise ValueError(f"{path}: not a checkpoint of this shape")
            for tensor in self._tensors():
                content = bytearray(file.read(4 * tensor.numel()))
                tensor.copy_(torch.frombuffer(content, dtype=torch.float32).view(tensor.shape))
