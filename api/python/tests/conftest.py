# SPDX-License-Identifier: Apache-2.0
"""Stores for tests, and how a file of tests that cannot run says so: exit status 77, with the reason last."""

import pytest

import cairn

_reasons = []
_passed = []


@pytest.fixture
def spec():
    """2 layers, 2 heads of 4 bf16 elements: 64 bytes of KV a token."""
    return cairn.ModelSpec.of("toy", layers=2, kv_heads=2, head_dim=4, dtype="bf16")


@pytest.fixture
def gpu():
    return cairn.Gpu.simulated(5)


@pytest.fixture
def store(request):
    """In memory: most tests are of the binding, not of the disk. It has the device of a test that asks for `gpu`."""
    gpus = [request.getfixturevalue("gpu")] if "gpu" in request.fixturenames else []
    with cairn.Store(":memory:", create_if_missing=True, segment_bytes=1 << 20, gpus=gpus) as opened:
        yield opened


@pytest.fixture
def chat(store, spec):
    return store.create_branch(store.register_model(spec), "chat")


def pytest_runtest_logreport(report):
    if report.skipped:
        _reasons.append(report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr))
    elif report.when == "call":
        _passed.append(report.nodeid)


def pytest_collectreport(report):
    if report.skipped:
        _reasons.append(report.longrepr[2])


def pytest_unconfigure(config):
    if _reasons and not _passed:
        print(_reasons[0])


def pytest_sessionfinish(session, exitstatus):
    # A skipped test must not look as if it had passed: a file runs whole, or not at all.
    if _reasons and _passed:
        session.exitstatus = 1
        print(f"some tests of the file were skipped, and others not: {_reasons}")
    elif _reasons:
        session.exitstatus = 77
