# SPDX-License-Identifier: Apache-2.0
"""The identity of a model: must be equal before one process may use the state of another."""

import dataclasses
import hashlib
import json
import os
import pathlib
import re

import cairn

from . import _digest

# A namespace with this at its end is of a generation: of weights that no file holds. It is over when its process is.
_GENERATION = "@generation:"
_OF_A_GENERATION = re.compile(_GENERATION + r"([0-9a-f]{32})(#[0-9a-f]{32})?(#blended)?$")
PAGES_OF_HEADS = " in pages of heads"  # At the end of a cache's dtype.
_DEGREES = "@degrees:"  # At the end of a namespace of KV of one parallel degree.
_BLENDED = "#blended"  # At the end of a namespace; what a salt puts there has other letters.


def identity_of(vllm_config, settings, digests, form=""):
    """form: belongs to the cache's dtype. ValueError: there is nothing to tell the weights by."""
    model, cache = vllm_config.model_config, vllm_config.cache_config
    name = settings.model or pathlib.PurePath(model.model).name
    return cairn.ModelIdentity(
        name,
        revision=str(model.revision or getattr(model.hf_config, "_commit_hash", None) or ""),
        weights_digest=settings.weights_digest or _weights_of(vllm_config, digests),
        quantization=str(model.quantization or ""),
        cache_dtype=f"{cache.cache_dtype} of {model.dtype}{form}")


def _weights_of(vllm_config, digests):
    model, load = vllm_config.model_config, vllm_config.load_config
    words = _config_text(model.hf_config)
    extra = getattr(load, "model_loader_extra_config", None)
    if extra:
        words += f" {extra}"  # A loader's own settings, an adapter that it merges, say.
    try:
        if load.load_format == "dummy":
            raise _digest.NoFiles("weights of load_format 'dummy' are in no file")
        return digests.of(_folder_of(model, load), words)
    except (OSError, ValueError) as error:
        raise ValueError(f"CairnConnector: {error}; give kv_connector_extra_config 'weights_digest', a text that "
                         "changes whenever the weights do") from error


def _folder_of(model, load):
    """Where the files are that vLLM has loaded; those of a hub's model are in its cache by now."""
    if os.path.exists(model.model):
        return model.model
    from huggingface_hub import snapshot_download
    return snapshot_download(model.model, revision=model.revision, cache_dir=load.download_dir, local_files_only=True)


def _config_text(config):
    """Settings that shape the computation (overridden rotary scaling, say), without the place it was loaded from."""
    words = json.loads(config.to_json_string(use_diff=False))
    for key in ("_name_or_path", "transformers_version"):
        words.pop(key, None)
    return json.dumps(words, sort_keys=True)


def new_generation():
    return os.urandom(16).hex()


@dataclasses.dataclass(frozen=True)
class Weights:
    """What a request is computed with: an adapter, and generations. Equal: the same weights."""

    adapter: str = ""  # "": the base model.
    digest: str = ""  # The adapter's files, as its number was first loaded.
    generations: tuple[str, ...] = ()  # The base's, then the adapter's; none: both are as their files.

    @property
    def variant(self):
        return cairn.ModelVariant(self.adapter, digest=self.digest) if self.adapter else cairn.ModelVariant()

    @property
    def generation(self):
        """128 bits, or ""."""
        if len(self.generations) < 2:
            return "".join(self.generations)
        return hashlib.sha256("".join(self.generations).encode()).hexdigest()[:32]


def of_degrees(name, degrees):
    """The namespace of KV that engines of these degrees of tensor and pipeline parallel have computed."""
    return name + _DEGREES + "x".join(map(str, degrees))


def namespace_of(name, generation, salt):
    if generation:
        name += _GENERATION + generation
    if salt:
        name += "#" + hashlib.sha256(salt.encode(errors="surrogatepass")).hexdigest()[:32]
    return name


def blended(namespace):
    """Where requests that go on from approximate KV of this namespace are kept: no exact request looks there."""
    return namespace + _BLENDED


def is_reserved(name):
    """Whether a namespace of that name could be one that is made of another name here."""
    return "#" in name or _GENERATION in name or _DEGREES in name


def generation_of(namespace):
    """The generation that a namespace is of, or None."""
    found = _OF_A_GENERATION.search(namespace)
    return found and found[1]
