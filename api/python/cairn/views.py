# SPDX-License-Identifier: Apache-2.0
"""KvTensors of the tensors that engines have. The layout is read off the shapes, where they can say it.

    pools = cairn.views.vllm(model, kv_caches)                  # once
    chat.append(ids, pools.view(position, count, table=block_ids))
    chat.restore(cairn.views.hf(model, cache).view(0, 100))

A shape that could mean two layouts is refused; then the layout is given by name. Nothing is copied.
"""

from . import _core
from ._errors import InvalidArgument


def vllm(model, kv_caches, *, layout=None, group=0):
    """Paged caches of vLLM or FlashInfer: a list of one tensor per layer of the group, or {layer's name: tensor}.

    Tensors have the shape [blocks][heads][tokens][rows of all planes, side by side], as of vLLM 0.32 ("BHTR"), or one
    of earlier versions: [2][blocks][tokens][heads][row] ("vllm_nhd"), [blocks][2][tokens][heads][row]
    ("flashinfer_nhd"), the same with heads before tokens ("..._hnd"), or [blocks][tokens][row] for a latent
    cache. Their strides may be any. `table` of the view: the request's block ids. Of backends that leave rows where
    the strides say (FLASH_ATTN, FLASHINFER, TRITON_ATTN, FLEX_ATTENTION): CPU_ATTN packs blocks, in the same shape.
    """
    tensors = list(kv_caches.values()) if isinstance(kv_caches, dict) else list(kv_caches)
    if not tensors:
        raise InvalidArgument("kv_caches: there are none")
    spec, index = _group_of(model, group)
    if layout is None and _is_side_by_side(tensors[0], spec):
        return _core.KvTensors(model, [_planes_of(tensor, spec) for tensor in tensors], "BHTR", group=index)
    return _core.KvTensors(model, tensors, layout or _paged_layout(tuple(tensors[0].shape), spec), group=index)


def sglang(model, k_buffer, v_buffer, *, group=0):
    """Pools of SGLang's MHATokenToKVPool: of each layer a tensor [slots][heads][row] of keys and one of values.

    `slots` of the view: the request's token slots (req_to_token).
    """
    if len(k_buffer) != len(v_buffer):
        raise InvalidArgument(f"v_buffer: {len(v_buffer)} layers, and k_buffer has {len(k_buffer)}")
    return _core.KvTensors(model, list(zip(k_buffer, v_buffer)), "token_major", group=_group_of(model, group)[1])


def hf(model, cache, *, layers=None, row=0, group=0):
    """A cache of transformers, or a list of one (keys, values) a layer: [batch][heads][tokens][row] each.

    layers: which layers of the cache are the group's, by default all of them (cairn.models.layers_of); row: which
    sequence of the batch. A layer holds the tokens that it was given from the first on; of a sliding window, of
    which only the newest remain, `first_token` 0 of the view is the oldest of these.
    """
    of_all = getattr(cache, "layers", cache)
    chosen = [of_all[layer] for layer in layers] if layers is not None else list(of_all)
    pairs = [(one.keys, one.values) if hasattr(one, "keys") else one for one in chosen]
    for layer, pair in enumerate(pairs):
        for tensor in pair:
            if tensor is None or len(tensor.shape) != 4:
                raise InvalidArgument(f"cache: layer {layer} has no [batch][heads][tokens][row]: " +
                                      ("it is empty" if tensor is None else f"its shape is {list(tensor.shape)}"))
    return _core.KvTensors(model, [(keys[row], values[row]) for keys, values in pairs], "head_major",
                           group=_group_of(model, group)[1])


def _group_of(model, group):
    """(layer group, its number), of a number or a name."""
    groups = getattr(model, "spec", model).groups
    for index, one in enumerate(groups):
        if group in (index, one.name):
            return one, index
    raise InvalidArgument(f"group: {group!r} is none of {', '.join(one.name for one in groups)}")


def _is_side_by_side(tensor, group):
    """[blocks][heads][tokens][rows of all planes]: the elements are as many as all planes of the group have."""
    shape = tuple(tensor.shape)
    return (len(shape) == 4 and shape[1] == group.planes[0].heads
            and shape[3] * tensor.dtype.itemsize == sum(plane.row_bytes for plane in group.planes))


def _planes_of(tensor, group):
    planes, first = [], 0
    for plane in group.planes:
        end = first + plane.row_bytes // tensor.dtype.itemsize
        planes.append(tensor[..., first:end])
        first = end
    return planes


def _paged_layout(shape, group):
    if len(shape) == 3 and len(group.planes) == 1:
        return "BTR"
    heads = group.planes[0].heads
    fitting = []
    for name, plane_at, head_at in (("vllm_nhd", 0, 3), ("vllm_hnd", 0, 2), ("flashinfer_nhd", 1, 3),
                                    ("flashinfer_hnd", 1, 2)):
        if len(shape) == 5 and shape[plane_at] == len(group.planes) and shape[head_at] == heads:
            fitting.append(name)
    if len(fitting) == 1:
        return fitting[0]
    raise InvalidArgument(f"kv_caches: a shape of {list(shape)} for {heads} heads is that of " +
                          (" and ".join(fitting) + ": give layout" if fitting else "no paged cache"))
