# SPDX-License-Identifier: Apache-2.0
"""The time to the first token of 4K tokens of eight chunks that an earlier process stored."""

import json
import os
import statistics
import subprocess
import sys
import time

import torch
import transformers

import cairn
import cairn.hf
from shadow_quality import texts
from shadow_quality.model import Language

from .measure import _IDENTITY

_CHUNKS, _TOKENS, _QUESTION, _ROUNDS = 8, 500, 96, 3
_WAYS = {"default": {}, "ratio .15": {"recompute_first": 0, "recompute_ratio": 0.15}}


def _parts(cache, language):
    ids = texts.cut(texts.SOURCES[0], cache, language.encode, 512).ids
    chunks = [ids[i * _TOKENS:(i + 1) * _TOKENS] for i in range(_CHUNKS)]
    return chunks, ids[_CHUNKS * _TOKENS:_CHUNKS * _TOKENS + _QUESTION]


def store_chunks(cache, path):
    language = Language()
    with cairn.Store(path, create_if_missing=True) as store:
        store.set_namespace("documents", cairn.NamespacePolicy(index="chunks"))
        for number, chunk in enumerate(_parts(cache, language)[0]):
            kept = cairn.hf.CairnCache.open(store, language.model, str(number), namespace="documents", save_every=0,
                                            identity=_IDENTITY)
            with torch.no_grad():
                language.model(input_ids=torch.tensor([chunk]), past_key_values=kept, logits_to_keep=1)
            kept.save()
        store.compact()


def _drop_files(path):
    for folder, _, names in os.walk(path):
        for name in names:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def _seconds(run):
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _full(model, ids):
    with torch.no_grad():
        model(input_ids=torch.tensor([ids]), past_key_values=transformers.DynamicCache(config=model.config),
              logits_to_keep=1)


def _blended(store, model, ids, options):
    cache = cairn.hf.CairnCache.blend(store, model, "prompt", ids, documents="documents", options=options,
                                      save_every=0, identity=_IDENTITY)
    with torch.no_grad():
        model(input_ids=torch.tensor([ids[-1:]]), past_key_values=cache, logits_to_keep=1)
    store.find_branch("prompt").drop()


def measure(cache):
    """{way: seconds, median}; kept with the results."""
    kept = cache / "results" / "first_token.txt"
    if kept.exists():
        return json.loads(kept.read_text())
    path = cache / "first_token.store"
    if not path.exists():
        subprocess.run([sys.executable, "-c", "import pathlib, sys; from blend_quality import first_token; "
                        "first_token.store_chunks(pathlib.Path(sys.argv[1]), sys.argv[2])", str(cache), str(path)],
                       check=True)
    language = Language()
    chunks, question = _parts(cache, language)
    seconds = {way: [] for way in ("full", *_WAYS, "cold")}
    for number in range(_ROUNDS):
        order = chunks[number + 1:] + chunks[:number + 1]
        ids = [token for chunk in order for token in chunk] + question
        seconds["full"].append(_seconds(lambda: _full(language.model, ids)))
        with cairn.Store(path) as store:
            _blended(store, language.model, ids, {})  # Reads files, and checks positions.
            for way, options in _WAYS.items():
                seconds[way].append(_seconds(lambda: _blended(store, language.model, ids, options)))
        _drop_files(path)
        with cairn.Store(path) as store:
            seconds["cold"].append(_seconds(lambda: _blended(store, language.model, ids, {})))
    result = {way: statistics.median(all_of) for way, all_of in seconds.items()}
    result["tokens"] = _CHUNKS * _TOKENS + _QUESTION
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(result))
    return result
