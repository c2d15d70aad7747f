# SPDX-License-Identifier: Apache-2.0
"""The longest prefix of a prompt."""

import numpy as np
import pytest

import cairn


@pytest.fixture
def prompt():
    return np.random.default_rng(3).integers(0, 30_000, 200, np.uint32)


def test_a_prompt_goes_on_where_a_branch_has_it(store, spec, prompt):
    model = store.register_model(spec)
    kv = cairn.KvBuffer(spec, 200)
    kv.bytes[:] = np.arange(len(kv.bytes)) % 253
    store.create_branch(model, "first").append(prompt, kv)
    other = prompt.copy()
    other[150:] += 1
    assert not store.find_prefix(model, other[::-1].copy())
    with store.find_prefix(model, other, lease=5) as hit:
        assert hit and (hit.matched, hit.restorable, hit.exact, hit.confirmed) == (150, 150, 150, True)
        assert hit.lease and hit.complete
        assert hit.longest == (hit.node, 150)
        hit.renew(10)
        back, room = cairn.KvBuffer(spec, 150), np.zeros(150, np.uint32)
        hit.restore(back, room)
        assert np.array_equal(room, prompt[:150])
        assert np.array_equal(back.numpy(1, 1), kv.numpy(1, 1)[:, :150])
        second = hit.fork(name="second")
        assert second.length == 150 and second.kv_lengths == [150]
        assert hit.fork(100).length == 100
    with pytest.raises(cairn.NotFound):
        hit.renew(1)


def test_namespaces_see_what_they_are_shown(store, spec, prompt):
    model = store.register_model(spec)
    store.create_branch(model, namespace="a").append(prompt, cairn.KvBuffer(spec, 200))
    assert not store.find_prefix(model, prompt, namespace="b")
    assert store.find_prefix(model, prompt, namespace="b", also=["a"]).matched == 200


def test_ids_without_kv_do_not_hide_kv(store, spec, prompt):
    model = store.register_model(spec)
    store.create_branch(model, "kv").append(prompt[:130], cairn.KvBuffer(spec, 130))
    store.create_branch(model, "ids").append(prompt)
    hit = store.find_prefix(model, prompt)
    assert (hit.matched, hit.restorable) == (130, 130)
    assert hit.longest[1] == 200 and hit.longest[0] != hit.node


def test_approximate_kv_is_told(store, spec, prompt):
    model = store.register_model(spec)
    store.create_branch(model).append(prompt, cairn.KvBuffer(spec, 200), exact=False)
    assert store.find_prefix(model, prompt, approximate=True).exact < 200
