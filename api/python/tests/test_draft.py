# SPDX-License-Identifier: Apache-2.0
"""Positions that are filled layer by layer."""

import threading

import numpy as np
import pytest

import cairn


def layer_views(spec, buffer, count):
    """One view a layer: each of that layer's K and V alone."""
    views = []
    for layer in range(2):
        planes = [np.ascontiguousarray(buffer.numpy(layer, plane)) for plane in range(2)]
        views.append(cairn.KvTensors(spec, planes, "head_major", layer_begin=layer).view(0, count))
    return views


@pytest.fixture
def filled(spec):
    buffer = cairn.KvBuffer(spec, 8)
    buffer.bytes[:] = np.random.default_rng(2).integers(0, 256, len(buffer.bytes), np.uint8)
    return buffer


def test_layers_are_put_by_threads_and_committed_as_one(chat, spec, filled):
    draft = chat.begin_append(8)
    threads = [threading.Thread(target=draft.put, args=(layer, view))
               for layer, view in enumerate(layer_views(spec, filled, 8))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert chat.length == 0
    # Five of eight were accepted.
    assert draft.commit([1, 2, 3, 4, 5], durability="power").wait() == 5
    back = cairn.KvBuffer(spec, 5)
    chat.restore(back)
    for layer in range(2):
        for plane in range(2):
            assert np.array_equal(back.numpy(layer, plane), filled.numpy(layer, plane)[:, :5])


def test_leaving_without_a_commit_appends_nothing(chat, spec, filled):
    with chat.begin_append(8) as draft:
        draft.put(0, layer_views(spec, filled, 8)[0])
    assert chat.length == 0
    with pytest.raises(cairn.Error):
        draft.commit([1])


def test_a_draft_of_a_branch_that_changed_is_refused(chat, spec, filled):
    draft = chat.begin_append(8)
    draft.put(0, layer_views(spec, filled, 8)[0])
    chat.append([9])
    with pytest.raises(cairn.Conflict):
        draft.commit([1])
