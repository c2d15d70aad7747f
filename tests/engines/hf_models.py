# SPDX-License-Identifier: Apache-2.0
"""Models of each kind of layer for tests of cairn.hf, and what is compared of a generation.

As a program: generates in a process of its own for each line of JSON that stdin brings, which may be killed in the
middle, and answers with a line: how the process ended, and what it wrote. It forks them, since imports take longer than
all that they do.
"""

import hashlib
import json
import os
import signal
import sys
import traceback
import warnings

import torch
import transformers

SHAPE = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048}


def gemma3():
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
        **SHAPE, head_dim=16, sliding_window=16, layer_types=["sliding_attention", "full_attention"] * 2))


def lfm2():
    return transformers.Lfm2ForCausalLM(transformers.Lfm2Config(
        **SHAPE, layer_types=["conv", "full_attention", "conv", "conv"]))


def qwen3_next():
    return transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(
        **SHAPE, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
        linear_value_head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
        shared_expert_intermediate_size=32))


# Windows and full attention; convolutions; recurrent states. Their weights are random.
MADE = {"gemma3": gemma3, "lfm2": lfm2, "qwen3_next": qwen3_next}


def load(name, dtype="float32", seed=3):
    """One of MADE, or a directory."""
    torch.set_num_threads(1)
    if name in MADE:
        torch.manual_seed(seed)
        return MADE[name]().to(getattr(torch, dtype)).eval()
    return transformers.AutoModelForCausalLM.from_pretrained(name, dtype=getattr(torch, dtype)).eval()


def prompt_of(model, tokens, seed=1):
    return torch.randint(3, model.config.vocab_size, (1, tokens), generator=torch.Generator().manual_seed(seed)).tolist()[0]


def digest(logits):
    return hashlib.sha256(logits.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def generate(model, ids, count, cache, **options):
    """(ids of prompt and answer, a digest of the logits' bits for each new token). Likeliest tokens."""
    options = {"do_sample": False, **options}
    out = model.generate(torch.tensor([ids]), max_new_tokens=count, past_key_values=cache, return_dict_in_generate=True,
                         output_logits=True, pad_token_id=0, eos_token_id=None, **options)
    return out.sequences[0].tolist(), [digest(logits) for logits in out.logits]


def plain(model, ids, count, passes=(), crop=None):
    """The same without Cairn, after forward passes of that many ids each; of their rows the first `crop` stay."""
    cache, at = transformers.DynamicCache(config=model.config), 0
    for size in passes:
        with torch.no_grad():
            model(input_ids=torch.tensor([ids[at:at + size]]), past_key_values=cache)
        at += size
    if crop is not None:
        cache.crop(crop)
    return generate(model, ids, count, cache)


class KillSelf(transformers.StoppingCriteria):
    def __init__(self, length):
        self.length = length

    def __call__(self, input_ids, scores, **kwargs):
        if input_ids.shape[1] >= self.length:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(1, dtype=torch.bool)


# What a model brings in as it is made: once, for all processes.
IMPORTED = ("LlamaForCausalLM", "Gemma3ForCausalLM", "Lfm2ForCausalLM", "Qwen3NextForCausalLM")


def run(job):
    import cairn.hf
    model = load(job["model"], job["dtype"])
    warnings.simplefilter("error")
    draw = job.get("draw", False)
    options = {"do_sample": draw}
    # A process that goes on must not depend on the seed.
    torch.manual_seed(5 if "ids" in job else 6)
    if "kill_at" in job:
        options["stopping_criteria"] = transformers.StoppingCriteriaList([KillSelf(job["kill_at"])])
    with cairn.Store(job["store"], create_if_missing=True) as store:
        ids = job.get("ids") or store.find_branch("chat").tokens().tolist()
        cache = cairn.hf.CairnCache.open(store, model, "chat", tokens=ids, sampler=draw)
        restored = len(cache.tokens)
        ids, logits = generate(model, ids, job["until"] - len(ids), cache, **options)
        print(json.dumps({"restored": restored, "stored": cache.branch.length, "ids": ids, "logits": logits}))


def ended_with(job, output):
    """In the forked process: its exit status. Everything that it writes goes to the descriptor."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        run(job)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
    return 0


def main():
    import cairn.hf  # noqa: F401
    for name in IMPORTED:
        getattr(transformers, name)
    for line in sys.stdin:
        output, childs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os._exit(ended_with(json.loads(line), childs))
        os.close(childs)
        with open(output, encoding="utf-8") as written:
            said = written.read()
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"returncode": os.waitstatus_to_exitcode(status), "said": said}), flush=True)


if __name__ == "__main__":
    main()
