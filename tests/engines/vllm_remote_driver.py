# SPDX-License-Identifier: Apache-2.0
"""Drives the connector's two halves as vLLM does where they are in two processes: messages go through pickle, results
come back with the step's output. Both are in this process, which maps its own area, so that a test can look at each."""

import pickle
import types

from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import RequestStatus

import vllm_driver
from vllm_driver import Scheduled, seen

STEPS_MAX = 200


def sent(message):
    return pickle.loads(pickle.dumps(message))


class RemoteEngine(vllm_driver.Engine):
    """received, bad, failed, released: what vLLM was told so far."""

    def __init__(self, config, cache, order="NHD", **extra):
        config.parallel_config.distributed_executor_backend = "mp"
        config.kv_transfer_config.kv_connector_extra_config.update({"shared_memory_bytes": 1 << 20, **extra})
        self.begin(config, cache, order)
        self.received, self.bad, self.failed, self.released = set(), set(), set(), set()

    def begin(self, config, cache, order):
        super().__init__(config, cache, order)
        self.workers = [self.worker]
        self.scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): sent(self.worker.get_handshake_metadata())})

    @property
    def transfers(self):
        return self.scheduler._side.transfers

    @property
    def store(self):
        return self.scheduler._shared.store

    def step_of(self, new, running=()):
        self.give(self.rank_step(sent(self.scheduler.build_connector_meta(self.output_of(new, running))),
                                 [*running, *new]))

    def rank_step(self, meta, scheduled):
        """A step of all ranks."""
        return self.together([self.run_rank(number, meta, scheduled) for number in range(len(self.workers))])

    def together(self, outputs):
        (output,) = outputs
        return output

    def run_rank(self, number, meta, scheduled):
        self.worker.bind_connector_metadata(meta)
        self.forward(scheduled)
        results = self.worker.get_transfer_results(set())
        output = KVConnectorOutput(results.finished_sending, results.finished_recving,
                                   kv_connector_worker_meta=self.worker.build_connector_worker_meta(),
                                   invalid_block_ids=self.worker.get_block_ids_with_load_errors(),
                                   failed_recving=results.failed_recving)
        self.worker.clear_connector_metadata()
        return output

    def give(self, output):
        """A step's output comes back."""
        self.scheduler.update_connector_output(sent(output))
        self.received |= output.finished_recving
        self.released |= output.finished_sending
        self.bad |= output.invalid_block_ids
        self.failed |= output.failed_recving

    def add(self, request, tables, computed=0):
        assert request.request_id not in self.received | self.released
        self.scheduler.on_new_request(request)
        loaded, asynchronous = self.scheduler.get_num_new_matched_tokens(request, computed)
        assert asynchronous == (loaded > 0)
        self.scheduler.update_state_after_alloc(request, types.SimpleNamespace(get_block_ids=lambda: tables), loaded)
        request.num_computed_tokens = computed + loaded
        return loaded

    def until(self, done):
        """Steps that compute nothing."""
        for _ in range(STEPS_MAX):
            if done():
                return
            assert self.scheduler.has_pending_push_work(), "vLLM would not go on stepping"
            self.step_of([])
        raise AssertionError("it never came to that")

    def compute_all(self, request, tables, count=None):
        """A step that computes what a request lacks, or `count` tokens of it."""
        done = request.num_computed_tokens
        count = request.num_tokens - done if count is None else count
        self.step_of([Scheduled(request.request_id, done, count, tables, seen(request)[:done + count])])
        request.num_computed_tokens = done + count

    def over(self, request, tables, status=RequestStatus.FINISHED_STOPPED, drawn=0):
        """The request ends. Whether vLLM keeps its blocks."""
        if drawn is not None:
            request.append_output_token_ids(drawn)
        request.status = status
        return self.scheduler.request_finished_all_groups(request, tables)[0]

    def run(self, request, tables, drawn, steps_on=True):
        loaded = self.add(request, tables)
        if loaded:
            before = set(self.bad)
            self.until(lambda: request.request_id in self.received)
            assert self.bad == before and request.request_id not in self.failed
        rows = self.read(request.num_computed_tokens, tables) if loaded else None
        for token in [None, *drawn]:
            if token is not None:
                request.append_output_token_ids(token)
            self.compute_all(request, tables)
        rows = self.read(request.num_tokens, tables) if rows is None else rows
        if self.over(request, tables):
            self.until(lambda: request.request_id in self.released)
        return loaded, rows
