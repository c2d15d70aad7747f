# SPDX-License-Identifier: Apache-2.0
"""How an engine turns its keys: not believed of a model's settings, but seen in keys that the engine computes.

The key of one token alone depends on its position by rotation only, in every layer: it attends to itself, wherever it
stands. So an adapter has it computed at position 0 and far behind, and looks which frequencies of the engine's own turn
one into the other. What no candidate explains stays unset.
"""

import torch

from ._rotary import Turn

FAR = 1000  # A position: slow pairs have turned by more than rounding, and fp32 still has 2^-14 of an angle.
_ROUNDINGS = 4  # Of cosine, sine, two products and their sum, in units of the last place of the rows' dtype.
_FP32_ANGLES = 1e-4  # Of fp32 cosines, and of scores of an attention sink, which round by position.


def turn_of(still, turned, position, candidates):
    """The Turn between rows of one token at position 0 and at `position`, [heads, elements] each. None: unknown."""
    if still.shape != turned.shape or not bool(still.abs().amax(-1).gt(0).all()):
        return None  # Zeros show nothing.
    if torch.equal(still, turned):
        return Turn()
    tolerance = _ROUNDINGS * torch.finfo(still.dtype).eps + _FP32_ANGLES
    still, turned = still.double(), turned.double()
    for frequencies in candidates:
        width = 2 * len(frequencies.inv_freq)
        for first in sorted({0, still.shape[-1] - width}):
            for pairing in ("halves", "adjacent"):
                turn = Turn(frequencies, pairing, first)
                if first >= 0 and _explains(turn, still, turned, position, tolerance):
                    return turn
    return None


def _explains(turn, still, turned, position, tolerance):
    end = turn.first + 2 * len(turn.frequencies.inv_freq)
    for part in (slice(0, turn.first), slice(end, None)):
        if not torch.equal(still[:, part], turned[:, part]):
            return False
    x, y = _pairs(still[:, turn.first:end], turn.pairing)
    u, v = _pairs(turned[:, turn.first:end], turn.pairing)
    angles = (torch.tensor(turn.frequencies.inv_freq, dtype=torch.float32) * position).double()
    cosine, sine = angles.cos(), angles.sin()
    apart = torch.hypot(x * cosine - y * sine - u, x * sine + y * cosine - v)
    return bool((apart <= tolerance * torch.hypot(x, y)).all())


def _pairs(rows, pairing):
    if pairing == "adjacent":
        return rows[:, 0::2], rows[:, 1::2]
    half = rows.shape[1] // 2
    return rows[:, :half], rows[:, half:]
