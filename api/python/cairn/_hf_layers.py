# SPDX-License-Identifier: Apache-2.0
"""Layers of a transformers Cache whose state lies in memory that a store can read and write where it is."""

import torch
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

from ._errors import InvalidArgument, InvalidState


class Rows:
    """K and V of positions [first, first + capacity) of one layer, [1, heads, capacity, head_dim] each."""

    def __init__(self, keys, values, capacity):
        self.first = 0
        self.keys, self.values = (like.new_empty(*like.shape[:2], capacity, like.shape[3]) for like in (keys, values))

    @property
    def capacity(self):
        return self.keys.shape[2]

    def view(self, begin, end):
        there = slice(begin - self.first, end - self.first)
        return self.keys[:, :, there], self.values[:, :, there]

    def make_room(self, needed, length, end):
        """Room for rows up to `end`; of those there are, [needed, length) stay. Moves rarely: it doubles."""
        if end - self.first <= self.capacity:
            return
        kept, needed_first = self.view(needed, length), needed
        capacity = max(self.capacity, 2 * (end - needed))
        old = self.keys, self.values
        self.keys, self.values = (part.new_empty(*part.shape[:2], capacity, part.shape[3]) for part in old)
        self.first = needed_first
        for target, source in zip(self.view(needed, length), kept):
            target.copy_(source)

    def drop_before(self, position, end):
        """Of rows up to `end` those from `position` on stay."""
        kept = [part.clone() for part in self.view(position, end)]
        self.first = position
        for target, source in zip(self.view(position, end), kept):
            target.copy_(source)

    def write(self, position, keys, values):
        for target, source in zip(self.view(position, position + keys.shape[2]), (keys, values)):
            target.copy_(source.detach())


class _Attention:
    """Shared by full and sliding-window layers. The batch is one sequence, like a branch."""

    def _begin(self, cache, capacity):
        self.cache, self.capacity, self.rows, self.length = cache, capacity, None, 0

    def oldest_needed(self, length):
        """The first row that the token after `length` tokens attends to."""
        return 0

    @property
    def first_row(self):
        return 0 if self.rows is None else self.rows.first

    def lazy_initialization(self, key_states, value_states):
        self.dtype, self.device = key_states.dtype, key_states.device
        self.rows = Rows(key_states, value_states, self.capacity)
        self.is_initialized = True
        self._show()

    def update(self, key_states, value_states, *args, **kwargs):
        self.cache.check_in_forward()
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        before, self.length = self.length, self.length + key_states.shape[-2]
        begin = self.oldest_needed(before)
        self.rows.make_room(begin, before, self.length)
        self.rows.write(before, key_states, value_states)
        self._show()
        return self.rows.view(begin, self.length)

    def _show(self):
        self.keys, self.values = self.rows.view(self.oldest_needed(self.length), self.length)

    def put_back(self, length):
        """The rows were restored into the memory up to `length`."""
        self.length = length
        self._show()

    def get_seq_length(self):
        return self.length

    def reset(self):
        self.crop(-self.length)

    def crop(self, tokens_to_remove):
        """Negative: removes that number of tokens; else keeps that number, as transformers did before 5.18."""
        length = max(0, self.length + tokens_to_remove) if tokens_to_remove <= 0 else min(self.length, tokens_to_remove)
        if self.rows is None or length == self.length:
            return
        if length == 0:
            self.rows.first = 0
        elif self.oldest_needed(length) < self.rows.first:
            raise InvalidState(f"crop: rows before {self.rows.first} are not in memory any more, and {length} tokens "
                               f"need {self.oldest_needed(length)}; fork the cache there instead")
        self.put_back(length)

    def batch_repeat_interleave(self, repeats):
        if repeats != 1:
            raise InvalidArgument(f"batch_repeat_interleave: {repeats} sequences; a branch is one")

    def batch_select_indices(self, indices):
        one_sequence(indices, "batch_select_indices")

    def reorder_cache(self, beam_idx):
        one_sequence(beam_idx, "reorder_cache")


def one_sequence(indices, what):
    if torch.as_tensor(indices).tolist() not in ([0], [True]):
        raise InvalidArgument(f"{what}: several sequences (num_beams, num_return_sequences); a branch is one")


class CairnDynamicLayer(_Attention, DynamicLayer):
    """Full attention: all rows, in memory that doubles."""

    def __init__(self, cache, capacity):
        super().__init__()
        self._begin(cache, capacity)


class CairnSlidingLayer(_Attention, DynamicSlidingWindowLayer):
    """The newest sliding_window - 1 rows, and older ones as long as there is room: they can be cropped to."""

    def __init__(self, cache, capacity, sliding_window):
        super().__init__(sliding_window=sliding_window)
        self._begin(cache, min(capacity, 2 * sliding_window))

    def oldest_needed(self, length):
        return max(0, length - self.sliding_window + 1)

    @property
    def cumulative_length(self):  # The name that DynamicSlidingWindowLayer has for it.
        return self.length

    @cumulative_length.setter
    def cumulative_length(self, length):
        self.length = length


class CairnLinearLayer(LinearAttentionLayer):
    """Convolution and recurrent states: one row, that of the newest token. It cannot be cropped."""

    is_compileable = False

    def __init__(self, cache, number_of_states):
        super().__init__(number_of_states=number_of_states)
        self.cache = cache

    def update_conv_state(self, *args, **kwargs):
        self.cache.check_in_forward()
        return super().update_conv_state(*args, **kwargs)

    def update_recurrent_state(self, *args, **kwargs):
        self.cache.check_in_forward()
        return super().update_recurrent_state(*args, **kwargs)

    def make_memory(self, shape):
        """States as a first forward would make them. shape: (name, tensor like it) pairs."""
        for name, index, like in shape:
            if name == "conv":
                self.lazy_initialization(conv_states=like, state_idx=index)
            else:
                self.lazy_initialization(recurrent_states=like, state_idx=index)

    def put_back(self, length):
        for index in range(self.number_of_states):
            self.has_previous_state[index] = length > 0

    def crop(self, tokens_to_remove):
        if tokens_to_remove != 0:
            raise InvalidState("crop: a recurrent state has no earlier token; fork the cache there instead")

    def batch_repeat_interleave(self, repeats):
        if repeats != 1:
            raise InvalidArgument(f"batch_repeat_interleave: {repeats} sequences; a branch is one")

    def batch_select_indices(self, indices):
        one_sequence(indices, "batch_select_indices")

    def reorder_cache(self, beam_idx):
        one_sequence(beam_idx, "reorder_cache")


def states_of(layer):
    """(kind, index, tensor) of each state that a linear layer has."""
    return [(kind, index, tensors[index])
            for kind, tensors in (("conv", layer.conv_states), ("recurrent", layer.recurrent_states))
            for index in range(layer.number_of_states) if tensors[index] is not None]
