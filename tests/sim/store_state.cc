// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/store_state.h"

#include <algorithm>
#include <cstring>

#include "base/core/check.h"
#include "tests/model/reference_model.h"

namespace cairn::sim {
namespace {

constexpr std::byte kBlank{0xEE};

}  // namespace

ModelSpec TinyModel() {
  ModelSpec model;
  model.identity.name = "tiny";
  model.groups = {LayerGroup::FullAttention(2, 2, 16, Dtype::kBf16)};
  return model;
}

ModelSpec MixedModel() {
  ModelSpec model;
  model.identity.name = "mixed";
  model.groups = {LayerGroup::FullAttention(1, 1, 8, Dtype::kBf16),
                  LayerGroup::SlidingWindow(1, 1, 4, Dtype::kF32, 6, 2),
                  LayerGroup::Recurrent(1, 24)};
  return model;
}

KvMemory::KvMemory(const ModelSpec& model, uint64_t position, uint64_t count)
    : KvMemory(model, std::vector<Range>(model.groups.size(), {position, count})) {}

KvMemory::KvMemory(const ModelSpec& model, std::vector<Range> ranges)
    : model_(model), ranges_(std::move(ranges)) {
  uint64_t bytes = 0;
  for (size_t g = 0; g < ranges_.size(); ++g) {
    bytes += model_.groups[g].token_bytes() * ranges_[g].count;
  }
  bytes_.resize(bytes, kBlank);
  bases_.resize(ranges_.size());
  planes_.resize(ranges_.size());
  std::byte* at = bytes_.data();
  for (size_t g = 0; g < ranges_.size(); ++g) {
    const LayerGroup& group = model_.groups[g];
    bases_[g].resize(group.planes.size());
    for (uint32_t layer = 0; layer < group.layers; ++layer) {
      for (size_t plane = 0; plane < group.planes.size(); ++plane) {
        bases_[g][plane].push_back(at);
        at += ranges_[g].count * group.planes[plane].heads * group.planes[plane].row_bytes;
      }
    }
    for (size_t plane = 0; plane < group.planes.size(); ++plane) {
      const Plane& spec = group.planes[plane];
      planes_[g].push_back({.layer_bases = bases_[g][plane],
                            .block_stride = 0,
                            .token_stride = int64_t{spec.heads} * spec.row_bytes,
                            .head_stride = spec.row_bytes,
                            .element_stride = 0});
    }
    if (ranges_[g].count == 0) continue;
    GroupView view;
    view.group = static_cast<uint32_t>(g);
    view.position = ranges_[g].position;
    view.count = ranges_[g].count;
    view.planes = planes_[g];
    groups_.push_back(view);
  }
  view_.groups = groups_;
}

// The KV at a place: a row of one layer and plane, all heads. Crash tests look at little else, so
// neighbours are found by a sum.
void KvMemory::Expect(TokenId token, uint64_t position, uint32_t group, uint32_t layer,
                      uint32_t plane, std::span<std::byte> row) const {
  constexpr uint32_t kStep = 40503;
  const uint32_t head_bytes = model_.groups[group].planes[plane].row_bytes;
  for (uint32_t head = 0; head * head_bytes < row.size(); ++head) {
    const uint64_t place = position * 1009 + group * 509 + layer * 131 + plane * 31 + head * 7;
    uint64_t value = token * 2654435761u + place * kStep;
    for (std::byte& byte : row.subspan(head * head_bytes, head_bytes)) {
      byte = static_cast<std::byte>(value >> 8);
      value += kStep;
    }
  }
}

// visit(group, position, bytes, expected): a row as it is and as it should be.
template <typename Visit>
void KvMemory::ForEachRow(std::span<const TokenId> tokens, Visit&& visit) const {
  std::vector<std::byte> expected;
  for (uint32_t g = 0; g < ranges_.size(); ++g) {
    const LayerGroup& group = model_.groups[g];
    const auto [first, count] = ranges_[g];
    CAIRN_CHECK(count == 0 || first + count <= tokens.size());
    for (uint32_t layer = 0; layer < group.layers; ++layer) {
      for (uint32_t plane = 0; plane < group.planes.size(); ++plane) {
        const Plane& spec = group.planes[plane];
        expected.resize(size_t{spec.heads} * spec.row_bytes);
        std::byte* at = bases_[g][plane][layer];
        for (uint64_t position = first; position < first + count; ++position) {
          Expect(tokens[position], position, g, layer, plane, expected);
          visit(g, position, std::span(at, expected.size()), expected);
          at += expected.size();
        }
      }
    }
  }
}

void KvMemory::Fill(std::span<const TokenId> tokens) {
  ForEachRow(tokens,
             [](uint32_t, uint64_t, std::span<std::byte> row, std::span<const std::byte> expected) {
               std::copy(expected.begin(), expected.end(), row.begin());
             });
}

bool KvMemory::Matches(std::span<const TokenId> tokens, uint64_t length) const {
  bool all = true;
  ForEachRow(tokens, [&](uint32_t g, uint64_t position, std::span<const std::byte> row,
                         std::span<const std::byte> expected) {
    bool same = std::memcmp(row.data(), expected.data(), row.size()) == 0;
    if (!same && length != UINT64_MAX && !testing::NeedsRow(model_.groups[g], length, position)) {
      same = std::all_of(row.begin(), row.end(), [](std::byte byte) { return byte == kBlank; });
    }
    all &= same;
  });
  return all;
}

void BranchState::Cut(uint64_t length) {
  tokens.resize(length);
  CutKv(std::vector<uint64_t>(kv_lengths.size(), length));
  samplers.erase(samplers.upper_bound(length), samplers.end());
}

void BranchState::CutKv(const std::vector<uint64_t>& kept) {
  for (size_t group = 0; group < kv_lengths.size(); ++group) {
    kv_lengths[group] = std::min(kv_lengths[group], kept[group]);
  }
  if (mixed) rows.erase(rows.lower_bound(kv_lengths[kStateGroup]), rows.end());
}

std::set<uint64_t> BranchState::ReachedRows() const {
  if (!mixed) return {};
  return {rows.begin(), rows.lower_bound(std::min(kv_lengths[0], kv_lengths[1]))};
}

bool BranchState::operator==(const BranchState& other) const {
  return mixed == other.mixed && tokens == other.tokens && kv_lengths == other.kv_lengths &&
         samplers == other.samplers && ReachedRows() == other.ReachedRows();
}

Status WrongContent(const std::string& what, const BranchInfo& info) {
  return Status(StatusCode::kCorruption, kWrongContent + what + " of " + info.ns + "/" + info.name);
}

namespace {

// The KV before, between and behind what was evicted.
Status ReadBesideHoles(const Branch& branch, const BranchInfo& info, const BranchState& state) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<KvHole> holes, branch.EvictedKv());
  if (holes.empty()) return WrongContent("evicted, but nothing is missing", info);
  holes.push_back({0, state.kv_lengths[0], state.kv_lengths[0]});
  uint64_t begin = 0;
  for (const KvHole& hole : holes) {
    if (begin < hole.begin) {
      KvMemory kv(TinyModel(), begin, hole.begin - begin);
      RestoreRequest request{.begin = begin, .end = hole.begin};
      request.into = kv.view();
      CAIRN_ASSIGN_OR_RETURN(const RestoreResult restored, branch.Restore(request));
      if (!kv.Matches(state.tokens) || restored.approximate_bytes != 0)
        return WrongContent("wrong KV bytes beside what was evicted", info);
    }
    begin = hole.end;
  }
  return Status::Ok();
}

Status ReadKv(const Branch& branch, const BranchInfo& info, const BranchState& state) {
  uint64_t length = state.kv_lengths[0];
  RestoreRequest request;
  if (state.mixed) {
    CAIRN_ASSIGN_OR_RETURN(length, branch.RestorableLength());
    request.end = length;
    if (length > state.tokens.size()) return WrongContent("more KV than tokens", info);
  }
  KvMemory kv(state.model(), 0, length);
  request.into = kv.view();
  if (request.into == nullptr) return Status::Ok();
  const auto restored = branch.Restore(request);
  if (restored.status().code() == StatusCode::kEvicted && !state.mixed) {
    return ReadBesideHoles(branch, info, state);
  }
  CAIRN_RETURN_IF_ERROR(restored.status());
  if (restored->approximate_bytes != (state.exact() ? 0 : restored->bytes)) {
    return WrongContent("wrong provenance of the KV", info);
  }
  const bool right = state.mixed ? kv.Matches(state.tokens, length) : kv.Matches(state.tokens);
  return right ? Status::Ok() : WrongContent("wrong KV bytes", info);
}

// Reads those of a model's recurrent states that a restore finds; each was one once.
Status ReadRows(const Branch& branch, BranchState* state) {
  for (uint64_t length = UINT64_MAX;; --length) {
    CAIRN_ASSIGN_OR_RETURN(length, branch.RestorableLength(length));
    if (length == 0) return Status::Ok();
    state->rows.insert(length - 1);
  }
}

}  // namespace

Result<BranchState> ReadBranch(const Branch& branch, const BranchInfo& info) {
  BranchState state;
  state.mixed = info.ns == kMixedNamespace;
  state.kv_lengths = info.kv_lengths;
  state.tokens.resize(info.length);
  RestoreRequest tokens;
  tokens.tokens = state.tokens;
  CAIRN_RETURN_IF_ERROR(branch.Restore(tokens).status());
  CAIRN_RETURN_IF_ERROR(ReadKv(branch, info, state));
  if (state.mixed) CAIRN_RETURN_IF_ERROR(ReadRows(branch, &state));
  for (uint64_t position = info.length;;) {
    const auto at = branch.SamplerAt(position);
    if (at.status().code() == StatusCode::kNotFound) break;
    CAIRN_RETURN_IF_ERROR(at.status());
    state.samplers[at->position] = at->sampler->philox_seed;
    if (at->position == 0) break;
    position = at->position - 1;
  }
  return state;
}

Result<StoreState> ReadStore(const Store& store) {
  StoreState state;
  for (const char* ns : {"", kMixedNamespace}) {
    CAIRN_ASSIGN_OR_RETURN(const BranchPage page, store.ListBranches(ns, "", SIZE_MAX));
    for (const BranchInfo& info : page.branches) {
      CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.GetBranch(info.id));
      CAIRN_ASSIGN_OR_RETURN(BranchState read, ReadBranch(branch, info));
      state.emplace(std::pair(ns, info.name), std::move(read));
    }
  }
  return state;
}

SamplerState MakeSampler(uint64_t philox_seed) {
  SamplerState sampler;
  sampler.generator = GeneratorKind::kPhilox;
  sampler.philox_seed = philox_seed;
  return sampler;
}

}  // namespace cairn::sim
