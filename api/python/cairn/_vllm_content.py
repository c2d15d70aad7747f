# SPDX-License-Identifier: Apache-2.0
"""Pictures and other content behind token ids, told by vLLM's own hashes of it."""

import hashlib
import re
from typing import Any

import cairn

# Of vLLM's hashers, with the adapter's name before it where that computes the content, too. Others are names that a
# user gave, which may mean something else next time.
_OF_CONTENT = re.compile(r"(.*:)?([0-9a-f]{64}|[0-9a-f]{128})", re.DOTALL)
# Settings of an engine that shape what the model sees, and that vLLM's hashes leave out.
_SETTINGS = ("mm_processor_kwargs", "media_io_kwargs", "mm_device_do_normalize", "mm_encoder_attn_dtype",
             "video_pruning_rate", "video_pruning_method")


class Unknown(ValueError):
    """There is content that nothing tells from other content."""


def settings_of(vllm_config):
    """What belongs to each hash of content; None: hashes do not tell content."""
    config = vllm_config.model_config.multimodal_config
    if config is None or vllm_config.ec_transfer_config is not None:
        return None  # Another connector brings embeddings: vLLM's hash is of their shape then.
    if config.mm_processor_cache_gb == 0 and not vllm_config.cache_config.enable_prefix_caching:
        return None  # Then vLLM makes them of the request's number.
    return repr([getattr(config, name, None) for name in _SETTINGS])


class Content:
    """Of a request. It is stored and loaded as a whole: no range ends within it."""

    def __init__(self, layout, features):
        self._layout = layout
        self._spans = [_span_of(feature, layout.content) for feature in features]
        for before, span in zip(self._spans, self._spans[1:]):
            if span.begin < before.end:
                raise Unknown("overlaps")

    def within(self, begin, end):
        """The spans of [begin, end), which ends and begins outside of them."""
        return [span for span in self._spans if begin <= span.begin and span.end <= end]

    def outside(self, position):
        """The last position up to this one that is not inside of content."""
        return next((span.begin for span in self._spans if span.begin < position < span.end), position)

    def whole(self, tokens):
        """As Layout.whole, and outside of content."""
        while True:
            end = self._layout.whole(tokens)
            tokens = self.outside(end)
            if tokens == end:
                return end


def _span_of(feature: Any, settings):
    place = feature.mm_position
    if settings is None or place.length == 0 or _is_embedded(feature) or not _OF_CONTENT.fullmatch(feature.identifier):
        raise Unknown(feature.modality)
    words = "\0".join((feature.modality, feature.identifier, settings))
    digest = hashlib.sha256(words.encode()).digest()
    halves = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")
    return cairn.ContentSpan(place.offset, place.offset + place.length, halves, atomic=True)


def _is_embedded(feature):
    """Whether a user gave embeddings, in place of a picture, say."""
    return feature.modality == "prompt_embeds" or any("embed" in key for key in feature.data or ())
