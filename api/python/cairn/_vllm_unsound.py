# SPDX-License-Identifier: Apache-2.0
"""Blocks of vLLM's cache whose KV is not that of their tokens, because a load failed."""

import dataclasses


@dataclasses.dataclass
class Computed:
    """A step computes positions [begin, end) of a request with these blocks. caught_up: all of its tokens have KV then."""

    begin: int
    end: int
    caught_up: bool
    blocks: list[int]


class Unsound:
    """Blocks that were not loaded, and those that were computed behind them, until a step computes them again behind
    sound ones. vLLM keeps them under the hashes of their tokens, so that other requests may share them."""

    def __init__(self):
        self._blocks, self._begun = set(), set()  # Begun: computed from their first row on, but not to their end.

    def __bool__(self):
        return bool(self._blocks)

    def loaded(self, sound, not_loaded):
        self._blocks.difference_update(sound)
        self._blocks.update(not_loaded)

    def touches(self, blocks):
        return not self._blocks.isdisjoint(blocks)

    def step(self, computed, block):
        """block: the tokens of one. All requests of a step are computed together, so shared blocks are sound first."""
        if not self._blocks:
            return
        for one in computed:
            first = one.begin // block
            if one.begin % block and one.blocks[first] not in self._begun:
                first += 1
            end = -(-one.end // block) if one.caught_up else one.end // block
            done = one.blocks[first:end]
            self._blocks.difference_update(done)
            self._begun.difference_update(done)
            if one.end % block and one.end // block >= first:
                self._begun.add(one.blocks[one.end // block])
        for one in computed:
            if self.touches(one.blocks[:-(-one.begin // block)]):
                self._blocks.update(one.blocks[one.begin // block:-(-one.end // block)])
