# SPDX-License-Identifier: Apache-2.0
"""Property: pictures and other content are found by what they show, stored and loaded as a whole, and left alone where
vLLM's hashes do not tell them apart.
Method: vllm_driver.py. test_vllm_pictures.py has a real model."""

import torch
from vllm.config import MultiModalConfig
from vllm.v1.kv_cache_interface import FullAttentionSpec

from vllm_driver import SHAPE, Engine, Scheduled, config_of, request_of, roots, seen, table, with_pictures

CAT, DOG = "ca" * 32, "d0" * 32


def test_pictures_are_found_by_what_they_show(exported, monkeypatch, tmp_path):
    """The ids of two pictures are alike; a prompt is found up to the first picture that is another one."""
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE), pictures=True),
                    "NHD")
    prompt = [*range(70), *[99] * 24, *range(30), *[99] * 10, 1, 2]

    def ask(name, first, second):
        request = with_pictures(name, prompt, (70, 24, first), (124, 10, second))
        loaded, rows = engine.run(request, table(1 if name == "first" else 11), [])
        assert torch.equal(rows[:loaded], engine.rows(seen(request), 0)[:loaded])
        return loaded

    assert ask("first", CAT, CAT) == 0
    assert ask("same", CAT, CAT) == 135
    assert ask("other", CAT, DOG) == 124
    assert ask("others", DOG, CAT) == 70
    # Each of them is there now, and none in place of another.
    assert [ask("again", *both) for both in ((CAT, CAT), (CAT, DOG), (DOG, CAT))] == [135] * 3
    assert engine.run(request_of("text", prompt), table(11), [])[0] == 70
    assert len(roots(engine.worker._shared.store)) == 1
    engine.close()


def test_a_picture_is_stored_and_loaded_as_a_whole(exported, monkeypatch, tmp_path):
    """Chunks and loads end before it or behind it; a prompt may end with one."""
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE), pictures=True),
                    "NHD")
    store = engine.worker._shared.store
    request = with_pictures("chunks", [*range(70), *[99] * 40, 1, 2], (70, 40, CAT))
    engine.add(request, table(1))
    lengths = []
    for begin, end in ((0, 80), (80, 100), (100, 112)):
        engine.step_of([Scheduled("chunks", begin, end - begin, table(1), seen(request)[:end])])
        lengths.append([info.length for info in store.list_branches("chunks")[0]])
    assert lengths == [[70], [70], [112]]
    (branch,) = (store.find_branch(info.name) for info in store.list_branches("chunks")[0])
    assert [(span.begin, span.end, span.atomic) for span in branch.spans()] == [(70, 110, True)]
    ends_with_it = with_pictures("ends", [*range(70), *[99] * 40], (70, 40, CAT))
    loaded, rows = engine.run(ends_with_it, table(11), [])
    assert loaded == 70 and torch.equal(rows[:70], engine.rows(seen(ends_with_it), 0)[:70])
    engine.close()


def test_content_that_no_hash_tells_is_left_alone(exported, monkeypatch, tmp_path):
    """Names that users give, embeddings, pictures that overlap; and all where vLLM numbers them by request, or
    another connector brings embeddings."""
    config, cache = config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE), pictures=True)
    engine = Engine(config, cache, "NHD")
    store, prompt = engine.worker._shared.store, [*range(70), *[99] * 24, 1, 2]
    embedded = {"image_embeds": None}
    for pictures, modality, data in (
            (((70, 24, "my cat"),), "image", None), (((70, 24, CAT),), "prompt_embeds", None),
            (((70, 24, CAT),), "image", embedded), (((70, 24, CAT), (90, 4, DOG)), "image", None),
            (((70, 0, CAT),), "image", None)):
        request = with_pictures("left", prompt, *pictures, modality=modality, data=data)
        assert engine.run(request, table(1), [])[0] == 0 and not store.list_branches()[0]
    engine.close()
    config.cache_config.enable_prefix_caching = False
    for cache_gb, transfer in ((0, None), (4, "another connector that brings embeddings")):
        config.model_config.multimodal_config = MultiModalConfig(mm_processor_cache_gb=cache_gb)
        config.ec_transfer_config = transfer
        engine = Engine(config, cache, "NHD")
        store = engine.worker._shared.store
        engine.run(with_pictures("left", prompt, (70, 24, CAT)), table(1), [])
        assert not store.list_branches()[0]
        engine.close()
