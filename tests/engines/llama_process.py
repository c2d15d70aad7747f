# SPDX-License-Identifier: Apache-2.0
"""Computes ids with llama.cpp and saves them token by token into the branch "chat"; prints each length that was saved.

  llama_process.py GGUF STORE IDS PROMPT    IDS: JSON; the first PROMPT of them are one pass
"""

import json
import signal
import sys

import cairn
import cairn.llamacpp
import llama_engine

path, place, ids, prompt = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
engine = llama_engine.Model(path).context()
with cairn.Store(place, create_if_missing=True) as store:
    context = cairn.llamacpp.Context(store, engine.pointer, path, library=llama_engine.PATH)
    chat = context.sequence("chat")
    engine.decode(ids[:prompt], 0)
    for position in range(prompt, len(ids)):
        print(chat.save(ids[:position]), flush=True)
        engine.decode(ids[position:position + 1], position)
    print(chat.save(ids), flush=True)
    signal.pause()  # Until it is killed.
