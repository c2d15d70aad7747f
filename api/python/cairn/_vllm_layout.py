# SPDX-License-Identifier: Apache-2.0
"""From vLLM's cache groups to layer groups of Cairn, and from its tensors to views.

vLLM shows each layer as a tensor [block][head][token][element], K and V side by side in the elements,
whatever the order in memory is. Where an attention backend keeps to that, a position is a row of K and one
of V: everything works to the token. Where a backend may arrange the bytes inside a block as it likes (on a
CPU they are packed for its instructions), a block is an opaque page: its bytes are dealt evenly to its
positions, and the connector stores and loads whole blocks only. Packing, with all that it depends on, is
then part of what is compared.
"""

import dataclasses
import math

import torch
import vllm
from vllm.config import get_layers_from_vllm_config
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVQuantMode, MLAAttentionSpec, SlidingWindowSpec

import cairn

from . import _vllm_identity as identity

# Attention backends that leave rows where the tensor's strides say. All others get opaque blocks.
TOKEN_MAJOR = {"FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"}
NULL_BLOCK = 0  # In a table: positions that a window has left behind.


@dataclasses.dataclass(frozen=True)
class Group:
    """A cache group of vLLM."""

    index: int  # Of vLLM and of the ModelSpec.
    layers: tuple[str, ...]
    block: int  # Tokens.
    window: int  # 0: all tokens.
    packed: bool
    planes: tuple[tuple[str, str, int], ...]  # (name, role, elements of a row), in the order of the elements.
    heads: int
    dtype: str
    spec: cairn.LayerGroup


@dataclasses.dataclass(frozen=True)
class Layout:
    groups: tuple[Group, ...]
    identity: cairn.ModelIdentity

    @property
    def step(self):
        """Stored and loaded ranges end at multiples of this many tokens."""
        return math.lcm(*(group.block if group.packed else 1 for group in self.groups))

    def spec(self, lora=None):
        variant = cairn.ModelVariant() if lora is None else identity.variant_of(lora)
        return cairn.ModelSpec(self.identity, [group.spec for group in self.groups], variant=variant)

    def whole(self, tokens):
        return tokens // self.step * self.step


def layout_of(vllm_config, kv_cache_config, settings):
    groups = []
    for index, group in enumerate(kv_cache_config.kv_cache_groups):
        groups.append(_group(vllm_config, index, tuple(group.layer_names), group.kv_cache_spec))
    return Layout(tuple(groups), identity.identity_of(vllm_config, settings))


def _group(vllm_config, index, layers, spec):
    if type(spec) not in (FullAttentionSpec, SlidingWindowSpec, MLAAttentionSpec):
        raise ValueError(f"CairnConnector: cache group {index} is a {type(spec).__name__}, which is not supported")
    backends = {layer.get_attn_backend().get_name()
                for layer in get_layers_from_vllm_config(vllm_config, AttentionLayerBase, layers).values()}
    if len(backends) != 1:
        raise ValueError(f"CairnConnector: cache group {index} has the attention backends {sorted(backends)}; "
                         "only one is supported")
    (backend,) = backends
    dtype = str(spec.dtype).removeprefix("torch.")
    packed = backend not in TOKEN_MAJOR or spec.kv_quant_mode != KVQuantMode.NONE or spec.tokens_per_state != 1
    window = getattr(spec, "sliding_window", None) or 0
    item = spec.dtype.itemsize
    if packed:
        planes = (("page", "opaque", spec.page_size_bytes // spec.block_size),)
        cairn_planes = [cairn.Plane("page", role="opaque", row_bytes=planes[0][2], dtype="opaque")]
    else:
        if isinstance(spec, MLAAttentionSpec):
            planes = (("latent", "latent", spec.state_content_size_bytes // item),)
        else:
            planes = (("k", "key", spec.head_size), ("v", "value", spec.head_size_v))
        cairn_planes = [cairn.Plane(name, role=role, heads=spec.num_heads, row_bytes=elements * item, dtype=dtype)
                        for name, role, elements in planes]
    retention = cairn.Retention("window", window=window) if window else cairn.Retention()
    layer_group = cairn.LayerGroup(
        f"{'window' if window else 'attention'}-{index}", layers=len(layers), planes=cairn_planes, retention=retention,
        packing=_packing(vllm_config, backend, spec, dtype) if packed else "")
    return Group(index, layers, spec.block_size, window, packed, planes, spec.num_heads, dtype, layer_group)


def _packing(vllm_config, backend, spec, dtype):
    """All that the bytes inside a block depend on, as far as anybody has written it down: so the version, too."""
    words = [f"vllm {vllm.__version__}", backend]
    if backend == "CPU_ATTN":
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa
        words.append(_get_attn_isa(spec.dtype, spec.block_size, spec.head_size, vllm_config.cache_config.cache_dtype))
        words.append(torch.backends.cpu.get_cpu_capability())
    words += [dtype, spec.kv_quant_mode.name, f"{spec.num_heads}x{spec.head_size}", str(spec.block_size)]
    return " ".join(words)


class Pool:
    """The tensors of a worker's layers."""

    def __init__(self, layout, tensors):
        self.layout = layout
        self._held, self._split = [], []
        self.index = {}  # Layer -> its word in the progress of a restore of all groups.
        spec = layout.spec()
        for group in layout.groups:
            layers = [tensors[name] for name in group.layers]
            self._held.append(cairn.KvTensors(spec, _planes_of(group, layers), _axes(group), group=group.index))
            # A backend may take blocks that are smaller than those of the tables.
            self._split.append(group.block // self._held[-1].tokens_per_block)
            for name in group.layers:
                self.index[name] = len(self.index)
        self.device = layers[0].device

    def view(self, begin, end, tables):
        """Positions [begin, end) of a request's blocks; of a window those that there are blocks of."""
        whole = None
        for group, held, split, table in zip(self.layout.groups, self._held, self._split, tables):
            first = begin if group.window == 0 else max(begin, _first_present(table, end, group.block))
            if first >= end:
                continue
            low = first // group.block
            blocks = [block * split + part for block in table[low:-(-end // group.block)] for part in range(split)]
            view = held.view(first, end - first, table=blocks, table_position=low * group.block)
            whole = view if whole is None else whole + view
        return whole


def _first_present(table, end, block):
    """The first position from which no block is missing up to `end`."""
    at = -(-end // block)
    while at > 0 and table[at - 1] != NULL_BLOCK:
        at -= 1
    return at * block


def _axes(group):
    return "BTR" if group.packed else "BHTR"


def _planes_of(group, layers):
    tensors = []
    for name, tensor in zip(group.layers, layers):
        if tensor.dim() != 4 or group.block % tensor.shape[2] != 0:
            raise ValueError(f"CairnConnector: the cache of {name} has the shape {tuple(tensor.shape)}; "
                             f"[blocks, heads, tokens, elements] with blocks of {group.block} tokens is expected")
        if group.packed:
            tensors.append(_pages(name, tensor, group.planes[0][2]))
            continue
        first = 0
        for _, _, elements in group.planes:
            tensors.append(tensor[..., first:first + elements])
            first += elements
        if first != tensor.shape[3]:
            raise ValueError(f"CairnConnector: the rows of {name} have {tensor.shape[3]} elements, not {first}")
    return tensors


def _pages(name, tensor, row_bytes):
    """The same memory as [block][token][byte]."""
    if not tensor[0].is_contiguous():
        raise ValueError(f"CairnConnector: blocks of {name} are not contiguous, strides {tensor.stride()}")
    pages = tensor.flatten(1).view(torch.uint8) if tensor.is_contiguous() else \
        tensor.as_strided((tensor.shape[0], tensor[0].numel()), (tensor.stride(0), 1)).view(torch.uint8)
    if pages.shape[1] != tensor.shape[2] * row_bytes:
        raise ValueError(f"CairnConnector: blocks of {name} have {pages.shape[1]} bytes, not "
                         f"{tensor.shape[2]} x {row_bytes}")
    return pages.unflatten(1, (tensor.shape[2], row_bytes))
