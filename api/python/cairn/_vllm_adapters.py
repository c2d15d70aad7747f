# SPDX-License-Identifier: Apache-2.0
"""Which weights an adapter of vLLM has at the moment: by its files, at the moment when vLLM loads them.

vLLM loads an adapter when a request needs it, when it is told to, again after others have taken its place, and again
and again where a request says `load_inplace`. All of that goes through one method of the worker, which is watched
here: worker and scheduler share a process.
"""

import contextlib
import dataclasses
import functools
import weakref

from vllm.lora.utils import get_adapter_absolute_path
from vllm.lora.worker_manager import WorkerLoRAManager

from . import _digest
from ._vllm_identity import new_generation

_watching = weakref.WeakSet()


@dataclasses.dataclass(frozen=True)
class Content:
    """What a number of an adapter holds."""

    first: str  # The digest of the files that it was loaded from first; "": unknown.
    now: str  # And last.
    generation: str = ""  # Drawn at each load of other files than before.


class Adapters:
    """Of one engine."""

    def __init__(self, digests):
        self._digests = digests
        self._contents = {}  # lora_int_id -> Content
        _watch(self)

    def content_of(self, lora):
        """What a request of it will be computed with. None: not known before it is loaded."""
        loaded = self._contents.get(lora.lora_int_id)
        if loaded is not None and not lora.load_inplace:
            return loaded
        files = self._digest(lora, lora.lora_path)
        if loaded is not None:
            return loaded if files == loaded.now else None
        return Content(files, files) if files else None

    def loading(self, lora):
        """Before it is loaded: what loaded() is to be given."""
        path = None
        with contextlib.suppress(Exception):  # vLLM meets it as well, and says so.
            path = get_adapter_absolute_path(lora.lora_path)
        return path and (path, self._digest(lora, path))

    def loaded(self, lora, before):
        """It is loaded. Files that changed meanwhile are as unknown as missing ones."""
        digest = before[1] if before and self._digest(lora, before[0]) == before[1] else ""
        was = self._contents.get(lora.lora_int_id)
        if was is None:
            content = Content(digest, digest, "" if digest else new_generation())
        elif digest and digest == was.now:
            content = was
        else:
            content = Content(was.first, digest, new_generation())
        self._contents[lora.lora_int_id] = content
        self._digests.save()

    def _digest(self, lora, path):
        try:
            return self._digests.of(path, f"3d {getattr(lora, 'is_3d_lora_weight', False)}")
        except (OSError, ValueError):
            return ""


def _watch(adapters):
    _watching.add(adapters)
    original = WorkerLoRAManager._load_adapter
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def load(manager, lora_request):
        before = [(one, one.loading(lora_request)) for one in list(_watching)]
        loaded = original(manager, lora_request)
        for one, what in before:
            one.loaded(lora_request, what)
        return loaded

    WorkerLoRAManager._load_adapter = load
