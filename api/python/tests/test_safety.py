# SPDX-License-Identifier: Apache-2.0
"""What must be refused before it reads or writes memory that is not its own."""

import numpy as np
import pytest

import cairn


@pytest.fixture
def one_head():
    return cairn.ModelSpec.of("toy", layers=2, kv_heads=1, head_dim=4, dtype="bf16")


def with_dtype(dtype):
    return cairn.ModelSpec.of("toy", layers=2, kv_heads=2, head_dim=4, dtype=dtype)


def test_kv_of_a_model_of_other_shapes_is_refused(chat, spec, one_head):
    chat.append([1, 2], cairn.KvBuffer(spec, 2))
    narrow = cairn.KvView.of(one_head, [np.zeros((1, 4, 4), np.uint16) for _ in "KVKV"], "head_major")
    for kv in (narrow, cairn.KvBuffer(one_head, 4), cairn.KvBuffer(one_head, 4).view(2, 4)):
        for call in (lambda: chat.append([1, 2], kv), lambda: chat.append_async([1, 2], kv), lambda: chat.restore(kv),
                     lambda: chat.restore_async(kv), lambda: chat.fill(kv), lambda: chat.fork().restore(kv),
                     lambda: chat.store.find_branch("chat").restore(kv)):
            with pytest.raises(cairn.ModelMismatch, match=r"(kv|into): is of another model: groups\[0\].*heads"):
                call()
    with chat.begin_append(2) as draft, pytest.raises(cairn.ModelMismatch):
        draft.put(0, narrow)
    with pytest.raises(cairn.ModelMismatch, match="dtype"):
        chat.append([1], cairn.KvBuffer(with_dtype("f16"), 1))
    with pytest.raises(cairn.ModelMismatch):
        cairn.KvBuffer(spec, 4).view() + narrow
    assert len(chat) == 2


def test_a_hit_is_restored_into_kv_of_its_own_model(store, spec, one_head):
    model = store.register_model(spec)
    prompt = np.arange(100, dtype=np.uint32)
    store.create_branch(model).append(prompt, cairn.KvBuffer(spec, 100))
    hit = store.find_prefix(model, prompt)
    assert hit.restorable == 100
    hit.restore(cairn.KvBuffer(spec, 100))
    for call in (hit.restore, hit.fork().restore):
        with pytest.raises(cairn.ModelMismatch):
            call(cairn.KvBuffer(one_head, 100))


def test_tensors_serve_a_model_and_its_variants(store, spec):
    """One pool of an engine: shapes are compared, names are not."""
    tuned = cairn.ModelSpec("toy", spec.groups, variant=cairn.ModelVariant("tuned"))
    chat = store.create_branch(store.register_model(tuned))
    assert chat.append([1], cairn.KvBuffer(spec, 1)) == 1


def test_a_model_of_another_store_is_refused(store, spec, one_head):
    with cairn.Store(":memory:") as other:
        others = other.register_model(one_head)
        mine = store.register_model(spec)
        assert others.id == mine.id and others != mine
        with pytest.raises(cairn.ModelMismatch, match="model: is of another store"):
            store.create_branch(others)
        with pytest.raises(cairn.ModelMismatch):
            store.find_prefix(others, [1])
        # The same model under the same number is the same.
        with cairn.Store(":memory:") as third:
            assert store.create_branch(third.register_model(spec)).length == 0


@pytest.fixture
def with_state(store):
    """A recurrent state of 24 bytes, which are opaque."""
    spec = cairn.ModelSpec("state", [cairn.LayerGroup.recurrent(layers=1, state_bytes=24)])
    return store.create_branch(store.register_model(spec)), spec


def test_elements_of_an_opaque_row_are_not_taken_apart(with_state):
    branch, spec = with_state
    wide = np.arange(1, 13, dtype=np.float32)
    with pytest.raises(cairn.InvalidArgument, match="elements of 4 bytes, 8 bytes apart"):
        cairn.KvView.of(spec, [wide[::2]], "R")
    # Single bytes may lie apart.
    room = np.arange(48, dtype=np.uint8)
    branch.append([1], cairn.KvView.of(spec, [room[::2]], "R"))
    back = np.zeros(6, np.float32)
    branch.restore(cairn.KvView.of(spec, [back], "R"))
    assert np.array_equal(back.view(np.uint8), room[::2])


def test_a_row_of_several_dimensions_may_end_with_one_element(with_state):
    branch, spec = with_state
    all_of_it = np.arange(36, dtype=np.float32).reshape(6, 6)
    column = all_of_it[:1].T  # [6][1]; the stride of the last dimension is that of a row of six.
    assert column.strides == (4, 24)
    branch.append([1], cairn.KvView.of(spec, [column], "R"))
    back = np.full((6, 6), -1, np.float32)
    branch.restore(cairn.KvView.of(spec, [back[:1].T], "R"))
    assert np.array_equal(back[0], np.arange(6)) and np.all(back[1:] == -1)


def test_a_buffer_that_no_memory_has_is_refused(spec):
    for tokens in (2**59, 2**64 - 1):
        with pytest.raises(cairn.InvalidArgument, match="tokens: "):
            cairn.KvBuffer(spec, tokens)


def test_lists_in_themselves_are_refused(spec):
    endless = []
    endless.append(endless)
    with pytest.raises(cairn.InvalidArgument, match="tensors: "):
        cairn.KvTensors(spec, endless)


def test_a_table_on_another_device_is_refused(spec):
    memories = [cairn.Gpu.simulated(1, ordinal).allocate(4096) for ordinal in range(2)]
    held = cairn.KvTensors(spec, [memories[0].tensor([2, 4, 2, 4], "bf16", offset=i * 128) for i in range(4)])
    assert held.device == "cuda:0"
    held.view(table=memories[0].tensor([2], "i64", offset=2048))
    with pytest.raises(cairn.InvalidArgument, match="table: is in the memory of device 1"):
        held.view(table=memories[1].tensor([2], "i64"))
    host = cairn.KvTensors(spec, [np.zeros((2, 4, 2, 4), np.uint16) for _ in range(4)])
    with pytest.raises(cairn.InvalidArgument, match="slots: is in the memory of device 0"):
        host.view(slots=memories[0].tensor([2], "i64"))


@pytest.mark.parametrize("call", [
    lambda chat, spec: chat.append([1], spans=[3]),
    lambda chat, spec: chat.append([True]),
    lambda chat, spec: cairn.KvTensors(spec, [np.zeros((1, 2, 2, 4), np.uint16)] * 4).view(table=[None]),
    lambda chat, spec: cairn.KvTensors(spec, [np.zeros((1, 2, 2, 4), np.uint16)] * 4).view(slots=[0, 0.5]),
    lambda chat, spec: cairn.Store(":memory:", on_event=5),
    lambda chat, spec: cairn.Store("a\0b", create_if_missing=True),
    lambda chat, spec: cairn.Objects(3),
], ids=["spans", "bool", "table", "slots", "on_event", "path", "store"])
def test_wrong_arguments_are_refused_by_name(chat, spec, call, request):
    said = {"spans": "spans: ", "bool": r"tokens\[0\]: True", "table": r"table\[0\]: None", "slots": r"slots\[1\]: 0.5",
            "on_event": "on_event: 5", "path": "path: ", "store": "store: "}[request.node.callspec.id]
    with pytest.raises(cairn.InvalidArgument, match=said):
        call(chat, spec)
    assert len(chat) == 0


def test_numbers_of_numpy_are_whole_numbers(spec):
    held = cairn.KvTensors(spec, [np.zeros((3, 2, 2, 4), np.uint16)] * 4)
    assert held.view(table=[np.int32(2), 0]).groups == [(0, 0, 4)]


def values(spec):
    """Two of each kind that have equal contents, and one that has not."""
    def all_kinds(number):
        identity, variant = cairn.ModelIdentity(f"m{number}"), cairn.ModelVariant(f"v{number}")
        group = cairn.LayerGroup.full_attention(layers=1 + number, kv_heads=1, head_dim=4, dtype="f16")
        buffer = cairn.KvBuffer(spec, 1)
        buffer.bytes[:] = number
        return [identity, variant, group, group.planes[0] if number == 0 else group.planes[1], buffer,
                cairn.ModelSpec(identity, [group]), cairn.RotarySpec("before", first=number), cairn.Keep(priority=number),
                cairn.Retention("window", window=8 + number), cairn.ShardSpec(context_size=2 + number),
                cairn.LogicalGroup("g", layers=1 + number, heads=1), cairn.SamplerState(top_k=number),
                cairn.Metadata(bytes([number])), cairn.ContentSpan(0, 1 + number, (1, 2)),
                cairn.NamespacePolicy(ttl=float(number))]

    return list(zip(all_kinds(0), all_kinds(0), all_kinds(1)))


def test_values_are_compared_with_anything(spec):
    for same, equal, other in values(spec):
        assert same == equal and not same != equal and same != other
        assert same != None and same != 3 and same in [None, equal]  # noqa: E711
        with pytest.raises(TypeError, match="unhashable"):
            hash(same)


def test_models_are_compared_and_may_be_keys(store, spec, one_head):
    model = store.register_model(spec)
    assert model == store.register_model(spec) == store.models()[0]
    assert {model.id: 1}.get(model) is None and {model: 1}[store.models()[0]] == 1


def test_paths_and_names_are_bytes_of_the_system(tmp_path, spec):
    odd = "caf\udce9"  # Bytes that are no UTF-8, as Python writes names of such files.
    with cairn.Store(bytes(tmp_path / "s"), create_if_missing=True) as store:
        chat = store.create_branch(store.register_model(spec), odd, namespace=odd)
        assert chat.info().name == odd and chat.info().namespace == odd
        assert store.find_branch(odd, namespace=odd).id == chat.id
        assert odd in repr(chat) and odd in repr(chat.info())
        assert [info.name for info in store.list_branches(namespace=odd)[0]] == [odd]
        with pytest.raises(cairn.AlreadyExists):
            store.create_branch(store.models()[0], odd, namespace=odd)
        store.checkpoint(tmp_path / "b\udcff")
    with cairn.Store(tmp_path / "b\udcff") as copy:
        assert copy.find_branch(odd, namespace=odd).length == 0
    with pytest.raises(TypeError):
        cairn.Store(3)
