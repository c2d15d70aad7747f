# SPDX-License-Identifier: Apache-2.0
"""What the connector has to say in vLLM's metrics and in its line of statistics."""

from prometheus_client import Counter, Gauge

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

_ERRORS, _REFUSED, _USABLE = "errors", "refused", "usable"


class Stats(KVConnectorStats):
    """data: errors, {code: calls that failed with it}; refused, requests; usable, whether KV can be kept, at last."""

    @classmethod
    def of(cls, errors, refused, usable):
        return cls({_ERRORS: errors, _REFUSED: refused, _USABLE: usable})

    def reset(self):
        self.data = {_ERRORS: {}, _REFUSED: 0, _USABLE: True}

    def aggregate(self, other):
        for code, count in other.data[_ERRORS].items():
            self.data[_ERRORS][code] = self.data[_ERRORS].get(code, 0) + count
        self.data[_REFUSED] += other.data[_REFUSED]
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
        usable = metric_types[Gauge](
            name="vllm:cairn_store_usable", labelnames=labelnames,
            documentation="1: KV is kept. 0: since the last failure nothing was, as of a full disk.")
        self._refused = {index: refused.labels(*values) for index, values in per_engine_labelvalues.items()}
        self._usable = {index: usable.labels(*values) for index, values in per_engine_labelvalues.items()}
        for one in self._usable.values():
            one.set(1)

    def observe(self, transfer_stats_data, engine_idx=0):
        for code, count in transfer_stats_data[_ERRORS].items():
            self._errors.labels(*self.per_engine_labelvalues[engine_idx], code).inc(count)
        self._refused[engine_idx].inc(transfer_stats_data[_REFUSED])
        self._usable[engine_idx].set(transfer_stats_data[_USABLE])
