# SPDX-License-Identifier: Apache-2.0
"""The steps of one sequence: rows of torch into a shadow session, and what it attends to as rows of torch."""

import numpy
import torch

from . import _core
from ._errors import InvalidState

SIMULATED_BYTES = 48 << 20  # A simulated device has 64 MiB; queries and rows go beside this.
CARD_BYTES = 1 << 40  # A bound, and no more than what a card has is ever there.
PINNED_BYTES = 64 << 20


class Card:
    """A GPU that torch has, too: nothing is copied on the way."""

    bytes = CARD_BYTES

    def __init__(self, device, gpu=None):
        self._device = device
        self.gpu = gpu or _core.Gpu.open(device.index or 0)

    @property
    def stream(self):
        return torch.cuda.current_stream(self._device).cuda_stream

    def wait(self):
        torch.cuda.current_stream(self._device).synchronize()

    def there(self, rows):
        return rows.contiguous()

    def parts(self, view, names):
        return [torch.from_dlpack(getattr(view, name)) for name in names]


class Simulated:
    """A device on the CPU, for machines without a card: rows are copied there and back."""

    bytes, stream = SIMULATED_BYTES, 0

    def __init__(self, gpu=None):
        self.gpu = gpu or _core.Gpu.simulated(0)

    def wait(self):
        pass  # The caller computes on the host.

    def there(self, rows):
        rows = rows.contiguous()
        memory = self.gpu.allocate(rows.nbytes)
        memory.copy_in(rows)
        return memory.tensor(list(rows.shape), str(rows.dtype))

    def parts(self, view, names):
        host = view.to_host()
        return [self._tensor(host[name]) for name in names]

    @staticmethod
    def _tensor(array):
        if array.dtype == numpy.uint16:
            return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)


class Steps:
    """A shadow session of one branch."""

    def __init__(self, device, arena, branch, query_heads, spec, append_tokens, tokens_max):
        self._device = device
        self._open = lambda: _core.ShadowSession.open(
            arena, branch, query_heads=query_heads, spec=spec, append_tokens=append_tokens, tokens_max=tokens_max)
        self._session = self._open()
        self._chunk = spec.chunk_tokens

    @property
    def info(self):
        return self._session.info

    @property
    def device_bytes(self):
        return self._session.device_bytes

    def stats(self):
        return self._session.stats()

    def save(self):
        self._session.save()

    def append(self, layer, keys, values):
        """[heads, tokens, row] each."""
        for token in range(keys.shape[1]):
            self._session.append(layer, self._device.there(keys[:, token]), self._device.there(values[:, token]),
                                 stream=self._device.stream)

    def extend(self):
        """The branch has what was appended, too."""
        self._device.wait()  # Rows that a view showed are rewritten.
        try:
            self._session.extend()
        except InvalidState:  # By rank_energy there are more vectors now than it has room for.
            self._session.save()
            self._session = None  # Gives back its memory first.
            self._session = self._open()

    def select(self, layer, queries):
        """queries: [query heads, row]. The tokens that were chosen, int64 [heads, tokens]."""
        stream = self._device.stream
        self._session.select(layer, self._device.there(queries), stream=stream)
        self._session.rebuild(layer, stream=stream)
        self._session.fetch(layer, stream=stream)
        chunks, = self._device.parts(self._session.view(layer), ["chunks"])
        first = chunks.long().unsqueeze(-1) * self._chunk
        return (first + torch.arange(self._chunk, device=first.device)).flatten(1)

    def keys(self, layer):
        return self._rows(layer, "resident_keys", "keys", "key_slots")

    def values(self, layer):
        return self._rows(layer, "resident_values", "values", "value_slots")

    def _rows(self, layer, *names):
        """[heads, tokens, row]: those that are always attended to, then what was selected."""
        resident, slots, slot_of = self._device.parts(self._session.view(layer), names)
        heads = torch.arange(len(slot_of), device=slot_of.device).unsqueeze(-1)
        return torch.cat([resident, slots[heads, slot_of.long()].flatten(1, 2)], dim=1)
