// SPDX-License-Identifier: Apache-2.0
#include "api/python/src/names.h"

#include <array>
#include <string>

#include "api/python/src/common.h"
#include "base/core/text.h"
#include "cairn/shadow.h"
#include "cairn/sparse.h"

namespace cairn::python {

namespace {

template <typename E>
struct Name {
  const char* word;
  E value;
};

// Word returns the first word of a value; the others are names that engines use.
template <typename E>
constexpr std::array<Name<E>, 0> kNames;

template <>
constexpr auto kNames<Durability> = std::to_array<Name<Durability>>({
    {"memory", Durability::kMemory},
    {"process", Durability::kProcess},
    {"power", Durability::kPower},
});
template <>
constexpr auto kNames<Overload> = std::to_array<Name<Overload>>({
    {"fail", Overload::kFail},
    {"shed_kv", Overload::kShedKv},
});
template <>
constexpr auto kNames<Dtype> = std::to_array<Name<Dtype>>({
    {"opaque", Dtype::kOpaque},
    {"f32", Dtype::kF32},
    {"f16", Dtype::kF16},
    {"bf16", Dtype::kBf16},
    {"f8e4m3", Dtype::kF8E4M3},
    {"f8e5m2", Dtype::kF8E5M2},
    {"i8", Dtype::kI8},
    {"u8", Dtype::kU8},
    {"float32", Dtype::kF32},
    {"float16", Dtype::kF16},
    {"bfloat16", Dtype::kBf16},
    {"float8_e4m3fn", Dtype::kF8E4M3},
    {"float8_e5m2", Dtype::kF8E5M2},
    {"int8", Dtype::kI8},
    {"uint8", Dtype::kU8},
});
template <>
constexpr auto kNames<PlaneRole> = std::to_array<Name<PlaneRole>>({
    {"key", PlaneRole::kKey},
    {"value", PlaneRole::kValue},
    {"latent", PlaneRole::kLatent},
    {"scale", PlaneRole::kScale},
    {"state", PlaneRole::kState},
    {"opaque", PlaneRole::kOpaque},
});
template <>
constexpr auto kNames<SealedAs> = std::to_array<Name<SealedAs>>({
    {"lossless", SealedAs::kLossless},
    {"int8", SealedAs::kInt8},
});
template <>
constexpr auto kNames<RotaryState> = std::to_array<Name<RotaryState>>({
    {"unset", RotaryState::kUnset},
    {"none", RotaryState::kNone},
    {"applied", RotaryState::kApplied},
    {"before", RotaryState::kBefore},
});
template <>
constexpr auto kNames<RotaryPairing> = std::to_array<Name<RotaryPairing>>({
    {"unset", RotaryPairing::kUnset},
    {"halves", RotaryPairing::kHalves},
    {"adjacent", RotaryPairing::kAdjacent},
});
template <>
constexpr auto kNames<Retention> = std::to_array<Name<Retention>>({
    {"all", Retention::kAll},
    {"window", Retention::kWindow},
    {"chunk_local", Retention::kChunkLocal},
    {"checkpoint", Retention::kCheckpoint},
    {"per_request", Retention::kPerRequest},
});
template <>
constexpr auto kNames<GeneratorKind> = std::to_array<Name<GeneratorKind>>({
    {"none", GeneratorKind::kNone},
    {"philox", GeneratorKind::kPhilox},
    {"mt19937", GeneratorKind::kMt19937},
    {"named", GeneratorKind::kNamed},
});
template <>
constexpr auto kNames<Evict> = std::to_array<Name<Evict>>({
    {"never", Evict::kNever},
    {"kv", Evict::kKv},
    {"branches", Evict::kBranches},
});
template <>
constexpr auto kNames<Persist> = std::to_array<Name<Persist>>({
    {"always", Persist::kAlways},
    {"turn_end", Persist::kTurnEnd},
    {"reused", Persist::kReused},
    {"tokens_only", Persist::kTokensOnly},
});
template <>
constexpr auto kNames<Index> = std::to_array<Name<Index>>({
    {"prefix", Index::kPrefix},
    {"none", Index::kNone},
    {"chunks", Index::kChunks},
});
template <>
constexpr auto kNames<Backend> = std::to_array<Name<Backend>>({
    {"auto", Backend::kAuto},
    {"uring", Backend::kUring},
    {"threads", Backend::kThreads},
});
template <>
constexpr auto kNames<Recovery> = std::to_array<Name<Recovery>>({
    {"refuse", Recovery::kRefuse},
    {"set_aside", Recovery::kSetAside},
});
template <>
constexpr auto kNames<FatalAction> = std::to_array<Name<FatalAction>>({
    {"poison", FatalAction::kPoison},
    {"abort", FatalAction::kAbort},
});
template <>
constexpr auto kNames<VerifyLevel> = std::to_array<Name<VerifyLevel>>({
    {"headers", VerifyLevel::kHeaders},
    {"index", VerifyLevel::kIndex},
    {"all", VerifyLevel::kAll},
});
template <>
constexpr auto kNames<IfPresent> = std::to_array<Name<IfPresent>>({
    {"keep", IfPresent::kKeep},
    {"replace", IfPresent::kReplace},
});
template <>
constexpr auto kNames<SparseMode> = std::to_array<Name<SparseMode>>({
    {"strict", SparseMode::kStrict},
    {"relaxed", SparseMode::kRelaxed},
});
template <>
constexpr auto kNames<ShadowKeys> = std::to_array<Name<ShadowKeys>>({
    {"exact", ShadowKeys::kExact},
    {"int8", ShadowKeys::kInt8},
    {"int4", ShadowKeys::kInt4},
    {"low_rank", ShadowKeys::kLowRank},
});
template <>
constexpr auto kNames<LayerState> = std::to_array<Name<LayerState>>({
    {"pending", kLayerPending},
    {"enqueued", kLayerEnqueued},
    {"complete", kLayerComplete},
    {"failed", kLayerFailed},
});

}  // namespace

template <typename E>
E Parse(std::string_view word, std::string_view field) {
  // str() of a torch.dtype begins with this.
  if (word.starts_with("torch.")) word.remove_prefix(6);
  std::string known;
  for (const auto& name : kNames<E>) {
    if (word == name.word) return name.value;
    known += (known.empty() ? "" : ", ") + std::string(name.word);
  }
  BadArgument(std::string(field) + ": " + Quoted(word) + " is none of " + known);
}

template <typename E>
const char* Word(E value) {
  for (const auto& name : kNames<E>) {
    if (name.value == value) return name.word;
  }
  return "unknown";
}

#define CAIRN_PYTHON_NAMES(E)                                         \
  template E Parse<E>(std::string_view word, std::string_view field); \
  template const char* Word<E>(E value);
CAIRN_PYTHON_NAMES(Durability)
CAIRN_PYTHON_NAMES(Overload)
CAIRN_PYTHON_NAMES(Dtype)
CAIRN_PYTHON_NAMES(PlaneRole)
CAIRN_PYTHON_NAMES(SealedAs)
CAIRN_PYTHON_NAMES(RotaryState)
CAIRN_PYTHON_NAMES(RotaryPairing)
CAIRN_PYTHON_NAMES(Retention)
CAIRN_PYTHON_NAMES(GeneratorKind)
CAIRN_PYTHON_NAMES(Evict)
CAIRN_PYTHON_NAMES(Persist)
CAIRN_PYTHON_NAMES(Index)
CAIRN_PYTHON_NAMES(Backend)
CAIRN_PYTHON_NAMES(FatalAction)
CAIRN_PYTHON_NAMES(Recovery)
CAIRN_PYTHON_NAMES(VerifyLevel)
CAIRN_PYTHON_NAMES(IfPresent)
CAIRN_PYTHON_NAMES(LayerState)
CAIRN_PYTHON_NAMES(SparseMode)
CAIRN_PYTHON_NAMES(ShadowKeys)
#undef CAIRN_PYTHON_NAMES

}  // namespace cairn::python
