# SPDX-License-Identifier: Apache-2.0
"""From vLLM's cache groups to layer groups of Cairn, and from its tensors to views.

vLLM shows each layer as a tensor [block][head][token][element], K and V side by side in the elements,
whatever the order in memory is. Where an attention backend keeps to that, a position is a row of K and one
of V: everything works to the token; so it does on a processor in f32 and f16, where rows have other places
(_vllm_cpu.py). Where a backend may arrange the bytes inside a block as it likes, a block is an opaque page: its
bytes are dealt evenly to its positions, and the connector stores and loads whole blocks only. Packing, with all
that it depends on, is then part of what is compared. On a processor each head of a block is packed by itself, and is
a page of its own, so that ranks with other heads share a store; elsewhere the page is that of a rank.

Of a recurrent layer a block is one state, the one behind some number of tokens. vLLM keeps a state at the ends of some
blocks (its mode "align"), so ranges are whole blocks too, and end where each recurrent group has a state.
"""

import dataclasses
import math

import torch
import vllm
from vllm.config import get_layers_from_vllm_config
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVQuantMode,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)

import cairn

from . import _states
from . import _vllm_content as content
from . import _vllm_cpu as cpu
from . import _vllm_identity as identity
from ._vllm_shares import refuse_parallel, share_of

# Attention backends that leave rows where the tensor's strides say. All others get opaque blocks.
TOKEN_MAJOR = {"FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"}
CPU = "CPU_ATTN"
NULL_BLOCK = 0  # In a table: positions that a window has left behind.


@dataclasses.dataclass(frozen=True)
class Group:
    """A cache group of vLLM, as much of it as a rank holds, or all."""

    index: int  # Of vLLM and of the ModelSpec.
    layers: tuple[str, ...]
    block: int  # Tokens.
    window: int  # 0: all tokens.
    recurrent: bool
    packed: bool
    backend: str
    planes: tuple[tuple[str, str, int], ...]  # (name, role, elements of a row, packed: bytes), in the row's order.
    heads: int  # Of each plane. Where a whole block is packed, that is one.
    dtype: str
    spec: cairn.LayerGroup
    form: str  # Belongs to the cache's dtype: how blocks are divided.
    first_head: int  # The first one's number
    all_heads: int  # among those of all ranks.

    def whole(self, spec):
        """The same of all ranks. spec: of all layers and heads."""
        return dataclasses.replace(self, spec=spec, heads=self.all_heads, first_head=0)


@dataclasses.dataclass(frozen=True)
class Layout:
    groups: tuple[Group, ...]
    identity: cairn.ModelIdentity
    content: str | None  # _vllm_content.settings_of

    @property
    def step(self):
        """Stored and loaded ranges end at multiples of this many tokens."""
        return math.lcm(*(group.block if group.packed else 1 for group in self.groups))

    @property
    def recurrent(self):
        """The numbers of the recurrent groups."""
        return {group.index for group in self.groups if group.recurrent}

    @property
    def asynchronous(self):
        """Whether requests wait for their loads. Else vLLM may be told which blocks were not loaded, which it
        understands of one group of attention only."""
        return len(self.groups) > 1 or bool(self.recurrent)

    def with_states(self, tables, states):
        """A request's tables; of each recurrent group that block alone which `states` names."""
        return tuple([states[index]] if index in states else list(table) for index, table in enumerate(tables))

    def states_at(self, tables, end):
        """{recurrent group: its block with the state behind `end` tokens}, of a request that goes on there."""
        return {index: tables[index][(end - 1) // self.groups[index].block] for index in self.recurrent}

    def spec(self, variant=cairn.ModelVariant()):
        return cairn.ModelSpec(self.identity, [group.spec for group in self.groups], variant=variant)

    def described(self, specs):
        """The same layout, with other words for its groups."""
        return dataclasses.replace(self, groups=tuple(dataclasses.replace(group, spec=spec)
                                                      for group, spec in zip(self.groups, specs)))

    def whole(self, tokens):
        return tokens // self.step * self.step


def groups_of(vllm_config, kv_cache_config):
    """Needs the model's layers: only the process that has them knows."""
    for index, group in enumerate(kv_cache_config.kv_cache_groups):
        if not group.layer_names:
            raise ValueError(f"CairnConnector: rank {vllm_config.parallel_config.rank} has no layer of cache group {index}; "
                             "each stage of pipeline_parallel_size needs one")
    return tuple(_group(vllm_config, index, tuple(group.layer_names), group.kv_cache_spec)
                 for index, group in enumerate(kv_cache_config.kv_cache_groups))


def layout_of(vllm_config, groups, settings, digests):
    # Stores have been written with blocks of a processor as pages of all heads, which are of another model.
    form = "".join(sorted({group.form for group in groups}))
    return Layout(groups, identity.identity_of(vllm_config, settings, digests, form), content.settings_of(vllm_config))


def _group(vllm_config, index, layers, spec):
    if type(spec) not in (FullAttentionSpec, SlidingWindowSpec, MLAAttentionSpec, MambaSpec):
        raise ValueError(f"CairnConnector: cache group {index} is a {type(spec).__name__}, which is not supported")
    backend = _backend_of(vllm_config, index, layers)
    make = _recurrent if isinstance(spec, MambaSpec) else _attention
    return make(vllm_config, index, layers, spec, backend)


def _backend_of(vllm_config, index, layers):
    backends = {layer.get_attn_backend().get_name()
                for layer in get_layers_from_vllm_config(vllm_config, AttentionLayerBase, layers).values()}
    if len(backends) != 1:
        raise ValueError(f"CairnConnector: cache group {index} has the attention backends {sorted(backends)}; "
                         "only one is supported")
    return backends.pop()


def _attention(vllm_config, index, layers, spec, backend):
    dtype = str(spec.dtype).removeprefix("torch.")
    cache_dtype = vllm_config.cache_config.cache_dtype
    plain = spec.kv_quant_mode == KVQuantMode.NONE and spec.tokens_per_state == 1
    rows = plain and (backend in TOKEN_MAJOR or backend == CPU and cpu.has_rows(spec, cache_dtype))
    by_head = plain and not rows and backend == CPU and cpu.packs_by_head(spec, cache_dtype)
    share = share_of(vllm_config, index, layers, spec)
    window = getattr(spec, "sliding_window", None) or 0
    item = spec.dtype.itemsize
    if rows:
        form = " in rows" if backend == CPU else ""
        if isinstance(spec, MLAAttentionSpec):
            planes = (("latent", "latent", spec.state_content_size_bytes // item),)
        else:
            planes = (("k", "key", spec.head_size), ("v", "value", spec.head_size_v))
    else:
        share = share if by_head else share.as_page()
        form = identity.PAGES_OF_HEADS if by_head else f" in pages of {share.all} ranks" if share.all > 1 else ""
        planes = (("page", "opaque", spec.page_size_bytes // spec.block_size // share.heads),)
    cairn_planes = [cairn.Plane(name, role=role, heads=share.heads, row_bytes=width * (item if rows else 1),
                                dtype=dtype if rows else "opaque") for name, role, width in planes]
    layer_group = cairn.LayerGroup(
        f"{'window' if window else 'attention'}-{index}", layers=len(layers), planes=cairn_planes,
        retention=cairn.Retention("window", window=window) if window else cairn.Retention(),
        packing="" if rows else _packing(vllm_config, backend, spec, dtype, by_head))
    return Group(index, layers, spec.block_size, window, False, not rows, backend, planes, share.heads, dtype, layer_group,
                 form, share.first, share.all)


def _recurrent(vllm_config, index, layers, spec, backend):
    """A block is a layer's state, or several: of a convolution and of a recurrence, say."""
    refuse_parallel(vllm_config, f"cache group {index} is recurrent")
    if spec.mamba_cache_mode != "align":
        raise ValueError(
            f"CairnConnector: cache group {index} is recurrent, and vLLM keeps no states of it at the ends of blocks "
            f"(mamba_cache_mode is {spec.mamba_cache_mode!r}); set enable_prefix_caching to True, and leave "
            "mamba_cache_mode out")
    if vllm_config.speculative_config is not None or spec.num_speculative_blocks:
        raise ValueError(f"CairnConnector: cache group {index} is recurrent, of which speculative decoding is not "
                         "supported; leave speculative_config out")
    planes = tuple(
        (f"state-{number} {'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}", "opaque",
         math.prod(shape) * dtype.itemsize)
        for number, (shape, dtype) in enumerate(zip(spec.shapes, spec.dtypes)))
    state_bytes = sum(bytes_ for _, _, bytes_ in planes)
    if not _states.fit(len(layers), state_bytes):
        raise ValueError(f"CairnConnector: cache group {index} is recurrent, and its {len(layers)} layers have states of "
                         f"{state_bytes * len(layers)} bytes together; at most {_states.GROUP_BYTES} are supported")
    processor = torch.backends.cpu.get_cpu_capability() if current_platform.is_cpu() else current_platform.device_type
    layer_group = cairn.LayerGroup(
        f"recurrent-{index}", layers=len(layers), retention=cairn.Retention("checkpoint"),
        planes=[cairn.Plane(name, role=role, row_bytes=bytes_, dtype="opaque") for name, role, bytes_ in planes],
        packing=f"vllm {vllm.__version__} {backend} {processor} {spec.block_size}")
    return Group(index, layers, spec.block_size, 0, True, True, backend, planes, 1, "opaque", layer_group, "",
                 0, 1)


def _packing(vllm_config, backend, spec, dtype, by_head):
    """All that the bytes of a page depend on, as far as anybody has written it down: so the version, too."""
    words = [f"vllm {vllm.__version__}", backend]
    if backend == CPU:
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa
        words.append(_get_attn_isa(spec.dtype, spec.block_size, spec.head_size, vllm_config.cache_config.cache_dtype))
        words.append(torch.backends.cpu.get_cpu_capability())
    heads = "a head of " if by_head else f"{spec.num_heads}x"
    words += [dtype, spec.kv_quant_mode.name, f"{heads}{spec.head_size}", str(spec.block_size)]
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
            self._held.append(cairn.KvTensors(spec, _planes_of(group, layers), "BHTR", group=group.index))
            # A backend may take blocks that are smaller than those of the tables.
            self._split.append(group.block // self._held[-1].tokens_per_block)
            for name in group.layers:
                self.index[name] = len(self.index)
        self.device = layers[0].device

    def view(self, begin, end, tables, states=True):
        """Positions [begin, end) of a request's blocks; of a window those that there are blocks of; of a recurrent
        group, with `states`, the one state behind `end` tokens, which is the one that its table has."""
        return self.of_rows(rows_of(self.layout, begin, end, tables, end if states else None))

    def of_rows(self, rows):
        """The view of these Rows."""
        whole = None
        for one in rows:
            group, held, split = self.layout.groups[one.group], self._held[one.group], self._split[one.group]
            if group.recurrent:
                view = held.view(one.begin, 1, table=one.blocks, table_position=one.begin)
            else:
                blocks = [block * split + part for block in one.blocks for part in range(split)]
                view = held.view(one.begin, one.end - one.begin, table=blocks,
                                 table_position=one.begin // group.block * group.block)
            whole = view if whole is None else whole + view
        return whole


@dataclasses.dataclass
class Rows:
    """Positions [begin, end) of a group, and blocks of its pool from the one that has `begin` on."""

    group: int
    begin: int
    end: int
    blocks: list[int]


def rows_of(layout, begin, end, tables, all_end):
    """What positions [begin, end) of a request are in its blocks, a Rows for each group that has some. all_end: where
    the whole transfer ends, of which these may be a part: a window is the one there, and so are states. None: states
    are left out."""
    rows = []
    for group, table in zip(layout.groups, tables):
        if group.recurrent:
            if end == all_end:
                rows.append(Rows(group.index, end - 1, end, list(table)))
            continue
        first = begin if group.window == 0 else max(begin, _first_present(table, all_end or end, group.block))
        if first < end:
            rows.append(Rows(group.index, first, end, table[first // group.block:-(-end // group.block)]))
    return rows


def _first_present(table, end, block):
    """The first position from which no block is missing up to `end`."""
    at = -(-end // block)
    while at > 0 and table[at - 1] != NULL_BLOCK:
        at -= 1
    return at * block


def _planes_of(group, layers):
    tensors = []
    for name, tensor in zip(group.layers, layers):
        if tensor.dim() != 4 or group.block % tensor.shape[2] != 0:
            raise ValueError(f"CairnConnector: the cache of {name} has the shape {tuple(tensor.shape)}; "
                             f"[blocks, heads, tokens, elements] with blocks of {group.block} tokens is expected")
        of_row = _pages(name, tensor, group.heads) if group.packed else tensor
        if of_row.shape[-1] != sum(width for _, _, width in group.planes):
            raise ValueError(f"CairnConnector: the rows of {name} have {of_row.shape[-1]} "
                             f"{'bytes' if group.packed else 'elements'}, not "
                             f"{sum(width for _, _, width in group.planes)}")
        if group.backend == CPU and not group.packed:
            tensors += cpu.planes_of(tensor)
            continue
        first = 0
        for _, _, width in group.planes:
            tensors.append(of_row[..., first:first + width])
            first += width
    return tensors


def _pages(name, tensor, heads):
    """The same memory as [block][head][token][byte]."""
    if not tensor[0].is_contiguous():
        raise ValueError(f"CairnConnector: blocks of {name} are not contiguous, strides {tensor.stride()}")
    pages = tensor.flatten(1).view(torch.uint8) if tensor.is_contiguous() else \
        tensor.as_strided((tensor.shape[0], tensor[0].numel()), (tensor.stride(0), 1)).view(torch.uint8)
    return pages.unflatten(1, (heads, tensor.shape[2], -1))
