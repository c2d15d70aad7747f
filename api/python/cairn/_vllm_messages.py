# SPDX-License-Identifier: Apache-2.0
"""Messages from the scheduler to the worker, in a step and, of End, at once. They share a process, so handles are
passed.

Their tables are the request's, one a cache group; of a recurrent group it is one block, which has the state behind
`end` tokens or `kv_end`.
"""

import dataclasses
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata

from ._vllm_unsound import Computed


@dataclasses.dataclass
class Start:
    """A request got its blocks: positions of them are to be loaded."""

    request_id: str
    hit: Any  # PrefixHit, on lease, or _vllm_blend.Source.
    begin: int
    end: int
    tables: tuple[list[int], ...]


@dataclasses.dataclass
class Save:
    """Behind this step, `tokens` from position `first` on are known, and KV up to `kv_end`."""

    request_id: str
    first: int
    tokens: list[int]
    kv_end: int
    tables: tuple[list[int], ...]
    drawn: int  # Tokens that were sampled, up to kv_end.


@dataclasses.dataclass
class End:
    """A request is over, and its blocks are given to others next."""

    request_id: str
    save: Save | None
    first: int
    tokens: list[int]
    drawn: int


@dataclasses.dataclass
class StepMetadata(KVConnectorMetadata):
    starts: list[Start] = dataclasses.field(default_factory=list)
    saves: list[Save] = dataclasses.field(default_factory=list)
    computed: list[Computed] = dataclasses.field(default_factory=list)  # While any blocks are, or may be, unsound.


def finish(sequences, end):
    """The part of a finished request's save that needs no blocks."""
    sequence = sequences.pop(end.request_id, None)
    if sequence is not None:
        # It may have begun again since, and lack some.
        left = end.tokens[sequence.length - end.first:] if sequence.length >= end.first else []
        sequence.end(left, end.drawn)
