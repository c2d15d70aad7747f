# SPDX-License-Identifier: Apache-2.0
"""A host pool of SGLang, whose pages are objects: one for each piece of memory that a page has."""

import ctypes
import hashlib
import json

import torch

from ._core import Objects
from ._errors import Corruption, Error, InvalidArgument, ModelMismatch, NotFound
from ._object_calls import packing_of, page_of

NAMESPACE = "sglang"  # What is known of pools; pages are in sglang/POOL.
# Layouts whose pages are a few pieces, which lie in the order of a page that SGLang copies: K, then V. In layer_first a
# page of 60 layers has 120 pieces.
IN_PLACE = ("page_first", "page_first_direct", "page_head")
CLEARED_TOGETHER = 1000


class Pool:
    """name: SGLang's. source: where its pages are. fields: what they belong to, beside the pool itself.

    Raises InvalidArgument naming the layout if there is no way to its pages, and ModelMismatch naming the field if the
    source has pages of others.
    """

    def __init__(self, name, host, source, fields):
        self.name, self.host, self._source = name, host, source
        self._namespace = f"{NAMESPACE}/{name}"
        self._page = getattr(host, "page_size", 1) or 1
        self._sizes, self._in_place = self._pieces_of_a_page()
        dtype = str(getattr(host, "dtype", "")).removeprefix("torch.")
        self._dtype, self._page_bytes = packing_of(dtype), page_of(max(self._sizes))
        self._fields = {**fields, "pool": type(host).__name__, "layout": str(getattr(host, "layout", "")),
                        "dtype": dtype, "page_size": self._page, "pieces": self._sizes}
        self._claimed = None, 0  # A store whose fields were looked at, and the number of the class of objects there.
        if source.writes:
            try:
                self._class()
            except ModelMismatch:
                raise
            except Error as error:  # A store without room, say: this goes on without it.
                source.failed("keeps and finds nothing", error)
        else:
            source.wait(self._is_known)

    def exist(self, keys):
        """Of each page whether all of it is there."""
        if not keys:
            return []
        try:
            found = self._source.read(lambda objects: objects.exists(self._names(keys), namespace=self._namespace))
        except Error as error:
            self._source.failed(f"fails in a look for {len(keys)} pages", error)
            return [False] * len(keys)
        return self._by_page([found[i] for i in range(len(keys) * len(self._sizes))])

    def load(self, keys, indices):
        """Reads pages to where the host's indices say; of each whether it is there now."""
        if not self._fits(keys, indices):
            return [False] * len(keys)
        if self._in_place:
            return self._load(keys, self._places(indices))
        pages = [self.host.get_dummy_flat_data_page() for _ in keys]
        loaded = self.load_flat(keys, pages)
        for i, (page, there) in enumerate(zip(pages, loaded)):
            if there:
                self.host.set_from_flat_data_page(int(indices[i * self._page]), page)
        return loaded

    def store(self, keys, indices):
        """Keeps pages; of each whether it is kept."""
        if not self._fits(keys, indices):
            return [False] * len(keys)
        if self._in_place:
            return self._store(keys, self._places(indices))
        return self.store_flat(keys, [self.host.get_data_page(int(indices[i * self._page])) for i in range(len(keys))])

    def load_flat(self, keys, pages):
        """The same into tensors, each of a page."""
        bytes_ = [_bytes_of(page) for page in pages]
        loaded = self._load(keys, [piece for one in bytes_ for piece in self._cut(one)])
        for page, one, there in zip(pages, bytes_, loaded):
            if there and one.data_ptr() != page.data_ptr():  # Its elements do not lie one behind the other.
                page.copy_(one.view(page.dtype).view(page.shape))
        return loaded

    def store_flat(self, keys, pages):
        return self._store(keys, [piece for page in pages for piece in self._cut(_bytes_of(page))])

    def clear(self):
        """Drops all pages, if this rank writes them. Whether that went well."""
        if not self._source.writes:
            return True
        try:
            objects = Objects(self._source.store)
            while page := objects.list(namespace=self._namespace, limit=CLEARED_TOGETHER)[0]:
                objects.delete([info.key for info in page], namespace=self._namespace)
            self._source.store.flush()  # For those that follow.
        except Error as error:
            self._source.failed("fails to clear its pages", error)
            return False
        return True

    # --- What a page is

    def _pieces_of_a_page(self):
        """(bytes of each piece, whether the host says where they lie)"""
        layout = getattr(self.host, "layout", None)
        try:
            if layout in IN_PLACE:
                return [int(size) for size in self.host.get_page_buffer_meta(torch.arange(self._page))[1]], True
        except (AttributeError, NotImplementedError, ValueError):
            pass  # Of this layout a page can only be copied.
        try:
            return [_bytes_of(self.host.get_data_page(0)).numel()], False
        except (AttributeError, NotImplementedError, ValueError) as error:
            raise InvalidArgument(f"pool {self.name}: its layout {layout!r} gives no pages: {error}") from error

    def _names(self, keys):
        if len(self._sizes) == 1:
            return list(keys)
        return [f"{key}#{i}" for key in keys for i in range(len(self._sizes))]

    def _by_page(self, outcomes):
        pieces = len(self._sizes)
        return [all(outcomes[at:at + pieces]) for at in range(0, len(outcomes), pieces)]

    def _fits(self, keys, indices):
        expected = len(keys) * self._page
        if indices is not None and indices.numel() == expected:
            return True
        self._source.failed(f"leaves {len(keys)} pages of pool {self.name}", InvalidArgument(
            f"host_indices has {0 if indices is None else indices.numel()} entries, not {expected}"))
        return False

    def _places(self, indices):
        """Each piece of each page, where it lies."""
        addresses, sizes = self.host.get_page_buffer_meta(indices)
        kinds = {size: ctypes.c_ubyte * size for size in set(sizes)}
        return [kinds[size].from_address(address) for address, size in zip(addresses, sizes)]

    def _cut(self, page):
        """The pieces of a page's bytes; of one of another size one that no object fits."""
        if page.numel() != sum(self._sizes):
            raise InvalidArgument(f"pool {self.name}: a page has {page.numel()} bytes, not {sum(self._sizes)}")
        return [piece.numpy() for piece in page.split(self._sizes)]

    # --- Objects

    def _load(self, keys, places):
        names = self._names(keys)
        try:
            number = self._class() if self._source.writes else self._check_followed()
            outcomes = self._source.read(lambda objects: objects.get(
                list(zip(names, places)), namespace=self._namespace, object_class=number, timeout=self._source.timeout))
        except Error as error:
            self._source.failed(f"fails in a load of {len(keys)} pages", error)
            return [False] * len(keys)
        sizes, useless = self._sizes * len(keys), {}
        for i, (outcome, size) in enumerate(zip(outcomes, sizes)):
            if not isinstance(outcome, Error) and outcome != size:
                outcome = outcomes[i] = InvalidArgument(f"it has {outcome} bytes, not {size}")
            if isinstance(outcome, (Corruption, InvalidArgument, ModelMismatch)):
                useless[keys[i // len(self._sizes)]] = True
            if isinstance(outcome, Error) and not isinstance(outcome, NotFound):
                self._source.failed(f"fails in a load of {names[i]}", outcome)
        if useless and self._source.writes:  # While one exists, no other is stored under its key.
            self._drop([*useless])
        return self._by_page([not isinstance(outcome, Error) for outcome in outcomes])

    def _store(self, keys, places):
        if not self._source.writes:
            return [True] * len(keys)  # Another rank does.
        names = self._names(keys)
        try:
            outcomes = self._source.put(list(zip(names, places)), object_class=self._class(), namespace=self._namespace)
        except Error as error:
            self._source.failed(f"fails in a store of {len(keys)} pages", error)
            return [False] * len(keys)
        stored = [not isinstance(outcome, Error) for outcome in outcomes]
        for name, outcome, there in zip(names, outcomes, stored):
            if not there:
                self._source.failed(f"fails in a store of {name}", outcome)
        if all(stored):
            self._source.worked()
        return self._by_page(stored)

    def _drop(self, keys):
        try:
            Objects(self._source.store).delete(self._names(keys), namespace=self._namespace, durability="memory")
        except Error as error:
            self._source.failed(f"fails to drop {len(keys)} useless pages", error)

    # --- What its pages belong to

    def _class(self):
        """The class of its objects. What they belong to is kept once, and compared in each store that is opened."""
        store, number = self._claimed
        if store is self._source.store:
            return number
        store = self._source.store
        text, objects = json.dumps(self._fields, sort_keys=True), Objects(store)
        known = self._known(objects)
        if known is None:
            about = objects.register_class("sglang pools", page_bytes=4096)
            objects.put([(self.name, text.encode())], object_class=about, namespace=NAMESPACE, durability="power")
        else:
            self._compare(known)
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        number = objects.register_class(f"sglang {self._fields['model']} {self.name} {digest}",
                                        page_bytes=self._page_bytes, dtype=self._dtype)
        self._claimed = store, number
        return number

    def _known(self, objects):
        """The fields of the pages that are there, or None."""
        try:
            memory = bytearray(objects.stat(self.name, namespace=NAMESPACE).bytes)
        except NotFound:
            return None
        (outcome,) = objects.get([(self.name, memory)], namespace=NAMESPACE)
        if isinstance(outcome, Error):
            raise outcome
        return json.loads(memory)

    def _compare(self, known):
        for field in sorted(known.keys() | self._fields.keys()):
            was, now = known.get(field), self._fields.get(field)
            if was != now:
                raise ModelMismatch(f"{self._source.folder}: {field} of the pages of pool {self.name} is {was!r}, and "
                                    f"{now!r} here; give another path")

    def _is_known(self):
        """Whether the writer has said what its pages belong to. ModelMismatch: it is not this pool."""
        known = self._source.read(self._known)
        if known is not None:
            self._compare(known)
            self._claimed = self._source.store, 0
        return known is not None

    def _check_followed(self):
        """Any class of objects: 0."""
        if not self._source.writes and self._claimed[0] is not self._source.store and not self._is_known():
            raise NotFound(f"{self._source.folder}: pool {self.name} is not there")
        return 0


def _bytes_of(page):
    """The bytes of a tensor; where its elements are not contiguous, a copy."""
    return page.contiguous().view(-1).view(torch.uint8)
