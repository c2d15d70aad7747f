# SPDX-License-Identifier: Apache-2.0
"""Property: what a context of llama.cpp has computed goes on from a branch with the same bits: in another context,
after a SIGKILL, cut at any token, found by its prefix, forked; only what is new is written; and what llama.cpp writes
in another form, or cannot take, is refused by name.
Method: each generation beside one that llama.cpp makes without a store, by the bits of its logits."""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys

import numpy
import pytest

import cairn
import cairn.llamacpp
import llama_engine
import llama_models
from llama_engine import BF16, F16, F32, Q4_0, Q8_0

PROMPT, NEW = 150, 48
# A kind of cache each, and how contexts write it.
CASES = {
    "rows": ("llama", {}), "values by element": ("llama", {"flash": False}),
    "streams": ("llama", {"unified": False}), "bf16": ("llama", {"type_k": BF16, "type_v": BF16}),
    "f32": ("llama", {"type_k": F32, "type_v": F32}), "q8_0": ("llama", {"type_k": Q8_0, "type_v": Q8_0}),
    "q8_0 and q4_0": ("llama", {"type_k": Q8_0, "type_v": Q4_0}), "q8_0 and f16": ("llama", {"type_k": Q8_0}),
    "windows": ("gemma3", {}), "windows, all kept": ("gemma3", {"swa_full": True}),
    "windows in streams": ("gemma3", {"unified": False}), "recurrent": ("mamba", {}), "hybrid": ("lfm2", {}),
    "states in groups": ("mamba", {}),
}
CUT = [name for name, (model, _) in CASES.items() if model == "llama"]


@pytest.fixture(autouse=True)
def digests(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """{name: Model}"""
    folder, made = tmp_path_factory.mktemp("models"), {}
    for name, make in llama_models.MADE.items():
        make(folder / f"{name}.gguf")
        made[name] = llama_engine.Model(folder / f"{name}.gguf")
    yield made
    for model in made.values():
        model.close()


@pytest.fixture
def store(tmp_path):
    with cairn.Store(tmp_path / "store", create_if_missing=True) as opened:
        yield opened


@pytest.fixture
def contexts(models, store):
    """Makes pairs of a context of llama.cpp and ours over it."""
    with contextlib.ExitStack() as ends:
        def make(name="llama", to=store, **options):
            engine = models[name].context(**options)
            ends.callback(engine.close)
            return engine, cairn.llamacpp.Context(to, engine.pointer, models[name].path, library=llama_engine.PATH)

        yield make


def plain(model, ids, count, **options):
    """(ids, bits of logits) of llama.cpp alone."""
    engine = model.context(**options)
    try:
        return engine.greedy(engine.decode(ids, 0), len(ids), count)
    finally:
        engine.close()


def written(store):
    numbers = store.metrics()
    return numbers["log_bytes_written"] + numbers["table_bytes_written"]


@pytest.mark.parametrize("case", CASES)
def test_another_context_goes_on_with_the_same_bits(models, contexts, monkeypatch, case):
    if case == "states in groups":
        monkeypatch.setattr(cairn._states, "GROUP_BYTES", 1)  # A layer each.
    name, options = CASES[case]
    ids = llama_engine.prompt_of(models[name], PROMPT)
    drawn, bits = plain(models[name], ids, NEW, **options)
    engine, context = contexts(name, **options)
    chat = context.sequence("chat", tokens=ids)
    assert chat.load(ids) == 0
    assert engine.decode(ids, 0).argmax() == drawn[0]
    assert chat.save(ids) == PROMPT
    for at in range(0, NEW // 2, 8):
        for i in range(at, at + 8):
            engine.decode(drawn[i:i + 1], PROMPT + i)
        assert chat.save(ids + drawn[:at + 8]) == PROMPT + at + 8
    half = PROMPT + NEW // 2
    engine, context = contexts(name, **options)
    chat = context.sequence("chat", number=1, tokens=ids)
    begin = chat.load(ids + drawn[:half - PROMPT + 1])
    assert begin == half == engine.length(1)
    logits = engine.decode(drawn[half - PROMPT:half - PROMPT + 1], half, 1)
    rest, rest_bits = engine.greedy(logits, half + 1, NEW // 2 - 1, 1)
    assert (rest, rest_bits) == (drawn[NEW // 2 + 1:], bits[NEW // 2 + 1:])
    assert logits.tobytes() == bits[NEW // 2]


@pytest.mark.parametrize("case", CUT)
def test_it_is_cut_at_any_token(models, contexts, case):
    name, options = CASES[case]
    ids = llama_engine.prompt_of(models[name], PROMPT)
    drawn, bits = plain(models[name], ids, NEW, **options)
    engine, context = contexts(name, n_seq=3, **options)
    chat = context.sequence("chat")
    engine.decode(ids, 0)
    for i in range(NEW):
        engine.decode(drawn[i:i + 1], PROMPT + i)
    chat.save(ids + drawn)
    for position in (PROMPT, PROMPT + 1, PROMPT + 29):
        fork = chat.fork(position, number=1)
        assert engine.length(1) == position == fork.branch.length
        again, again_bits = engine.greedy(engine.decode(drawn[position - PROMPT:][:1], position, 1), position + 1, 3, 1)
        at = position - PROMPT + 1
        assert again == drawn[at:at + 3]
        # Without flash attention llama.cpp adds up in the order of cells, and those are others here.
        assert again_bits == bits[at:at + 3] or case == "values by element"
        assert fork.save((ids + drawn)[:position + 4]) == position + 4
    # Into the middle of the prompt, which was one pass: other sizes of passes, so near and not the same.
    assert chat.load((ids + drawn)[:71]) == 70 == engine.length()
    assert chat.branch.length == PROMPT + NEW


def test_windows_are_cut_where_their_rows_are(models, contexts):
    """A prompt of one pass leaves its last window; what is saved token by token can be cut behind that."""
    ids = llama_engine.prompt_of(models["gemma3"], PROMPT)
    drawn, bits = plain(models["gemma3"], ids, NEW)
    engine, context = contexts("gemma3")
    chat = context.sequence("chat")
    engine.decode(ids, 0)
    chat.save(ids)
    for i in range(NEW):
        engine.decode(drawn[i:i + 1], PROMPT + i)
        chat.save(ids + drawn[:i + 1])
    assert chat.branch.restorable_length(PROMPT - 1) == 0
    position = PROMPT + 7
    engine, context = contexts("gemma3")
    chat = context.sequence("chat")
    assert chat.load((ids + drawn)[:position + 1]) == position
    assert engine.greedy(engine.decode(drawn[7:8], position), position + 1, 5) == (drawn[8:13], bits[8:13])


def test_recurrent_states_are_checkpoints(models, contexts):
    ids = llama_engine.prompt_of(models["lfm2"], PROMPT)
    drawn, bits = plain(models["lfm2"], ids, NEW)
    engine, context = contexts("lfm2")
    chat = context.sequence("chat")
    engine.decode(ids, 0)
    chat.save(ids)
    for i in range(16):
        engine.decode(drawn[i:i + 1], PROMPT + i)
    chat.save(ids + drawn[:16])
    fork = chat.fork(PROMPT + 10, number=1)  # Where there is no state: from the one before it.
    assert engine.length(1) == PROMPT
    logits = engine.decode(drawn[:1], PROMPT, 1)
    assert logits.tobytes() == bits[0]
    assert engine.greedy(logits, PROMPT + 1, 9, 1) == (drawn[1:10], bits[1:10])
    assert fork.save(ids + drawn[:10]) == PROMPT + 10


def test_a_prefix_is_found_and_shared(models, contexts, store):
    model = models["llama"]
    shared, tail = llama_engine.prompt_of(model, 200), llama_engine.prompt_of(model, 20, seed=2)
    engine, context = contexts()
    first = context.sequence("first")
    engine.decode(shared + [5, 6], 0)
    first.save(shared + [5, 6])
    before = store.metrics()["raw_bytes"]
    engine, context = contexts(n_seq=4)
    assert context.find(shared + tail).matched == 200
    second = context.sequence("second", tokens=shared + tail)
    assert second.load(shared + tail) == 200
    engine.decode(tail, 200)
    assert second.save(shared + tail) == 220
    assert store.metrics()["raw_bytes"] - before == 20 * (context.spec.token_bytes + 4)
    assert [step.end for step in second.branch.path()] == [200, 220]


def test_only_what_is_new_moves(models, contexts, monkeypatch):
    """Both ways: bytes that llama.cpp gives and takes."""
    model = models["llama"]
    ids = llama_engine.prompt_of(model, 600)
    engine, context = contexts(n_seq=3)
    moved = []
    library = type(context.library)
    get, put = library.get, library.set

    def counted_get(self, sequence):
        moved.append(get(self, sequence))
        return moved[-1]

    def counted_set(self, sequence, memory):
        moved.append(memory)
        put(self, sequence, memory)

    monkeypatch.setattr(library, "get", counted_get)
    monkeypatch.setattr(library, "set", counted_set)
    token = context.spec.token_bytes + 12  # A cell is there for each.
    chat = context.sequence("chat")
    engine.decode(ids[:500], 0)
    chat.save(ids[:500])
    engine.decode(ids[500:516], 500)
    chat.save(ids[:516])
    assert [round(one.size / token) for one in moved] == [500, 16] and engine.length(2) == 0
    moved.clear()
    other = context.sequence("chat", number=1)
    assert other.load(ids[:401]) == 400
    assert other.load(ids[:517]) == 516 == engine.length(1)
    assert [round(one.size / token) for one in moved] == [400, 116]
    assert other.load(ids[:517]) == 516 and len(moved) == 2
    logits = [engine.decode([7], 516, sequence) for sequence in (0, 1)]
    assert (logits[0] == logits[1]).all()


def test_ids_that_are_not_computed_yet(models, contexts):
    """What was drawn last has no KV; the next turn brings it."""
    ids = llama_engine.prompt_of(models["llama"], 100)
    engine, context = contexts()
    chat = context.sequence("chat")
    engine.decode(ids[:90], 0)
    assert chat.save(ids[:91]) == 91 and chat.branch.restorable_length() == 90
    engine, context = contexts()
    chat = context.sequence("chat")
    assert chat.load(ids) == 90
    engine.decode(ids[90:], 90)
    assert chat.save(ids) == 100 == chat.branch.restorable_length()
    with pytest.raises(cairn.InvalidArgument, match="tokens: 99 of a sequence that has 100"):
        chat.save(ids[:99])


@pytest.mark.parametrize("on_conflict", ["raise", "fork", "rewind"])
def test_other_tokens_than_the_branch(models, contexts, store, on_conflict):
    ids = llama_engine.prompt_of(models["llama"], 100)
    edited = ids[:80] + [9 if ids[80] != 9 else 8] * 10
    engine, context = contexts()
    chat = context.sequence("chat")
    engine.decode(ids, 0)
    chat.save(ids)
    chat = context.sequence("chat", number=1, on_conflict=on_conflict)
    if on_conflict == "raise":
        with pytest.raises(cairn.Conflict, match="others from position 80 on"):
            chat.load(edited)
        assert chat.branch.length == 100
        return
    old = store.find_branch("chat")
    assert chat.load(edited) == 80
    engine.decode(edited[80:], 80, 1)
    assert chat.save(edited) == 90
    assert store.find_branch("chat").tokens().tolist() == edited
    assert old.length == (100 if on_conflict == "fork" else 90)


def test_cells_in_any_order(models, contexts):
    """Where another sequence had cells, rows do not lie in the order of positions."""
    model = models["llama"]
    ids = llama_engine.prompt_of(model, 120)
    engine, context = contexts(n_ctx=512, n_seq=3)
    for position in range(40):  # By turns, so that each has every second cell.
        for sequence in (0, 1):
            engine.decode(ids[position:position + 1], position, sequence)
    engine.remove(0)
    engine.decode(ids, 0)
    chat = context.sequence("chat")
    chat.save(ids)
    expected = engine.decode([7], 120)
    engine, context = contexts()
    assert context.sequence("chat").load(ids + [7]) == 120
    assert (engine.decode([7], 120) == expected).all()


def test_another_model_or_kv_type_is_refused_by_name(models, contexts, store, tmp_path):
    engine, context = contexts()
    ids = llama_engine.prompt_of(models["llama"], 100)
    engine.decode(ids, 0)
    context.sequence("chat").save(ids)
    llama_models.llama(tmp_path / "tuned.gguf", seed=2)
    tuned = llama_engine.Model(tmp_path / "tuned.gguf")
    engine = tuned.context()
    other = cairn.llamacpp.Context(store, engine.pointer, tuned.path, library=llama_engine.PATH)
    with pytest.raises(cairn.ModelMismatch, match="weights_digest"):
        other.sequence("chat")
    assert not other.find(ids)
    for options, named in [({"type_k": Q8_0, "type_v": Q8_0}, "cache_dtype.*q8_0"), ({"type_k": BF16}, "cache_dtype")]:
        _, other = contexts(**options)
        with pytest.raises(cairn.ModelMismatch, match=named):
            other.sequence("chat")
    renamed = tmp_path / "renamed.gguf"
    renamed.write_bytes(models["llama"].path.read_bytes())
    again = models["llama"].context()
    same = cairn.llamacpp.Context(store, again.pointer, renamed, library=llama_engine.PATH)
    assert same.model == context.model
    with pytest.raises(cairn.ModelMismatch, match="revision"):
        cairn.llamacpp.Context(store, again.pointer, renamed, library=llama_engine.PATH,
                               revision="lora").sequence("chat")
    given = cairn.llamacpp.Context(store, again.pointer, renamed, library=llama_engine.PATH,
                                   identity=cairn.ModelIdentity("mine"))
    assert given.spec.identity.name == "mine"
    engine.close()
    again.close()
    tuned.close()


def test_a_context_that_is_too_small_is_refused(models, contexts):
    ids = llama_engine.prompt_of(models["llama"], 700)
    engine, context = contexts()
    engine.decode(ids, 0)
    context.sequence("chat").save(ids)
    engine, context = contexts(n_ctx=512)
    with pytest.raises(cairn.InvalidArgument, match="context: has room for 512 tokens, and the branch 700"):
        context.sequence("chat").load()
    engine, context = contexts(n_ctx=768, n_seq=3)
    engine.decode(ids[:300], 0, 1)  # Room, but not for both.
    with pytest.raises(cairn.InvalidState, match="llama_state_seq_set_data: took 0 of .*no free cells"):
        context.sequence("chat").load()
    assert engine.length() == 0 and engine.length(1) == 300
    assert context.sequence("chat").load(ids[:401]) == 400


class Lying:
    """A library whose call does something else."""

    def __init__(self, library, **calls):
        self._library, self._calls = library, calls

    def __getattr__(self, name):
        return self._calls.get(name) or getattr(self._library, name)


def test_a_state_call_that_gives_fewer_bytes(models, contexts):
    ids = llama_engine.prompt_of(models["llama"], 100)
    engine, context = contexts()
    chat = context.sequence("chat")
    engine.decode(ids, 0)
    chat.save(ids[:100])
    engine.decode([7], 100)
    calls = context.library.calls
    for gives, named in [(lambda *some: calls.llama_state_seq_get_data(*some) - 4, r"gave \d+ of \d+ bytes"),
                         (lambda *some: 0, "gave 0 of")]:
        context.library.calls = Lying(calls, llama_state_seq_get_data=gives)
        with pytest.raises(cairn.Corruption, match="llama_state_seq_get_data: " + named):
            chat.save(ids + [7])
    context.library.calls = Lying(calls, llama_state_seq_get_size=lambda *some: 0)
    with pytest.raises(cairn.Corruption, match="gave 0 of 0 bytes"):
        chat.save(ids + [7])
    assert chat.branch.length == 100 and engine.length(1) == 0
    context.library.calls = calls
    assert chat.save(ids + [7]) == 101


def test_another_form_of_the_state_is_refused_by_version(models, contexts, store, monkeypatch):
    engine = models["llama"].context()
    library = cairn._llama_context.Library
    get = library.get

    def opened():
        return cairn.llamacpp.Context(store, engine.pointer, models["llama"].path, library=llama_engine.PATH)

    def more_words(self, sequence):
        memory = get(self, sequence)
        return numpy.concatenate([memory[:12], numpy.zeros(4, numpy.uint8), memory[12:]])

    def other_rows(self, sequence):
        memory = get(self, sequence).copy()
        if self.length(sequence) == 2:
            memory[70:80] ^= 1  # In the first row.
        return memory

    calls = []

    def other_on_its_way_back(self, sequence):
        calls.append(get(self, sequence).copy())
        calls[-1][-1] ^= len(calls) == 3
        return calls[-1]

    for lies, named in [(more_words, r"llama.cpp 0\.6\.0\S*: writes states in a form that is not known: state: has"),
                        (other_rows, "is not what it was alone"),
                        (other_on_its_way_back, "comes out as something else")]:
        monkeypatch.setattr(library, "get", lies)
        with pytest.raises(cairn.UnsupportedFormat, match=named):
            opened()
        assert engine.length(0) == engine.length(1) == 0
    monkeypatch.setattr(library, "get", get)
    for sequence in (0, 1):
        engine.decode([5], 0, sequence)
    with pytest.raises(cairn.InvalidState, match="every sequence has tokens"):
        opened()
    engine.close()


def test_what_cannot_be_a_branch_is_refused_by_name(models, contexts, store, tmp_path):
    engine, context = contexts()

    def opened(path=models["llama"].path, **options):
        return cairn.llamacpp.Context(store, options.pop("pointer", engine.pointer), path,
                                      **{"library": llama_engine.PATH, **options})

    with pytest.raises(cairn.InvalidArgument, match="context: is null"):
        opened(pointer=0)
    with pytest.raises(cairn.InvalidArgument, match="on_damage"):
        opened(on_damage="ignore")
    with pytest.raises(cairn.UnsupportedFormat, match="has not what llama.cpp has"):
        opened(library="libc.so.6")
    with pytest.raises(cairn.InvalidArgument, match="is no library of llama.cpp"):
        opened(library=json)
    assert opened(library=None).model == opened(library=llama_engine.library).model == context.model
    with pytest.raises(cairn.NotFound, match="model: there is no"):
        opened(tmp_path / "none.gguf")
    with pytest.raises(cairn.InvalidArgument, match="is of 3 layers; thin has 2"):
        llama_models.llama(tmp_path / "thin.gguf", layers=2, name="thin")
        opened(tmp_path / "thin.gguf")
    with pytest.raises(cairn.InvalidArgument, match="number: 2; the context has sequences 0 to 1"):
        context.sequence("chat", number=2)
    with pytest.raises(cairn.InvalidArgument, match="one is below 0"):
        context.sequence("chat").save([-1])
    with pytest.raises(cairn.InvalidArgument, match="on_conflict"):
        context.sequence("chat", on_conflict="merge")
    monkey = Lying(context.library.calls, llama_model_rope_type=lambda *some: 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cairn._llama_context.Library, "rotation", lambda self: monkey.llama_model_rope_type())
        with pytest.raises(cairn.InvalidArgument, match="M-RoPE"):
            opened()


def test_a_context_whose_positions_do_not_begin_at_0(models, contexts):
    ids = llama_engine.prompt_of(models["llama"], 100)
    engine, context = contexts()
    engine.decode(ids, 0)
    engine.remove(0, 10)
    with pytest.raises(cairn.Corruption, match="has positions from 10 to 99"):
        context.sequence("chat").save(ids)


def test_a_full_disk_appends_nothing(models, contexts, tmp_path):
    ids = llama_engine.prompt_of(models["llama"], 1900)
    with cairn.Store(tmp_path / "small", create_if_missing=True, segment_bytes=1 << 18, max_bytes=5 << 19) as store:
        engine, context = contexts(to=store, type_k=F32, type_v=F32)
        chat = context.sequence("chat")
        stored = 0
        with pytest.raises(cairn.NoSpace):
            for end in range(100, 2000, 100):
                engine.decode(ids[end - 100:end], end - 100)
                stored = chat.save(ids[:end])
        assert 0 < stored == chat.branch.length == chat.branch.restorable_length()
        assert context.sequence("chat", number=1).load() == stored


def test_a_damaged_page_shortens_what_is_put_back(models, contexts, tmp_path):
    ids = llama_engine.prompt_of(models["llama"], 1500)
    with cairn.Store(tmp_path / "s", create_if_missing=True) as store:
        engine, context = contexts(to=store, type_k=F16)
        engine.decode(ids, 0)
        context.sequence("chat").save(ids)
        store.compact()
    table = max((tmp_path / "s" / "tables").iterdir(), key=lambda at: at.stat().st_size)
    content = bytearray(table.read_bytes())
    content[int(len(content) * 0.8)] ^= 0xFF
    table.write_bytes(content)
    with cairn.Store(tmp_path / "s") as store:
        engine, context = contexts(to=store)
        begin = context.sequence("chat").load(ids)
        assert begin == engine.length() < 1499
        context.on_damage = "raise"
        with pytest.raises(cairn.Corruption):
            context.sequence("chat", number=1).load(ids)


def test_a_sigkill_in_mid_save_costs_nothing_that_was_saved(models, contexts, tmp_path):
    """A process saves token by token and is killed; what it reported is there, whole, and goes on."""
    model = models["llama"]
    ids = llama_engine.prompt_of(model, PROMPT)
    drawn, bits = plain(model, ids, NEW)
    program = pathlib.Path(__file__).with_name("llama_process.py")
    with subprocess.Popen([sys.executable, program, model.path, tmp_path / "s", json.dumps(ids + drawn), str(PROMPT)],
                          stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if int(line) >= PROMPT + 20:
                process.kill()
                break
    assert process.returncode == -signal.SIGKILL
    with cairn.Store(tmp_path / "s") as store:
        engine, context = contexts(to=store)
        chat = context.sequence("chat")
        there = chat.load()
        assert there >= PROMPT + 20 and chat.branch.tokens().tolist() == (ids + drawn)[:there]
        at = there - PROMPT
        logits = engine.decode(drawn[at:at + 1], there)
        assert engine.greedy(logits, there + 1, 3) == (drawn[at + 1:at + 4], bits[at + 1:at + 4])


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "large.gguf"
    llama_models.large(path)
    model = llama_engine.Model(path)
    yield model
    model.close()


def given(context, begin, end, number, seed):
    """Puts rows of noise into a sequence behind those that it has, in place of computing them."""
    scratch = context.empty_sequence(but=(number,))
    state = context.built(begin, end, scratch)
    draws = numpy.random.default_rng(seed)
    (section,), (attention,) = state.sections, state.shape.attention
    for rows, offsets in ((attention.keys, section.keys), (attention.values, section.values)):
        for row, offset in zip(rows, offsets):
            noise = draws.integers(0, 1 << 16, (end - begin) * row.bytes // 2, numpy.uint16)
            state.memory[offset:offset + noise.nbytes] = (noise & 0x83FF | 0x3800).view(numpy.uint8)  # 0.5 to 1.
    context.library.set(scratch, state.memory)
    context.library.copy(scratch, number, begin, end)
    context.library.remove(scratch)


def test_what_16_tokens_and_a_second_conversation_cost(large, tmp_path):
    """Behind 4,096 tokens, beside llama.cpp's own file; and of one that shares 3,000 tokens of it."""
    ids = llama_engine.prompt_of(large, 4112)
    tail = llama_engine.prompt_of(large, 500, seed=5)
    engine = large.context(n_ctx=8192, n_seq=4)
    with cairn.Store(tmp_path / "s", create_if_missing=True) as store:
        context = cairn.llamacpp.Context(store, engine.pointer, large.path, library=llama_engine.PATH)
        chat = context.sequence("chat")
        given(context, 0, 4096, 0, seed=1)
        chat.save(ids[:4096])
        expected = engine.decode(ids[4096:], 4096)
        store.flush()
        before = written(store)
        chat.save(ids)
        cost = written(store) - before
        file = engine.save_file(tmp_path / "slot", ids)
        assert cost <= file / 50, (cost, file)
        engine.remove(0)
        chat = context.sequence("chat")
        assert chat.load(ids[:4097]) == 4096
        assert (engine.decode(ids[4096:], 4096) == expected).all()
        second = context.sequence("second", tokens=ids[:3000] + tail, number=1)
        assert second.load(ids[:3000] + tail) == 3000
        given(context, 3000, 3500, 1, seed=2)
        store.flush()
        before = written(store)
        second.save(ids[:3000] + tail)
        store.flush()
        own = len(tail) * context.spec.token_bytes
        added = written(store) - before
        assert added <= 1.1 * own, (added, own)
        print(f"16 tokens: 1/{file / cost:.0f} of a file; a second conversation: {added / own:.3f} of its own")
    engine.close()
