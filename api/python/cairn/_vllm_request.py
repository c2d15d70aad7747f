# SPDX-License-Identifier: Apache-2.0
"""What a request says about its own state: the kv_transfer_params of vLLM."""

import dataclasses
import fnmatch
import hashlib
import os
from typing import Any

import cairn

from ._explain import nearest
from ._vllm_identity import is_reserved

TTL_SECONDS_MAX = 10 * 365 * 86400.0
PRIORITY_MAX = 255  # cairn.Keep
NAME_BYTES_MAX = 256  # cairn/limits.h, of branches and namespaces; the connector puts some of its own behind.
NAMESPACE_BYTES_MAX = 128
TOKENS_END = 1 << 31
SHOWN_MAX = 100  # Characters of a value that a message repeats.


class Refused(ValueError):
    """Names the key, and what is wrong with it."""


@dataclasses.dataclass(frozen=True)
class Blend:
    """Which prompt's plan a request is a stage of (_vllm_stages.py). tokens: the whole prompt, of the request that asks
    for the plan."""

    id: str
    tokens: list[int] | None = None


@dataclasses.dataclass(frozen=True)
class Control:
    """The parameters, checked; docs/engines.md explains each."""

    ttl: float | None = None
    priority: int | None = None
    pinned: bool | None = None
    namespace: str | None = None
    branch: str = ""
    save: bool = True
    prefetch: bool = False
    blend: Blend | None = None

    @classmethod
    def of(cls, params, settings, length_max=0):
        """Refused."""
        if not isinstance(params, dict):
            raise Refused(f"kv_transfer_params: {_shown(params)} is no object")
        for key, value in params.items():
            if key not in _CHECKS:
                raise _unknown(key)
            _CHECKS[key](key, value)
        if params.get("pinned") and not settings.allow_pinned:
            raise Refused("pinned: is not allowed here; kv_connector_extra_config 'allow_pinned' allows it")
        if "namespace" in params:
            _check_namespace(params["namespace"], settings)
        if params.get("save") is False:
            for key in ("ttl", "priority", "pinned", "branch"):
                if key in params:
                    raise Refused(f"{key}: says how to keep what \"save\": false does not keep")
        if params.get("pinned") and "ttl" in params:
            raise Refused("ttl: does not end what is pinned")
        if "blend" in params:
            if not settings.enable_blending:
                raise Refused("blend: is off; kv_connector_extra_config 'enable_blending' turns it on")
            _check_blend_tokens(params["blend"].get("tokens"), length_max)
            params = {**params, "blend": Blend(**params["blend"])}
        return cls(**params)

    def keep(self, keep, passing):
        """A cairn.Keep like `keep` but for what the request says. passing: state that goes first in any case."""
        if self.ttl is self.priority is self.pinned is None:
            return keep
        said = {"ttl": keep.ttl if self.ttl is None else self.ttl}
        if not passing:
            said["priority"] = keep.priority if self.priority is None else self.priority
            said["pinned"] = keep.pinned if self.pinned is None else self.pinned
        return cairn.Keep(**said)


ASKS_NOTHING = Control()


def _unknown(key):
    if not isinstance(key, str):
        return Refused(f"{_shown(key)}: is no name of a parameter")
    return Refused(f"{key[:SHOWN_MAX]}: is none of {', '.join(_CHECKS)}{nearest(key, list(_CHECKS))}")


def _shown(value):
    """As Python writes it, cut; whole numbers of thousands of digits cannot be written."""
    try:
        text = repr(value)
    except ValueError:
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."


def _check_ttl(key, value):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= TTL_SECONDS_MAX:
        raise Refused(f"{key}: {_shown(value)} is no number of seconds above 0 and up to {TTL_SECONDS_MAX:.0f}")


def _check_priority(key, value):
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= PRIORITY_MAX:
        raise Refused(f"{key}: {_shown(value)} is no whole number from 0 to {PRIORITY_MAX}")


def _check_bool(key, value):
    if not isinstance(value, bool):
        raise Refused(f"{key}: {_shown(value)} is neither true nor false")


def _check_name(key, value, bytes_max=NAME_BYTES_MAX):
    if not isinstance(value, str) or not value or not value.isprintable() or len(value.encode()) > bytes_max:
        raise Refused(f"{key}: {_shown(value)} is no printable text of 1 to {bytes_max} bytes")


def _check_namespace(name, settings):
    """Of names that salts and generations have none may be given: else one tenant could name another's."""
    _check_name("namespace", name, NAMESPACE_BYTES_MAX)
    if is_reserved(name):
        raise Refused(f"namespace: {name!r} has '#', '@generation:' or '@degrees:' in it, which are the connector's own")
    if not any(fnmatch.fnmatchcase(name, pattern) for pattern in settings.allow_namespaces):
        raise Refused(f"namespace: {name!r} is not allowed here; kv_connector_extra_config 'allow_namespaces' lists "
                      "those that are")


def _check_blend(key, value):
    if not isinstance(value, dict) or not {"id"} <= value.keys() <= {"id", "tokens"}:
        raise Refused(f"{key}: {_shown(value)} is not an id, or an id and tokens")
    _check_name(f"{key}.id", value["id"])


def _check_blend_tokens(tokens, length_max):
    if tokens is None:
        return
    if not isinstance(tokens, list) or not 0 < len(tokens) <= length_max:
        raise Refused(f"blend.tokens: is no list of 1 to {length_max} token ids, which a request may have")
    bad = next((one for one in tokens if type(one) is not int or not 0 <= one < TOKENS_END), None)
    if bad is not None:
        raise Refused(f"blend.tokens: {_shown(bad)} is no token id")


_CHECKS: dict[str, Any] = {
    "ttl": _check_ttl, "priority": _check_priority, "pinned": _check_bool, "namespace": lambda key, value: None,
    "branch": _check_name, "save": _check_bool, "prefetch": _check_bool, "blend": _check_blend}


class Borders:
    """Keeps vLLM's own prefix cache, which knows tokens and cache_salt only, from serving over a namespace's border."""

    def __init__(self):
        # A request may give any cache_salt, and must not be able to give that of a namespace.
        self._secret = os.urandom(16)

    def put(self, request, *names):
        """Only requests that are given the same names, and have its own cache_salt, share blocks with it."""
        words = repr((*names, request.cache_salt or "")).encode()
        request.cache_salt = hashlib.sha256(self._secret + words).hexdigest()
        request.block_hashes = []
        request.update_block_hashes()
