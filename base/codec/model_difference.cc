// SPDX-License-Identifier: Apache-2.0
//
// Where two descriptions of a model differ, and the settings that only one of them has.
#include "base/core/check.h"
#include "base/core/text.h"
#include "cairn/model.h"

namespace cairn {

namespace {

std::string Versus(const std::string& field, uint64_t ours, uint64_t theirs) {
  return field + " is " + std::to_string(ours) + ", not " + std::to_string(theirs);
}

std::string Versus(const std::string& field, const std::string& ours, const std::string& theirs) {
  return field + " is " + Quoted(ours) + ", not " + Quoted(theirs);
}

// Fields that can be unset; 0 means unset.
template <typename T>
bool BothSay(T a, T b) {
  return a != T{} && b != T{};
}

template <typename T>
bool Take(T* ours, const T& theirs) {
  if (*ours != T{} || theirs == T{}) return false;
  *ours = theirs;
  return true;
}

// kUnset can mean one thing only: not applied.
bool StatesAgree(RotaryState a, RotaryState b) {
  if (a == b) return true;
  if (BothSay(a, b)) return false;
  return a != RotaryState::kApplied && b != RotaryState::kApplied;
}

std::string RotaryDifference(const RotarySpec& a, const RotarySpec& b, const std::string& where) {
  if (!StatesAgree(a.state, b.state)) {
    return Versus(where + ".state", RotaryStateName(a.state), RotaryStateName(b.state));
  }
  if (BothSay(a.pairing, b.pairing) && a.pairing != b.pairing) {
    return Versus(where + ".pairing", RotaryPairingName(a.pairing), RotaryPairingName(b.pairing));
  }
  if (BothSay(a.width, b.width)) {
    if (a.width != b.width) return Versus(where + ".width", a.width, b.width);
    if (a.first != b.first) return Versus(where + ".first", a.first, b.first);
  }
  if (!a.sections.empty() && !b.sections.empty()) {
    if (a.sections != b.sections) return where + ".sections differs";
    if (a.interleaved != b.interleaved) {
      return Versus(where + ".interleaved", a.interleaved, b.interleaved);
    }
  }
  return {};
}

bool TakeRotary(RotarySpec* ours, const RotarySpec& theirs) {
  bool took = Take(&ours->state, theirs.state);
  took |= Take(&ours->pairing, theirs.pairing);
  if (Take(&ours->width, theirs.width)) {
    ours->first = theirs.first;
    took = true;
  }
  if (Take(&ours->sections, theirs.sections)) {
    ours->interleaved = theirs.interleaved;
    took = true;
  }
  return took;
}

std::string PlaneDifference(const Plane& a, const Plane& b, const std::string& where) {
  if (a.name != b.name) return Versus(where + ".name", a.name, b.name);
  if (a.role != b.role) {
    return Versus(where + ".role", static_cast<uint64_t>(a.role), static_cast<uint64_t>(b.role));
  }
  if (a.heads != b.heads) return Versus(where + ".heads", a.heads, b.heads);
  if (a.row_bytes != b.row_bytes) return Versus(where + ".row_bytes", a.row_bytes, b.row_bytes);
  if (a.dtype != b.dtype) return Versus(where + ".dtype", DtypeName(a.dtype), DtypeName(b.dtype));
  std::string rotary = RotaryDifference(a.rotary, b.rotary, where + ".rotary");
  if (!rotary.empty()) return rotary;
  if (a.sealed_as != b.sealed_as) {
    return Versus(where + ".sealed_as", SealedAsName(a.sealed_as), SealedAsName(b.sealed_as));
  }
  if (BothSay(a.state_parts, b.state_parts) && a.state_parts != b.state_parts) {
    return Versus(where + ".state_parts", a.state_parts, b.state_parts);
  }
  return {};
}

// `mscale` counts as said with the frequencies.
std::string AnglesDifference(const LayerGroup& a, const LayerGroup& b, const std::string& where) {
  if (a.inv_freq.empty() || b.inv_freq.empty()) return {};
  if (a.inv_freq != b.inv_freq) return where + ".inv_freq differs";
  if (a.mscale != b.mscale) return where + ".mscale differs";
  return {};
}

bool TakeAngles(LayerGroup* ours, const LayerGroup& theirs) {
  if (!Take(&ours->inv_freq, theirs.inv_freq)) return false;
  ours->mscale = theirs.mscale;
  return true;
}

std::string GroupDifference(const LayerGroup& a, const LayerGroup& b, const std::string& where) {
  if (a.name != b.name) return Versus(where + ".name", a.name, b.name);
  if (a.layers != b.layers) return Versus(where + ".layers", a.layers, b.layers);
  if (a.planes.size() != b.planes.size()) {
    return Versus(where + ".planes.size", a.planes.size(), b.planes.size());
  }
  for (size_t i = 0; i < a.planes.size(); ++i) {
    std::string difference =
        PlaneDifference(a.planes[i], b.planes[i], where + ".planes[" + std::to_string(i) + "]");
    if (!difference.empty()) return difference;
  }
  if (a.retention != b.retention) return where + ".retention differs";
  if (a.packing != b.packing) return Versus(where + ".packing", a.packing, b.packing);
  if (a.optional != b.optional) return Versus(where + ".optional", a.optional, b.optional);
  return AnglesDifference(a, b, where);
}

std::string IdentityDifference(const ModelIdentity& a, const ModelIdentity& b) {
  if (a.name != b.name) return Versus("identity.name", a.name, b.name);
  if (a.revision != b.revision) return Versus("identity.revision", a.revision, b.revision);
  if (a.weights_digest != b.weights_digest) {
    return Versus("identity.weights_digest", a.weights_digest, b.weights_digest);
  }
  if (a.tokenizer_digest != b.tokenizer_digest) {
    return Versus("identity.tokenizer_digest", a.tokenizer_digest, b.tokenizer_digest);
  }
  if (a.quantization != b.quantization) {
    return Versus("identity.quantization", a.quantization, b.quantization);
  }
  if (a.cache_dtype != b.cache_dtype) {
    return Versus("identity.cache_dtype", a.cache_dtype, b.cache_dtype);
  }
  return {};
}

std::string LogicalDifference(const std::vector<LogicalGroup>& a,
                              const std::vector<LogicalGroup>& b) {
  if (a.size() != b.size()) return Versus("logical.size", a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const std::string where = "logical[" + std::to_string(i) + "]";
    if (a[i].name != b[i].name) return Versus(where + ".name", a[i].name, b[i].name);
    const struct {
      const char* field;
      uint64_t ours, theirs;
    } numbers[] = {{".layers", a[i].layers, b[i].layers},
                   {".heads", a[i].heads, b[i].heads},
                   {".layer_begin", a[i].layer_begin, b[i].layer_begin},
                   {".layer_end", a[i].layer_end, b[i].layer_end},
                   {".head_begin", a[i].head_begin, b[i].head_begin},
                   {".head_end", a[i].head_end, b[i].head_end},
                   {".replicated", a[i].replicated, b[i].replicated}};
    for (const auto& number : numbers) {
      if (number.ours != number.theirs) {
        return Versus(where + number.field, number.ours, number.theirs);
      }
    }
  }
  return {};
}

}  // namespace

std::string ModelSpec::FirstDifference(const ModelSpec& other) const {
  std::string difference = IdentityDifference(identity, other.identity);
  if (!difference.empty()) return difference;
  if (variant.name != other.variant.name) {
    return Versus("variant.name", variant.name, other.variant.name);
  }
  if (variant.digest != other.variant.digest) {
    return Versus("variant.digest", variant.digest, other.variant.digest);
  }
  if (variant.scale != other.variant.scale) return "variant.scale differs";
  if (shard != other.shard) return "shard differs";
  if (groups.size() != other.groups.size()) {
    return Versus("groups.size", groups.size(), other.groups.size());
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    difference = GroupDifference(groups[i], other.groups[i], "groups[" + std::to_string(i) + "]");
    if (!difference.empty()) return difference;
  }
  if (extent_tokens != other.extent_tokens) {
    return Versus("extent_tokens", extent_tokens, other.extent_tokens);
  }
  return logical.empty() || other.logical.empty() ? std::string()
                                                  : LogicalDifference(logical, other.logical);
}

bool ModelSpec::TakeUnset(const ModelSpec& other) {
  CAIRN_CHECK(FirstDifference(other).empty());
  bool took = Take(&logical, other.logical);
  for (size_t i = 0; i < groups.size(); ++i) {
    took |= TakeAngles(&groups[i], other.groups[i]);
    for (size_t j = 0; j < groups[i].planes.size(); ++j) {
      Plane& plane = groups[i].planes[j];
      const Plane& said = other.groups[i].planes[j];
      took |= TakeRotary(&plane.rotary, said.rotary);
      took |= Take(&plane.state_parts, said.state_parts);
    }
  }
  return took;
}

}  // namespace cairn
