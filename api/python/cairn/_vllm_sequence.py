# SPDX-License-Identifier: Apache-2.0
"""A request in the store: a branch that begins with what was found, and grows with what is computed."""

import logging
import struct

import cairn

logger = logging.getLogger("vllm.cairn")  # vLLM's own handlers show it.

# Shorter prefixes are never found (cairn/find.h), so nothing is kept of shorter requests.
FOUND_FROM = 64


class Sequence:
    """Used by the worker; the scheduler reads `length` and, once a request is over, ends it."""

    def __init__(self, shared, name, model, namespace, sampling, kept):
        self.shared = shared
        self.name, self.model, self.namespace, self.sampling = name, model, namespace, sampling
        self.branch = None
        self.base = 0  # Tokens that were found, not computed.
        self.length = 0  # Tokens in the store, all of them with KV.
        self.broken = not kept  # An append failed, or none is wanted: the branch stays as it is.
        self.damaged = False  # A load failed: what is found may be that again, so nothing is looked for.

    def begin(self, hit, base):
        """The first `base` tokens are those of the hit. Called while its lease lasts."""
        if self.branch is not None or base < FOUND_FROM or self.broken:
            return
        try:
            self.branch = hit.fork(base, self.name, namespace=self.namespace, keep=self.shared.keep,
                                   durability=self.shared.settings.durability)
            self.base = self.length = base
        except cairn.Error as error:
            self._break(error)

    def restart(self):
        """The branch's beginning cannot be read: drops it, and begins another one."""
        if self.branch is not None:
            self._quietly(self.branch.drop)
        self.branch, self.base, self.length = None, 0, 0

    def append(self, tokens, kv, drawn, gpu_ready=0):
        """Tokens behind those that are there, and their KV; `drawn` of all are the sampler's."""
        if self.broken or not tokens:
            return
        durability = self.shared.settings.durability
        try:
            if self.branch is None:
                self.branch = self.shared.store.create_branch(
                    self.model, self.name, namespace=self.namespace, keep=self.shared.keep, durability=durability)
            self.length = self.branch.append(tokens, kv, sampler=self._sampler(drawn), durability=durability,
                                             expected_length=self.length, gpu_ready=gpu_ready)
        except cairn.Error as error:
            self._break(error)

    def end(self, tokens, drawn):
        """The request is over: appends the remaining ids, without KV. Drops a branch without content of its own."""
        if self.branch is not None:
            if tokens:
                self.append(tokens, None, drawn)
            if self.length == self.base:
                self._quietly(self.branch.drop)

    def _sampler(self, drawn):
        """vLLM draws from a generator of the request's seed, which so many draws have advanced."""
        sampling = self.sampling
        if sampling is None or sampling.seed is None:
            return None
        return cairn.SamplerState(
            "named", blob_name="vllm.seed", blob_version=1, blob=struct.pack("<qQ", sampling.seed, drawn),
            temperature=sampling.temperature, top_p=sampling.top_p, min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty, top_k=max(sampling.top_k, 0))

    def _break(self, error):
        self.broken = True
        logger.warning("Cairn keeps nothing more of request %s: %s", self.name, error)

    def _quietly(self, call):
        try:
            call()
        except cairn.Error as error:
            logger.warning("Cairn: request %s: %s", self.name, error)
