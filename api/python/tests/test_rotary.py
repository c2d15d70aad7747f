# SPDX-License-Identifier: Apache-2.0
"""Keys at other positions, and the frequencies of LongRoPE, against formulas in numpy."""

import math

import numpy as np
import pytest

import cairn

WIDTH, HEADS = 16, 2


def group(dtype="f32", pairing="halves", **fields):
    return cairn.LayerGroup.full_attention(
        layers=3, kv_heads=HEADS, head_dim=WIDTH, dtype=dtype, pairing=pairing,
        inv_freq=cairn.rotary_frequencies(WIDTH, 100.0), **fields)  # fmt: skip


def described(rotary, heads=1, name="k", **fields):
    """A group whose one plane is rotated as said."""
    plane = cairn.Plane(name, role="key", heads=heads, row_bytes=WIDTH * 4, dtype="f32", rotary=rotary)
    return cairn.LayerGroup("g", layers=1, planes=[plane], inv_freq=cairn.rotary_frequencies(WIDTH, 100.0), **fields)


def rotated(keys, positions, pairing="halves", inv_freq=None):
    """Keys of [..., tokens, heads, elements] as an engine rotates them at `positions`, in double."""
    inv_freq = np.array(cairn.rotary_frequencies(WIDTH, 100.0) if inv_freq is None else inv_freq, np.float32)
    angles = (np.asarray(positions, np.float32)[:, None] * inv_freq).astype(np.float64)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    keys = np.asarray(keys, np.float64)
    if pairing == "halves":
        x, y = keys[..., : WIDTH // 2], keys[..., WIDTH // 2 :]
        return np.concatenate([x * cos - y * sin, y * cos + x * sin], -1)
    x, y = keys[..., ::2], keys[..., 1::2]
    return np.stack([x * cos - y * sin, y * cos + x * sin], -1).reshape(keys.shape)


def plain(*shape):
    return np.random.default_rng(1).standard_normal(shape, np.float32)


@pytest.mark.parametrize("pairing", ["halves", "adjacent"])
def test_keys_are_those_of_the_positions_where_they_are_wanted(pairing):
    before = plain(3, 300, HEADS, WIDTH)
    source, target = np.arange(300), np.random.default_rng(2).integers(0, 5000, 300)
    keys = rotated(before, source, pairing).astype(np.float32)
    out = np.zeros_like(keys)
    assert cairn.rotate_keys(group(pairing=pairing), keys, source, target, out=out) is None
    np.testing.assert_allclose(out, rotated(before, target, pairing), atol=2e-6)
    assert not np.allclose(out, keys, atol=0.1)
    # One layer, in place, by a list; the plane by its name.
    cairn.rotate_keys(group(pairing=pairing), keys[1], list(map(int, source)), target.astype(np.uint16), plane="k")
    np.testing.assert_array_equal(keys[1], out[1])


def test_halves_of_16_bits_are_rounded_once():
    keys = plain(7, HEADS, WIDTH).astype(np.float16)
    out = np.empty_like(keys)
    cairn.rotate_keys(group("f16"), keys, [0] * 7, range(7), out=out)
    np.testing.assert_allclose(out, rotated(keys, range(7)), atol=4 * 2**-11)
    # bf16 as numbers of 16 bits.
    bits = (plain(7, HEADS, WIDTH).view(np.uint32) >> 16).astype(np.uint16)
    out = np.empty_like(bits)
    cairn.rotate_keys(group("bf16"), bits, [0] * 7, range(7), out=out)
    as_f32 = [(each.astype(np.uint32) << 16).view(np.float32) for each in (bits, out)]
    np.testing.assert_allclose(as_f32[1], rotated(as_f32[0], range(7)), atol=4 * 2**-8)


def test_keys_may_lie_in_any_order():
    keys = plain(5, HEADS, WIDTH)
    want = keys.copy()
    cairn.rotate_keys(group(), want, range(5), [9, 8, 7, 6, 5])
    mixed = np.zeros((WIDTH, 5, HEADS), np.float32).transpose(1, 2, 0)
    cairn.rotate_keys(group(), np.asfortranarray(keys), range(5), [9, 8, 7, 6, 5], out=mixed)
    np.testing.assert_array_equal(mixed, want)


def test_what_is_stored_before_rotation_has_no_positions_yet():
    spec = described(cairn.RotarySpec("before", "halves"), mscale=2.0)
    keys = plain(3, WIDTH)
    want = rotated(2 * keys[:, None], [4, 0, 70])[:, 0]
    cairn.rotate_keys(spec, keys, None, [4, 0, 70])
    np.testing.assert_allclose(keys, want, atol=1e-5)
    with pytest.raises(cairn.InvalidArgument, match="from has 3 positions, not 0"):
        cairn.rotate_keys(spec, keys, [1, 2, 3], [4, 0, 70])


def test_sections_have_a_position_each():
    spec = described(cairn.RotarySpec("applied", "halves", width=WIDTH, sections=[2, 3, 3]), heads=HEADS)
    keys = plain(1, HEADS, WIDTH)
    out = keys.copy()
    cairn.rotate_keys(spec, out, [[1, 5, 9]], [[1, 6, 9]])
    turned = [i for i in range(WIDTH) if (out != keys)[0, :, i].any()]
    assert turned == [2, 3, 4, 10, 11, 12]
    with pytest.raises(cairn.InvalidArgument, match=r"to_positions: has the shape \[3\], not \[1, 3\]"):
        cairn.rotate_keys(spec, out, [[1, 5, 9]], [1, 6, 9])


@pytest.mark.parametrize("change, said", [
    ({"group": group("bf16")}, "keys: is f32, and plane \"k\" is bf16"),
    ({"group": described(cairn.RotarySpec("applied"), heads=HEADS)}, "rotary.pairing is unset"),
    ({"plane": 1}, "rotary.state is none"),
    ({"plane": 2}, "plane: 2; the group has 2"),
    ({"plane": "q"}, "plane: the group has none of the name \"q\""),
    ({"keys": plain(3, WIDTH)}, r"keys: has the shape \[3, 16\]; wanted are \[tokens, 2, 16\]"),
    ({"keys": plain(3, HEADS, 8)}, r"keys: has the shape \[3, 2, 8\]"),
    ({"keys": plain(3, HEADS, WIDTH)[::-1]}, "keys: has strides that are not positive"),
    ({"keys": np.broadcast_to(plain(1, HEADS, WIDTH), (3, HEADS, WIDTH)), "out": plain(3, HEADS, WIDTH)},
     "keys: has strides that are not positive"),
    ({"keys": 7}, "keys: a int is no array"),
    ({"out": plain(4, HEADS, WIDTH)}, r"out: has the shape \[1, 4, 2, 16\], and keys \[1, 3, 2, 16\]"),
    ({"from_positions": [1, 2]}, r"from_positions: has the shape \[2\], not \[3\]"),
    ({"from_positions": None}, "from has 0 positions, not 3"),
    ({"to_positions": [1, -2, 3]}, "to_positions: a position is negative"),
    ({"to_positions": [1.0, 2.0, 3.0]}, "to_positions: float64 are no whole numbers"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_by_its_field(change, said):
    arguments = {"group": group(), "keys": plain(3, HEADS, WIDTH), "from_positions": [1, 2, 3],
                 "to_positions": [4, 5, 6], **change}  # fmt: skip
    keys = arguments["keys"]
    before = np.array(keys)
    with pytest.raises(cairn.InvalidArgument, match=said):
        cairn.rotate_keys(**arguments)
    np.testing.assert_array_equal(np.array(keys), before)


def test_keys_that_cannot_be_written_and_those_that_overlap():
    keys = plain(3, HEADS, WIDTH)
    keys.flags.writeable = False
    with pytest.raises(cairn.InvalidArgument, match="keys: is read only"):
        cairn.rotate_keys(group(), keys, [1, 2, 3], [1, 2, 3])
    memory = plain(4, HEADS, WIDTH)
    with pytest.raises(cairn.InvalidArgument, match="into shares memory with rows"):
        cairn.rotate_keys(group(), memory[:3], [1, 2, 3], [1, 2, 3], out=memory[1:])


def test_long_rope():
    short, long = [1.0 + 0.05 * i for i in range(8)], [1.0 + 7.5 * i for i in range(8)]
    base = 10_000.0 ** -(np.arange(0, WIDTH, 2) / WIDTH)
    for context, factors in ((4096, short), (4097, long)):
        got = cairn.long_rope_frequencies(WIDTH, 10_000.0, short_factors=short, long_factors=long,
                                          original_positions=4096, context_positions=context)  # fmt: skip
        np.testing.assert_array_equal(np.array(got, np.float32), (base / factors).astype(np.float32))
    assert cairn.long_rope_mscale(32.0, 4096) == pytest.approx(math.sqrt(1 + math.log(32) / math.log(4096)))
    assert cairn.long_rope_mscale(1.0, 4096) == 1.0
    for context, said in ((1, "short_factors: 7 numbers, not 8"), (5000, "long_factors: 9 numbers, not 8")):
        with pytest.raises(cairn.InvalidArgument, match=said):
            cairn.long_rope_frequencies(WIDTH, 1e4, short_factors=short[1:], long_factors=[*long, 1.0],
                                        original_positions=4096, context_positions=context)  # fmt: skip
