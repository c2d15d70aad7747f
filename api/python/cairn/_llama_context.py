# SPDX-License-Identifier: Apache-2.0
"""A context of llama.cpp whose sequences are branches of a store."""

import contextlib

from . import _core, _llama_state
from ._cache_branch import CacheBranch, agreement, check_on_conflict
from ._errors import Corruption, InvalidArgument, InvalidState, UnsupportedFormat
from ._llama_branch import about, as_ids, check_model, open_branch, save_rows, sound_length
from ._llama_library import MROPE, Library
from ._llama_model import Planes, Weights, spec_of

PIECE_BYTES = 16 << 20  # Of rows that are read as one: a processor's cache has them when llama.cpp takes them.
_PROBE = (1, 2)  # Tokens: any.


class Context:
    """A context of llama.cpp, and the model that it is of in a store.

        context = cairn.llamacpp.Context(store, pointer, "model.gguf", library=xllamacpp)
        chat = context.sequence("chat", tokens=ids)
        begin = chat.load(ids)          # of ids, those that need not be computed
        ...                             # llama_decode of ids[begin:], and of what is drawn
        chat.save(ids)                  # all ids of the conversation

    context: a llama_context, as a number or a pointer of ctypes. model: the path of its GGUF file, whose bytes tell
    the model apart (docs/engines.md). library: where llama.cpp's C API is: a path, a ctypes.CDLL, or the package
    llama_cpp or xllamacpp, which is found if it is imported. revision: a text for what changes KV and is in no GGUF
    file: LoRA, a control vector, rope settings. identity: a cairn.ModelIdentity instead of all that.

    It decodes two tokens in an empty sequence, looks at what llama.cpp writes of them, cuts it, gives it back and
    compares: UnsupportedFormat if this llama.cpp has another form. InvalidState: no sequence is empty. InvalidArgument:
    a model whose state cannot be cut (M-RoPE, chunked windows). NotFound: no such file.

    Not thread-safe, as a context is not. The context must live as long.
    """

    def __init__(self, store, context, model, *, library=None, namespace="", revision="", identity=None,
                 durability="process", on_damage="recompute"):
        if on_damage not in ("recompute", "raise"):
            raise InvalidArgument(f"on_damage: '{on_damage}' is neither 'recompute' nor 'raise'")
        self.store, self.namespace, self.durability, self.on_damage = store, namespace, durability, on_damage
        self.library = Library(library, context)
        self.weights = weights = Weights(model)
        if self.library.rotation() in MROPE:
            raise InvalidArgument(f"model: {weights.architecture} has positions of several numbers (M-RoPE), and a "
                                  "branch has one for each token")
        self.shape, self.form = self._look()
        self.window = self.library.window() if len(self.shape.attention) > 1 else 0
        spec = spec_of(weights, self.shape, "" if identity else weights.digest(), revision, self.window)
        if identity is not None:
            spec = _core.ModelSpec(identity, spec.groups)
        self.model = store.register_model(spec)
        self.about = about(self.shape, self.form)

    @property
    def spec(self):
        return self.model.spec

    def find(self, tokens, namespace=None):
        """The PrefixHit of what any branch has of these ids."""
        return self.store.find_prefix(self.model, as_ids(tokens),
                                      namespace=self.namespace if namespace is None else namespace)

    def sequence(self, name="", *, number=0, tokens=None, on_conflict="raise"):
        """A Sequence: sequence `number` of the context, and the branch of that name (empty: one without a name).

        Where there is no such branch it is made, and begins with what the namespace has of `tokens`, of which it
        copies nothing. on_conflict: as of CairnCache, where the branch has other tokens than those given later.
        """
        check_on_conflict(on_conflict)
        branch = open_branch(self.store, self.model, name, self.namespace, None if tokens is None else as_ids(tokens),
                             self.durability)
        return Sequence(self, branch, number, on_conflict)

    def empty_sequence(self, but=()):
        """The last sequence that has no tokens; None: all have some."""
        for number in reversed(range(self.library.sequences)):
            if number not in but and self.library.length(number) == 0:
                return number
        return None

    def _look(self):
        """(Shape, Form) of this context's states."""
        number = self.empty_sequence()
        if number is None:
            raise InvalidState("context: every sequence has tokens; give it to Cairn before it computes")
        try:
            states = []
            for position, token in enumerate(_PROBE):
                self.library.decode(token, position, number)
                states.append(_llama_state.parse(self.library.get(number), 8))
            self._check_form(number, *states)
            return states[1].shape, states[1].form
        except Corruption as error:
            raise UnsupportedFormat(f"llama.cpp {self.library.version}: writes states in a form that is not known: "
                                    f"{error}") from None
        finally:
            self.library.remove(number)

    def _check_form(self, number, one, two):
        """Corruption: rows are not where they seem to be."""
        lengths = [state.length for state in (one, two)]
        if lengths != [1, 2] or one.shape != two.shape or one.form != two.form:
            raise Corruption(f"states of {lengths} tokens, after 1 and 2")
        if not two.shape.states:
            cut = self._built(two.shape, two.form, [(0, 1)] * len(two.sections), number)
            _copy_first_rows(cut, two)
            if (cut.memory != one.memory).any():
                raise Corruption("the first of two tokens is not what it was alone")
        self.library.set(number, two.memory)
        if (self.library.get(number) != two.memory).any():
            raise Corruption("what was put in comes out as something else")

    def _built(self, shape, form, ranges, number, memory=None):
        prefix = _llama_state.MAGIC.to_bytes(4, "little") + number.to_bytes(4, "little")
        return _llama_state.build(shape, form, ranges, prefix, number, memory)

    def built(self, begin, end, number, memory=None):
        """A State for rows of positions [begin, end), those of a window only as far as it reaches. memory: as of
        _llama_state.build."""
        ranges = [(begin, end)] + [(max(begin, end - self.window), end)] * (len(self.shape.attention) - 1)
        if not self.shape.attention:
            ranges = []
        return self._built(self.shape, self.form, [*ranges, end], number, memory)


def _copy_first_rows(to, state):
    for attention, section, target in zip(state.shape.attention, state.sections, to.sections):
        cells = section.positions.size
        for rows, offsets, targets in ((attention.keys, section.keys, target.keys),
                                       (attention.values, section.values, target.values)):
            turned = state.form.transposed and offsets is section.values
            for row, offset, at in zip(rows, offsets, targets):
                element = _llama_state.ELEMENT_BYTES.get(row.type, row.bytes) if turned else row.bytes
                there = state.memory[offset:offset + cells * row.bytes].reshape(-1, cells, element)
                to.memory[at:at + row.bytes] = there[:, 0].reshape(-1)


class _Reading:
    """Rows on their way from a branch into the bytes that llama.cpp takes."""

    def __init__(self, context, branch, begin, end, number, memory):
        self.state = context.built(begin, end, number, memory)
        self.memory = self.state.memory if memory is None else memory
        self._ticket = branch.restore_async(Planes(context.spec, self.state).view(begin, end), begin=begin, end=end,
                                            require_kv=True)

    def wait(self):
        self._ticket.wait()

    def close(self):
        self._ticket.cancel()  # Nothing, if it is over.


class Sequence:
    """A sequence of a context, kept in a branch.

    branch: what it is kept in; of on_conflict="fork" the fork, once there was a conflict.
    """

    def __init__(self, context, branch, number, on_conflict):
        if not 0 <= number < context.library.sequences:
            raise InvalidArgument(f"number: {number}; the context has sequences 0 to {context.library.sequences - 1}")
        check_model(context.store, branch, context.spec, context.model.id)
        self.context, self.number = context, number
        self._stored = CacheBranch(branch, context.durability, on_conflict)
        self._held = []  # Ids of what the context's sequence has, as far as it is known.

    @property
    def branch(self):
        return self._stored.branch

    def load(self, tokens=None):
        """Puts back what the branch has, and returns how many tokens the context's sequence has then.

        tokens: all ids that shall be computed next: what is put back is one short of them, since llama.cpp gives logits
        for tokens that it decodes only. None: all that the branch has, and the caller decodes what follows. What the
        sequence has already of them stays where it is; else its content is replaced.

        Conflict, by position: the branch has others (on_conflict). InvalidArgument: more than the context has room for.
        InvalidState: llama.cpp refuses, and the sequence is empty. A damaged page shortens it (on_damage). Blocks.
        """
        stored, library = self._stored, self.context.library
        limit = len(stored.ids)
        if tokens is not None:
            ids = as_ids(tokens)
            limit = min(stored.meet(ids), len(ids) - 1)
        length = self.branch.restorable_length(limit) if limit > 0 else 0
        if length > library.room:
            raise InvalidArgument(f"context: has room for {library.room} tokens, and the branch {length}")
        while True:
            try:
                self._put_back(length)
                break
            except Corruption as error:
                if self.context.on_damage == "raise" or length == 0:
                    raise
                length = self._sound_length(length)
        self._held = stored.ids[:length]
        stored.kept = length
        return length

    def save(self, tokens):
        """Stores what the branch does not have; its length after it. Blocks as the durability says.

        tokens: all ids of the conversation: those that the context's sequence has, and behind them what was drawn and
        not decoded yet, which is stored without KV. The branch then has these ids and no others (on_conflict: if it
        had). Conflict. InvalidArgument: fewer ids than the sequence has tokens. Corruption: llama.cpp gave fewer bytes
        than it promised, and nothing was stored. NoSpace and others: nothing was appended.
        """
        stored, ids = self._stored, as_ids(tokens)
        computed = self.context.library.length(self.number)
        if computed > len(ids):
            raise InvalidArgument(f"tokens: {len(ids)} of a sequence that has {computed}; give all ids")
        if stored.kept > computed:
            stored.kept = computed
        planes = self._planes(stored.kept, computed) if stored.kept < computed else None
        stored.settle(ids, whole=True, rewind=False)
        save_rows(stored, ids, computed, planes, self.context.about)
        self._held = ids[:computed]
        return len(stored.ids)

    def fork(self, position, name="", *, number, on_conflict=None):
        """Sequence `number` of the context with the first `position` tokens, on a branch of its own. Nothing is copied
        in the store; in the context cells are shared where all sequences have one stream of them."""
        context, stored = self.context, self._stored
        branch = self.branch.fork(position, name, durability=context.durability)
        fork = Sequence(context, branch, number, on_conflict or stored.on_conflict)
        library = context.library
        library.remove(number)
        if self._shares_cells() and not context.window and not context.shape.states and \
                min(stored.kept, len(self._held)) >= position == min(position, library.length(self.number)):
            library.copy(self.number, number, 0, position)
            fork._held, fork._stored.kept = self._held[:position], position
        else:
            fork.load()
        return fork

    def _shares_cells(self):
        return self.context.form.streams == 1 and self.context.shape.attention

    def _planes(self, begin, end):
        """The rows of positions [begin, end), and perhaps others."""
        library = self.context.library
        scratch = self.context.empty_sequence() if begin > 0 and self._shares_cells() else None
        if scratch is None:
            memory = library.get(self.number)
        else:
            library.copy(self.number, scratch, begin, end)
            try:
                memory = library.get(scratch)
            finally:
                library.remove(scratch)
        state = _llama_state.parse(memory, 8)
        if state.shape != self.context.shape:
            raise Corruption(f"llama.cpp {library.version}: a state of another shape than at the opening")
        planes = Planes(self.context.spec, state)
        if state.length != end or (state.sections and planes.first() > begin):
            raise Corruption(f"state: has positions from {planes.first() if state.sections else 0} to "
                             f"{state.length - 1}, and not those from {begin} to {end - 1}")
        return planes

    def _put_back(self, length):
        library, ids = self.context.library, self._stored.ids[:length]
        there = library.length(self.number)
        same = agreement(self._held, ids) if there == len(self._held) else 0
        if same == length == there:
            return
        states, window = self.context.shape.states, self.context.window
        scratch = None
        if self._shares_cells() and not states and (not window or 0 < same == there):
            scratch = self.context.empty_sequence(but=(self.number,))
        if scratch is None:
            same = 0
        library.remove(self.number, same)
        self._held = ids[:same]
        if same < length:
            self._restore(same, length, scratch)

    def _restore(self, begin, end, scratch):
        """Reads each piece from the store while llama.cpp takes the one before. Without a scratch there is one."""
        library, target = self.context.library, self.number if scratch is None else scratch
        step = end - begin
        if scratch is not None and not self.context.window:
            step = max(1, PIECE_BYTES // self.context.spec.token_bytes)
        pieces = [(first, min(first + step, end)) for first in range(begin, end, step)]
        memories = [None, None]  # Of every second piece.
        with contextlib.ExitStack() as ends:
            def read(turn):
                reading = _Reading(self.context, self.branch, *pieces[turn], target, memories[turn % 2])
                memories[turn % 2] = reading.memory
                return ends.enter_context(contextlib.closing(reading))

            coming = read(0)
            for turn, (first, last) in enumerate(pieces):
                reading = coming
                if turn + 1 < len(pieces):
                    coming = read(turn + 1)
                reading.wait()
                library.set(target, reading.state.memory)
                if scratch is not None:
                    library.copy(scratch, self.number, first, last)
                    library.remove(scratch)
                self._held = self._stored.ids[:last]

    def _sound_length(self, damaged):
        def readable(length):
            state = self.context.built(0, length, self.number)
            try:
                self.branch.restore(Planes(self.context.spec, state).view(0, length), end=length, require_kv=True)
            except Corruption:
                return False
            return True

        return sound_length(self.branch, damaged, readable)
