# SPDX-License-Identifier: Apache-2.0
"""How many pages of a prefix SGLang may take, as its pools' hit policies have it."""

from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransferResult

from ._errors import InvalidArgument


def result_of(keys, transfers, exist):
    """PoolTransferResult for the pages `keys` and what other pools must have beside them.

    exist(pool, keys): whether the pool has each of these pages.
    """
    pages = _leading(exist(PoolName.KV, keys))
    counts = {PoolName.KV: pages} if pages else {}
    restorable = set(range(1, pages + 1))
    for transfer in transfers:
        if transfer.hit_policy == PoolHitPolicy.BLOCK_GROUPS:  # Says how far it goes, and stops nobody.
            if covered := _covered(transfer, exist(transfer.name, transfer.keys or [])):
                counts[transfer.name] = covered
            continue
        if not restorable:
            break
        good = _good(transfer, exist(transfer.name, keys[:pages]))
        if good:
            counts[transfer.name] = max(good)
        restorable &= good
    return PoolTransferResult(max(restorable, default=0), counts, sorted(restorable))


def _leading(found):
    return found.index(False) if False in found else len(found)


def _good(transfer, found):
    """The lengths of a prefix for which this pool has what it takes."""
    if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
        return set(range(1, _leading(found) + 1))
    if transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
        trailing = max(1, len(transfer.keys or ()))
        return {end for end in range(1, len(found) + 1) if all(found[max(0, end - trailing):end])}
    raise InvalidArgument(f"pool {transfer.name}: its hit policy {transfer.hit_policy} is not known")


def _covered(transfer, found):
    """Pages that the complete groups at its beginning stand for."""
    if transfer.group_pages < 1 or transfer.block_pages < 1:
        raise InvalidArgument(f"pool {transfer.name}: group_pages is {transfer.group_pages} and block_pages "
                              f"{transfer.block_pages}; from 1")
    return _leading(found) // transfer.group_pages * transfer.block_pages
