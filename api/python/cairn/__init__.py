# SPDX-License-Identifier: Apache-2.0
"""Cairn: a crash-safe, branching store for the KV state of language models.

    import cairn

    spec = cairn.ModelSpec.of("toy", layers=2, kv_heads=2, head_dim=4, dtype="bf16")
    with cairn.Store("example.store", create_if_missing=True) as store:
        chat = store.create_branch(store.register_model(spec), "chat")
        kv = cairn.KvBuffer(spec, 3)
        chat.append([11, 12, 13], kv, durability="power")
        back = cairn.KvBuffer(spec, 3)
        chat.restore(back)

Sizes are bytes and times seconds unless a name says otherwise; positions count from 0.
"""

from . import _core, _exit, _explain, models, sampler, views
from ._errors import *  # noqa: F403: all of them
from ._errors import __all__ as _error_names
from ._core import (
    BlendChunk,
    BlendPlan,
    BlendSegment,
    BlendStep,
    Branch,
    BranchInfo,
    CheckpointInfo,
    CompletionQueue,
    Composed,
    ComposedDocument,
    ContentSpan,
    Draft,
    ExportInfo,
    ForestInfo,
    Gpu,
    GpuMemory,
    Keep,
    KvBuffer,
    KvCopier,
    KvHole,
    KvSlots,
    KvTensors,
    KvView,
    LayerGroup,
    LayerProgress,
    LogicalGroup,
    Metadata,
    Model,
    ModelIdentity,
    ModelSpec,
    ModelVariant,
    NamespaceInfo,
    NamespacePolicy,
    ObjectInfo,
    ObjectQueue,
    Objects,
    ObjectsFound,
    PathStep,
    Plane,
    PrefixHit,
    RestoreResult,
    Retention,
    RotarySpec,
    SamplerState,
    ShadowInfo,
    ShadowSession,
    ShadowSpec,
    ShadowView,
    ShardSpec,
    SharedMemory,
    SlotNews,
    SlotUse,
    SparseArena,
    SparseSession,
    SparseView,
    Store,
    Ticket,
    VerifyReport,
    WriteBatch,
    __version__,
    copy_kv,
    linear_frequencies,
    llama3_frequencies,
    long_rope_frequencies,
    long_rope_mscale,
    rotary_frequencies,
    rotate_keys,
    yarn_frequencies,
    yarn_mscale,
)

_explain.explain(_core)
__all__ = [name for name in dir() if not name.startswith("_")] + ["__version__"]
