// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/history.h"

#include <algorithm>

#include "base/core/check.h"
#include "tests/model/reference_model.h"

namespace cairn::crash {
namespace {

constexpr std::byte kBlank{0xEE};
constexpr size_t kStates = 2;  // The group of MixedModel with a state here and there.
constexpr const char* kMixedNamespace = "m";

SamplerState Sampler(uint64_t philox_seed) {
  SamplerState sampler;
  sampler.generator = GeneratorKind::kPhilox;
  sampler.philox_seed = philox_seed;
  return sampler;
}

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

std::byte KvByte(TokenId token, uint64_t position, uint32_t group, uint32_t layer, uint32_t plane,
                 uint32_t head, uint32_t byte) {
  const uint64_t place = position * 1009 + group * 509 + layer * 131 + plane * 31 + head * 7 + byte;
  return static_cast<std::byte>((token * 2654435761u + place * 40503u) >> 8);
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

// visit(group, position, bytes, byte_at): a row of one layer and plane, all heads.
template <typename Visit>
void KvMemory::ForEachRow(std::span<const TokenId> tokens, Visit&& visit) const {
  for (uint32_t g = 0; g < ranges_.size(); ++g) {
    const LayerGroup& group = model_.groups[g];
    const auto [first, count] = ranges_[g];
    CAIRN_CHECK(count == 0 || first + count <= tokens.size());
    for (uint32_t layer = 0; layer < group.layers; ++layer) {
      for (uint32_t plane = 0; plane < group.planes.size(); ++plane) {
        const Plane& spec = group.planes[plane];
        const uint32_t row_bytes = spec.heads * spec.row_bytes;
        std::byte* at = bases_[g][plane][layer];
        for (uint64_t position = first; position < first + count; ++position, at += row_bytes) {
          visit(g, position, std::span(at, row_bytes), [&](uint32_t i) {
            return KvByte(tokens[position], position, g, layer, plane, i / spec.row_bytes,
                          i % spec.row_bytes);
          });
        }
      }
    }
  }
}

void KvMemory::Fill(std::span<const TokenId> tokens) {
  ForEachRow(tokens, [](uint32_t, uint64_t, std::span<std::byte> row, auto&& byte_at) {
    for (uint32_t i = 0; i < row.size(); ++i) row[i] = byte_at(i);
  });
}

bool KvMemory::Matches(std::span<const TokenId> tokens, uint64_t length) const {
  bool all = true;
  ForEachRow(tokens, [&](uint32_t g, uint64_t position, std::span<std::byte> row, auto&& byte_at) {
    bool same = true;
    for (uint32_t i = 0; i < row.size(); ++i) same &= row[i] == byte_at(i);
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
  if (mixed) rows.erase(rows.lower_bound(kv_lengths[kStates]), rows.end());
}

std::set<uint64_t> BranchState::ReachedRows() const {
  if (!mixed) return {};
  return {rows.begin(), rows.lower_bound(std::min(kv_lengths[0], kv_lengths[1]))};
}

bool BranchState::operator==(const BranchState& other) const {
  return mixed == other.mixed && tokens == other.tokens && kv_lengths == other.kv_lengths &&
         samplers == other.samplers && ReachedRows() == other.ReachedRows();
}

namespace {

Status Wrong(const std::string& what, const BranchInfo& info) {
  return Status(StatusCode::kCorruption, kWrongContent + what + " of " + info.ns + "/" + info.name);
}

// The KV before, between and behind what was evicted.
Status ReadBesideHoles(const Branch& branch, const BranchInfo& info, const BranchState& state) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<KvHole> holes, branch.EvictedKv());
  if (holes.empty()) return Wrong("evicted, but nothing is missing", info);
  holes.push_back({0, state.kv_lengths[0], state.kv_lengths[0]});
  uint64_t begin = 0;
  for (const KvHole& hole : holes) {
    if (begin < hole.begin) {
      KvMemory kv(TinyModel(), begin, hole.begin - begin);
      RestoreRequest request{.begin = begin, .end = hole.begin};
      request.into = kv.view();
      CAIRN_RETURN_IF_ERROR(branch.Restore(request).status());
      if (!kv.Matches(state.tokens)) return Wrong("wrong KV bytes beside what was evicted", info);
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
  }
  KvMemory kv(state.model(), 0, length);
  request.into = kv.view();
  if (request.into == nullptr) return Status::Ok();
  const Status restored = branch.Restore(request).status();
  if (restored.code() == StatusCode::kEvicted && !state.mixed) {
    return ReadBesideHoles(branch, info, state);
  }
  CAIRN_RETURN_IF_ERROR(restored);
  const bool right = state.mixed ? kv.Matches(state.tokens, length) : kv.Matches(state.tokens);
  return right ? Status::Ok() : Wrong("wrong KV bytes", info);
}

// Of a model's recurrent states those that a restore finds; each was one once.
Status ReadRows(const Branch& branch, BranchState* state) {
  for (uint64_t length = UINT64_MAX;; --length) {
    CAIRN_ASSIGN_OR_RETURN(length, branch.RestorableLength(length));
    if (length == 0) return Status::Ok();
    state->rows.insert(length - 1);
  }
}

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

}  // namespace

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

void History::Start(StoreState next) { states_.push_back(std::move(next)); }

History::Name History::Pick(const StoreState& state) {
  auto it = state.begin();
  std::advance(it, static_cast<ptrdiff_t>(Below(state.size())));
  return it->first;
}

Durability History::Level() { return static_cast<Durability>(Below(3)); }

bool History::Has(const StoreState& state, size_t first, size_t last) const {
  for (size_t i = first; i <= std::min(last, started()); ++i) {
    if (states_[i] == state) return true;
  }
  return false;
}

Status History::Step(Store& store) {
  StoreState next = states_.back();
  if (next.empty()) return Begin(store);
  const uint64_t dice = Below(100);
  if (dice < 36) return Append(store, &next);
  if (dice < 44) return AppendJoined(store, &next);
  if (dice < 50) return CommitDraft(store, &next);
  if (dice < 61) return ForkOne(store, &next);
  if (dice < 72) return RewindOne(store, &next);
  if (dice < 79) return DropOne(store, &next);
  if (dice < 82) return RenameOne(store, &next);
  if (dice < 86) return store.Compact();
  if (dice < 88) return MakeCopy(store);
  if (dice < 90) {
    CAIRN_RETURN_IF_ERROR(store.Flush());
    AcknowledgeAll();
    return Status::Ok();
  }
  if (dice < 94) return FillOne(store, next);
  return WriteTwo(store, &next);
}

// The models, and a branch of either.
Status History::Begin(Store& store) {
  for (const bool mixed : {false, true}) {
    StoreState next = states_.back();
    const Name name{mixed ? kMixedNamespace : "", NewName()};
    BranchState& state = next[name];
    state.mixed = mixed;
    state.kv_lengths.resize(state.model().groups.size());
    Start(next);
    CAIRN_ASSIGN_OR_RETURN(const ModelId model,
                           store.RegisterModel(state.model(), Durability::kMemory));
    // So that KV is evicted now and then: a few hundred positions fit.
    CAIRN_RETURN_IF_ERROR(
        store.SetNamespace("", {.max_bytes = 60'000, .evict = Evict::kKv}, Durability::kMemory));
    CAIRN_RETURN_IF_ERROR(
        store.CreateBranch(model, {.name = name.second, .ns = name.first, .durability = Level()})
            .status());
  }
  return Status::Ok();
}

KvMemory History::Grow(BranchState* state, uint64_t count, bool samples) {
  for (uint64_t i = 0; i < count; ++i) {
    state->tokens.push_back(static_cast<TokenId>(Below(50000)));
  }
  const uint64_t end = state->tokens.size() - Below(2);  // A sampled token has no KV yet.
  std::vector<KvMemory::Range> ranges;
  for (size_t group = 0; group < state->kv_lengths.size(); ++group) {
    uint64_t begin = state->kv_lengths[group];
    if (group == kStates && begin < end) begin = end - 1;
    ranges.push_back({begin, begin < end ? end - begin : 0});
    if (group == kStates && begin < end) state->rows.insert(begin);
    state->kv_lengths[group] = std::max(state->kv_lengths[group], end);
  }
  if (samples) state->samplers[state->tokens.size()] = random_();
  KvMemory kv(state->model(), std::move(ranges));
  kv.Fill(state->tokens);
  return kv;
}

Status History::Append(Store& store, StoreState* next) {
  const Name name = Pick(*next);
  BranchState& state = (*next)[name];
  const uint64_t count = 1 + Below(Below(8) == 0 ? 200 : 6);
  const bool samples = Below(4) == 0;
  const KvMemory kv = Grow(&state, count, samples);
  const auto tokens = std::span(state.tokens).last(count);
  const SamplerState sampler = Sampler(samples ? state.samplers.rbegin()->second : 0);
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name.second, name.first));
  const Status appended =
      branch
          .AppendSync({.tokens = tokens, .kv = kv.view(), .sampler = samples ? &sampler : nullptr},
                      {.durability = level})
          .status();
  if (appended.code() == StatusCode::kNoSpace) {  // Its branch alone fills the namespace.
    states_.pop_back();
    return Status::Ok();
  }
  CAIRN_RETURN_IF_ERROR(appended);
  Acknowledge(level);
  return Status::Ok();
}

// Several of one token each, not waited for one by one: the store may make one record of them.
Status History::AppendJoined(Store& store, StoreState* next) {
  const Name name = Pick(*next);
  BranchState& state = (*next)[name];
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name.second, name.first));
  std::vector<Ticket> tickets;
  for (uint64_t count = 2 + Below(5); count > 0; --count) {
    const KvMemory kv = Grow(&state, 1, false);
    Start(*next);
    auto ticket = branch.Append({.tokens = std::span(state.tokens).last(1), .kv = kv.view()},
                                {.durability = level});
    const StatusCode code = ticket.status().code();
    if (code == StatusCode::kNoSpace || code == StatusCode::kBusy) {
      states_.pop_back();
      break;
    }
    CAIRN_RETURN_IF_ERROR(ticket.status());
    tickets.push_back(std::move(*ticket));
  }
  for (Ticket& ticket : tickets) CAIRN_RETURN_IF_ERROR(ticket.Wait());
  if (!tickets.empty()) Acknowledge(level);
  return Status::Ok();
}

// Staged layer by layer; of what was staged some is appended.
Status History::CommitDraft(Store& store, StoreState* next) {
  const Name name = Pick(*next);
  BranchState& state = (*next)[name];
  if (state.mixed || state.kv_lengths[0] != state.tokens.size()) return Append(store, next);
  const uint64_t begin = state.tokens.size(), staged = 1 + Below(8), taken = 1 + Below(staged);
  for (uint64_t i = 0; i < staged; ++i) {
    state.tokens.push_back(static_cast<TokenId>(Below(50000)));
  }
  const ModelSpec model = TinyModel();
  KvMemory kv(model, begin, staged);
  kv.Fill(state.tokens);
  state.tokens.resize(begin + taken);
  state.kv_lengths[0] = begin + taken;
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name.second, name.first));
  CAIRN_ASSIGN_OR_RETURN(Draft draft, branch.BeginAppend(staged));
  for (uint32_t layer = 0; layer < model.groups[0].layers; ++layer) {
    GroupView group = kv.view()->groups[0];
    std::vector<PlaneView> planes(group.planes.begin(), group.planes.end());
    for (PlaneView& plane : planes) plane.layer_bases = plane.layer_bases.subspan(layer, 1);
    group.planes = planes;
    CAIRN_RETURN_IF_ERROR(draft.Put(layer, group));
  }
  auto ticket =
      draft.Commit({.tokens = std::span(state.tokens).subspan(begin)}, {.durability = level});
  Status committed = ticket.status();
  if (committed.ok()) committed = ticket->Wait();
  if (committed.code() == StatusCode::kNoSpace || committed.code() == StatusCode::kBusy) {
    states_.pop_back();
    return Status::Ok();
  }
  CAIRN_RETURN_IF_ERROR(committed);
  Acknowledge(level);
  return Status::Ok();
}

Status History::ForkOne(Store& store, StoreState* next) {
  if (next->size() > 6) return DropOne(store, next);
  const Name from = Pick(*next);
  const Name name{from.first, NewName()};
  BranchState state = (*next)[from];
  const uint64_t position = Below(state.tokens.size() + 1);
  state.Cut(position);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(from.second, from.first));
  (*next)[name] = state;
  Start(*next);
  CAIRN_ASSIGN_OR_RETURN(
      const Branch child,
      branch.ForkAt(position, {.name = name.second, .ns = name.first, .durability = level}));
  // A child may know KV only as far as the nodes it shares do.
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, child.Info());
  for (size_t group = 0; group < info.kv_lengths.size(); ++group) {
    if (info.kv_lengths[group] > state.kv_lengths[group]) return Wrong("KV from nowhere", info);
  }
  states_.back()[name].CutKv(info.kv_lengths);
  Acknowledge(level);
  return Status::Ok();
}

Status History::RewindOne(Store& store, StoreState* next) {
  const Name name = Pick(*next);
  BranchState& state = (*next)[name];
  const uint64_t length = state.tokens.size() - std::min<uint64_t>(state.tokens.size(), Below(5));
  state.Cut(length);
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name.second, name.first));
  CAIRN_RETURN_IF_ERROR(branch.Rewind(length, level));
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, branch.Info());
  states_.back()[name].CutKv(info.kv_lengths);
  Acknowledge(level);
  return Status::Ok();
}

Status History::RenameOne(Store& store, StoreState* next) {
  const Name from = Pick(*next);
  const Name to{from.first, NewName()};
  auto moved = next->extract(from);
  moved.key() = to;
  next->insert(std::move(moved));
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(from.second, from.first));
  CAIRN_RETURN_IF_ERROR(branch.Rename(to.second, level));
  Acknowledge(level);
  return Status::Ok();
}

// Gives a branch that lost KV all that it has had; of another one nothing is taken.
Status History::FillOne(Store& store, const StoreState& next) {
  Name name = Pick(next);
  for (const auto& [other, state] : next) {
    if (state.mixed) continue;
    CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.FindBranch(other.second, other.first));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<KvHole> holes, branch.EvictedKv());
    if (!holes.empty()) name = other;
  }
  const BranchState& state = next.at(name);
  if (state.mixed || state.kv_lengths[0] == 0) return Status::Ok();
  KvMemory kv(TinyModel(), 0, state.kv_lengths[0]);
  kv.Fill(state.tokens);
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name.second, name.first));
  const Status filled = branch.Fill(*kv.view(), {.durability = Level()});
  return filled.code() == StatusCode::kNoSpace ? Status::Ok() : filled;
}

Status History::DropOne(Store& store, StoreState* next) {
  const Name name = Pick(*next);
  next->erase(name);
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name.second, name.first));
  CAIRN_RETURN_IF_ERROR(branch.Drop(level));
  Acknowledge(level);
  return Status::Ok();
}

// A batch over two branches: both or none.
Status History::WriteTwo(Store& store, StoreState* next) {
  const Name first = Pick(*next);
  const Name name{"", NewName()};
  const std::vector<TokenId> one = {static_cast<TokenId>(Below(50000))};
  const std::vector<TokenId> two = {1, 2, static_cast<TokenId>(Below(50000))};
  auto& tokens = (*next)[first].tokens;
  tokens.insert(tokens.end(), one.begin(), one.end());
  (*next)[name].tokens = two;
  (*next)[name].kv_lengths = {0};
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.FindBranch(first.second, first.first));
  CAIRN_ASSIGN_OR_RETURN(const ModelId model,
                         store.RegisterModel(TinyModel(), Durability::kMemory));
  WriteBatch batch;
  batch.Append(branch, {.tokens = one});
  const int made = batch.Create(model, {.name = name.second, .ns = ""});
  batch.Append(made, {.tokens = two});
  Result<Store::WriteResult> result = store.Write(batch, {.durability = level});
  while (!result.ok() && result.status().code() == StatusCode::kBusy) {
    // Write never waits. A rename to the same name does, and changes nothing.
    CAIRN_RETURN_IF_ERROR(Branch(branch).Rename(first.second, Durability::kProcess));
    result = store.Write(batch, {.durability = level});
  }
  CAIRN_RETURN_IF_ERROR(result.status());
  CAIRN_RETURN_IF_ERROR(result->ticket.Wait());
  Acknowledge(level);
  return Status::Ok();
}

Status History::MakeCopy(Store& store) {
  copy_ = Copy{.path = "copy-" + NewName(), .state = started(), .done = false};
  CAIRN_RETURN_IF_ERROR(store.Checkpoint(copy_->path).status());
  copy_->done = true;
  return Status::Ok();
}

}  // namespace cairn::crash
