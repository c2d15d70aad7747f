# SPDX-License-Identifier: Apache-2.0
"""Shadow sessions on a simulated device: a step attends to what numpy chooses of the stored keys, and has their rows."""

import gc
import time

import numpy as np
import pytest

import cairn

LAYERS, HEADS, GROUP, CHANNELS = 2, 2, 3, 16
TOKENS, COVERED, CHUNK, SINKS = 300, 256, 4, 2
CHUNKS = COVERED // CHUNK
EXACT = dict(keys="exact", landmark_bits=16, outlier_chunks=3, budget_tokens=64)


def floats(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bf16(values):
    """The nearest ones' bits, ties to even."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


@pytest.fixture
def spec():
    return cairn.ModelSpec.of("shadow", layers=LAYERS, kv_heads=HEADS, head_dim=CHANNELS, dtype="bf16")


@pytest.fixture
def kv(spec):
    buffer = cairn.KvBuffer(spec, TOKENS)
    random = np.random.default_rng(6)
    for layer in range(LAYERS):
        for plane in range(2):
            buffer.numpy(layer, plane)[:] = bf16(random.normal(size=(HEADS, TOKENS, CHANNELS)))
    return buffer


@pytest.fixture
def chat(store, spec, kv):
    branch = store.create_branch(store.register_model(spec), "chat")
    branch.append(np.arange(TOKENS, dtype=np.uint32), kv)
    return branch


@pytest.fixture
def arena(store, gpu):
    return store.sparse_arena(gpu, pinned_bytes=2 << 20, device_bytes=16 << 20)


def open_session(arena, chat, append_tokens=4, **spec):
    return cairn.ShadowSession.open(arena, chat, query_heads=HEADS * GROUP, spec=cairn.ShadowSpec(**spec),
                                    append_tokens=append_tokens)


def there(gpu, array, dtype):
    memory = gpu.allocate(array.nbytes)
    memory.copy_in(np.ascontiguousarray(array))
    return memory.tensor(list(array.shape), dtype)


def step(session, gpu, layer, queries, dtype="f32"):
    """The fetch comes last: what was enqueued before it is done then."""
    session.select(layer, there(gpu, queries, dtype))
    session.rebuild(layer)
    session.fetch(layer)
    return session.view(layer).to_host()


def chosen(keys, queries, budget, outliers):
    """(always, selected) chunks of one head, as docs/shadow.md has it; landmarks of 16 bits."""
    chunks = floats(keys[:COVERED]).reshape(CHUNKS, CHUNK, CHANNELS)
    marks = floats(bf16(chunks.sum(1) / CHUNK))
    lengths = np.linalg.norm(chunks, axis=2) * np.linalg.norm(marks, axis=1)[:, None]
    cosines = ((chunks * marks[:, None]).sum(2) / lengths).min(1)
    odd = SINKS + np.argsort(cosines[SINKS:], kind="stable")[:outliers]
    always = list(range(SINKS)) + sorted(odd)
    scores = queries.astype(np.float64) @ marks.T / np.sqrt(CHANNELS)
    scores[:, always] = -np.inf
    scores -= np.log(np.exp(scores).sum(1, keepdims=True))
    return always, sorted(np.argsort(-scores.max(0), kind="stable")[:budget])


def compare(host, kv, layer, queries, spec, scale=0.0):
    """Exact rows have the stored bits; keys of codes are off by `scale` of the channel's range at most."""
    budget = spec["budget_tokens"] // CHUNK
    for head in range(HEADS):
        keys, values = kv.numpy(layer, 0)[head], kv.numpy(layer, 1)[head]
        always, selected = chosen(keys, queries[head * GROUP : (head + 1) * GROUP], budget, spec["outlier_chunks"])
        assert host["chunks"][head].tolist() == selected
        resident = [chunk * CHUNK + t for chunk in always for t in range(CHUNK)] + list(range(COVERED, TOKENS))
        assert set(map(tuple, host["resident_keys"][head])) == set(map(tuple, keys[resident]))
        assert set(map(tuple, host["resident_values"][head])) == set(map(tuple, values[resident]))
        for i, chunk in enumerate(selected):
            tokens = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
            assert np.array_equal(host["values"][head, host["value_slots"][head, i]], values[tokens])
            got = host["keys"][head, host["key_slots"][head, i]]
            off = np.abs(floats(got) - floats(keys[tokens])).max()
            assert off <= scale * (floats(keys).max() - floats(keys).min()), off


@pytest.mark.parametrize("keys, scale", [("exact", 0), ("int8", 0.5 / 255 + 0.004), ("int4", 0.5 / 15 + 0.004)])
def test_a_step_attends_to_what_numpy_chooses(arena, chat, gpu, kv, keys, scale):
    spec = EXACT | {"keys": keys}
    session = open_session(arena, chat, **spec)
    assert session.info.covered == COVERED and session.info.chunks == CHUNKS and session.heads == HEADS
    assert session.info.always_chunks == SINKS + 3 and session.info.budget_chunks == 16
    assert arena.device_bytes == session.device_bytes > 0
    random = np.random.default_rng(7)
    for _ in range(3):
        for layer in range(LAYERS):
            queries = random.normal(size=(HEADS * GROUP, CHANNELS)).astype(np.float32)
            compare(step(session, gpu, layer, queries), kv, layer, queries, spec, scale)
    assert session.stats()["fetches"] == 6 and session.stats()["wanted"] == 6 * HEADS * 16


def test_queries_may_be_of_the_dtype_of_keys(arena, chat, gpu, kv):
    session = open_session(arena, chat, **EXACT)
    bits = bf16(np.random.default_rng(8).normal(size=(HEADS * GROUP, CHANNELS)))
    host = step(session, gpu, 1, bits, "bf16")
    compare(host, kv, 1, floats(bits), EXACT)


def test_shadows_of_a_branch(chat):
    spec = cairn.ShadowSpec(budget_tokens=64)
    with pytest.raises(cairn.NotFound):
        chat.find_shadow(spec)
    info = chat.build_shadow(spec)
    assert (info.tokens, info.covered, info.tokens_read) == (TOKENS, COVERED, COVERED) and info.table_bytes > 0
    assert chat.build_shadow(spec).tokens_read == 0
    assert chat.fork(TOKENS - 1).find_shadow(spec).covered == COVERED
    with pytest.raises(cairn.NotFound):
        chat.find_shadow(spec, end=200)
    chat.drop_shadow(spec)
    with pytest.raises(cairn.NotFound):
        chat.drop_shadow(spec)
    assert chat.build_shadow(end=90).covered == 0


def test_specs_are_values():
    assert cairn.ShadowSpec() == cairn.ShadowSpec(keys="int4", chunk_tokens=4) != cairn.ShadowSpec(keys="int8")
    published = cairn.ShadowSpec.published(256)
    assert (published.keys, published.chunk_tokens, published.rank, published.budget_tokens) == ("low_rank", 8, 40, 2048)
    with pytest.raises(cairn.InvalidArgument, match="exact, int8, int4, low_rank"):
        cairn.ShadowSpec(keys="int2")


def test_what_is_appended_is_attended_to(arena, chat, gpu):
    session = open_session(arena, chat, append_tokens=2, **EXACT)
    rows = bf16(np.random.default_rng(9).normal(size=(2, HEADS, CHANNELS)))
    before = step(session, gpu, 0, np.ones((HEADS * GROUP, CHANNELS), np.float32))
    session.append(0, there(gpu, rows[0], "bf16"), there(gpu, rows[1], "bf16"))
    gc.collect()  # The session keeps them until a fetch.
    host = step(session, gpu, 0, np.ones((HEADS * GROUP, CHANNELS), np.float32))
    count = before["resident_keys"].shape[1]
    assert host["resident_keys"].shape[1] == count + 1
    assert np.array_equal(host["resident_keys"][:, :count], before["resident_keys"])
    assert np.array_equal(host["resident_keys"][:, count], rows[0])
    assert np.array_equal(host["resident_values"][:, count], rows[1])
    session.append(0, there(gpu, rows[0], "bf16"), there(gpu, rows[1], "bf16"))
    with pytest.raises(cairn.Busy, match="append_tokens"):
        session.append(0, there(gpu, rows[0], "bf16"), there(gpu, rows[1], "bf16"))


def test_tensors_are_kept_until_they_have_been_read(arena, chat, gpu):
    session = open_session(arena, chat, **EXACT)
    memory = gpu.allocate(40 << 20)  # The device has 64 MiB.
    memory.copy_in(np.ones((HEADS * GROUP, CHANNELS), np.float32))
    session.select(0, memory.tensor([HEADS * GROUP, CHANNELS], "f32"))
    del memory
    gc.collect()
    with pytest.raises(cairn.OutOfMemory):
        gpu.allocate(40 << 20)
    session.fetch(0)
    gc.collect()
    assert gpu.allocate(40 << 20).bytes == 40 << 20


def test_relaxed_fetches_let_go_what_the_last_but_one_read(arena, chat, gpu):
    session = open_session(arena, chat, **EXACT)
    barrier = arena.open(chat, slots=1, wanted_max=1)

    def step_of(queries):
        for _ in range(5000):
            session.select(0, queries)
            try:
                session.fetch(0, mode="relaxed")
                break
            except cairn.Busy:  # The one before is still reading pages.
                time.sleep(0.001)
        barrier.fetch(0, [[], []])

    memory = gpu.allocate(40 << 20)
    memory.copy_in(np.ones((HEADS * GROUP, CHANNELS), np.float32))
    step_of(memory.tensor([HEADS * GROUP, CHANNELS], "f32"))
    del memory
    small = there(gpu, np.ones((HEADS * GROUP, CHANNELS), np.float32), "f32")
    step_of(small)
    gc.collect()
    assert gpu.allocate(40 << 20).bytes == 40 << 20


def test_the_tensors_are_of_the_device(arena, chat, gpu):
    session = open_session(arena, chat, **EXACT)
    step(session, gpu, 0, np.ones((HEADS * GROUP, CHANNELS), np.float32))
    view = session.view(0)
    for name in view.to_host():
        assert getattr(view, name).__dlpack_device__() == (2, gpu.ordinal)
    del view
    values = session.view(0).values
    del session
    gc.collect()
    assert arena.device_bytes > 0
    del values
    gc.collect()
    assert arena.device_bytes == 0


def test_a_short_context_is_dense(arena, chat, gpu, kv):
    session = cairn.ShadowSession.open(arena, chat, query_heads=HEADS, end=90)
    assert session.info.covered == 0 and session.info.table_bytes == 0
    session.select(1, there(gpu, np.ones((HEADS, CHANNELS), np.float32), "f32"))
    session.fetch(1)
    host = session.view(1).to_host()
    assert host["chunks"].shape == (HEADS, 0) and host["keys"].shape[1] == 0
    assert np.array_equal(host["resident_keys"], kv.numpy(1, 0)[:, :90])
    assert np.array_equal(host["resident_values"], kv.numpy(1, 1)[:, :90])


def test_relaxed_fetches_leave_out_and_have_it_the_next_time(arena, chat, gpu):
    session = open_session(arena, chat, **EXACT)
    other = arena.open(chat, slots=1, wanted_max=1)
    queries = there(gpu, np.ones((HEADS * GROUP, CHANNELS), np.float32), "f32")
    missing = []
    for _ in range(5000):
        session.select(0, queries)
        try:
            session.fetch(0, mode="relaxed")
        except cairn.Busy:
            continue
        other.fetch(0, [[], []])  # Behind it the stream has come so far.
        missing.append(int((session.view(0).to_host()["value_slots"] < 0).sum()))
        if missing[-1] == 0:
            break
        time.sleep(0.001)
    assert missing[0] == HEADS * 16 and missing[-1] == 0 and session.stats()["left_out"] >= HEADS * 16


def test_what_is_saved_and_prefetched(arena, chat, gpu):
    session = open_session(arena, chat, **EXACT)
    session.prefetch(0, [[2, 3], [4, 5]])
    step(session, gpu, 0, np.ones((HEADS * GROUP, CHANNELS), np.float32))
    session.save()
    with pytest.raises(cairn.InvalidArgument, match="the budget, 16"):
        session.prefetch(0, np.zeros((HEADS, 17), np.int32))
    with pytest.raises(cairn.InvalidArgument, match="host memory"):
        session.prefetch(0, there(gpu, np.zeros((HEADS, 2), np.int32), "i32"))


def test_what_is_wrong_is_named(arena, chat, gpu, store):
    session = open_session(arena, chat, **EXACT)
    good = there(gpu, np.ones((HEADS * GROUP, CHANNELS), np.float32), "f32")
    for queries, words in [
        (np.ones((HEADS * GROUP, CHANNELS), np.float32), "cuda:0"),
        (there(gpu, np.ones((HEADS, CHANNELS), np.float32), "f32"), r"\[6, 16\]"),
        (there(gpu, np.ones((HEADS * GROUP, CHANNELS), np.float16), "f16"), "f32 or, as keys are, bf16"),
        (there(cairn.Gpu.simulated(1, ordinal=1), np.ones((HEADS * GROUP, CHANNELS), np.float32), "f32"), "cuda:0"),
    ]:
        with pytest.raises(cairn.InvalidArgument, match=words):
            session.select(0, queries)
    with pytest.raises(cairn.InvalidArgument, match="layer is 2"):
        session.select(2, good)
    with pytest.raises(cairn.InvalidArgument, match="stream"):
        session.select(0, good, stream=12345)
    for call in (session.fetch, session.rebuild, session.view):
        with pytest.raises(cairn.InvalidState, match="nothing"):
            call(1)
    session.select(0, good)
    with pytest.raises(cairn.InvalidArgument, match="strict, relaxed"):
        session.fetch(0, mode="lazy")
    for options, words in [(dict(query_heads=3), "query_heads is 3"), (dict(query_heads=2, group=1), "group is 1"),
                           (dict(query_heads=2, spec=cairn.ShadowSpec(chunk_tokens=3)), "chunk_tokens is 3"),
                           (dict(query_heads=2, end=301), "end is 301")]:
        with pytest.raises(cairn.InvalidArgument, match=words):
            cairn.ShadowSession.open(arena, chat, **options)
    with pytest.raises(cairn.NotFound):
        cairn.ShadowSession.open(arena, chat, query_heads=2, spec=cairn.ShadowSpec(keys="int8"), build=False)
    store.close()
    with pytest.raises(cairn.InvalidState):
        chat.build_shadow()
    with pytest.raises(cairn.InvalidState):
        cairn.ShadowSession.open(arena, chat, query_heads=2)
    assert session.info.covered == COVERED
