# SPDX-License-Identifier: Apache-2.0
"""What the connector has to say in vLLM's metrics and in its line of statistics."""

from prometheus_client import Counter, Gauge

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

_ERRORS, _REFUSED, _USABLE, _WAITS, _GIVEN_UP = "errors", "refused", "usable", "waits", "given_up"


class Stats(KVConnectorStats):
    """data: errors, {code: calls that failed with it}; refused, requests; usable, whether KV can be kept, at last; waits,
    saves that found no slot of shared memory; given_up, requests whose blocks were held for too long."""

    @classmethod
    def of(cls, errors, refused, usable):
        return cls({_ERRORS: errors, _REFUSED: refused, _USABLE: usable, _WAITS: 0, _GIVEN_UP: 0})

    def of_slots(self, waits, given_up):
        self.data.update({_WAITS: waits, _GIVEN_UP: given_up})
        return self

    def reset(self):
        self.data = {_ERRORS: {}, _REFUSED: 0, _USABLE: True, _WAITS: 0, _GIVEN_UP: 0}

    def aggregate(self, other):
        for code, count in other.data[_ERRORS].items():
            self.data[_ERRORS][code] = self.data[_ERRORS].get(code, 0) + count
        for name in (_REFUSED, _WAITS, _GIVEN_UP):
            self.data[name] += other.data[name]
        self.data[_USABLE] = other.data[_USABLE]
        return self

    def reduce(self):
        return {"Cairn keeps KV": "yes" if self.data[_USABLE] else "no", "Cairn requests refused": self.data[_REFUSED],
                **{f"Cairn {code}": count for code, count in sorted(self.data[_ERRORS].items())}}

    def is_empty(self):
        return False  # None are made while there is nothing to say.


class PromMetrics(KVConnectorPromMetrics):
    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._errors = metric_types[Counter](
            name="vllm:cairn_errors", labelnames=[*labelnames, "code"],
            documentation="Calls of Cairn's store that failed, by the class of their error.")
        refused = metric_types[Counter](
            name="vllm:cairn_requests_refused", labelnames=labelnames,
            documentation="Requests whose kv_transfer_params were refused, so that they ran without Cairn.")
        waits = metric_types[Counter](
            name="vllm:cairn_slot_waits", labelnames=labelnames,
            documentation="Saves that waited for a later step, since no slot of shared memory was free.")
        given_up = metric_types[Counter](
            name="vllm:cairn_holds_given_up", labelnames=labelnames,
            documentation="Requests whose blocks were held for hold_seconds, and whose rest was not kept for that.")
        usable = metric_types[Gauge](
            name="vllm:cairn_store_usable", labelnames=labelnames,
            documentation="1: KV is kept. 0: since the last failure nothing was, as of a full disk.")
        self._refused = {index: refused.labels(*values) for index, values in per_engine_labelvalues.items()}
        self._waits = {index: waits.labels(*values) for index, values in per_engine_labelvalues.items()}
        self._given_up = {index: given_up.labels(*values) for index, values in per_engine_labelvalues.items()}
        self._usable = {index: usable.labels(*values) for index, values in per_engine_labelvalues.items()}
        for one in self._usable.values():
            one.set(1)

    def observe(self, transfer_stats_data, engine_idx=0):
        for code, count in transfer_stats_data[_ERRORS].items():
            self._errors.labels(*self.per_engine_labelvalues[engine_idx], code).inc(count)
        self._refused[engine_idx].inc(transfer_stats_data[_REFUSED])
        self._waits[engine_idx].inc(transfer_stats_data[_WAITS])
        self._given_up[engine_idx].inc(transfer_stats_data[_GIVEN_UP])
        self._usable[engine_idx].set(transfer_stats_data[_USABLE])
