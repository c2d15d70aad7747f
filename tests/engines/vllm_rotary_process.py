# SPDX-License-Identifier: Apache-2.0
"""A process with vLLM, for test_rotary.py: prints one line of JSON, keys of the first layer as its cache gets them,
[token][head][element], and how the connector describes planes of such keys.

Usage: vllm_rotary_process.py JSON, {"model": folder, "store": folder, "ids": prompt}.
"""

import json
import os
import sys

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="WARNING",
                  HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")


def main():
    job, found = json.loads(sys.argv[1]), {}
    described = _vllm_rotary.described

    def look(config, layout):
        layout = described(config, layout)
        (group,) = layout.groups
        rotary = group.spec.planes[0].rotary
        found["group"] = {"inv_freq": group.spec.inv_freq, "mscale": group.spec.mscale, "state": rotary.state,
                          "pairing": rotary.pairing, "first": rotary.first, "width": rotary.width}
        return layout

    _vllm_rotary.described = look
    llm = LLM(model=job["model"], dtype="float32", max_model_len=512, block_size=32, enforce_eager=True, seed=1,
              kv_transfer_config=KVTransferConfig(kv_connector="CairnConnector", kv_connector_module_path="cairn.vllm",
                                                  kv_role="kv_both", kv_connector_extra_config={"path": job["store"]}))
    layers = llm.llm_engine.vllm_config.compilation_config.static_forward_context
    first = layers[min(layers)]

    def keep(layer, inputs):
        found.setdefault("keys", inputs[1].clone())

    first.register_forward_pre_hook(keep)
    llm.generate([{"prompt_token_ids": job["ids"]}], SamplingParams(max_tokens=1, temperature=0), use_tqdm=False)
    keys = found.pop("keys").view(len(job["ids"]), -1, first.head_size)
    print(json.dumps({**found, "keys": keys.tolist()}))


if __name__ == "__main__":
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig

    from cairn import _vllm_rotary
    main()
