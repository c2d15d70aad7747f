// SPDX-License-Identifier: Apache-2.0
//
// Store::PlanBlend finds KV for a prompt at any position of it: its prefix, and runs of its ids
// that stand elsewhere in some branch, behind other tokens. KV of such a run is approximate: it was
// computed without what stands before it in this prompt. So a few tokens are computed again where
// that shows most (J. Yao et al., CacheBlend, EuroSys 2025; J. Hu et al., EPIC, 2024). A plan says
// which tokens, and the engine does it, from left to right:
//
//   auto plan = store.PlanBlend({.model = model, .tokens = prompt, .ns = "documents"});
//   for (const BlendStep& step : plan->steps) {
//     const RestoreRequest part = {.begin = step.begin, .end = step.end, .into = &view};
//     // The cache holds [0, step.begin): the engine's own causal attention is right as it is.
//     if (!step.loads || !store.Restore(*plan, part).ok()) engine.Forward(step.begin, step.end);
//   }
//
// docs/blend.md goes from a prompt to a plan, and says what blending cannot do. The calls, with
// what they cost and how they fail, are in cairn/store.h.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cairn/branch_types.h"
#include "cairn/find.h"
#include "cairn/status.h"

namespace [[gnu::visibility("default")]] cairn {

// Sequences of BlendOptions::separators at most.
inline constexpr size_t kMaxSeparators = 64;
// Ids of one of them at most.
inline constexpr size_t kMaxSeparatorTokens = 64;
// Pieces of BlendOptions::sources at most.
inline constexpr size_t kMaxBlendSources = 65'536;
// BlendOptions::min_tokens at least: a run of fewer equal ids is not looked for.
inline constexpr uint32_t kMinBlendTokens = 32;

// Positions [begin, end) of a prompt.
struct PromptRange {
  uint64_t begin = 0, end = 0;
  bool operator==(const PromptRange&) const = default;
};

// A piece that the caller knows: positions [begin, end) of the branch stand from `at` on in the
// prompt.
struct BlendSource {
  BranchId branch{};
  uint64_t begin = 0, end = 0;
  uint64_t at = 0;
  bool operator==(const BlendSource&) const = default;
};

// What is reused, and what of it is computed again. Tokens are counted, unless it is said
// otherwise. Of what is exact only the last token and `recompute` are computed again.
struct BlendOptions {
  // Shorter segments are computed; from kMinBlendTokens on. A prefix is exact, and taken at any
  // length.
  uint32_t min_tokens = 64;
  // Sequences of ids that stand between documents. They are computed, and so is everything behind
  // the last one: the question. The same text may be several sequences, by what stands before it.
  std::vector<std::vector<TokenId>> separators{};
  // Computed behind each seam: the greater one of `recompute_first` and this share, in [0, 1], of
  // the segment that begins there.
  uint32_t recompute_first = 16;
  double recompute_ratio = 0.0;
  // Computed before each seam, and on each side of ids that differ.
  uint32_t recompute_boundary = 2;
  // A segment may hold ids that differ while of each `chunk_tokens` in a row this share, in (0, 1],
  // is equal. 1: none differs.
  uint32_t chunk_tokens = 64;
  double min_match_ratio = 0.8;
  // Off: keys stay as they are stored, with the positions that they had. Only to measure what that
  // costs.
  bool position_correction = true;
  // What the caller takes the model's keys for: the base of its rotation, and elements of a head.
  // 0: not said. Compared with the model's description, and never used.
  double rope_theta = 0.0;
  uint32_t head_dim = 0;
  // Computed as well, in order, none overlapping.
  std::vector<PromptRange> recompute{};
  // Where a run of computed tokens ends before the prompt does, its end is a multiple of this: an
  // engine's block.
  uint32_t align_tokens = 1;
  // Not empty: these pieces are used, and nothing is searched. In order of `at`, none overlapping.
  std::vector<BlendSource> sources{};
  bool operator==(const BlendOptions&) const = default;

  // The documented defaults of LMCache's blending: 256 tokens at least, 0.15 of each segment.
  static BlendOptions Lmcache();
  // Those of UCM's: `rope_theta` 10000 and `head_dim` 128, which are compared with the model.
  static BlendOptions Ucm();
};

// Sets an option by its name above, or by the one that it has in LMCache or in UCM, also in
// capitals behind LMCACHE_: "recompute_ratio", "blend_recompute_ratio" and
// "LMCACHE_BLEND_RECOMPUTE_RATIO" are the same. Values:
//   numbers        "64", "0.15"
//   switches       "on", "off", "true", "false", "1", "0"
//   separators     ids, sequences apart by semicolons: "12,13;14"
//   recompute      ranges: "100-116,200-216"
//   sources        branch:begin-end@at, apart by commas: "7:0-512@64"
// kInvalidArgument, and nothing is set: no such option, one of adapters alone ("enable_blending",
// and "blend_special_str", a text that only a tokenizer makes ids of), or another kind of value.
// Ranges of numbers are checked by PlanBlend. Pure: takes no lock. May throw std::bad_alloc.
Status SetBlendOption(BlendOptions* options, std::string_view name, std::string_view value);

enum class BlendMatch : uint8_t {
  kNone = 0,     // Found nowhere.
  kPrefix = 1,   // The same ids from position 0 on, exact.
  kFull = 2,     // All ids are equal, elsewhere or behind other tokens.
  kPartial = 3,  // Most ids are equal.
};
// "none", "prefix", "full", "partial"; "unknown" for another value. The text is static.
const char* BlendMatchName(BlendMatch match);

// Positions [begin, end) of the prompt, and where their KV is: from position `source` on of the
// path that ends with the node. Unless it is kNone.
struct BlendSegment {
  uint64_t begin = 0, end = 0;
  BlendMatch match = BlendMatch::kNone;
  NodeId node{};
  uint64_t source = 0;
  // The hash of the ids and spans there. Not for callers.
  uint64_t digest[2] = {0, 0};
  int64_t shift() const { return static_cast<int64_t>(begin - source); }
};

struct BlendStep {
  bool loads = false;  // Else it computes.
  uint64_t begin = 0, end = 0;
  bool operator==(const BlendStep&) const = default;
};

// A plain value, which may be kept, copied and used from any thread. Only its lease holds content.
struct BlendPlan {
  ModelId model{};
  uint64_t tokens = 0;                   // The prompt's length.
  std::vector<BlendSegment> segments{};  // In order; they cover the prompt.
  std::vector<BlendStep> steps{};        // The same. A step that computes is last.
  // Nothing before this position is approximate.
  uint64_t exact = 0;
  uint64_t load_tokens = 0, compute_tokens = 0;
  uint64_t load_bytes = 0;  // Raw KV of what is loaded, in all groups.
  // As PrefixHit::complete: everything that was appended before the call was looked at. What others
  // took away during the call makes it off as well.
  bool complete = true;
  // Some keys come to other positions, and the model's description was compared with keys that are
  // stored. Off: nothing is shifted, or there was nothing to compare.
  bool positions_checked = false;
  bool position_correction = true;  // As in the options.
  // As PrefixHit::lease, of everything that is loaded.
  LeaseId lease{};

  // How Restore knows that it is still true. Not for callers.
  struct Seen {
    uint64_t store = 0, opening = 0, generation = 0, changes = 0;
    uint64_t lease_node = 0, lease_position = 0;  // The first part of the lease.
  } seen{};
};

}  // namespace cairn
