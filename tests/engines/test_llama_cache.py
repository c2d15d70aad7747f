# SPDX-License-Identifier: Apache-2.0
"""Property: a llama_cpp.Llama with cairn.llamacpp.Cache says what it says without one, and computes only what no
completion of the store has: in this process, in another one, after a SIGKILL; and no completion fails for it.
Method: completions beside those of a Llama without a cache, and the tokens that each evaluates, of llama-cpp-python."""

import json
import pathlib
import signal
import subprocess
import sys
import warnings

import numpy
import pytest

import cairn
import cairn.llamacpp
import llama_models

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is compiled: tools/test-engines --compiled")

TEXT = (pathlib.Path(__file__).resolve().parents[2] / "tools/llama/data/heldout.txt").read_text()
CONTEXT = 1024


@pytest.fixture(autouse=True)
def digests(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name in ("mamba", "lfm2"):
        llama_models.MADE[name](folder / f"{name}.gguf")
    return folder


@pytest.fixture
def store(tmp_path):
    with cairn.Store(tmp_path / "store", create_if_missing=True) as opened:
        yield opened


def llama(path, **options):
    return llama_cpp.Llama(str(path), n_ctx=CONTEXT, n_threads=1, n_threads_batch=1, seed=1, verbose=False, **options)


def complete(llm, prompt, tokens=12, **options):
    """(text, tokens that were evaluated)"""
    evaluated, inner = [], llm.eval

    def eval(tokens):
        evaluated.extend(tokens)
        inner(tokens)

    llm.eval = eval
    try:
        answer = llm.create_completion(prompt, max_tokens=tokens, temperature=0, **options)
    finally:
        del llm.eval
    return answer["choices"][0]["text"], len(evaluated)


def turns(path):
    """Two turns of a chat: the second prompt goes on from the answer to the first."""
    first = TEXT[:900]
    plain = llama(path)
    answer, _ = complete(plain, first)
    second = first + answer + " And Moses said"
    return first, answer, second, complete(llama(path), second)[0]


@pytest.mark.parametrize("options", [{}, {"flash_attn": True}, {"type_k": 8, "type_v": 8, "flash_attn": True}])
def test_a_chat_goes_on_in_another_process(exported, store, options):
    first, answer, second, _ = turns(exported.gguf)
    plain = llama(exported.gguf, **options)
    answer, whole = complete(plain, first)
    second = first + answer + " And Moses said"
    expected, _ = complete(llama(exported.gguf, **options), second)
    llm = llama(exported.gguf, **options)
    llm.set_cache(cairn.llamacpp.Cache(store))
    assert complete(llm, first) == (answer, whole)
    llm = llama(exported.gguf, **options)
    llm.set_cache(cairn.llamacpp.Cache(store))
    again, evaluated = complete(llm, second)
    assert again == expected and evaluated < 25
    assert llm.cache.save_error is None
    # The same prompt: its last token alone is computed again.
    llm = llama(exported.gguf, **options)
    llm.set_cache(cairn.llamacpp.Cache(store, llm))
    assert complete(llm, second) == (expected, 12)


def test_each_turn_is_appended(exported, store):
    first, answer, second, expected = turns(exported.gguf)
    llm = llama(exported.gguf)
    cache = cairn.llamacpp.Cache(store)
    llm.set_cache(cache)
    assert complete(llm, first)[0] == answer
    raw = store.metrics()["raw_bytes"]
    assert complete(llm, second)[0] == expected
    (branch,) = [store.get_branch(info.id) for info in store.list_branches()[0]]
    tokens = len(branch.tokens())
    assert llm.tokenizer().decode(branch.tokens().tolist()).lstrip().startswith(TEXT[:50])
    added = store.metrics()["raw_bytes"] - raw
    token = cache.model.spec.token_bytes
    assert added <= 25 * (token + 4) and branch.restorable_length() == tokens - 1
    assert cache.cache_size == (tokens - 1) * token
    other = TEXT[:600] + " And the people said"  # Leaves in the middle: a branch of its own that shares the rest.
    assert complete(llm, other)[0] == complete(llama(exported.gguf), other)[0]
    assert len(store.list_branches()[0]) == 2
    assert llm.tokenize(other.encode()) in cache and [5] * 100 not in cache


def test_another_prompt_and_a_short_one_are_computed(exported, store):
    llm = llama(exported.gguf)
    llm.set_cache(cairn.llamacpp.Cache(store))
    complete(llm, TEXT[:900])
    llm = llama(exported.gguf)
    llm.set_cache(cairn.llamacpp.Cache(store))
    for prompt in (TEXT[2000:2600], "And Moses"):
        assert complete(llm, prompt)[0] == complete(llama(exported.gguf), prompt)[0]


@pytest.mark.parametrize("name", ["mamba", "lfm2"])
def test_recurrent_layers_go_on_from_their_last_state(made, store, name):
    path = made / f"{name}.gguf"
    ids = numpy.random.default_rng(3).integers(3, llama_models.VOCABULARY, 200).tolist()

    def generate(llm, prompt):
        """As _create_completion does, of ids: these models have no texts."""
        if llm.cache is not None:
            try:
                llm.load_state(llm.cache[prompt])
            except KeyError:
                pass
        evaluated, inner = [], llm.eval
        llm.eval = lambda tokens: (evaluated.extend(tokens), inner(tokens))
        drawn = [token for token, _ in zip(llm.generate(prompt, temp=0), range(10))]
        if llm.cache is not None:
            llm.cache[prompt + drawn] = llm.save_state()
        return drawn, len(evaluated)

    drawn, _ = generate(llama(path), ids)
    expected, whole = generate(llama(path), ids + drawn + ids[:9])
    llm = llama(path)
    llm.set_cache(cairn.llamacpp.Cache(store, llm))
    assert generate(llm, ids)[0] == drawn
    llm = llama(path)
    llm.set_cache(cairn.llamacpp.Cache(store, llm))
    again, evaluated = generate(llm, ids + drawn + ids[:9])
    assert again == expected and evaluated <= 20 < whole


def test_what_is_another_model(exported, store):
    """Rope settings and LoRA are in no GGUF file."""
    specs = set()
    for options in ({}, {"rope_freq_base": 20000.0}, {"rope_freq_scale": 0.5}, {"type_k": 8, "flash_attn": True}):
        llm = llama(exported.gguf, **options)
        specs.add(cairn.llamacpp.Cache(store, llm).model.id)
    assert len(specs) == 4
    llm = llama(exported.gguf)
    llm.lora_path = str(exported.gguf)  # Any file will do to be told apart by.
    llm.lora_scale = 0.5
    cache = cairn.llamacpp.Cache(store, llm)
    assert cache.model.spec.identity.revision.startswith("lora=xxh3-128:")
    llm.lora_path = "none"
    with pytest.raises(cairn.InvalidArgument, match="lora_path: .*No such file"):
        cairn.llamacpp.Cache(store, llm)


def test_a_full_disk_ends_saving_and_nothing_else(exported, tmp_path):
    with cairn.Store(tmp_path / "s", create_if_missing=True, segment_bytes=1 << 18, max_bytes=5 << 19) as store:
        llm, plain = llama(exported.gguf), llama(exported.gguf)
        llm.set_cache(cairn.llamacpp.Cache(store, llm))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for begin in range(0, 12000, 1500):
                prompt = TEXT[begin:begin + 1500]
                plain.reset()
                assert complete(llm, prompt, 2)[0] == complete(plain, prompt, 2)[0]
        assert isinstance(llm.cache.save_error, cairn.NoSpace)
        assert [str(one.message).startswith("cairn.llamacpp.Cache does not save: NoSpace") for one in said] == [True]


def test_a_damaged_page_is_computed_again(exported, tmp_path):
    prompt = TEXT[:2400]
    with cairn.Store(tmp_path / "s", create_if_missing=True) as store:
        llm = llama(exported.gguf)
        llm.set_cache(cairn.llamacpp.Cache(store, llm))
        expected, whole = complete(llm, prompt)
        store.compact()
    table = max((tmp_path / "s" / "tables").iterdir(), key=lambda at: at.stat().st_size)
    content = bytearray(table.read_bytes())
    content[int(len(content) * 0.8)] ^= 0xFF
    table.write_bytes(content)
    with cairn.Store(tmp_path / "s") as store:
        llm = llama(exported.gguf)
        llm.set_cache(cairn.llamacpp.Cache(store, llm))
        again, evaluated = complete(llm, prompt)
        assert again == expected and 12 < evaluated <= whole


def test_a_state_that_is_none_is_not_kept(exported, store):
    llm = llama(exported.gguf)
    cache = cairn.llamacpp.Cache(store, llm)
    ids = llm.tokenize(TEXT[:400].encode())
    llm.eval(ids)
    state = llm.save_state()
    whole = state.llama_state
    for broken, named in [(whole[:-1], "ends within"), (b"\5\0\0\0mamba" + whole[9:], "architecture"),
                          (whole[:9] + b"\2" + whole[10:], "state: ")]:
        state.llama_state = broken
        cache.save_error = None
        with pytest.warns(RuntimeWarning, match=f"Corruption: .*{named}"):
            cache[ids] = state
    state.llama_state, state.n_tokens = whole, len(ids) - 1
    cache[ids] = state
    assert isinstance(cache.save_error, cairn.Corruption)  # And is not told again.
    state.n_tokens = len(ids)
    cache[ids] = state
    assert cache.save_error is None and ids in cache


def test_who_uses_it_is_found_or_named(exported, store):
    cache = cairn.llamacpp.Cache(store)
    for call in (lambda: cache.model, lambda: [5] in cache):
        with pytest.raises(cairn.InvalidState, match="llm: no Llama has used the cache yet"):
            call()
    llm = llama(exported.gguf)
    complete(llm, TEXT[:400])
    llm.set_cache(cache)  # Behind a completion: its context is emptied once.
    assert complete(llm, TEXT[:800])[0] == complete(llama(exported.gguf), TEXT[:800])[0]
    assert cache.model.spec.identity.name == "cairn-llama"


def test_logits_of_all_tokens_are_computed(exported, store):
    """They are not kept, so nothing is loaded in place of them."""
    prompt = TEXT[:400]
    plain = llama(exported.gguf, logits_all=True).create_completion(prompt, max_tokens=2, logprobs=3, temperature=0)
    for _ in range(2):
        llm = llama(exported.gguf, logits_all=True)
        llm.set_cache(cairn.llamacpp.Cache(store))
        said = llm.create_completion(prompt, max_tokens=2, logprobs=3, temperature=0)
        assert said["choices"] == plain["choices"]


PROGRAM = """
import json, signal, sys, llama_cpp, cairn, cairn.llamacpp
gguf, path, prompt = sys.argv[1:]
llm = llama_cpp.Llama(gguf, n_ctx=1024, n_threads=1, n_threads_batch=1, verbose=False)
store = cairn.Store(path, create_if_missing=True)
llm.set_cache(cairn.llamacpp.Cache(store))
print(json.dumps(llm.create_completion(prompt, max_tokens=12, temperature=0)["choices"][0]["text"]), flush=True)
signal.pause()
"""


def test_a_chat_goes_on_after_a_sigkill(exported, tmp_path):
    first, answer, second, expected = turns(exported.gguf)
    with subprocess.Popen([sys.executable, "-c", PROGRAM, exported.gguf, tmp_path / "s", first], text=True,
                          stdout=subprocess.PIPE) as process:
        assert json.loads(process.stdout.readline()) == answer
        process.kill()
    assert process.returncode == -signal.SIGKILL
    with cairn.Store(tmp_path / "s") as store:
        llm = llama(exported.gguf)
        llm.set_cache(cairn.llamacpp.Cache(store))
        again, evaluated = complete(llm, second)
        assert again == expected and evaluated < 25
