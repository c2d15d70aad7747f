# SPDX-License-Identifier: Apache-2.0
"""Property: with cairn.hf.CairnCache each turn of a conversation is kept whole: behind a token that has no KV yet,
after an eviction, and where an earlier message was edited; and what is drawn goes on from turn to turn.
Method: bits of logits beside transformers' own cache; what a new cache restores; ids of the branches."""

import pathlib
import warnings

import numpy
import pytest
import torch

import cairn
import cairn.hf
import hf_models
from hf_models import generate, load, plain, prompt_of

PROMPT, NEW = 40, 8
MESSAGE = [11, 12, 13]


@pytest.fixture(scope="module")
def models(exported):
    loaded = {}

    def of(name):
        if name not in loaded:
            loaded[name] = load(str(exported.huggingface) if name == "exported" else name)
        return loaded[name]
    return of


@pytest.fixture
def model(models):
    return models("exported")


@pytest.fixture
def store(tmp_path):
    with cairn.Store(tmp_path / "store", create_if_missing=True) as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_warning():
    """A lost turn raises a warning, and no error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def open_chat(store, model, ids, name="chat", **options):
    return cairn.hf.CairnCache.open(store, model, name, tokens=ids, **options)


def first_turn(store, model, name="chat"):
    """Ids of a prompt and its answer, all of which the branch has; the last one without KV."""
    ids = prompt_of(model, PROMPT)
    cache = open_chat(store, model, ids, name)
    ids, _ = generate(model, ids, NEW, cache)
    assert cache.save(torch.tensor([ids])) == len(ids)
    return ids


@pytest.mark.parametrize("name", ["exported", *hf_models.MADE])
def test_a_turn_behind_the_last_token_drawn_is_kept(models, store, name):
    model = models(name)
    ids = first_turn(store, model)
    assert store.find_branch("chat").tokens().tolist() == ids
    assert store.find_branch("chat").restorable_length() == len(ids) - 1
    turn = ids + MESSAGE
    cache = open_chat(store, model, turn)
    assert cache.tokens == ids[:-1]
    answer = generate(model, turn, NEW, cache)
    assert answer == plain(model, turn, NEW, passes=[PROMPT] + [1] * (NEW - 1))
    assert cache.branch.length == cache.branch.restorable_length() == len(answer[0]) - 1
    again = open_chat(store, model, answer[0])
    assert again.tokens == answer[0][:-1]


def test_a_turn_behind_ids_that_were_appended_by_hand_is_kept(model, store):
    """One by one as well, each before it is computed."""
    ids = first_turn(store, model)
    branch = store.find_branch("chat")
    branch.append(MESSAGE)
    cache = open_chat(store, model, ids + MESSAGE, save_every=0)
    generate(model, ids + MESSAGE, 1, cache)
    assert cache.branch.restorable_length() == len(ids) - 1
    assert cache.save() == cache.branch.restorable_length() == len(ids + MESSAGE)


def evict_all(store):
    """All KV that there is, by a model that needs the room."""
    there = [store.find_branch(info.name) for info in store.list_branches()[0]]
    spec = cairn.ModelSpec.of("other", layers=1, kv_heads=1, head_dim=512, dtype="bf16")
    other, kv = store.register_model(spec), cairn.KvBuffer(spec, 256)
    kv.bytes[:] = numpy.random.default_rng(1).integers(0, 256, len(kv.bytes), numpy.uint8)
    while any(branch.restorable_length() > 0 for branch in there):
        store.create_branch(other).append(range(256), kv)


def test_evicted_kv_is_stored_when_it_is_computed_again(models, tmp_path):
    names = ["exported", *hf_models.MADE]
    with cairn.Store(tmp_path / "s", create_if_missing=True, max_bytes=10 << 20, segment_bytes=1 << 20,
                     evict="kv") as store:
        ids = {name: first_turn(store, models(name), name) for name in names}
        evict_all(store)
        for name in names:
            model, turn = models(name), ids[name] + MESSAGE
            cache = open_chat(store, model, turn, name)
            assert cache.tokens == []
            answer = generate(model, turn, NEW, cache)
            assert answer == plain(model, turn, NEW)
            cache.save(answer[0])
            second = answer[0] + MESSAGE
            cache = open_chat(store, model, second, name)
            assert cache.tokens == answer[0][:-1]
            assert generate(model, second, NEW, cache) == plain(model, second, NEW, [len(turn)] + [1] * (NEW - 1))


def test_kv_of_other_tokens_than_the_branch_has_is_not_stored(model, store):
    """Another handle rewound the branch and appended others while the cache was open."""
    ids = first_turn(store, model)
    cache = open_chat(store, model, ids + MESSAGE, save_every=0)
    generate(model, ids + MESSAGE, 1, cache)
    branch = store.find_branch("chat")
    branch.rewind(PROMPT)
    branch.append(MESSAGE)
    with pytest.raises(cairn.Conflict, match="another one has written to it"):
        cache.save()
    assert branch.tokens().tolist() == ids[:PROMPT] + MESSAGE
    assert branch.restorable_length() == PROMPT


@pytest.mark.parametrize("on_conflict", ["fork", "rewind"])
@pytest.mark.parametrize("name", ["exported", "qwen3_next"])
def test_an_edited_message(models, store, name, on_conflict):
    model = models(name)
    ids = first_turn(store, model)
    generate(model, ids + MESSAGE, NEW, open_chat(store, model, ids + MESSAGE))
    old = store.find_branch("chat")
    before = old.tokens().tolist()
    edited = ids + MESSAGE[:1] + [21, 22]
    cache = open_chat(store, model, edited, on_conflict=on_conflict)
    answer = generate(model, edited, NEW, cache)
    first = [PROMPT] + [1] * (NEW - 1)
    if name == "exported":
        assert answer == plain(model, edited, NEW, first + [1 + len(MESSAGE)], crop=len(ids) + 1)
    else:  # Its newest state in front of the edit is that of the first turn.
        assert answer == plain(model, edited, NEW, first)
    assert cache.save(answer[0]) == len(answer[0])
    assert store.find_branch("chat").tokens().tolist() == answer[0]
    assert store.find_branch("chat") == cache.branch
    if on_conflict == "fork":
        assert old.tokens().tolist() == before and old.info().name == f"chat@{old.id}"
        assert old.restorable_length() == len(before)
    else:
        assert cache.branch == old
    assert open_chat(store, model, answer[0] + MESSAGE).tokens == answer[0][:-1]


@pytest.mark.parametrize("on_conflict", ["raise", "fork", "rewind"])
def test_another_answer_to_the_same_prompt(model, store, on_conflict):
    """It differs from the stored one where it is saved, not where the cache is opened."""
    ids = first_turn(store, model)
    old = store.find_branch("chat")
    cache = open_chat(store, model, ids[:PROMPT], on_conflict=on_conflict, save_every=0)
    torch.manual_seed(3)
    other, _ = generate(model, ids[:PROMPT], NEW, cache, do_sample=True, temperature=5.0)
    assert other != ids
    if on_conflict == "raise":
        with pytest.raises(cairn.Conflict, match="on_conflict='fork' or 'rewind'"):
            cache.save(other)
        with pytest.raises(cairn.Conflict, match=f"from position {PROMPT} on"):  # Or a shorter one.
            open_chat(store, model, ids[:PROMPT]).save(ids[:PROMPT])
        assert old.tokens().tolist() == ids
        return
    cache.save(other)
    assert store.find_branch("chat").tokens().tolist() == other
    assert (old.tokens().tolist() == ids) == (on_conflict == "fork")


def test_a_fork_of_a_branch_without_a_name_has_none(model, store):
    ids = first_turn(store, model)
    branch = store.find_branch("chat").fork()
    cache = cairn.hf.CairnCache(model, branch, tokens=[1, 2, 3], on_conflict="fork")
    assert (cache.branch.info().name, cache.branch.length) == ("", 0)
    assert branch.tokens().tolist() == ids


def test_wrong_words_for_a_turn_are_refused(model, store):
    ids = first_turn(store, model)
    with pytest.raises(cairn.InvalidArgument, match="on_conflict: 'drop' is none of raise, fork, rewind"):
        open_chat(store, model, ids, on_conflict="drop")
    cache = open_chat(store, model, ids)
    with pytest.raises(cairn.Conflict, match="tokens: not those of the cache from position 5 on"):
        cache.save(ids[:5])
    with pytest.raises(cairn.Conflict, match="tokens: not those of the cache from position 3 on"):
        cache.save(ids[:3] + MESSAGE)


def draw(model, ids, cache):
    return generate(model, ids, NEW, cache, do_sample=True)[0]


def test_what_is_drawn_goes_on_in_the_next_turn(model, store):
    torch.manual_seed(5)
    ids = prompt_of(model, PROMPT)
    cache = open_chat(store, model, ids, sampler=True)
    ids = draw(model, ids, cache)
    cache.save(ids)
    state = torch.get_rng_state()
    torch.manual_seed(6)
    open_chat(store, model, ids + MESSAGE, sampler=True)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_sampler_that_does_not_go_on_is_told(model, store):
    torch.manual_seed(5)
    ids = prompt_of(model, PROMPT)
    ids = draw(model, ids, open_chat(store, model, ids, sampler=True))
    store.find_branch("chat").append(ids[-1:])
    state = torch.get_rng_state()
    told = rf"after {len(ids) - 1} tokens and not after {len(ids)}.*save\(tokens\)"
    with pytest.warns(RuntimeWarning, match=told) as said:
        open_chat(store, model, ids + MESSAGE, sampler=True)
    assert said[0].filename == str(pathlib.Path(__file__))
    assert torch.equal(torch.get_rng_state(), state)
    open_chat(store, model, ids[:-3] + MESSAGE, sampler=True, on_conflict="rewind")  # Edited: it need not go on.


def test_two_caches_of_one_length_wrote_into_each_others_tokens(model, store):
    """`a` is still open when `b` rewinds the branch to edit a message, and answers up to the same length."""
    ids = prompt_of(model, PROMPT)
    edited = ids[:PROMPT // 2] + prompt_of(model, PROMPT, seed=2)[PROMPT // 2:]
    chats = []
    for one in (ids, edited):
        cache = open_chat(store, model, one, on_conflict="rewind")
        said, _ = generate(model, one, NEW, cache)
        cache.save(torch.tensor([said]))
        chats.append((said, cache))
    (said, a), (kept, _) = chats
    with pytest.warns(RuntimeWarning, match="another one has written to it"):
        generate(model, said + MESSAGE, NEW, a)
    assert store.find_branch("chat").tokens().tolist() == kept
    turn = kept + MESSAGE
    assert generate(model, turn, NEW, open_chat(store, model, turn))[0] == plain(model, turn, NEW)[0]


def test_a_word_that_is_refused_made_a_branch(model, store):
    with pytest.raises(cairn.InvalidArgument, match="on_conflict: 'forkk' is none of"):
        open_chat(store, model, prompt_of(model, PROMPT), "bogus", on_conflict="forkk")
    assert not store.list_branches("bogus")[0]


@pytest.mark.parametrize("on_conflict", ["fork", "rewind"])
def test_another_last_token_was_not_stored(model, store, on_conflict):
    """The one before had been saved, and was taken for one of the cache's rows."""
    ids = prompt_of(model, PROMPT)
    cache = open_chat(store, model, ids, on_conflict=on_conflict)
    ids, _ = generate(model, ids, NEW, cache)
    cache.save(torch.tensor([ids]))
    other = [*ids[:-1], ids[-1] + 1]
    cache.save(torch.tensor([other]))
    assert store.find_branch("chat").tokens().tolist() == other


def test_a_fork_of_a_branch_that_another_had_changed_took_its_ids(model, store):
    """The fork had ids that the cache has no rows of, and the rows of the next turn were stored behind them."""
    ids = prompt_of(model, PROMPT)
    cache = open_chat(store, model, ids, on_conflict="fork")
    ids, _ = generate(model, ids, NEW, cache)
    cache.save(torch.tensor([ids]))
    branch = store.find_branch("chat")
    branch.rewind(PROMPT // 2)
    branch.append(prompt_of(model, len(ids) - PROMPT // 2, seed=3))
    changed = branch.tokens().tolist()
    with pytest.raises(cairn.Conflict, match="another one has written to it"):
        cache.save(torch.tensor([[*ids[:-1], ids[-1] + 1]]))  # Another answer.
    assert [info.name for info in store.list_branches()[0]] == ["chat"] and branch.tokens().tolist() == changed
