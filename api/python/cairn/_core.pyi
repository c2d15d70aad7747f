"""The C++ part of the package cairn; import that."""

from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence
)
import os
from typing import Any

import numpy
import numpy.typing

import cairn._errors


class RotarySpec:
    """
    How the rows of a plane are rotated.

    state: "unset", "none", "applied" (what is stored is rotated) or "before". pairing: "unset",
    "halves" (element i turns with i + width/2: Hugging Face, vLLM, SGLang) or "adjacent" (2i with
    2i + 1: llama.cpp). first, width: the elements of a row that are rotated; width 0: not said.
    sections: pairs that turn by each position of a token (M-RoPE).
    """

    def __init__(self, state: str = 'unset', pairing: str = 'unset', *, first: int = 0, width: int = 0, sections: Sequence[int] = [], interleaved: bool = False) -> None: ...

    @property
    def state(self) -> str: ...

    @property
    def pairing(self) -> str: ...

    @property
    def first(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def sections(self) -> list[int]: ...

    @property
    def interleaved(self) -> bool: ...

    def __eq__(self, arg: RotarySpec, /) -> bool: ...

    __hash__: None = None

def rotary_frequencies(width: int, theta: float) -> list[float]:
    """
    theta^(-2i / width) for i in [0, width / 2): rotary frequencies without scaling.
    """

def linear_frequencies(inv_freq: Sequence[float], factor: float) -> list[float]:
    """All divided by the factor."""

def llama3_frequencies(inv_freq: Sequence[float], *, factor: float = 8.0, low_freq_factor: float = 1.0, high_freq_factor: float = 4.0, original_positions: int = 8192) -> list[float]:
    """The scaling of Llama 3.1 and later."""

def yarn_frequencies(width: int, theta: float, *, factor: float, original_positions: int, beta_fast: float = 32.0, beta_slow: float = 1.0) -> list[float]:
    """Rotary frequencies scaled by YaRN."""

def yarn_mscale(factor: float, coefficient: float = 1.0) -> float:
    """The factor that YaRN applies to cosine and sine (LayerGroup.mscale)."""

def long_rope_frequencies(width: int, theta: float, *, short_factors: Sequence[float], long_factors: Sequence[float], original_positions: int, context_positions: int) -> list[float]:
    """
    Rotary frequencies scaled by LongRoPE.

    Divided by long_factors where the engine's context length, context_positions, is beyond
    original_positions, else by short_factors: width / 2 numbers each.
    """

def long_rope_mscale(factor: float, original_positions: int) -> float:
    """
    The factor that LongRoPE applies to cosine and sine (LayerGroup.mscale).
    """

class Plane:
    """
    One tensor kind of a layer group: K, V, a latent, a state.

    row_bytes: what one head of one token holds, head_dim times the bytes of the dtype. role: "key",
    "value", "latent", "scale", "state" or "opaque". dtype: "bf16", "f16", "f32", "f8e4m3", "f8e5m2",
    "i8", "u8" or "opaque". sealed_as: "lossless", or "int8", which is lossy. state_parts: into how many
    equal parts, one a head, a row of a state divides; 0: not said.
    """

    def __init__(self, name: str, *, role: str, heads: int = 1, row_bytes: int, dtype: object, rotary: RotarySpec = ..., sealed_as: str = 'lossless', state_parts: int = 0) -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> str: ...

    @property
    def heads(self) -> int: ...

    @property
    def row_bytes(self) -> int: ...

    @property
    def dtype(self) -> str: ...

    @property
    def rotary(self) -> RotarySpec: ...

    @property
    def sealed_as(self) -> str: ...

    @property
    def state_parts(self) -> int: ...

    def __eq__(self, arg: Plane, /) -> bool: ...

    __hash__: None = None

    def __repr__(self) -> str: ...

class Retention:
    """
    Which rows of a group a branch of L tokens needs to go on.

    kind: "all"; "window" (the newest `window` rows and the first `sinks`); "chunk_local" (rows since
    the last multiple of `chunk`); "checkpoint" (a recurrent state: row L - 1 is the state after L
    tokens); "per_request" (one state for the whole request: row 0). All numbers are tokens.
    """

    def __init__(self, kind: str = 'all', *, window: int = 0, sinks: int = 0, chunk: int = 0) -> None: ...

    @property
    def kind(self) -> str: ...

    @property
    def window(self) -> int: ...

    @property
    def sinks(self) -> int: ...

    @property
    def chunk(self) -> int: ...

    def __eq__(self, arg: Retention, /) -> bool: ...

    __hash__: None = None

class LayerGroup:
    """
    Layers that share a cache shape.

    inv_freq: rotary frequencies as the engine uses them, one a pair of elements; mscale: its scale on
    cosine and sine. No frequencies: both are unset. optional: a restore may do without (draft heads).
    packing: empty, or how the engine has rearranged the bytes in its blocks, whose planes are "opaque":
    no other packing is given this one's state.
    """

    def __init__(self, name: str, *, layers: int, planes: Sequence[Plane], retention: Retention = ..., optional: bool = False, inv_freq: Sequence[float] = [], mscale: float = 1.0, packing: str = '') -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def layers(self) -> int: ...

    @property
    def planes(self) -> list[Plane]: ...

    @property
    def retention(self) -> Retention: ...

    @property
    def optional(self) -> bool: ...

    @property
    def inv_freq(self) -> list[float]: ...

    @property
    def mscale(self) -> float: ...

    @property
    def packing(self) -> str: ...

    @property
    def token_bytes(self) -> int:
        """Bytes of one position: all layers and planes."""

    def __eq__(self, arg: LayerGroup, /) -> bool: ...

    __hash__: None = None

    def __repr__(self) -> str: ...

    @staticmethod
    def full_attention(*, layers: int, kv_heads: int, head_dim: int, dtype: object, name: str = '', pairing: str = '', inv_freq: Sequence[float] = [], mscale: float = 1.0) -> LayerGroup:
        """
        Layers with planes K and V of [kv_heads][head_dim] a token; keys count as rotated, in
        halves unless `pairing` says otherwise.
        """

    @staticmethod
    def sliding_window(*, layers: int, kv_heads: int, head_dim: int, dtype: object, window: int, sinks: int = 0, name: str = '', pairing: str = '', inv_freq: Sequence[float] = [], mscale: float = 1.0) -> LayerGroup:
        """
        As full_attention, of which only the newest `window` and the first `sinks` tokens are
        needed.
        """

    @staticmethod
    def mla(*, layers: int, latent_bytes: int, rotary_bytes: int, dtype: object, name: str = '', pairing: str = '', inv_freq: Sequence[float] = [], mscale: float = 1.0) -> LayerGroup:
        """
        Layers with DeepSeek's latent of so many bytes a token, and the rotated key beside it.
        """

    @staticmethod
    def recurrent(*, layers: int, state_bytes: int, name: str = '') -> LayerGroup:
        """
        Layers with one state of so many bytes; row L - 1 is the state after L tokens.
        """

def rotate_keys(group: LayerGroup, keys: object, from_positions: object | None, to_positions: object, *, plane: int | str = 0, out: object | None = None) -> None:
    """
    Turns keys that were rotated at some positions to others.

    keys: an array in host memory of the plane's dtype (bf16 also as 16-bit numbers), [tokens, heads,
    elements], or [layers, tokens, heads, elements], with any positive strides. from_positions,
    to_positions: one a token; where the plane has sections [tokens, sections]. Keys that are stored
    before rotation (rotary.state "before") have no from_positions, None, and become what the engine
    computes at to_positions. plane: its number or name. out: where the result goes, an array of the
    same shape; by default into keys themselves.

    What is written differs from a turn without rounding by a relative error of 2**-11 (f16), 2**-8
    (bf16) or 2**-24 (f32), and 2**-22 more, however far. Errors of repeated turns add up: always turn
    the row that was stored first. Raises InvalidArgument, by the field, and writes nothing.
    """

class ModelIdentity:
    """
    The caller's words for a model.

    Two models are the same only when all of them are equal. Only `name` is required.
    """

    def __init__(self, name: str, *, revision: str = '', weights_digest: str = '', tokenizer_digest: str = '', quantization: str = '', cache_dtype: str = '') -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str: ...

    @property
    def weights_digest(self) -> str: ...

    @property
    def tokenizer_digest(self) -> str: ...

    @property
    def quantization(self) -> str: ...

    @property
    def cache_dtype(self) -> str: ...

    def __eq__(self, arg: ModelIdentity, /) -> bool: ...

    __hash__: None = None

class ModelVariant:
    """An adapter (LoRA) on a base model."""

    def __init__(self, name: str = '', *, digest: str = '', scale: float = 1.0) -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str: ...

    @property
    def scale(self) -> float: ...

    def __eq__(self, arg: ModelVariant, /) -> bool: ...

    __hash__: None = None

class ShardSpec:
    """
    Which part of the logical model this process holds.

    Layers [layer_begin, layer_end) and KV heads [kv_head_begin, kv_head_end) of it; 0, 0: all.
    """

    def __init__(self, *, layer_begin: int = 0, layer_end: int = 0, kv_head_begin: int = 0, kv_head_end: int = 0, context_rank: int = 0, context_size: int = 1, replicated: bool = False) -> None: ...

    @property
    def layer_begin(self) -> int: ...

    @property
    def layer_end(self) -> int: ...

    @property
    def kv_head_begin(self) -> int: ...

    @property
    def kv_head_end(self) -> int: ...

    @property
    def context_rank(self) -> int: ...

    @property
    def context_size(self) -> int: ...

    @property
    def replicated(self) -> bool: ...

    def __eq__(self, arg: ShardSpec, /) -> bool: ...

    __hash__: None = None

class LogicalGroup:
    """
    A layer group of the logical model, as if one
    process had all of it, and which of its layers and heads this process holds.
    """

    def __init__(self, name: str, *, layers: int, heads: int, layer_begin: int = 0, layer_end: int = 0, head_begin: int = 0, head_end: int = 0, replicated: bool = False) -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def layers(self) -> int: ...

    @property
    def heads(self) -> int: ...

    @property
    def layer_begin(self) -> int: ...

    @property
    def layer_end(self) -> int: ...

    @property
    def head_begin(self) -> int: ...

    @property
    def head_end(self) -> int: ...

    @property
    def replicated(self) -> bool: ...

    def __eq__(self, arg: LogicalGroup, /) -> bool: ...

    __hash__: None = None

class ModelSpec:
    """
    What a model's state looks like; no groups: token ids alone.

    A value that is not changed any more. extent_tokens: a power of two in [64, 4096], or 0: chosen.
    Raises InvalidArgument naming the field.
    """

    def __init__(self, identity: str | ModelIdentity, groups: Sequence[LayerGroup] = [], *, variant: ModelVariant = ..., shard: ShardSpec = ..., logical: Sequence[LogicalGroup] = [], extent_tokens: int = 0) -> None: ...

    @staticmethod
    def of(name: str, *, layers: int, kv_heads: int, head_dim: int, dtype: object, window: int = 0, sinks: int = 0, inv_freq: Sequence[float] = [], revision: str = '') -> ModelSpec:
        """
        A model of one layer group: `layers` layers with K and V of
        [kv_heads][head_dim] a token. window: tokens that a sliding window holds; 0: all.
        """

    @property
    def identity(self) -> ModelIdentity: ...

    @property
    def variant(self) -> ModelVariant: ...

    @property
    def shard(self) -> ShardSpec: ...

    @property
    def groups(self) -> list[LayerGroup]: ...

    @property
    def logical(self) -> list[LogicalGroup]: ...

    @property
    def extent_tokens(self) -> int: ...

    @property
    def token_bytes(self) -> int:
        """KV bytes of one position, all groups."""

    def first_difference(self, other: ModelSpec) -> str:
        """The first field in which two specs differ, or an empty text."""

    def __eq__(self, arg: ModelSpec, /) -> bool: ...

    __hash__: None = None

    def __repr__(self) -> str: ...

class Model:
    """A model that a store knows: Store.register_model makes one."""

    @property
    def id(self) -> int: ...

    @property
    def spec(self) -> ModelSpec: ...

    def __eq__(self, arg: Model, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

class SamplerState:
    """
    The sampler, so that the next token comes out the same.

    generator: "none", "philox" (philox_seed, philox_offset), "mt19937" (blob) or "named" (blob_name
    says whose state `blob` is, blob_version which form of it). cairn.sampler makes one of a generator
    of numpy or torch, and sets it again. last_logits: float32, optional.
    """

    def __init__(self, generator: str = 'none', *, philox_seed: int = 0, philox_offset: int = 0, blob_name: str = '', blob_version: int = 0, blob: bytes = ..., temperature: float = 1.0, top_p: float = 1.0, min_p: float = 0.0, repetition_penalty: float = 1.0, top_k: int = 0, last_logits: Sequence[float] = []) -> None: ...

    @property
    def generator(self) -> str: ...

    @property
    def philox_seed(self) -> int: ...

    @property
    def philox_offset(self) -> int: ...

    @property
    def blob_name(self) -> str: ...

    @property
    def blob_version(self) -> int: ...

    @property
    def blob(self) -> bytes: ...

    @property
    def temperature(self) -> float: ...

    @property
    def top_p(self) -> float: ...

    @property
    def min_p(self) -> float: ...

    @property
    def repetition_penalty(self) -> float: ...

    @property
    def top_k(self) -> int: ...

    @property
    def last_logits(self) -> list[float]: ...

    def __eq__(self, arg: SamplerState, /) -> bool: ...

    __hash__: None = None

class Metadata:
    """Bytes of the application's own, with their type."""

    def __init__(self, bytes: bytes, content_type: str = '') -> None: ...

    @property
    def bytes(self) -> bytes: ...

    @property
    def content_type(self) -> str: ...

    def __eq__(self, arg: Metadata, /) -> bool: ...

    __hash__: None = None

class ContentSpan:
    """
    Content that token ids alone do not identify (an image).

    Positions [begin, end); hash: two numbers of 64 bits. atomic: no fork or rewind inside it.
    """

    def __init__(self, begin: int, end: int, hash: tuple[int, int], *, atomic: bool = False) -> None: ...

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def hash(self) -> tuple[int, int]: ...

    @property
    def atomic(self) -> bool: ...

    def __eq__(self, arg: ContentSpan, /) -> bool: ...

    __hash__: None = None

class Keep:
    """
    How long a branch is kept.

    pinned: neither evicted nor expired. priority: 0 to 255; the lower goes first. ttl: seconds without
    use after which it is dropped; 0: never for that reason.
    """

    def __init__(self, *, pinned: bool = False, priority: int = 0, ttl: float = 0.0) -> None: ...

    @property
    def pinned(self) -> bool: ...

    @property
    def priority(self) -> int: ...

    @property
    def ttl(self) -> float: ...

    def __eq__(self, arg: Keep, /) -> bool: ...

    __hash__: None = None

class KvTensors:
    """
    The tensors that an engine has for one layer group, and how they lie.

    model: a Model or ModelSpec. tensors: one array, or a list of them, or a list of lists such as one
    (K, V) a layer; of numpy, torch or whatever speaks DLPack, in host or CUDA memory. Nothing is
    copied: they are kept alive, and read or written where they are. Any strides will do.

    layout: the order of the dimensions of each tensor; B is a block, T a token (of its block), H a
    head, R the elements of a row, L a layer, P a plane:
      one tensor a layer and plane   "token_major" [B?][T][H][R], "head_major" [B?][H][T][R],
                                     "llama_cpp" [T][H][R], but values [H][R][T]
      one tensor a layer             "vllm_nhd" [P][B][T][H][R], "vllm_hnd" [P][B][H][T][R],
                                     "flashinfer_nhd" [B][P][T][H][R], "flashinfer_hnd" [B][P][H][T][R]
      any other                      its letters, such as "LPTHR" (one tensor of all layers and planes),
                                     "BTR" (a latent cache), "BR" (a state in each block)
    group: of the model, by number or name. layer_begin: the first layer that there are tensors of.

    bf16 may come as torch.bfloat16, ml_dtypes.bfloat16 or numbers of 16 bits; 8-bit floats likewise.
    Raises InvalidArgument naming tensor, plane and dimension. Any thread may use it.
    """

    def __init__(self, model: object, tensors: object, layout: str = 'token_major', *, group: int | str = 0, layer_begin: int = 0) -> None: ...

    def view(self, position: int = 0, count: int | None = None, *, first_token: int = 0, table: object | None = None, slots: object | None = None, table_position: int | None = None) -> KvView:
        """
        Positions [position, position + count) of the branch, as a KvView.

        Without a table they follow each other in the tensors from token first_token on (a multiple of a
        block's tokens where there are blocks). table: the numbers of the blocks that hold them, the first
        one's first token being table_position (by default `position`); slots: a place of its own for each
        token. Either is a list or an array of whole numbers, which is copied, or a tensor in CUDA memory,
        which is kept. count: by default all that is left.
        """

    @property
    def group(self) -> int: ...

    @property
    def layout(self) -> str: ...

    @property
    def layers(self) -> int: ...

    @property
    def blocks(self) -> int:
        """0: the tensors have no blocks."""

    @property
    def tokens_per_block(self) -> int:
        """Without blocks: tokens in all."""

    @property
    def device(self) -> str:
        """"cpu" or "cuda:0"."""

    @property
    def writable(self) -> bool: ...

class KvView:
    """
    Some positions of tensors, for one call or many.

    Keeps its tensors alive. `a + b` is a view of both: of several layer groups.
    """

    @staticmethod
    def of(model: object, tensors: object, layout: str = 'token_major', *, group: int | str = 0, position: int = 0, count: int | None = None, first_token: int = 0, table: object | None = None, slots: object | None = None) -> KvView:
        """KvTensors and its view in one step."""

    def __add__(self, arg: KvView, /) -> KvView: ...

    @property
    def groups(self) -> list[tuple[int, int, int]]:
        """(group, begin, end) of each: the positions that the view describes."""

    @property
    def writable(self) -> bool: ...

class KvBuffer:
    """
    Host memory for what a branch of `tokens` tokens has of a model.

    All zeros at first; of a recurrent state the row after all tokens, of an encoder's output row 0.
    Goes wherever a KvView does, and is then all of it.
    """

    def __init__(self, model: object, tokens: int) -> None: ...

    @property
    def tokens(self) -> int: ...

    @property
    def bytes(self) -> numpy.typing.NDArray[numpy.uint8]:
        """
        All of it, as a numpy array that shares the memory:
        [group][layer][plane][head][position][row].
        """

    def view(self, begin: int = 0, end: int | None = None) -> KvView:
        """The rows of positions [begin, end)."""

    def numpy(self, layer: int, plane: int | str, group: int | str = 0) -> numpy.typing.NDArray[Any]:
        """
        The rows of one layer and plane, [head][position][element], sharing the memory; bf16
        comes as uint16, 8-bit floats as uint8.
        """

    def tensor(self, layer: int, plane: int | str, group: int | str = 0) -> Any:
        """The same for torch.from_dlpack, with its real dtype."""

    def __eq__(self, arg: KvBuffer, /) -> bool: ...

    __hash__: None = None

class Gpu:
    """
    A GPU that a store may use: Store(path, gpus=[gpu]).

    Tensors in its memory then go wherever host tensors do: a KvView of CUDA tensors is appended
    from and restored into. ordinal: as CUDA counts in this process. processors_max: how many of the
    card's processors unpacking may fill; 0: a sixth. pinned_bytes: host memory that is kept pinned for
    pages that go there often; 0: none. pinned_tokens: newest tokens of a branch that stay there.
    """

    @staticmethod
    def open(ordinal: int = 0, *, processors_max: int = 0, pinned_bytes: int | str = 0, pinned_tokens: int = 4096, pinned_tokens_of: Mapping[str, int] = {}) -> Gpu:
        """
        One of this machine. NotFound: no driver, no such device, or a build without CUDA.
        """

    @staticmethod
    def simulated(seed: int, ordinal: int = 0, *, pinned_bytes: int | str = 0, pinned_tokens: int = 4096) -> Gpu:
        """
        None at all, but a device on the CPU that runs the same kernels, its streams as late as
        they may; what it does follows from the seed. 64 MiB. For tests.
        """

    @property
    def ordinal(self) -> int: ...

    @property
    def name(self) -> str: ...

    def allocate(self, bytes: int) -> GpuMemory:
        """Memory of undefined content, aligned to 256 bytes. OutOfMemory."""

class GpuMemory:
    """
    Memory of a GPU, for programs that have no other means.

    Gpu.allocate makes it; it is freed with the last array made of it. Calls block.
    """

    @property
    def bytes(self) -> int: ...

    def tensor(self, shape: Sequence[int], dtype: str, offset: int = 0) -> Any:
        """
        An array of it, dense, for whatever speaks DLPack. dtype: of a plane, or "i32", "i64".
        """

    def copy_in(self, host: Any, offset: int = 0) -> None:
        """From contiguous host memory to bytes from `offset` on."""

    def copy_out(self, host: Any, offset: int = 0) -> None:
        """From bytes from `offset` on to contiguous, writable host memory."""

class SharedMemory:
    """
    Memory that several processes of a host see.

    The process with the store creates it and sends its address to others, which map it. It is gone
    with the last process that has it, however that ends. docs/processes.md.
    """

    @staticmethod
    def create(directory: str, bytes: int) -> SharedMemory:
        """
        An area of zeros; processes find it in `directory`, usually the store's.

        Takes all of its memory, and blocks for that. Raises InvalidArgument, NotFound (no such
        directory), OutOfMemory, Locked and IoError.
        """

    @staticmethod
    def map(address: str) -> SharedMemory:
        """
        The area with this address, of a process of the same user.

        Raises InvalidArgument (no address), NotFound (its creator has ended, or is on another host),
        Conflict (an old address), DeadlineExceeded (no answer for ten seconds), OutOfMemory, IoError.
        """

    @property
    def address(self) -> str:
        """For SharedMemory.map in other processes; to be kept as a password is."""

    @property
    def bytes(self) -> numpy.typing.NDArray[numpy.uint8]:
        """
        All of it, as a numpy array that shares the memory and keeps it mapped. Empty in a child
        of fork(), which may not touch arrays that were made before.
        """

    @property
    def is_creator(self) -> bool: ...

    @property
    def mapped(self) -> int:
        """By its creator: how many times it was mapped; else 0."""

    @property
    def refused(self) -> int:
        """By its creator: how many times somebody asked in vain; else 0."""

class KvCopier:
    """
    Copies KV rows from views of one model to views of another.

    Both are the same model, or parts of it (ModelSpec.logical): what both hold is copied. gpus: those
    whose memory views may name. Raises ModelMismatch naming what differs, InvalidArgument.
    """

    def __init__(self, from_: ModelSpec | Model, to: ModelSpec | Model, *, gpus: Sequence[Gpu] = ()) -> None: ...

    def copy(self, from_: KvView | KvBuffer, to: KvView | KvBuffer, *, gpu_ready: int = 0, timeout: float | None = None) -> int:
        """
        Copies the rows of all positions of `from_`; how many bytes that were.

        Every position of each group of `from_` lies in `to`. At most one view is of GPU memory.
        gpu_ready: a cudaEvent_t behind which that may be used; timeout: seconds to wait for it. Raises
        InvalidArgument, DeadlineExceeded, Corruption (a table on the device changed), IoError.
        """

def copy_kv(model: ModelSpec | Model, from_: KvView | KvBuffer, to: KvView | KvBuffer, *, gpus: Sequence[Gpu] = (), gpu_ready: int = 0, timeout: float | None = None) -> int:
    """
    One copy between views of a model: KvCopier(model, model, gpus=gpus).copy(from_, to).
    """

class SlotUse:
    """
    One use of a slot: plain data for messages, which can be pickled.

    number: no two uses of a KvSlots have the same; 0: none.
    """

    def __init__(self, slot: int, number: int) -> None: ...

    @property
    def slot(self) -> int: ...

    @property
    def number(self) -> int: ...

    def __eq__(self, arg: SlotUse, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __getstate__(self) -> tuple[int, int]: ...

    def __setstate__(self, arg: tuple[int, int], /) -> None: ...

class SlotNews:
    """What a report led to."""

    @property
    def state(self) -> str:
        """The slot's, now."""

    @property
    def all_reported(self) -> bool:
        """It was the last one."""

    @property
    def all_copied(self) -> bool:
        """And each rank had copied its rows."""

class KvSlots:
    """
    Which slot of shared memory may be touched by whom, and when.

    For the process with the store; ranks do what its messages say, and report. docs/processes.md.
    States: "free", "filling", "filled", "appending", "restoring", "emptying", "left". Nothing blocks.
    Any thread may use it. Calls about a use raise Stale (it is over), InvalidArgument (no such slot)
    and InvalidState (its slot is in another state); then nothing changes.
    """

    def __init__(self, area: numpy.typing.NDArray[numpy.uint8], slot_bytes: int, ranks: int) -> None:
        """
        Cuts `area`, SharedMemory.bytes say, into slots of slot_bytes, rounded up to 64.

        Raises InvalidArgument: no room for one slot, or more than 2^20; no ranks, or more than 1024.
        """

    @staticmethod
    def memory_of(area: numpy.typing.NDArray[numpy.uint8], slot_bytes: int, slot: int) -> numpy.typing.NDArray[numpy.uint8]:
        """
        The memory of a slot, in any process. InvalidArgument: it is beyond the area.
        """

    def bytes(self, use: SlotUse) -> numpy.typing.NDArray[numpy.uint8]:
        """The memory of its slot."""

    def state_of(self, use: SlotUse) -> str: ...

    def missing_reports(self, use: SlotUse) -> int:
        """How many ranks were told and have not reported yet."""

    def counts(self) -> dict[str, int]:
        """
        How many slots there are, and are in each state; and what happened so far.

        "uses" were begun, "refused" not, since no slot was free; "failed": of a rank or a restore;
        "strange": reports of no such use.
        """

    @property
    def slots(self) -> int: ...

    @property
    def ranks(self) -> int: ...

    @property
    def slot_bytes(self) -> int:
        """Rounded up."""

    def begin_save(self) -> SlotUse:
        """
        A free slot, into which all ranks copy from now on. Busy: none is free, or a rank is gone.
        """

    def begin_load(self) -> SlotUse:
        """A free slot, into which the owner restores. Busy as begin_save."""

    def report(self, use: SlotUse, rank: int, copied: bool = True) -> SlotNews:
        """
        A rank has ended its copy for a use, or failed; it touches the slot no more.

        Raises InvalidArgument (no such rank or slot), Stale (of no use that is), Conflict (it has reported
        already, or is gone), InvalidState (ranks were told of nothing); all of these count as strange.
        """

    def begin_append(self, use: SlotUse) -> None:
        """
        From here on an append may read the slot, which is filled, up to end_append.
        """

    def end_append(self, use: SlotUse) -> None: ...

    def end_restore(self, use: SlotUse, restored: bool = True) -> bool:
        """
        Nothing writes to the slot any more. True: the ranks are to be told.

        False: it was not restored, or the use was given up; the slot is free.
        """

    def leave(self, use: SlotUse) -> str:
        """
        Gives a use up; the state that its slot has now. "left": somebody may still touch it.
        """

    def rank_gone(self, rank: int) -> None:
        """
        A rank's process has ended and can write nothing any more. While one is gone no use
        begins. Conflict: it is gone already.
        """

    def rank_came(self, rank: int) -> None:
        """Another process has taken its place. Conflict: it is not gone."""

class Ticket:
    """
    One asynchronous call.

    `await ticket` in the event loop that it was made in, or wait(). The result is the branch's length
    after an append, a RestoreResult, or an object's bytes. What the call was given is kept alive until
    the store does not touch it any more, whether or not the ticket is. Any thread may use it.
    """

    @property
    def done(self) -> bool:
        """Over: the result will not change."""

    @property
    def released(self) -> bool:
        """The tensors of an append may be written again."""

    @property
    def kv_shed(self) -> bool:
        """The tokens were kept, the KV was not."""

    def wait_for_layer(self, layer: int, state: str = 'complete', timeout: float | None = None) -> None:
        """
        Of a restore with a LayerProgress: blocks until word `layer` of it is "complete" (or
        "enqueued", of a GPU), or raises what the restore ended with.
        """

    @property
    def length(self) -> int:
        """Of the branch, right after the append was applied."""

    def result(self) -> int | RestoreResult:
        """The result, or its exception; Busy until it is over."""

    def wait(self, timeout: float | None = None) -> int | RestoreResult:
        """
        Blocks until it is over and gives the result, or raises its exception. DeadlineExceeded
        after `timeout` seconds leaves the ticket as it is.
        """

    def cancel(self) -> cairn._errors.Error | None:
        """
        Ends it now, and returns what it ended with: None is success. When this returns no memory
        of the call is touched any more.
        """

    def __await__(self) -> Generator[Any, None, int | RestoreResult]: ...

class CompletionQueue:
    """
    Ends of many calls behind one file descriptor.

    Event loops get one of their own by themselves; this is for programs with a loop of another kind.
    """

    def __init__(self, store: Store) -> None: ...

    def fileno(self) -> int:
        """Readable while completions wait."""

    def drain(self) -> list[int]:
        """The user_data of calls that are over, oldest first; never blocks."""

    def wait(self, timeout: float | None = None) -> bool:
        """
        Blocks until a completion waits; False after `timeout` seconds. Signals end it.
        """

class VerifyReport:
    """The result of Store.verify."""

    class Damage:
        """Where bytes fail their check, and how."""

        @property
        def where(self) -> str:
            """A path below the store, and the offset."""

        @property
        def what(self) -> str: ...

        @property
        def sequence(self) -> int: ...

        def __repr__(self) -> str: ...

    @property
    def records(self) -> int: ...

    @property
    def strips(self) -> int: ...

    @property
    def index_tables(self) -> int: ...

    @property
    def tables(self) -> int: ...

    @property
    def frames(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def damages(self) -> list[VerifyReport.Damage]: ...

    @property
    def ok(self) -> bool: ...

class CheckpointInfo:
    """The copy that Store.checkpoint made."""

    @property
    def sequence(self) -> int: ...

    @property
    def linked_tables(self) -> int: ...

    @property
    def linked_bytes(self) -> int: ...

    @property
    def copied_tables(self) -> int: ...

    @property
    def copied_bytes(self) -> int: ...

class NamespacePolicy:
    """
    What a namespace may hold, and what may go of it.

    max_bytes: None is without a cap. evict: "never", "kv", "branches", or None: as the store says.
    persist: "always", "turn_end", "reused" or "tokens_only". ttl: seconds, of branches that are made in
    it; 0: for ever. index: "prefix" or "none": whether Store.find_prefix looks there;
    "chunks": runs of ids with exact KV are indexed as well, wherever they stand.
    """

    def __init__(self, *, max_bytes: int | str | None = None, evict: str | None = None, persist: str = 'always', ttl: float = 0.0, index: str = 'prefix') -> None: ...

    @property
    def max_bytes(self) -> int | None: ...

    @property
    def evict(self) -> str | None: ...

    @property
    def persist(self) -> str: ...

    @property
    def ttl(self) -> float: ...

    @property
    def index(self) -> str: ...

    def __eq__(self, arg: NamespacePolicy, /) -> bool: ...

    __hash__: None = None

class NamespaceInfo:
    """A namespace and what it holds."""

    @property
    def name(self) -> str: ...

    @property
    def policy(self) -> NamespacePolicy: ...

    @property
    def branches(self) -> int: ...

    @property
    def bytes(self) -> int: ...

class BranchInfo:
    """
    What is known of a branch without reading it.

    length: tokens. kv_lengths: positions with KV, one number a layer group. Times are nanoseconds since
    1970.
    """

    @property
    def id(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    @property
    def model_id(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def kv_lengths(self) -> list[int]: ...

    @property
    def created_at_ns(self) -> int: ...

    @property
    def updated_at_ns(self) -> int: ...

    @property
    def used_at_ns(self) -> int: ...

    @property
    def keep(self) -> Keep: ...

    def __repr__(self) -> str: ...

class KvHole:
    """Positions [begin, end) of a layer group without KV."""

    @property
    def group(self) -> int: ...

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    def __repr__(self) -> str: ...

class PathStep:
    """One stretch of the way from the root to the head."""

    @property
    def node(self) -> int: ...

    @property
    def parent(self) -> int: ...

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def owner(self) -> int: ...

class RestoreResult:
    """
    What a restore delivered.

    begin, end: tokens. kv_ends: for each group of the view the position up to which KV is in place.
    bytes: of KV; of these hot_bytes came from memory, lossy_bytes from planes sealed as int8, and
    approximate_bytes were appended with exact=False.
    """

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def kv_ends(self) -> list[int]: ...

    @property
    def bytes(self) -> int: ...

    @property
    def hot_bytes(self) -> int: ...

    @property
    def lossy_bytes(self) -> int: ...

    @property
    def approximate_bytes(self) -> int: ...

    def __repr__(self) -> str: ...

class Store:
    """
    An open store: a directory that one process owns for writing.

    Store(path, **options): path is a directory, or ":memory:", which goes with the object. Options are
    keywords, as cairn/options.h explains them: a size is a number of bytes, or text as "20GiB".
    recovery: "refuse" or "set_aside"; evict: "never", "kv" or "branches"; index: "prefix" or "none";
    on_fatal: "poison" or "abort"; backend: "auto", "uring" or "threads".

    on_event: called with each line of text that the store tells, by a thread of its own, which ends
    with close(). What it raises is shown and forgotten. It may call the store. An on_event that holds
    the store, as a bound method of its owner does, keeps it open until close().

    A context manager: leaving closes. All methods are thread-safe, and run without the interpreter's
    lock. Branches keep the object alive; what is open when the interpreter ends is closed then. Does
    not survive os.fork(). Raises NotFound (no store there),
    Locked (another process has it), InvalidArgument (an option), Corruption, IoError, NoSpace and
    others.
    """

    def __init__(self, path: str | bytes | os.PathLike, *, create_if_missing: bool = False, error_if_exists: bool = False, read_only: bool = False, recovery: str = 'refuse', file_mode: int = 384, max_bytes: int | str = 18446744073709551615, evict: str = 'never', segment_bytes: int | str = 0, log_bytes_max: int | str = 4294967296, snapshot_interval_tokens: int = 1024, max_delta_chain: int = 100, replay_records_max: int = 8192, background_bytes_per_second: int | str = 0, spare_segments_min: int = 2, spare_segments_max: int = 16, max_memory_bytes: int | str = 1073741824, hot_tail_bytes: int | str = 268435456, submit_copy_max_bytes: int | str = 1048576, tree_memory_bytes: int | str = 67108864, reuse_memory_bytes: int | str = 0, index: str = 'prefix', max_lease_ns: int = 60000000000, max_leased_bytes: int | str = 17179869184, delta_batch_tokens: int = 1, delta_batch_wait_ns: int = 5000000, on_fatal: str = 'poison', backend: str = 'auto', executor_threads: int = 0, gpus: Sequence[Gpu] = (), on_event: Callable[[str], object] | None = None) -> None: ...

    def __enter__(self) -> object: ...

    def __exit__(self, type: object | None = None, value: object | None = None, traceback: object | None = None) -> None: ...

    def close(self) -> None:
        """
        Makes everything durable, ends all threads and gives memory back. Idempotent; blocks.
        After it every call on the store and its branches raises InvalidState.
        """

    def register_model(self, spec: ModelSpec, *, durability: str = 'power') -> Model:
        """
        The Model of a spec; idempotent. Blocks on the disk once. ModelMismatch: the identity is
        known with other shapes, names the field.
        """

    def models(self) -> list[Model]:
        """All models that are registered."""

    def create_branch(self, model: Model, name: str = '', *, namespace: str = '', keep: Keep = ..., durability: str = 'process') -> Branch:
        """
        A new, empty branch. name: unique in its namespace, at most 256 bytes; empty: unnamed.
        AlreadyExists: the name is taken. ModelMismatch: the model is another store's.
        """

    def find_branch(self, name: str, *, namespace: str = '') -> Branch:
        """The branch of that name. NotFound."""

    def get_branch(self, id: int) -> Branch:
        """The branch of that Branch.id. NotFound."""

    def list_branches(self, prefix: str = '', *, namespace: str = '', limit: int = 1000, cursor: str = '') -> tuple[list[BranchInfo], str]:
        """
        (BranchInfo of branches whose names begin with prefix, by name; cursor of the next page,
        empty: no more).
        """

    def namespaces(self) -> list[NamespaceInfo]:
        """
        Namespaces that have branches or a policy, by name. Reads the index; blocks.
        """

    def set_namespace(self, namespace: str, policy: NamespacePolicy, *, durability: str = 'power') -> None:
        """Sets what a namespace may hold and what may go of it."""

    def flush(self) -> None:
        """Everything so far becomes durable ("power"). Blocks."""

    def compact(self) -> None:
        """
        Seals all of the log into packed tables. Blocks; happens by itself in the background.
        Busy: a read or an append, which the message names, keeps the log from being given back.
        """

    def refresh(self) -> bool:
        """
        Of a store that is read only: shows what became durable since. Whether anything did.
        """

    def checkpoint(self, path: object) -> CheckpointInfo:
        """A copy of the store that opens as one; tables are hard links. Blocks."""

    def pause_background(self) -> None:
        """
        Nothing is sealed or given back until resume_background was called as often.
        """

    def resume_background(self) -> None: ...

    def verify(self, level: str = 'all') -> VerifyReport:
        """
        Checks "headers", the "index" too, or "all" payload against its checksums. Reads from
        the disk; blocks. The report lists every damage; none: all is well.
        """

    def metrics(self) -> dict[str, Any]:
        """
        Numbers of the store by name (docs/metrics.md); of the histograms save, restore and
        append_delay a dict of count, sum_ns, max_ns, p50_ns, p95_ns, p99_ns.
        """

    def prometheus_text(self, store: str = '') -> str:
        """The metrics in the text format of Prometheus."""

    def alarms(self) -> list[tuple[str, str]]:
        """(name, message) of what is wrong with the store; none: it is healthy."""

    @property
    def poisoned(self) -> cairn._errors.Error | None:
        """None while the log can be written, else the error that ended that."""

    @property
    def io_name(self) -> str:
        """"io_uring", "threads" or "memory"."""

    @property
    def sync_method(self) -> str: ...

    @property
    def recovery_note(self) -> str:
        """
        The end of the log that recovery had to drop, and with recovery="set_aside" what
        else is gone, in words; empty: nothing.
        """

    def find_prefix(self, model: Model, tokens: Any, *, namespace: str = '', also: Sequence[str] = (), spans: Sequence[ContentSpan] = (), lease: float = 0.0, memory_only: bool = False, confirm: bool = True, approximate: bool = False) -> PrefixHit:
        """
        The prefix of the tokens of which a branch of a namespace can restore most, as a PrefixHit.

        Prefixes shorter than 64 tokens are not found. also: other namespaces that the caller may see.
        lease: seconds for which the hit stays as it is (no rewind, eviction or expiry takes it); use the
        hit as a context manager, or release() it. memory_only: Busy instead of a read from the disk.
        confirm=False: by hash alone; fork and restore confirm it. No hit is no error.
        """

    def plan_blend(self, model: Model, tokens: Any, *, namespace: str = '', also: Sequence[str] = (), spans: Sequence[ContentSpan] = (), lease: float = 0.0, memory_only: bool = False, approximate: bool = False, options: Mapping[str, Any] = {}, defaults: str = 'cairn') -> BlendPlan:
        """
        What of the tokens is loaded from where, at any position, and what is computed.

        A namespace must index chunks (NamespacePolicy(index="chunks")), unless `sources` of the options
        say which pieces to use. options: by their names here, in LMCache or in UCM (docs/blend.md);
        separators are lists of ids, recompute pairs (begin, end), sources tuples (branch, begin, end, at).
        defaults: "cairn", or the documented ones of "lmcache" or "ucm". lease: seconds for which all that
        is loaded stays as it is; use the plan as a context manager, or release() it. Nothing found is no
        error.
        """

    def compose(self, model: Model, documents: list[str | tuple[str, int]], *, namespace: str = '', separator: Any = None, question: Any = None, lease: float = 0.0, options: Mapping[str, Any] = {}, defaults: str = 'cairn') -> Composed:
        """
        A prompt of named branches of a namespace, with their KV.

        documents: names; NAME* is every branch whose name begins so; (name, begin) leaves out the tokens
        before `begin`. separator: ids between two documents, and before the question. Nothing is searched.
        NotFound names a document that does not exist.
        """

    def batch(self) -> WriteBatch:
        """An empty batch of changes."""

    def sparse_arena(self, gpu: Gpu, *, pinned_bytes: int | str, device_bytes: int | str) -> SparseArena:
        """
        Memory for sparse sessions on one of the store's GPUs: pinned_bytes of the host, from
        1 MiB, for pages, and device_bytes for what sessions keep there. Blocks while it is pinned.
        InvalidArgument, OutOfMemory.
        """

    def import_branch(self, path: object, *, name: str | None = None, namespace: str | None = None, model: Model | None = None) -> Branch:
        """
        Makes the branch of a file that Branch.export wrote, or continues the one that a part goes
        on from. name, namespace: None is the file's. model: it must be of this one.
        """

    def export_forest(self, path: object, *, namespace: str | None = None, replace: bool = False) -> ForestInfo:
        """
        Writes all branches, or those of a namespace, without KV: one MessagePack file.
        """

    def import_forest(self, path: object) -> ForestInfo:
        """Makes all branches of a file that export_forest wrote."""

class PrefixHit:
    """
    What the store has of a prompt's beginning.

    True if anything was found. matched: ids and content spans are the same up to here; restorable: KV
    can be restored up to here; exact: and is no approximation up to here. confirmed: ids were compared
    one by one. complete: everything that was appended before was looked at. longest: the longest
    match of ids that the search met, (node, matched): perhaps another node, which may have less KV.
    """

    def __bool__(self) -> bool: ...

    @property
    def node(self) -> int: ...

    @property
    def matched(self) -> int: ...

    @property
    def restorable(self) -> int: ...

    @property
    def exact(self) -> int: ...

    @property
    def longest(self) -> tuple[int, int]:
        """(node, matched)"""

    @property
    def confirmed(self) -> bool: ...

    @property
    def complete(self) -> bool: ...

    def __repr__(self) -> str: ...

    def fork(self, position: int | None = None, name: str = '', *, namespace: str = '', keep: Keep = ..., durability: str = 'process') -> Branch:
        """
        A branch with the first `position` tokens, by default `restorable`. Conflict or NotFound
        when the place holds other tokens by now: it never is a branch of others.
        """

    def restore(self, into: KvView | KvBuffer | None = None, tokens: Any = None, *, begin: int = 0, end: int | None = None, require_kv: bool = False, timeout: float | None = None, progress: LayerProgress | None = None, gpu_ready: int = 0, layer_events: Sequence[int] = (), fall_back_to_host: bool = False) -> RestoreResult:
        """As Branch.restore, of positions up to `matched`, which `end` None is."""

    @property
    def lease(self) -> int:
        """0: there is none."""

    def renew(self, lease: float) -> None:
        """The lease lasts for `lease` seconds from now. NotFound: it is over."""

    def release(self) -> None:
        """Ends the lease, if there is one."""

    def __enter__(self) -> object: ...

    def __exit__(self, type: object | None = None, value: object | None = None, traceback: object | None = None) -> None: ...

class BlendSegment:
    """
    Positions [begin, end) of a prompt, and where their KV is: from position source on of the path
    that ends with the node. match: "none", "prefix", "full" or "partial".
    """

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def match(self) -> str: ...

    @property
    def node(self) -> int: ...

    @property
    def source(self) -> int: ...

    @property
    def shift(self) -> int:
        """How far its keys are moved."""

    def __repr__(self) -> str: ...

class BlendStep:
    """
    Positions [begin, end) of a prompt that are loaded, if `loads`, or computed.
    """

    @property
    def loads(self) -> bool: ...

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    def __repr__(self) -> str: ...

class BlendChunk:
    """
    Positions [begin, end) of a prompt, what of it was found, and how many of its tokens are loaded.
    """

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def match(self) -> str: ...

    @property
    def loaded(self) -> int: ...

    def __repr__(self) -> str: ...

class BlendPlan:
    """
    What of a prompt is loaded from where, and what is computed.

    steps are in order and cover the prompt: restore those that load, compute the others; at each the
    cache holds all positions before it, so plain causal attention is right. exact: nothing before this
    position is approximate. complete: everything that was appended before was looked at.
    positions_checked: stored keys turn as the model says. position_mapping: for each token its
    position in its source, -1 where there is none; recompute_mask: for each token whether it is
    computed.
    """

    @property
    def tokens(self) -> int: ...

    @property
    def exact(self) -> int: ...

    @property
    def load_tokens(self) -> int: ...

    @property
    def compute_tokens(self) -> int: ...

    @property
    def load_bytes(self) -> int: ...

    @property
    def segments(self) -> list[BlendSegment]: ...

    @property
    def steps(self) -> list[BlendStep]: ...

    @property
    def complete(self) -> bool: ...

    @property
    def positions_checked(self) -> bool: ...

    @property
    def position_mapping(self) -> object: ...

    @property
    def recompute_mask(self) -> object: ...

    def chunks(self, tokens: int = 64) -> list[BlendChunk]:
        """
        The prompt in pieces of `tokens` tokens, each with what was found of it.
        """

    def __repr__(self) -> str: ...

    def restore(self, into: KvView | KvBuffer, *, begin: int = 0, end: int | None = None, timeout: float | None = None, progress: LayerProgress | None = None, gpu_ready: int = 0, layer_events: Sequence[int] = (), fall_back_to_host: bool = False) -> RestoreResult:
        """
        Brings what the plan loads of [begin, end), positions of the prompt, keys turned to where they stand
        now; the rest of the view stays as it is. All or nothing. Conflict or NotFound when a source changed.
        """

    @property
    def lease(self) -> int:
        """0: there is none."""

    def renew(self, lease: float) -> None:
        """The lease lasts for `lease` seconds from now. NotFound: it is over."""

    def release(self) -> None:
        """Ends the lease, if there is one."""

    def __enter__(self) -> object: ...

    def __exit__(self, type: object | None = None, value: object | None = None, traceback: object | None = None) -> None: ...

class ComposedDocument:
    """Where a document stands in a prompt: positions [begin, end)."""

    @property
    def name(self) -> str: ...

    @property
    def branch(self) -> int:
        """Its id."""

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    def __repr__(self) -> str: ...

class Composed:
    """A prompt of documents, and its plan."""

    @property
    def tokens(self) -> object: ...

    @property
    def plan(self) -> BlendPlan: ...

    @property
    def spans(self) -> list[ContentSpan]: ...

    @property
    def documents(self) -> list[ComposedDocument]: ...

class WriteBatch:
    """
    Changes of one or many branches: all of them or none, also after a crash.

    Store.batch makes one. A branch is a Branch, or the index that create or fork of this batch
    returned. Adding a change checks little; write checks all of them. At most 4 MiB of tokens and KV in
    all. For one thread at a time.
    """

    def create(self, model: Model, name: str = '', *, namespace: str = '', keep: Keep = ...) -> int:
        """
        As Store.create_branch; the index of the new branch, for later changes of this batch.
        """

    def fork(self, branch: Branch | int, position: int, name: str = '', *, namespace: str = '', keep: Keep = ...) -> int:
        """As Branch.fork; the index of the new branch."""

    def append(self, branch: Branch | int, tokens: Any = None, kv: KvView | KvBuffer | None = None, *, sampler: SamplerState | None = None, metadata: Metadata | None = None, spans: Sequence[ContentSpan] | None = None, exact: bool = True, expected_length: int | None = None) -> None:
        """
        As Branch.append, of host memory. Keeps the arrays: they must not change before write.
        """

    def rewind(self, branch: Branch | int, length: int) -> None:
        """As Branch.rewind."""

    def rename(self, branch: Branch | int, name: str) -> None:
        """As Branch.rename."""

    def drop(self, branch: Branch | int) -> None:
        """As Branch.drop."""

    def __len__(self) -> int: ...

    def write(self, *, durability: str = 'process', ends_turn: bool = False, timeout: float | None = None) -> list[Branch]:
        """
        Applies all changes and blocks until they are durable; the branches that create and
        fork made, by their index. May be called again. A failure applies nothing and names the
        change: InvalidArgument (also an empty or too large batch, or KV of a GPU), Conflict
        (expected_length), NotFound, AlreadyExists, Busy (a large append of one of the branches
        is under way). UnknownOutcome and DeadlineExceeded: it may be applied.
        """

class SparseArena:
    """
    Memory that sparse sessions of one store on one GPU share.

    Store.sparse_arena makes it. Pages of KV lie in its pinned memory, shared by sessions and forks;
    sessions take their buffers from its room on the device. It lives as long as a session of it.
    """

    def open(self, branch: Branch, *, group: int = 0, planes: Sequence[int] = (1,), piece_tokens: int = 4, page_tokens: int = 0, slots: int = 1024, wanted_max: int = 512, end: int | None = None, tokens_max: int = 0, warm: bool = True) -> SparseSession:
        """
        A session of the branch's tokens before `end` (None: all that there are). planes: one
        or two of the group, with as many heads; by default the values. piece_tokens: tokens of
        a piece, whose bytes are a multiple of 16. page_tokens: tokens that come from the disk
        at once; 0: 64 KiB of them. slots: pieces that the device keeps, by layer and head.
        wanted_max: pieces of a fetch, by head. tokens_max: room for so many tokens, for extend;
        0: for those that there are. warm: it begins with the pieces that an earlier
        session had when it was saved, which are read; False: with empty slots. Blocks for that,
        and while memory of the device is made. InvalidArgument names the option; OutOfMemory: device_bytes do not suffice.
        """

    @property
    def pinned_bytes(self) -> int:
        """Bytes of pinned memory that pages are in."""

    @property
    def device_bytes(self) -> int:
        """Bytes of the device that sessions have."""

    def stats(self) -> dict[str, int]:
        """As SparseSession.stats, of all sessions."""

class SparseSession:
    """
    Brings pieces of a branch's KV into slots on a GPU, and keeps them there
    until the slots are needed for others: exact LRU, by layer and head.

    SparseArena.open makes it. It reads the branch as it was then. Piece p is tokens
    [p * piece_tokens, (p + 1) * piece_tokens) of one head. Thread-safe; calls of one session wait for
    each other. Its memory goes with the last object that refers to it: tensors of its views, too.
    """

    def fetch(self, layer: int, pieces: Any, *, stream: int = 0, mode: str = 'strict', timeout: float | None = None) -> SparseView:
        """
        Pieces of each head into slots. pieces: [heads, count], of one head [count] as well, of
        int32, uint32 or int64, none twice in a head; on the device of int32 or uint32, written
        by the stream before. stream: a cudaStream_t, as torch.cuda.current_stream()
        .cuda_stream; 0: the default one. mode "strict": all is there when the call returns;
        blocks for the device, and for the disk where a page is missing. "relaxed": what no
        page has is left out (slot -1), and read in the background for the next time; does not
        block. timeout: seconds, of strict ones. InvalidArgument (a piece beyond the end, or
        twice: strict calls name it), Busy (relaxed: the layer's last fetch has not ended),
        DeadlineExceeded, NotFound (the branch was dropped), Evicted, Corruption, IoError,
        OutOfMemory (the pages of a piece do not fit the arena), InvalidState (the store is
        closed).
        """

    def capture(self, layer: int, pieces: Any, *, stream: int) -> SparseView:
        """
        Puts a relaxed fetch into the graph that `stream` is captured into (torch.cuda.graph).
        The view holds after each replay. pieces: on the device, where each replay reads them
        anew; the session keeps them. Each capture of a layer has as many. Nothing runs yet;
        never blocks. InvalidArgument: in host memory, another count, or no such graph.
        """

    @staticmethod
    def replay(sessions: Sequence[SparseSession], launch: Callable[[], object], *, stream: int = 0) -> None:
        """
        Launches a graph with captured fetches: launch(), say CUDAGraph.replay, enqueues it in
        `stream`, once, and does not call these sessions. sessions: all that are captured in
        it, each once. It must be launched in no other way. Blocks until the last replay of
        each has ended; what that left out is read in the background. An exception of launch
        goes on to the caller. InvalidArgument: a session twice, none, or of several GPUs.
        """

    def prefetch(self, layer: int, pieces: Any, *, timeout: float | None = None) -> None:
        """
        The pages of these pieces, in host memory as for fetch, are read in the background,
        after what fetches need. timeout: seconds; pages whose reading has not begun by then
        are left. Never blocks. Busy: earlier ones are still under way, and
        nothing was noted.
        """

    def save(self) -> None:
        """
        Which pieces are in slots becomes a state of the branch, which the next session begins
        with. Blocks for the device and the disk. Conflict (the branch was rewound to before
        what the session has), NotFound (the branch was dropped).
        """

    def extend(self, end: int | None = None) -> None:
        """
        The branch has grown: its tokens before `end` (None: all) may be wanted from here on.
        Pieces in slots stay there. Blocks for the device. Conflict: the branch was rewound
        to before what the session has; InvalidArgument: more than tokens_max.
        """

    @property
    def pieces(self) -> int:
        """Whole pieces that the branch has: those that may be wanted are below."""

    @property
    def device_bytes(self) -> int:
        """Bytes of the device that it has."""

    @property
    def heads(self) -> int:
        """Heads of each of its planes."""

    def stats(self) -> dict[str, int]:
        """
        Counts since it was opened: fetches (calls), wanted (pieces), faults (pieces that no
        page had when they were first asked for), left_out (of these, those of relaxed fetches),
        pages_read, page_bytes_read.
        """

class SparseView:
    """
    Where a fetch put what was wanted, in memory of the device.

    slots and planes are arrays for whatever speaks DLPack (torch.from_dlpack), and keep the session.
    Their content is valid, once the stream has come so far, until the next fetch of the layer.
    """

    @property
    def slots(self) -> Any:
        """
        int32 [heads, count]: the slot of each wanted piece; -1: it was left out.
        """

    @property
    def planes(self) -> tuple[Any, ...]:
        """
        In order, of each plane [heads, slots, piece_tokens, elements of a row], of its dtype.
        """

    def to_host(self) -> tuple[numpy.typing.NDArray[numpy.int32], tuple[numpy.typing.NDArray, ...]]:
        """
        (slots, planes) copied into arrays of numpy, for looks and tests; bf16 as its bits, in
        uint16. Waits for the copies, not for the stream: call it behind a strict fetch. Blocks.
        """

class ForestInfo:
    """What export_forest wrote, or import_forest made."""

    @property
    def models(self) -> int: ...

    @property
    def branches(self) -> int: ...

    @property
    def tokens(self) -> int:
        """What branches share counts once."""

    @property
    def file_bytes(self) -> int: ...

class Branch:
    """
    A named, movable head in the tree of conversations.

    Store.create_branch, find_branch and fork make one. A small handle that keeps its Store object; all
    methods are thread-safe and run without the interpreter's lock. Ranges [begin, end) are positions,
    `end` None is the branch's length. Raises InvalidState once the store is closed, NotFound once the
    branch was dropped.
    """

    @property
    def id(self) -> int: ...

    @property
    def store(self) -> Store: ...

    def info(self) -> BranchInfo:
        """Name, lengths, times. NotFound: it was dropped."""

    @property
    def length(self) -> int:
        """Tokens, of what was applied: you read your writes."""

    def __len__(self) -> int: ...

    def __bool__(self) -> bool: ...

    def __eq__(self, arg: Branch, /) -> bool: ...

    def __hash__(self) -> int: ...

    @property
    def durable_length(self) -> int:
        """Tokens that survive power loss."""

    @property
    def kv_lengths(self) -> list[int]:
        """Positions with KV, one number a layer group."""

    def path(self) -> list[PathStep]:
        """The stretches from the root to the head, root first."""

    def tokens(self, begin: int = 0, end: int | None = None) -> numpy.typing.NDArray[numpy.uint32]:
        """
        Ids of positions [begin, end), a numpy array of uint32. May read the disk.
        """

    def restorable_length(self, at_most: int | None = None) -> int:
        """
        The largest position up to which every group has what its rule needs: an `end` for restore.
        """

    def evicted_kv(self, begin: int = 0, end: int | None = None) -> list[KvHole]:
        """
        The positions in [begin, end) without the KV that a restore needs, as KvHoles.
        """

    def sampler_at(self, position: int | None = None) -> tuple[int, SamplerState]:
        """
        (position, SamplerState): the newest one at `position` tokens or before. NotFound.
        """

    def metadata_at(self, position: int | None = None) -> tuple[int, Metadata]:
        """
        (position, Metadata): the newest one at `position` tokens or before. NotFound.
        """

    def spans(self, begin: int = 0, end: int | None = None) -> list[ContentSpan]:
        """Content spans with a position in [begin, end)."""

    def fork(self, position: int | None = None, name: str = '', *, namespace: str = '', keep: Keep = ..., durability: str = 'process') -> Branch:
        """
        A new branch with the first `position` tokens, by default all. Constant time, copies nothing.
        """

    def rewind(self, length: int, *, durability: str = 'process') -> None:
        """Forgets everything from position `length` on."""

    def rename(self, name: str, *, durability: str = 'process') -> None:
        """Another name in the same namespace; empty: unnamed. AlreadyExists."""

    def drop(self, *, durability: str = 'process') -> None:
        """
        The branch goes; what others share stays. Every handle of it raises NotFound then.
        """

    def set_keep(self, keep: Keep, *, durability: str = 'process') -> None:
        """How long it is kept."""

    def prefetch(self, begin: int = 0, end: int | None = None, *, gpu: int | None = None) -> None:
        """
        A hint that positions [begin, end) will be restored soon, into host memory or the GPU of
        that ordinal. Never blocks on the disk. Busy: many hints are waiting, nothing is done.
        """

    def append(self, tokens: Any = None, kv: KvView | KvBuffer | None = None, *, sampler: SamplerState | None = None, metadata: Metadata | None = None, spans: Sequence[ContentSpan] | None = None, exact: bool = True, durability: str = 'process', expected_length: int | None = None, ends_turn: bool = False, timeout: float | None = None, gpu_ready: int = 0) -> int:
        """
        Adds tokens, KV and states in one atomic step; the branch's length after it.

        tokens: a list of ids, or one row of them in any array (uint32 is not copied). kv: a KvView or
        KvBuffer of positions from each group's kv_length on; it may lag behind the tokens. sampler,
        metadata: as they are after these tokens. spans: ContentSpans within the new tokens. exact=False:
        the KV is an approximation. durability: "memory", "process" (survives the process) or "power".
        expected_length: Conflict unless the branch is this long. timeout: seconds, or None. gpu_ready: of
        CUDA memory, an event (a cudaEvent_t) behind which it may be read.

        Blocks until it is as durable as asked for. Raises InvalidArgument, Conflict, ModelMismatch,
        NotFound, NoSpace, DeadlineExceeded (nothing was applied), UnknownOutcome and others.
        """

    def append_async(self, tokens: Any = None, kv: KvView | KvBuffer | None = None, *, sampler: SamplerState | None = None, metadata: Metadata | None = None, spans: Sequence[ContentSpan] | None = None, exact: bool = True, durability: str = 'process', expected_length: int | None = None, ends_turn: bool = False, timeout: float | None = None, gpu_ready: int = 0, overload: str = 'fail', queue: CompletionQueue | None = None, user_data: int = 0) -> Ticket:
        """
        The same without waiting for the disk: a Ticket, to be awaited.

        Applied when this returns, or, of tensors larger than submit_copy_max_bytes, when Ticket.released.
        Tensors must not be written before that; they are kept alive. overload: when buffers are full
        "fail" raises Busy, "shed_kv" keeps the tokens alone. queue, user_data: tell a CompletionQueue
        instead of the event loop.
        """

    def fill(self, kv: KvView | KvBuffer, *, exact: bool = True, durability: str = 'process', expected_length: int | None = None, timeout: float | None = None, gpu_ready: int = 0) -> None:
        """
        Attaches recomputed KV to positions that have none: that lag, were evicted or left out.

        KV of positions that have some is ignored, so that of a whole prefix may be given. Branches that
        share the positions get it as well. Blocks, as append. Raises Conflict (expected_length: the branch
        is not so long) and what append raises. Positions below a group's kv_length are filled in steps:
        those before a failed one are there.
        """

    def restore(self, into: KvView | KvBuffer | None = None, tokens: Any = None, *, begin: int = 0, end: int | None = None, require_kv: bool = False, timeout: float | None = None, progress: LayerProgress | None = None, gpu_ready: int = 0, layer_events: Sequence[int] = (), fall_back_to_host: bool = False) -> RestoreResult:
        """
        Puts positions [begin, end) back, bit for bit, into the caller's memory.

        into: a KvView of writable tensors, or a KvBuffer: what groups, layers and positions there is room
        for. tokens: room for end - begin ids, a row of uint32. require_kv: Evicted unless KV reaches `end`.
        progress: words that tell how far each layer is. gpu_ready, layer_events: of CUDA memory, the event
        (a cudaEvent_t) behind which it may be written, and one a layer that is recorded behind its last
        write.

        Blocks. Raises Corruption (file, offset, and the longest restorable prefix), Evicted (what is
        missing, before anything was read), InvalidArgument, DeadlineExceeded and others; `into` is
        undefined then.
        """

    def restore_async(self, into: KvView | KvBuffer | None = None, tokens: Any = None, *, begin: int = 0, end: int | None = None, require_kv: bool = False, timeout: float | None = None, progress: LayerProgress | None = None, gpu_ready: int = 0, layer_events: Sequence[int] = (), fall_back_to_host: bool = False, queue: CompletionQueue | None = None, user_data: int = 0) -> Ticket:
        """
        The same by a thread of the store: a Ticket, to be awaited. The memory is kept alive and
        must not be touched until it is over.
        """

    def begin_append(self, positions: int) -> Draft:
        """
        Staging memory for so many positions from `length` on. Busy: there is none right now.
        """

    def export(self, path: object, *, begin: int = 0, end: int | None = None, kv_begin: int | None = None, replace: bool = False) -> ExportInfo:
        """
        Writes the branch as a safetensors file (docs/export.md). begin: a part, whose KV begins at
        kv_begin, one position earlier if that is None. AlreadyExists: the file, without replace.
        """

    def build_shadow(self, spec: ShadowSpec = ..., *, group: int = 0, end: int | None = None) -> ShadowInfo:
        """
        Makes the shadow of the first `end` tokens where there is none. Blocks: reads the keys.
        InvalidArgument names the field, or says which key is not finite.
        """

    def find_shadow(self, spec: ShadowSpec = ..., *, group: int = 0, end: int | None = None) -> ShadowInfo:
        """NotFound: there is none of this spec that covers as much."""

    def drop_shadow(self, spec: ShadowSpec = ..., *, group: int = 0, end: int | None = None) -> None:
        """Forgets it, here and for the forks that share it. NotFound."""

    def __repr__(self) -> str: ...

class LayerProgress:
    """
    How far a restore is: one word a (group, layer) of its view, in order.

    progress[i] is "pending", "enqueued" (of a GPU), "complete" or "failed". For one restore at a
    time.
    """

    def __init__(self, layers: int) -> None: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> str: ...

class Draft:
    """
    Positions that are filled layer by layer, then appended as one.

    Branch.begin_append makes one. A context manager: leaving without commit aborts it. put may be
    called from several threads, for different layers.
    """

    def put(self, layer: int, kv: KvView, *, gpu_ready: int = 0) -> None:
        """
        Copies one layer of the positions that the view describes; its tensors are of that layer
        alone. Of CUDA memory it is gathered later, behind the event gpu_ready, and must stay as
        it is until the ticket of commit is released.
        """

    def commit(self, tokens: Any = None, kv: KvView | None = None, *, sampler: SamplerState | None = None, metadata: Metadata | None = None, spans: Sequence[ContentSpan] | None = None, exact: bool = True, durability: str = 'process', expected_length: int | None = None, ends_turn: bool = False, timeout: float | None = None) -> Ticket:
        """
        Appends the first len(tokens) positions, which may be fewer than were put. kv: only of
        groups that keep states. Conflict: the branch was changed since begin_append.
        """

    def abort(self) -> None:
        """Forgets what was put."""

    def __enter__(self) -> object: ...

    def __exit__(self, type: object | None = None, value: object | None = None, traceback: object | None = None) -> None: ...

class ExportInfo:
    """
    What Branch.export wrote.

    snapshot_id names model, tokens and content spans up to end; base_snapshot_id, of a part, those up
    to begin. kv_ends: how far KV reaches, one number a layer group.
    """

    @property
    def snapshot_id(self) -> str: ...

    @property
    def base_snapshot_id(self) -> str: ...

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def kv_ends(self) -> list[int]: ...

    @property
    def kv_bytes(self) -> int: ...

    @property
    def file_bytes(self) -> int: ...

class ShadowSpec:
    """
    What a shadow is made of, by kv head and layer. A value.

    chunk_tokens: 1, 2, 4, 8 or 16, what is selected and fetched as one. keys: where those of selected
    chunks come from, "exact" (fetched), "int8" or "int4" (of codes on the device), "low_rank".
    landmark_bits: 16, 8 or 4. Always attended to are the newest local_tokens, the first sink_tokens
    and chunks that their landmark does not stand for: outlier_share of all, or outlier_chunks if not 0.
    budget_tokens: what a step selects besides; 0: 2048, or an eighth of the context if that is less.
    rank, rank_energy: of low_rank keys alone, just one of them. A value out of range is refused, by its
    name, where the spec is used.
    """

    def __init__(self, *, chunk_tokens: int = 4, keys: str = 'int4', landmark_bits: int = 4, local_tokens: int = 32, sink_tokens: int = 8, outlier_share: float = 0.003, outlier_chunks: int = 0, budget_tokens: int = 0, rank: int = 0, rank_energy: float = 0.0) -> None: ...

    @staticmethod
    def published(key_channels: int = 1024) -> ShadowSpec:
        """
        The setting that ShadowKV was published with; key_channels: of a layer's keys over
        all heads.
        """

    @property
    def chunk_tokens(self) -> int: ...

    @property
    def keys(self) -> str: ...

    @property
    def landmark_bits(self) -> int: ...

    @property
    def local_tokens(self) -> int: ...

    @property
    def sink_tokens(self) -> int: ...

    @property
    def outlier_share(self) -> float: ...

    @property
    def outlier_chunks(self) -> int: ...

    @property
    def budget_tokens(self) -> int: ...

    @property
    def rank(self) -> int: ...

    @property
    def rank_energy(self) -> float: ...

    def __eq__(self, arg: ShadowSpec, /) -> bool: ...

    __hash__: None = None

class ShadowInfo:
    """
    What there is of a shadow.

    tokens: of the context; covered: of these, by the shadow, 0: too few, attention is dense. chunks:
    that are covered, by kv head and layer; of these always_chunks are attended to in any case, and
    budget_chunks are selected in a step. table_bytes: on the disk, 0: there is no table. tokens_read:
    whose keys were read to make it, 0: it was there.
    """

    @property
    def tokens(self) -> int: ...

    @property
    def covered(self) -> int: ...

    @property
    def chunks(self) -> int: ...

    @property
    def always_chunks(self) -> int: ...

    @property
    def budget_chunks(self) -> int: ...

    @property
    def table_bytes(self) -> int: ...

    @property
    def tokens_read(self) -> int: ...

    def __repr__(self) -> str: ...

class ShadowSession:
    """
    Sparse attention over a branch by its shadow, on a GPU.

    Of each layer of each step: append the token's rows, select by its queries, fetch, rebuild, view.
    Thread-safe; calls of one session wait for each other. Tensors that a call reads are kept until a
    later fetch of the stream shows that it has been done. Its memory goes with the last object that
    refers to it: tensors of its views, too.
    """

    @staticmethod
    def open(arena: SparseArena, branch: Branch, *, query_heads: int, spec: ShadowSpec = ..., group: int = 0, end: int | None = None, slots: int = 0, append_tokens: int = 256, tokens_max: int = 0, build: bool = True) -> ShadowSession:
        """
        Finds or makes the shadow of the branch's first `end` tokens, and copies it to the device.
        query_heads: of a layer, a multiple of the kv heads. slots: chunks whose values stay on the
        device; 0: twice the budget. append_tokens: room for those that are added. tokens_max: the
        longest that extend may come to; 0: no longer than it is. build=False:
        NotFound where there is no shadow. Blocks. InvalidArgument names the option; OutOfMemory:
        the arena's device_bytes do not suffice.
        """

    def select(self, layer: int, queries: Any, *, scale: float = 0.0, stream: int = 0) -> None:
        """
        Chooses the chunks that the queries of a step need. queries: [query_heads, elements of a
        row] after rotation, on the device, of float32 or as keys are; query head g of kv head h
        in row h * (query_heads / heads) + g. scale: of scores; 0: 1 / sqrt(elements). stream:
        a cudaStream_t; 0: the default one. Enqueues; does not block. InvalidArgument.
        """

    def fetch(self, layer: int, *, stream: int = 0, mode: str = 'strict', timeout: float | None = None) -> None:
        """
        Brings the values of what was selected, and exact keys. mode, timeout and errors: as of
        SparseSession.fetch. InvalidState: nothing is selected for the layer.
        """

    def rebuild(self, layer: int, *, stream: int = 0) -> None:
        """
        Makes the keys of what was selected, of their codes. Enqueues; does not block.
        InvalidState.
        """

    def view(self, layer: int) -> ShadowView:
        """
        The KV that the step attends to. InvalidState: nothing was fetched for the layer.
        """

    def append(self, layer: int, keys: Any, values: Any, *, stream: int = 0) -> None:
        """
        A token more is attended to in this layer from now on. keys, values: [heads, elements of
        a row] on the device. The branch does not learn of it: append it there with exact=False.
        Enqueues; does not block. Busy: append_tokens are there, and extend makes room.
        """

    def extend(self, end: int | None = None) -> None:
        """
        The branch has grown: its tokens before `end` (None: all) are the context from here
        on. What was appended here and not there is gone. Blocks: reads the new keys.
        Conflict: the branch was rewound to before what the session has; InvalidArgument: more
        than tokens_max; InvalidState: low-rank keys, by rank_energy, need more vectors than there
        is room for, and another session has it; NotFound: they need a table, and build is False.
        """

    def prefetch(self, layer: int, chunks: Any) -> None:
        """
        Reads in the background what a fetch of these chunks would read from the disk. chunks:
        [heads, count], in host memory, at most the budget. Never blocks. Busy.
        """

    def save(self) -> None:
        """As SparseSession.save."""

    @property
    def info(self) -> ShadowInfo: ...

    @property
    def device_bytes(self) -> int:
        """Bytes of the device that it has, with those of its slots."""

    @property
    def heads(self) -> int:
        """Kv heads of a layer."""

    def stats(self) -> dict[str, int]:
        """As SparseSession.stats, of its fetches."""

class ShadowView:
    """
    What a step attends to, in memory of the device.

    Each is an array for whatever speaks DLPack (torch.from_dlpack), and keeps the session. Valid, once
    the stream has come so far, until the next call for the layer.
    """

    @property
    def resident_keys(self) -> Any:
        """[heads, tokens, elements of a row]: sinks, outliers, then the newest."""

    @property
    def resident_values(self) -> Any:
        """Of the same tokens."""

    @property
    def chunks(self) -> Any:
        """
        int32 [heads, count]: which were selected, in rising order; chunk c is tokens
        [c * chunk_tokens, (c + 1) * chunk_tokens).
        """

    @property
    def key_slots(self) -> Any:
        """int32 [heads, count]: where in `keys` the rows of each chunk are."""

    @property
    def value_slots(self) -> Any:
        """int32 [heads, count]; -1: a relaxed fetch left it out."""

    @property
    def keys(self) -> Any:
        """[heads, slots, chunk_tokens, elements of a row]."""

    @property
    def values(self) -> Any:
        """[heads, slots, chunk_tokens, elements of a row]."""

    def to_host(self) -> dict[str, numpy.typing.NDArray]:
        """
        All of them by name, copied into arrays of numpy, for looks and tests; bf16 as its bits,
        in uint16. Waits for the copies, not for the stream: call it behind a strict fetch that
        was the last call. Blocks.
        """

class ObjectInfo:
    """An object, without its bytes."""

    @property
    def key(self) -> bytes: ...

    @property
    def object_class(self) -> str: ...

    @property
    def pages(self) -> int: ...

    @property
    def bytes(self) -> int:
        """From list: if its last page is full. From stat: its own."""

    @property
    def depth(self) -> int: ...

    @property
    def pinned(self) -> bool: ...

    @property
    def ttl(self) -> float: ...

    @property
    def put_at_ns(self) -> int: ...

    @property
    def used_at_ns(self) -> int: ...

class ObjectsFound:
    """
    Which of many keys are there.

    found[i] of each; count: how many; leading: how many before the first that is not.
    """

    @property
    def count(self) -> int: ...

    @property
    def leading(self) -> int: ...

    def __getitem__(self, index: int) -> bool: ...

class Objects:
    """
    Bytes under keys of the caller's own, in the same store.

    Keys are 1 to 256 bytes. An object never changes: it is there whole or not at all. Namespaces of
    objects are not those of branches. Thread-safe, and without the interpreter's lock.
    """

    def __init__(self, store: Store) -> None: ...

    def put(self, items: Iterable[tuple[bytes | str, Any]], *, object_class: int, namespace: str = '', replace: bool = False, depths: Sequence[int] = (), pinned: bool = False, ttl: float = 0.0, durability: str = 'process', timeout: float | None = None, raises: bool = True) -> list[bool | cairn._errors.Error]:
        """
        Stores (key, value) pairs; of each True (stored) or False (was there, kept).

        raises: the first Error of a pair is raised, when all were tried; off: it stands in the list.

        Values: anything contiguous in host memory, up to 1 GiB. replace: what is there goes in the same
        step. depths: how far each stands behind the beginning of its chain: deeper ones are evicted first.
        ttl: seconds, 0: as the namespace says. Blocks until all are as durable as asked for.
        """

    def put_async(self, items: Iterable[tuple[bytes | str, Any]], *, object_class: int, namespace: str = '', replace: bool = False, depths: Sequence[int] = (), pinned: bool = False, ttl: float = 0.0, durability: str = 'process', timeout: float | None = None) -> list[Ticket]:
        """
        The same by a thread of the store: a Ticket a pair, whose result is its bytes. Values
        are kept alive and must not change until it is released.
        """

    def get(self, items: Iterable[tuple[bytes | str, Any]], *, namespace: str = '', object_class: int = 0, timeout: float | None = None) -> list[int | cairn._errors.Error]:
        """
        Reads into (key, room) pairs; of each the object's bytes or its Error.

        Room: anything contiguous and writable in host memory; behind the object's last byte it may be
        written to as well. NotFound, InvalidArgument (there is too little room), ModelMismatch
        (object_class is given, and it is of another one), Corruption. Blocks.
        """

    def get_async(self, items: Iterable[tuple[bytes | str, Any]], *, namespace: str = '', object_class: int = 0, timeout: float | None = None) -> list[Ticket]:
        """
        The same by a thread of the store: a Ticket a pair, whose result is the object's bytes.
        """

    def register_class(self, name: str, *, page_bytes: int = 4096, dtype: object = 'opaque') -> int:
        """
        The number of a class of objects; idempotent. page_bytes: what is read, checked and packed as
        one. dtype: "bf16" and "f16" are packed. Blocks.
        """

    def exists(self, keys: Iterable[bytes | str], *, namespace: str = '') -> ObjectsFound:
        """Which keys are there. From memory, as a rule."""

    def touch(self, keys: Iterable[bytes | str], *, namespace: str = '') -> None:
        """
        They are of use: each is passed over once when it is its turn to be evicted.
        """

    def delete(self, keys: Iterable[bytes | str], *, namespace: str = '', durability: str = 'process') -> list[cairn._errors.Error | None]:
        """
        Of each key None, or why it is still there, or NotFound. At most 4096 keys, in one step.
        """

    def stat(self, key: bytes | str, *, namespace: str = '') -> ObjectInfo:
        """Facts about one object. NotFound."""

    def list(self, *, namespace: str = '', limit: int = 1000, cursor: bytes = b'') -> tuple[list[ObjectInfo], bytes]:
        """(objects in order of key, cursor of the next page; empty: no more)."""

    def usage(self) -> list[NamespaceInfo]:
        """
        Namespaces with objects or a policy; NamespaceInfo.branches counts objects.
        """

    def set_policy(self, namespace: str, policy: NamespacePolicy, *, durability: str = 'power') -> None:
        """Sets the limits of a namespace of objects. persist must be "always"."""

class ObjectQueue:
    """
    Batches of calls on objects behind one file descriptor.

    Objects are put in the class object_class, which is registered. A submit call takes keys (str or
    bytes), the namespace of each, and for put and get the memory of each, contiguous, which is borrowed
    until drain() tells the end. It returns the number of the batch at once; threads of the queue do the
    work, one of them no puts and deletes, so that reads do not wait for the disk to write. Batches that
    are under way together are in no order. timeout: seconds that a put or get may take. Any thread may
    call.
    """

    def __init__(self, store: Store, object_class: str, *, page_bytes: int, dtype: str = 'opaque', durability: str = 'process', if_present: str = 'keep', threads: int = 4, timeout: float | None = None) -> None: ...

    def fileno(self) -> int:
        """Readable while batches that are over wait."""

    def submit_put(self, keys: Sequence, buffers: Sequence, namespaces: Sequence) -> int:
        """True: it is there, as durable as was asked for."""

    def submit_get(self, keys: Sequence, buffers: Sequence, namespaces: Sequence) -> int:
        """
        True: its memory, writable and as long as the object, holds it; False: there is none.
        """

    def submit_exists(self, keys: Sequence, namespaces: Sequence) -> int:
        """Whether each is there."""

    def submit_delete(self, keys: Sequence, namespaces: Sequence) -> int:
        """True: it was there; False: there was none."""

    def drain(self) -> list[tuple[int, list[bool | Error]]]:
        """
        (number, outcome of each key) of batches that are over, oldest first; never blocks. An
        outcome is True, False, or the exception that says why it is neither.
        """

    def close(self) -> None:
        """
        Does what was submitted, and ends the threads; blocks for so long. Submitting raises
        InvalidState then. Idempotent. The file descriptor goes with the object.
        """
