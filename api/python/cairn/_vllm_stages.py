# SPDX-License-Identifier: Apache-2.0
"""The requests that a blended prompt comes as, for vLLM's engines, and an LLM that makes them.

    stages = Stages(ids, sampling_params)
    for stage in stages:                        # with AsyncLLM; BlendLLM does the same for lists of prompts
        async for output in engine.generate(stage.prompt, stage.sampling_params, request_id=...):
            ...                                 # of the last stage: what the prompt's own request says
        stages.took(output)

First comes a request of one token, whose answer says where the stages end (_vllm_scheduler.py); then one request for
each computed part but the last, of the prompt up to there; then the prompt's own. Where nothing is to be blended the
prompt's own request comes at once behind the first one, as if there were no stages.
"""

import dataclasses
import os
from typing import Any

from vllm import LLM, SamplingParams

CACHE_SHARE = 0.5  # Of vLLM's own cache: prompts whose stages run together must fit there until their last stage.


@dataclasses.dataclass(frozen=True)
class Stage:
    prompt: dict[str, Any]
    sampling_params: SamplingParams
    is_last: bool


class Stages:
    """An iterator of one prompt's stages. The next one is there when `took` was given the output of the one before.

    prompt: token ids, or vLLM's dictionary of them {"prompt_token_ids": ..., "cache_salt": ...}. sampling_params: of
    the prompt's own request; its kv_transfer_params hold for all stages. plan: what the answer says, {"ends", "exact",
    "load_tokens", "compute_tokens"}; without "exact" nothing is blended. Takes no lock; not thread-safe.
    """

    def __init__(self, prompt, sampling_params):
        self._prompt = dict(prompt) if isinstance(prompt, dict) else {"prompt_token_ids": list(prompt)}
        self._ids = list(self._prompt["prompt_token_ids"])
        self._sampling = sampling_params
        self._id = os.urandom(16).hex()
        self.plan = None  # Not known yet.
        self._at = -1  # Which of its ends comes next.
        # As of one that asks for log probabilities of its prompt: all of it is computed.
        if sampling_params.prompt_logprobs is not None or sampling_params.skip_reading_prefix_cache or not self._ids:
            self.plan = {"ends": []}
        self._output = None

    def __iter__(self):
        return self

    def __next__(self):
        if self._output is not None:
            raise StopIteration
        if self.plan is None:
            return self._stage(self._ids[:1], tokens=self._ids)
        if self._ends_left:
            # One token more: of a window vLLM keeps what the last token of a request needs, and the next stage goes
            # on before that token.
            return self._stage(self._ids[:self._ends_left[0] + 1])
        blended = {"blend": {"id": self._id}} if self.plan["ends"] else {}
        return Stage(self._prompt, self._with(self._sampling.clone(), blended), True)

    @property
    def _ends_left(self):
        return self.plan["ends"][self._at:-1] if self.plan["ends"] else []

    def took(self, output):
        """The RequestOutput of the stage that was given last, once it is finished."""
        if self.plan is None:
            said = (output.kv_transfer_params or {}).get("cairn", {})
            self.plan = said.get("blend", {"ends": []})
            self._at = 0
        elif self._ends_left:
            self._at += 1
        else:
            self._output = output

    def _stage(self, ids, **more):
        sampling = SamplingParams(max_tokens=1, temperature=0, detokenize=False, extra_args=self._sampling.extra_args)
        prompt = {**self._prompt, "prompt_token_ids": ids}
        prompt.pop("prompt", None)  # The text is of all ids.
        return Stage(prompt, self._with(sampling, {"blend": {"id": self._id, **more}}), False)

    def _with(self, sampling, params):
        extra = dict(sampling.extra_args or {})
        if params:
            extra["kv_transfer_params"] = {**(extra.get("kv_transfer_params") or {}), **params}
        sampling.extra_args = extra or None
        return sampling


class BlendLLM(LLM):
    """vLLM's LLM, whose generate() takes KV of a prompt's parts from wherever they stand in the store (docs/blend.md).

        llm = cairn.vllm.BlendLLM("model", dtype="float32", enable_prefix_caching=True,
            kv_transfer_config=KVTransferConfig(kv_connector="BlendConnector", kv_connector_module_path="cairn.vllm",
                kv_role="kv_both", kv_load_failure_policy="recompute", kv_connector_extra_config={"path": "store"}))

    Answers are approximate where something was blended. plans: of the newest generate(), a Stages.plan for each prompt;
    None: of a prompt with content beside its ids, which vLLM computes as ever.
    """

    plans: list[dict[str, Any] | None] = []

    def generate(self, prompts, sampling_params=None, *, use_tqdm=True, lora_request=None, priority=None, **more):
        """As LLM.generate. Prompts run in groups whose stages fit into vLLM's own cache; of each group the stages run
        as waves, and the prompts' own requests at last, together."""
        prompts = [prompts] if isinstance(prompts, (str, dict)) or prompts and isinstance(prompts[0], int) else prompts
        count = len(prompts)
        jobs = [Job(self.model_config.max_model_len, *one) for one in zip(
            (self._with_ids(prompt, more.get("tokenization_kwargs")) for prompt in prompts),
            _each(sampling_params or self.get_default_sampling_params(), count, "sampling_params"),
            _each(lora_request, count, "lora_request"), _each(priority, count, "priority"))]
        outputs = []
        for group in self._groups(jobs):
            while any(not job.is_last for job in group):
                self._wave([job for job in group if not job.is_last], False, {})
            self._wave(group, use_tqdm, more)
            outputs += [job.output for job in group]
        self.plans = [job.stages and job.stages.plan for job in jobs]
        return outputs

    def _wave(self, jobs, use_tqdm, more):
        outputs = super().generate(
            [job.stage.prompt for job in jobs], [job.stage.sampling_params for job in jobs], use_tqdm=use_tqdm,
            lora_request=_all_or_none([job.lora for job in jobs]),
            priority=_all_or_none([job.priority for job in jobs]), **more)
        for job, output in zip(jobs, outputs, strict=True):
            job.took(output)

    def _with_ids(self, prompt, settings):
        """vLLM's dictionary of a prompt with its ids; as it is, where ids are not all of it."""
        if isinstance(prompt, str):
            prompt = {"prompt": prompt}
        if not isinstance(prompt, dict):
            return {"prompt_token_ids": list(prompt)}
        if "prompt_token_ids" in prompt or prompt.keys() - {"prompt", "cache_salt"}:
            return prompt
        return {**prompt, "prompt_token_ids": self.get_tokenizer().encode(prompt["prompt"], **(settings or {}))}

    def _groups(self, jobs):
        room = CACHE_SHARE * self.llm_engine.vllm_config.cache_config.kv_cache_size_tokens
        groups, left = [], 0
        for job in jobs:
            if not groups or job.tokens > left:
                groups.append([])
                left = room
            groups[-1].append(job)
            left -= job.tokens
        return groups


class Job:
    """A prompt on its way through generate()."""

    def __init__(self, length_max, prompt, sampling, lora, priority):
        self.lora, self.priority = lora, priority
        ids = prompt.get("prompt_token_ids", ())
        self.tokens = len(ids) + sampling.n * (sampling.max_tokens or length_max)
        self.output = None
        self.stages = None
        if 0 < len(ids) < length_max and not prompt.keys() - {"prompt", "prompt_token_ids", "cache_salt"}:
            self.stages = Stages(prompt, sampling)
            self.stage = next(self.stages)
        else:
            self.stage = Stage(prompt, sampling, True)

    @property
    def is_last(self):
        return self.stage.is_last

    def took(self, output):
        if self.is_last:
            self.output = output
            return
        self.stages.took(output)
        self.stage = next(self.stages)


def _each(value, count, name):
    """vLLM takes one for all prompts, or a list."""
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name}: {len(value)}, and there are {count} prompts")
    return value


def _all_or_none(values):
    return None if all(value is None for value in values) else values
