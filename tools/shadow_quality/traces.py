# SPDX-License-Identifier: Apache-2.0
"""How many recorded choices caches would have had: a device buffer for each head, and values in DRAM over a disk.

A trace is bool [steps, heads, chunks]: what each head of each layer chose at each step, heads in the order in
which layers ask for them.
"""

import collections

import numpy


def trace_of(chosen, chunks):
    """Of ids [kv heads, steps, count] by layer."""
    ids = numpy.concatenate([layer.numpy() for layer in chosen]).transpose(1, 0, 2)
    trace = numpy.zeros((*ids.shape[:2], chunks), bool)
    numpy.put_along_axis(trace, ids, True, -1)
    return trace


def _newest(stamps, capacity):
    """bool: the `capacity` entries of each head with the largest stamps that are not negative; ties to the lower id."""
    order = numpy.argsort(-stamps, axis=-1, kind="stable")[:, :capacity]
    kept = numpy.zeros(stamps.shape, bool)
    numpy.put_along_axis(kept, order, True, -1)
    return kept & (stamps >= 0)


def lru_residents(trace, capacity):
    """Before each step, what a buffer of this many chunks per head holds, bool as the trace. Starts empty."""
    stamps = numpy.full(trace.shape[1:], -1)
    residents = numpy.zeros_like(trace)
    for step, chosen in enumerate(trace):
        residents[step] = _newest(stamps, capacity)
        stamps[chosen] = step
    return residents


def best_residents(trace, capacity):
    """The same of a buffer that knows the future and keeps what is needed soonest (Belady)."""
    steps = len(trace)
    soonest = numpy.full(trace.shape, steps)  # When it is next chosen, behind this step.
    for step in range(steps - 2, -1, -1):
        soonest[step] = numpy.where(trace[step + 1], step + 1, soonest[step + 1])
    residents = numpy.zeros_like(trace)
    held = numpy.zeros(trace.shape[1:], bool)
    for step, chosen in enumerate(trace):
        residents[step] = held
        held = held | chosen
        held = _newest(numpy.where(held, steps - soonest[step], -1), capacity)
    return residents


def hit_rate(trace, residents):
    """The share of all choices but the first step's that the buffer holds."""
    return (trace & residents)[1:].sum() / trace[1:].sum()


def disk_faults(trace, residents, chunks_per_page, share, prefetch, warm=16):
    """(share of chosen chunks that are in no buffer and not in DRAM: the step waits for the disk; pages that are
    read from the disk in a step).

    DRAM has room for `share` of all values, in pages of neighbouring chunks of one head, LRU over all heads and
    layers; it starts empty, and the first `warm` steps are not counted. prefetch: before a head is asked, the pages
    that it needed at the step before are loaded. The chunks of that step lie in its buffer; their neighbours may help.
    """
    steps, heads, chunks = trace.shape
    pages = -(-chunks // chunks_per_page)
    capacity = int(share * heads * pages)
    dram = collections.OrderedDict()
    faults, reads, before = 0, 0, [()] * heads

    def load(page):
        """1 if it had to be read."""
        absent = page not in dram
        dram[page] = None
        dram.move_to_end(page)
        if len(dram) > capacity:
            dram.popitem(last=False)
        return absent

    for step in range(steps):
        missed = trace[step] & ~residents[step]
        for head in range(heads):
            wanted, counts = numpy.unique(numpy.flatnonzero(missed[head]) // chunks_per_page, return_counts=True)
            read = sum(load((head, page)) for page in before[head]) if prefetch else 0
            fault = sum(count for page, count in zip(wanted, counts) if (head, page) not in dram)
            read += sum(load((head, page)) for page in wanted)
            before[head] = wanted
            if step >= warm:
                faults, reads = faults + fault, reads + read
    return faults / trace[warm:].sum(), reads / (steps - warm)
