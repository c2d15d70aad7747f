# SPDX-License-Identifier: Apache-2.0
"""Trains the model of this folder: corpus, tokenizer, weights. One thread, one seed.

    python3 -m venv venv && venv/bin/pip install torch
    venv/bin/python train.py --out ../data

Needs Debian's bible-kjv-text (see corpus.py) and gzip. Writes model.bin, tokenizer.bin and
heldout.txt. Most steps use short sequences; the last phases are long ones, so that all of the 4096
positions are trained, while the learning rate falls to nothing. The schedule is in steps, never in
time.
"""

import argparse
import dataclasses
import math
import os
import random
import time

import torch

import bpe
import corpus
import model as llama

SEED = 20261121
LONG_HELD_OUT_BOOKS = ("Jdgs", "Eccl")  # longer than the context


@dataclasses.dataclass
class Cycle:
    """A fresh optimizer, and a learning rate that warms up and in the end decays to nothing."""

    peak_learning_rate: float
    warmup_steps: int
    decay_from_step: int
    phases: tuple  # of (steps, sequences a step, tokens a sequence)

    def steps(self):
        return sum(steps for steps, _, _ in self.phases)

    def learning_rate(self, step):
        if step < self.decay_from_step:
            return self.peak_learning_rate * min(1.0, (step + 1) / self.warmup_steps)
        remaining = (self.steps() - step) / (self.steps() - self.decay_from_step)
        return self.peak_learning_rate * remaining


CYCLES = (
    Cycle(3e-3, 100, 1000, ((1000, 8, 512), (150, 4, 1024), (200, 1, 4096))),
    # Added when the first cycle alone had ended 0.004 nats worse at positions 2048..4096 than at
    # 256..512 of the joined held-out books. Nothing else was chosen by looking at those books.
    Cycle(1e-3, 10, 10, ((120, 1, 4096),)),
)


class Windows:
    """Training windows: <s>, then text from the start of a random verse on, through later books."""

    def __init__(self, tokenizer, training_books):
        self.stream = []
        self.starts = []  # (a verse as it reads after <s>, where `stream` goes on behind it)
        for text in training_books.values():
            self.stream.append(bpe.BOS)
            for line_number, line in enumerate(text.splitlines(keepends=True)):
                first = tokenizer.encode(line, bos=False)
                self.stream += first if line_number == 0 else tokenizer.encode_continuation(line)
                if line != "\n":
                    self.starts.append((first, len(self.stream)))

    def batch(self, rng, count, length):
        rows = []
        while len(rows) < count:
            first, behind = rng.choice(self.starts)
            row = ([bpe.BOS] + first + self.stream[behind:behind + length])[:length + 1]
            if len(row) == length + 1:
                rows.append(row)
        rows = torch.tensor(rows)
        return rows[:, :-1], rows[:, 1:]


def run_cycle(model, windows, cycle, rng):
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)
    started = time.monotonic()
    step = 0
    for steps, sequences, length in cycle.phases:
        for _ in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = cycle.learning_rate(step)
            loss = model(*windows.batch(rng, sequences, length)).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step % 20 == 0:
                seconds = time.monotonic() - started
                print(f"step {step} length {length} loss {loss.item():.4f} {seconds:.0f} s",
                      flush=True)
            step += 1


@torch.no_grad()
def loss_at_positions(model, ids, first, last):
    """Mean loss of ids[2048:], whole multiples of 2048, each at a position in [first, last)."""
    total, count = 0.0, 0
    for target in range(2048, len(ids) // 2048 * 2048, last - first):
        begin = target - first
        window = torch.tensor([bpe.BOS] + ids[begin:begin + last])[None]
        losses = model(window[:, :-1], window[:, 1:])[0, first:]
        total, count = total + losses.sum().item(), count + losses.numel()
    return total / count


def report(model, tokenizer, name, text):
    ids = tokenizer.encode(text, bos=False)
    for first, last in ((0, 256), (256, 512), (1024, 2048), (2048, 4096)):
        loss = loss_at_positions(model, ids, first, last)
        bits = loss / math.log(2) * len(ids) / len(text)
        print(f"{name}, positions {first}..{last}: loss {loss:.4f}, "
              f"perplexity {math.exp(loss):.2f}, bits per byte {bits:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--from-cycle", type=int, default=0,
                        help="continue, with this cycle, from the model.bin of the one before")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)

    training, held_out = corpus.split(corpus.books(corpus.decode_package()))
    config = llama.Config()
    tokenizer = bpe.train("\n".join(training.values()), config.vocab_size)
    windows = Windows(tokenizer, training)
    held_out_text = "\n".join(held_out.values())
    os.makedirs(arguments.out, exist_ok=True)
    tokenizer.save(os.path.join(arguments.out, "tokenizer.bin"))
    with open(os.path.join(arguments.out, "heldout.txt"), "w", newline="\n") as file:
        file.write(held_out_text)
    print(f"training: {len(windows.stream)} tokens; "
          f"held out: {len(held_out_text)} bytes")

    model = llama.Llama(config)
    print(f"parameters: {sum(p.numel() for p in model.parameters())}", flush=True)
    path = os.path.join(arguments.out, "model.bin")
    if arguments.from_cycle > 0:
        model.load(path)
    for number, cycle in list(enumerate(CYCLES))[arguments.from_cycle:]:
        print(f"cycle {number}")
        run_cycle(model, windows, cycle, random.Random(SEED + number))
        model.export(path)
        for name in LONG_HELD_OUT_BOOKS:
            report(model, tokenizer, name, held_out[name])
        report(model, tokenizer, "all held out", held_out_text)


if __name__ == "__main__":
    main()
