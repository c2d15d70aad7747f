# SPDX-License-Identifier: Apache-2.0
"""Which KV heads of a layer a rank of vLLM holds, and which layers: tensor and pipeline parallel."""

import dataclasses

from vllm.v1.kv_cache_interface import MLAAttentionSpec


@dataclasses.dataclass(frozen=True)
class Share:
    """Heads [first, first + heads) of `all` heads. Where there are more ranks than heads, several hold the same."""

    heads: int
    first: int
    all: int

    def as_page(self):
        """The same where the heads of a rank lie in one page, which is a head then."""
        return Share(1, self.first // self.heads, self.all // self.heads)


def share_of(vllm_config, index, layers, spec):
    """Of these layers of a cache group. ValueError: they are not dealt to ranks as vLLM deals heads."""
    size = vllm_config.parallel_config.tensor_parallel_size
    if size == 1 or isinstance(spec, MLAAttentionSpec):
        return Share(spec.num_heads, 0, spec.num_heads)
    totals = {_heads_of(vllm_config.model_config, name) for name in layers}
    total = totals.pop()
    even = total % size == 0 or size % total == 0
    if totals or not even or spec.num_heads != max(1, total // size):
        raise ValueError(f"CairnConnector: cache group {index} has {spec.num_heads} KV heads in each rank and "
                         f"{sorted({total, *totals})} in the model, which are not dealt evenly to "
                         f"tensor_parallel_size {size}")
    rank = vllm_config.parallel_config.rank % size
    return Share(spec.num_heads, rank * total // size // spec.num_heads * spec.num_heads, total)


def _heads_of(model_config, layer):
    """All KV heads of a layer; models whose layers differ say so layer by layer."""
    number = next((int(part) for part in layer.split(".") if part.isdigit()), 0)
    arch = model_config.model_arch_config
    return (arch if arch.per_layer_overrides is None else arch[number]).total_num_kv_heads


def refuse_parallel(vllm_config, what):
    """ValueError, where there is more than one rank."""
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        size = getattr(vllm_config.parallel_config, name)
        if size != 1:
            raise ValueError(f"CairnConnector: {what}, of which one rank only is supported; {name} is {size}")
