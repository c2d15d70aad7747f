# SPDX-License-Identifier: Apache-2.0
"""KV from and into arrays, by every layout, and what is refused."""

import ml_dtypes
import numpy as np
import pytest

import cairn

LAYERS, HEADS, DIM, TOKENS = 2, 3, 4, 12


@pytest.fixture
def spec():
    return cairn.ModelSpec.of("toy", layers=LAYERS, kv_heads=HEADS, head_dim=DIM, dtype="f16")


@pytest.fixture
def values():
    """[layer][plane][token][head][element], all different."""
    count = LAYERS * 2 * TOKENS * HEADS * DIM
    return np.arange(count, dtype=np.uint16).view(np.float16).reshape(LAYERS, 2, TOKENS, HEADS, DIM)


def shaped(values, layout):
    """The same values as the tensors that an engine with this layout has: 3 blocks of 4 tokens, reversed."""
    table = [2, 1, 0]
    paged = values.reshape(LAYERS, 2, 3, 4, HEADS, DIM)[:, :, table]  # [L][P][B][T][H][R]
    flat = [(layer, plane) for layer in range(LAYERS) for plane in range(2)]

    def dense(array, *axes):
        return np.ascontiguousarray(np.transpose(array, axes) if axes else array)

    tensors = {
        "token_major": lambda: [dense(paged[l, p]) for l, p in flat],
        "head_major": lambda: [dense(paged[l, p], 0, 2, 1, 3) for l, p in flat],
        "vllm_nhd": lambda: [dense(paged[l]) for l in range(LAYERS)],
        "vllm_hnd": lambda: [dense(paged[l], 0, 1, 3, 2, 4) for l in range(LAYERS)],
        "flashinfer_nhd": lambda: [dense(paged[l], 1, 0, 2, 3, 4) for l in range(LAYERS)],
        "flashinfer_hnd": lambda: [dense(paged[l], 1, 0, 3, 2, 4) for l in range(LAYERS)],
        "LBPTHR": lambda: dense(paged, 0, 2, 1, 3, 4, 5),
    }
    return tensors[layout](), table


def whole(chat, spec):
    """What the branch holds, as [layer][plane][token][head][element]."""
    buffer = cairn.KvBuffer(spec, len(chat))
    chat.restore(buffer)
    heads_first = np.stack([np.stack([buffer.numpy(l, p) for p in range(2)]) for l in range(LAYERS)])
    return heads_first.transpose(0, 1, 3, 2, 4)


def same(a, b):
    return np.array_equal(np.ascontiguousarray(a).view(np.uint16), np.ascontiguousarray(b).view(np.uint16))


LAYOUTS = ["token_major", "head_major", "vllm_nhd", "vllm_hnd", "flashinfer_nhd", "flashinfer_hnd", "LBPTHR"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_of_every_layout_go_in_and_come_back(chat, spec, values, layout):
    tensors, table = shaped(values, layout)
    held = cairn.KvTensors(spec, tensors, layout)
    assert (held.blocks, held.tokens_per_block, held.device, held.layers) == (3, 4, "cpu", LAYERS)
    chat.append(range_of(TOKENS), held.view(table=np.array(table, np.int32)))
    assert same(whole(chat, spec), values)

    empty = [np.zeros_like(t) for t in tensors] if isinstance(tensors, list) else np.zeros_like(tensors)
    into = cairn.KvTensors(spec, empty, layout)
    # Positions [3, 11) by slots; what is around them stays as it was.
    slots = [table[p // 4] * 4 + p % 4 for p in range(3, 11)]
    chat.restore(into.view(3, slots=slots), begin=3, end=11)
    some = values.copy()
    some[:, :, [*range(3), 11]] = 0
    for got, want in zip(empty, shaped(some, layout)[0]):
        assert same(got, want)
    chat.restore(into.view(table=table))
    for got, want in zip(empty, tensors):
        assert same(got, want)


def test_llama_cpp_has_values_transposed(chat, spec, values):
    tensors = []
    for layer in range(LAYERS):
        tensors.append(np.ascontiguousarray(values[layer, 0]))
        tensors.append(np.ascontiguousarray(values[layer, 1].transpose(1, 2, 0)))
    chat.append(range_of(TOKENS), cairn.KvView.of(spec, tensors, "llama_cpp"))
    assert same(whole(chat, spec), values)


def test_any_strides_will_do_without_a_copy(chat, spec, values):
    """One array of everything, of which every second token and head counts, held backwards."""
    big = np.zeros((LAYERS, 2, 2 * HEADS, 2 * TOKENS, DIM), np.float16)
    part = big[:, :, ::-2, ::2]  # [L][P][H][T][R]
    part[...] = values.transpose(0, 1, 3, 2, 4)
    chat.append(range_of(TOKENS), cairn.KvView.of(spec, part, "LPHTR"))
    assert same(whole(chat, spec), values)
    wanted = big.copy()
    big[...] = 7
    chat.restore(cairn.KvView.of(spec, part, "LPHTR"))
    assert same(part, wanted[:, :, ::-2, ::2])
    assert np.count_nonzero(big != 7) <= part.size


def test_pieces_follow_each_other(chat, spec, values):
    held = cairn.KvTensors(spec, [list(map(np.ascontiguousarray, layer)) for layer in values])
    for token in range(TOKENS):
        chat.append([token], held.view(token, 1, first_token=token))
    assert same(whole(chat, spec), values)


def range_of(count):
    return np.arange(count, dtype=np.uint32)


@pytest.mark.parametrize("dtype, kinds", [
    ("bf16", [ml_dtypes.bfloat16, np.uint16, np.int16]),
    ("f32", [np.float32]),
    ("f8e4m3", [ml_dtypes.float8_e4m3fn, np.uint8]),
    ("f8e5m2", [ml_dtypes.float8_e5m2, np.int8]),
    ("i8", [np.int8]),
    ("u8", [np.uint8]),
])
def test_dtypes(store, dtype, kinds):
    spec = cairn.ModelSpec.of(dtype, layers=1, kv_heads=1, head_dim=8, dtype=dtype)
    model = store.register_model(spec)
    for kind in kinds:
        tensors = [np.arange(16).reshape(2, 1, 8).astype(kind) for _ in "KV"]
        branch = store.create_branch(model)
        branch.append([1, 2], cairn.KvView.of(spec, tensors))
        back = [np.zeros_like(tensor) for tensor in tensors]
        branch.restore(cairn.KvView.of(spec, back))
        assert all(a.tobytes() == b.tobytes() for a, b in zip(tensors, back))
    with pytest.raises(cairn.InvalidArgument, match=r"tensors\[0\].*is f64, and plane .* is " + dtype):
        cairn.KvView.of(spec, [np.zeros((2, 1, 8)) for _ in "KV"])


@pytest.mark.parametrize("change, layout, said", [
    (lambda t: t[:3], "token_major", "3 of group"),
    (lambda t: t + t, "token_major", "8 of group"),
    (lambda t: t[:1] + [t[1][:, :2]] + t[2:], "token_major", r"tensors\[1\] \(layer 0, plane .v.*has 2 heads"),
    (lambda t: t[:2] + [t[2][:, :, :3]] + t[3:], "token_major", r"tensors\[2\] \(layer 1, plane .k.*rows of 3 elements, 6 bytes"),
    (lambda t: t[:2] + [t[2][:5]] + t[3:], "token_major", r"tensors\[2\].*5 tokens"),
    (lambda t: t[:2] + [np.repeat(t[2], 2, 0)[::2]] + t[3:], "token_major", r"tensors\[2\].*strides"),
    (lambda t: [t[0].astype(np.float32)] + t[1:], "token_major", r"tensors\[0\].*is f32, and plane .k. is f16"),
    (lambda t: [None] + t[1:], "token_major", r"tensors\[0\]: a NoneType is no array"),
    (lambda t: t[:2], "vllm_nhd", r"tensors\[0\].*has 3 dimensions"),
    (lambda t: t, "nhd", "layout: .nhd. is none of token_major"),
    (lambda t: [], "token_major", "there are none"),
])
def test_what_does_not_fit_is_refused_by_name(spec, values, change, layout, said):
    tensors = [np.ascontiguousarray(values[l, p]) for l in range(LAYERS) for p in range(2)]
    with pytest.raises(cairn.InvalidArgument, match=said):
        cairn.KvTensors(spec, change(tensors), layout)


def test_views_are_refused_beyond_their_tensors(chat, spec, values):
    tensors = [np.ascontiguousarray(values[l, p]) for l in range(LAYERS) for p in range(2)]
    held = cairn.KvTensors(spec, tensors)
    with pytest.raises(cairn.InvalidArgument, match=r"tokens \[5, 5 \+ 8\) of tensors that have 12"):
        held.view(count=8, first_token=5)
    with pytest.raises(cairn.InvalidArgument, match="no blocks"):
        held.view(table=[0])
    with pytest.raises(cairn.InvalidArgument):
        chat.append([1], held.view(slots=[12]))
    with pytest.raises(cairn.InvalidArgument, match="group"):
        cairn.KvTensors(spec, tensors, group="window")
    with pytest.raises(cairn.InvalidArgument, match="kv: neither"):
        chat.append([1], tensors)


def test_read_only_arrays_give_and_do_not_take(chat, spec, values):
    tensors = [np.ascontiguousarray(values[l, p]) for l in range(LAYERS) for p in range(2)]
    tensors[3].flags.writeable = False
    held = cairn.KvTensors(spec, tensors)
    assert not held.writable
    chat.append(range_of(TOKENS), held.view())
    with pytest.raises(cairn.InvalidArgument, match="into: a tensor of it is read only"):
        chat.restore(held.view())
    room = np.zeros(TOKENS, np.uint32)
    room.flags.writeable = False
    with pytest.raises(cairn.InvalidArgument, match="tokens: is read only"):
        chat.restore(tokens=room)


def test_several_groups_in_one_view(store):
    """Full attention, a window with sinks and a recurrent state."""
    spec = cairn.ModelSpec("hybrid", [
        cairn.LayerGroup.full_attention(layers=1, kv_heads=2, head_dim=4, dtype="bf16"),
        cairn.LayerGroup.sliding_window(layers=2, kv_heads=1, head_dim=4, dtype="bf16", window=4, sinks=1),
        cairn.LayerGroup.recurrent(layers=1, state_bytes=24),
    ])
    branch = store.create_branch(store.register_model(spec))
    rng = np.random.default_rng(1)

    def random(*shape):
        return rng.integers(0, 2**16, shape, np.uint16)

    full, window = [random(10, 2, 4) for _ in "KV"], [random(10, 1, 4) for _ in "KVKV"]
    state = rng.standard_normal((2, 3)).astype(np.float32)  # A state of any shape is a row.
    both = cairn.KvView.of(spec, full, group="attention") + cairn.KvView.of(spec, window, group="window")
    view = both + cairn.KvView.of(spec, [state], "R", group=2, position=9)
    assert view.groups == [(0, 0, 10), (1, 0, 10), (2, 9, 10)]
    branch.append(range_of(10), view)
    assert branch.kv_lengths == [10, 10, 10] and branch.restorable_length() == 10
    back = [np.zeros_like(t) for t in full], [np.zeros_like(t) for t in window], np.zeros_like(state)
    branch.restore(cairn.KvView.of(spec, back[0]) + cairn.KvView.of(spec, back[1], group=1) +
                   cairn.KvView.of(spec, back[2], "R", group=2, position=9))
    assert all(np.array_equal(a, b) for a, b in zip(full, back[0]))
    assert all(np.array_equal(a, b) for a, b in zip(window, back[1]))
    assert np.array_equal(state, back[2])
    whole_buffer = cairn.KvBuffer(spec, 10)
    branch.restore(whole_buffer.view(0, 10))


def test_buffers_share_their_memory(chat, spec):
    buffer = cairn.KvBuffer(spec, 4)
    rows = buffer.numpy(1, "v")
    assert rows.shape == (HEADS, 4, DIM) and rows.dtype == np.float16
    rows[2, 3, 1] = 5
    assert np.count_nonzero(buffer.bytes) and np.from_dlpack(buffer.tensor(1, 1))[2, 3, 1] == 5
    chat.append(range_of(2), buffer.view(0, 2))
    chat.append(range_of(2), buffer.view(2, 4))
    back = cairn.KvBuffer(spec, 4)
    chat.restore(back)
    assert back == buffer
    for wrong in (lambda: buffer.numpy(2, 0), lambda: buffer.numpy(0, 2), lambda: buffer.numpy(0, "x"),
                  lambda: buffer.numpy(0, 0, 1), lambda: buffer.view(3, 2), lambda: buffer.view(0, 5)):
        with pytest.raises(cairn.InvalidArgument):
            wrong()


def test_fill_and_evicted_kv(chat, spec, values):
    tensors = [np.ascontiguousarray(values[l, p]) for l in range(LAYERS) for p in range(2)]
    held = cairn.KvTensors(spec, tensors)
    chat.append(range_of(TOKENS))
    assert chat.kv_lengths == [0] and chat.restorable_length() == 0
    with pytest.raises(cairn.Evicted):
        chat.restore(cairn.KvBuffer(spec, TOKENS), end=TOKENS, require_kv=True)
    with pytest.raises(cairn.Conflict, match=f"{TOKENS} tokens"):
        chat.fill(held.view(), expected_length=TOKENS - 1)
    assert chat.kv_lengths == [0]
    chat.fill(held.view(), exact=False, expected_length=TOKENS)
    result = chat.restore(cairn.KvBuffer(spec, TOKENS))
    assert result.approximate_bytes == result.bytes == TOKENS * spec.token_bytes
    assert chat.evicted_kv() == []
