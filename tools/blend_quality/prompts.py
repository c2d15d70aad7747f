# SPDX-License-Identifier: Apache-2.0
"""Prompts of chunks of real texts: one document in order, or chunks of several; and a text that goes on behind them."""

import dataclasses
import hashlib

from shadow_quality import texts

CHUNKS = 5
FORCED = 64  # Tokens behind the chunks that are teacher-forced.
_LENGTHS = (200, 260, 320, 380, 400, 340, 280, 220)  # Tokens of chunks, in turns.
_HEADER = "<|im_start|>system\nYou are"
# Short kinds, one document each; of the others one chunk each.
_SOURCES = texts.SOURCES[:8]


@dataclasses.dataclass
class Prompt:
    name: str
    header: list
    chunks: list
    foreign: list  # For each chunk: one of another document, to compute it behind.
    suffix: list

    @property
    def context(self):
        return self.header + [token for chunk in self.chunks for token in chunk]

    @property
    def digest(self):
        return hashlib.sha256(repr((self.header, self.chunks, self.foreign, self.suffix)).encode()).hexdigest()[:12]


def _chunks(ids, first):
    chunks, at = [], 0
    for number in range(CHUNKS):
        length = _LENGTHS[(first + number) % len(_LENGTHS)]
        chunks.append(ids[at:at + length])
        at += length
    return chunks, ids[at:at + FORCED]


def all_prompts(cache, encode):
    """8 of one document in order, 8 of mixed ones, whose suffix goes on where their second chunk ends."""
    cut = [texts.cut(source, cache, encode, FORCED).ids for source in _SOURCES]
    header, prompts = encode(_HEADER), []
    for number, source in enumerate(_SOURCES):
        chunks, suffix = _chunks(cut[number], number)
        other = cut[(number + 1) % len(cut)]
        foreign = [other[2000 + 200 * i:2200 + 200 * i] for i in range(CHUNKS)]
        prompts.append(Prompt(f"{source.name} in order", header, chunks, foreign, suffix))
    for number, source in enumerate(_SOURCES):
        chunks, foreign, suffix = [], [], []
        for i in range(CHUNKS):
            ids = cut[(number + 3 * i) % len(cut)]
            begin, length = 1200 + 100 * i, _LENGTHS[(number + i) % len(_LENGTHS)]
            chunks.append(ids[begin:begin + length])
            foreign.append(cut[(number + 3 * i + 1) % len(cut)][3000:3200])
            if i == 1:
                suffix = ids[begin + length:begin + length + FORCED]
        prompts.append(Prompt(f"mixed, {source.name} first", header, chunks, foreign, suffix))
    return prompts
