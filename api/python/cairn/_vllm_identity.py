# SPDX-License-Identifier: Apache-2.0
"""The identity of a model: must be equal before one process may use the state of another."""

import hashlib
import json
import pathlib

import cairn

SAMPLE_BYTES = 4096  # Of each tensor: training changes all of it, and reading all of it takes minutes.
HEADER_BYTES_MAX = 100 << 20  # As the format of safetensors says.


def identity_of(vllm_config, settings):
    model, cache = vllm_config.model_config, vllm_config.cache_config
    name = settings.model or pathlib.PurePath(model.model).name
    config = model.hf_config
    return cairn.ModelIdentity(
        name,
        revision=str(model.revision or getattr(config, "_commit_hash", None) or ""),
        weights_digest=settings.weights_digest or _digest(model.model, _config_text(config)),
        quantization=str(model.quantization or ""),
        cache_dtype=f"{cache.cache_dtype} of {model.dtype}")


def variant_of(lora):
    return cairn.ModelVariant(lora.lora_name, digest=_digest(lora.lora_path, ""))


def _config_text(config):
    """Settings that shape the computation (overridden rotary scaling, say), without the place it was loaded from."""
    words = json.loads(config.to_json_string(use_diff=False))
    for key in ("_name_or_path", "transformers_version"):
        words.pop(key, None)
    return json.dumps(words, sort_keys=True)


def _digest(path, config):
    """Of the config, and of the weights where they are files: names, shapes and the beginning of each tensor."""
    digest = hashlib.sha256(config.encode())
    folder = pathlib.Path(path)
    for file in sorted(folder.glob("*.safetensors")) if folder.is_dir() else []:
        with file.open("rb") as data:
            size = int.from_bytes(data.read(8), "little")
            if size > HEADER_BYTES_MAX:
                raise ValueError(f"CairnConnector: {file} is no safetensors file")
            header = data.read(size)
            digest.update(header)
            for tensor in json.loads(header).values():
                if "data_offsets" in tensor:
                    begin, end = tensor["data_offsets"]
                    data.seek(8 + size + begin)
                    digest.update(data.read(min(end - begin, SAMPLE_BYTES)))
    return digest.hexdigest()
