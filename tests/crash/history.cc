// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/history.h"

#include "base/core/check.h"

namespace cairn::crash {

ModelSpec TinyModel() {
  ModelSpec model;
  model.identity.name = "tiny";
  model.groups = {LayerGroup::FullAttention(2, 2, 16, Dtype::kBf16)};
  return model;
}

std::byte KvByte(TokenId token, uint64_t position, uint32_t layer, uint32_t plane, uint32_t head,
                 uint32_t byte) {
  const uint64_t place = position * 1009 + layer * 131 + plane * 31 + head * 7 + byte;
  return static_cast<std::byte>((token * 2654435761u + place * 40503u) >> 8);
}

KvMemory::KvMemory(const ModelSpec& model, uint64_t position, uint64_t count)
    : model_(model), position_(position), count_(count) {
  const LayerGroup& group = model_.groups[0];
  bytes_.resize(std::max<uint64_t>(1, group.token_bytes() * count));
  std::byte* at = bytes_.data();
  bases_.resize(group.planes.size());
  for (uint32_t layer = 0; layer < group.layers; ++layer) {
    for (size_t plane = 0; plane < group.planes.size(); ++plane) {
      bases_[plane].push_back(at);
      at += count * group.planes[plane].heads * group.planes[plane].row_bytes;
    }
  }
  for (size_t plane = 0; plane < group.planes.size(); ++plane) {
    const Plane& spec = group.planes[plane];
    planes_.push_back({.layer_bases = bases_[plane],
                       .block_stride = 0,
                       .token_stride = int64_t{spec.heads} * spec.row_bytes,
                       .head_stride = spec.row_bytes,
                       .element_stride = 0});
  }
  group_.position = position;
  group_.count = count;
  group_.planes = planes_;
  view_.groups = std::span(&group_, 1);
}

template <typename Visit>
void KvMemory::ForEach(std::span<const TokenId> tokens, Visit&& visit) const {
  const LayerGroup& group = model_.groups[0];
  for (uint32_t layer = 0; layer < group.layers; ++layer) {
    for (uint32_t plane = 0; plane < group.planes.size(); ++plane) {
      const Plane& spec = group.planes[plane];
      std::byte* at = bases_[plane][layer];
      for (uint64_t i = 0; i < tokens.size(); ++i) {
        for (uint32_t head = 0; head < spec.heads; ++head) {
          for (uint32_t byte = 0; byte < spec.row_bytes; ++byte) {
            visit(at++, KvByte(tokens[i], position_ + i, layer, plane, head, byte));
          }
        }
      }
    }
  }
}

void KvMemory::Fill(std::span<const TokenId> tokens) {
  CAIRN_CHECK(tokens.size() == count_);
  ForEach(tokens, [](std::byte* at, std::byte value) { *at = value; });
}

bool KvMemory::Matches(std::span<const TokenId> tokens) const {
  CAIRN_CHECK(tokens.size() == count_);
  bool same = true;
  ForEach(tokens, [&](const std::byte* at, std::byte value) { same &= *at == value; });
  return same;
}

namespace {

// The tokens, and the KV before, between and behind what was evicted.
Status ReadBesideHoles(const Branch& branch, BranchState* state) {
  RestoreRequest tokens;
  tokens.tokens = state->tokens;
  CAIRN_RETURN_IF_ERROR(branch.Restore(tokens).status());
  CAIRN_ASSIGN_OR_RETURN(std::vector<KvHole> holes, branch.EvictedKv());
  if (holes.empty()) return Status(StatusCode::kCorruption, "evicted, but nothing is missing");
  holes.push_back({0, state->kv_length, state->kv_length});
  uint64_t begin = 0;
  for (const KvHole& hole : holes) {
    if (begin < hole.begin) {
      KvMemory kv(TinyModel(), begin, hole.begin - begin);
      RestoreRequest request{.begin = begin, .end = hole.begin};
      request.into = &kv.view();
      CAIRN_RETURN_IF_ERROR(branch.Restore(request).status());
      if (!kv.Matches(std::span(state->tokens).subspan(begin, hole.begin - begin))) {
        return Status(StatusCode::kCorruption, "wrong KV bytes beside what was evicted");
      }
    }
    begin = hole.end;
  }
  return Status::Ok();
}

}  // namespace

Result<StoreState> ReadStore(const Store& store) {
  StoreState state;
  const ModelSpec model = TinyModel();
  CAIRN_ASSIGN_OR_RETURN(const BranchPage page, store.ListBranches("", "", SIZE_MAX));
  for (const BranchInfo& info : page.branches) {
    CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.GetBranch(info.id));
    BranchState one;
    one.kv_length = info.kv_lengths[0];
    one.tokens.resize(info.length);
    KvMemory kv(model, 0, one.kv_length);
    RestoreRequest request;
    request.tokens = one.tokens;
    if (one.kv_length != 0) request.into = &kv.view();
    const Status restored = branch.Restore(request).status();
    if (restored.code() == StatusCode::kEvicted) {
      CAIRN_RETURN_IF_ERROR(ReadBesideHoles(branch, &one));
      state[info.name] = std::move(one);
      continue;
    }
    CAIRN_RETURN_IF_ERROR(restored);
    if (!kv.Matches(std::span(one.tokens).first(one.kv_length))) {
      return Status(StatusCode::kCorruption, "wrong KV bytes were served for " + info.name);
    }
    state[info.name] = std::move(one);
  }
  return state;
}

void History::Start(StoreState next) { states_.push_back(std::move(next)); }

const std::string& History::Pick(const StoreState& state) {
  auto it = state.begin();
  std::advance(it, static_cast<ptrdiff_t>(Below(state.size())));
  return it->first;
}

Durability History::Level() { return static_cast<Durability>(Below(3)); }

bool History::Has(const StoreState& state, size_t first, size_t last) const {
  for (size_t i = first; i <= last; ++i) {
    if (states_[i] == state) return true;
  }
  return false;
}

Status History::Step(Store& store) {
  StoreState next = states_.back();
  if (next.empty()) {
    const std::string name = NewName();
    next[name] = {};
    CAIRN_ASSIGN_OR_RETURN(const ModelId model,
                           store.RegisterModel(TinyModel(), Durability::kMemory));
    // So that KV is evicted now and then: a few hundred positions fit.
    CAIRN_RETURN_IF_ERROR(
        store.SetNamespace("", {.max_bytes = 60'000, .evict = Evict::kKv}, Durability::kMemory));
    Start(next);
    return store.CreateBranch(model, {.name = name, .ns = "", .durability = Level()}).status();
  }
  const uint64_t dice = Below(100);
  if (dice < 60) return Append(store, &next);
  if (dice < 72) return ForkOne(store, &next);
  if (dice < 84) return RewindOne(store, &next);
  if (dice < 89) return DropOne(store, &next);
  if (dice < 91) {
    Start(next);  // Changes nothing that can be seen.
    return store.Compact();
  }
  if (dice < 95) return FillOne(store, next);
  return WriteTwo(store, &next);
}

Status History::Append(Store& store, StoreState* next) {
  const std::string name = Pick(*next);
  BranchState& state = (*next)[name];
  const uint64_t count = 1 + Below(Below(8) == 0 ? 200 : 6);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(Below(50000));
  state.tokens.insert(state.tokens.end(), tokens.begin(), tokens.end());
  const uint64_t kv_end = state.tokens.size() - Below(2);  // A sampled token has no KV yet.
  const uint64_t kv_begin = state.kv_length;
  KvMemory kv(TinyModel(), kv_begin, std::max(kv_end, kv_begin) - kv_begin);
  kv.Fill(std::span(state.tokens).subspan(kv_begin, std::max(kv_end, kv_begin) - kv_begin));
  state.kv_length = std::max(kv_end, kv_begin);
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name));
  const Status appended =
      branch.AppendSync({.tokens = tokens, .kv = &kv.view()}, {.durability = level}).status();
  if (appended.code() == StatusCode::kNoSpace) {  // Its branch alone fills the namespace.
    states_.back() = states_[states_.size() - 2];
    return Status::Ok();
  }
  CAIRN_RETURN_IF_ERROR(appended);
  if (level >= ack_level_) acknowledged_ = started();
  return Status::Ok();
}

Status History::ForkOne(Store& store, StoreState* next) {
  if (next->size() > 6) return DropOne(store, next);
  const std::string from = Pick(*next);
  const std::string name = NewName();
  const uint64_t position = Below((*next)[from].tokens.size() + 1);
  BranchState state = (*next)[from];
  state.tokens.resize(position);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(from));
  // A child may know KV only as far as the nodes it shares do.
  state.kv_length = std::min(state.kv_length, position);
  (*next)[name] = state;
  Start(*next);
  CAIRN_ASSIGN_OR_RETURN(const Branch child,
                         branch.ForkAt(position, {.name = name, .ns = "", .durability = level}));
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, child.Info());
  if (info.kv_lengths[0] > state.kv_length)
    return Status(StatusCode::kCorruption, "KV from nowhere");
  states_.back()[name].kv_length = info.kv_lengths[0];
  if (level >= ack_level_) acknowledged_ = started();
  return Status::Ok();
}

Status History::RewindOne(Store& store, StoreState* next) {
  const std::string name = Pick(*next);
  BranchState& state = (*next)[name];
  const uint64_t length = state.tokens.size() - std::min<uint64_t>(state.tokens.size(), Below(5));
  state.tokens.resize(length);
  state.kv_length = std::min(state.kv_length, length);
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name));
  CAIRN_RETURN_IF_ERROR(branch.Rewind(length, level));
  CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, branch.Info());
  states_.back()[name].kv_length = info.kv_lengths[0];
  if (level >= ack_level_) acknowledged_ = started();
  return Status::Ok();
}

// Gives a branch that lost KV all that it has had; of another one nothing is taken.
Status History::FillOne(Store& store, const StoreState& next) {
  std::string name = Pick(next);
  for (const auto& [other, state] : next) {
    CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.FindBranch(other));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<KvHole> holes, branch.EvictedKv());
    if (!holes.empty()) name = other;
  }
  const BranchState state = next.at(name);
  Start(next);
  if (state.kv_length == 0) return Status::Ok();
  KvMemory kv(TinyModel(), 0, state.kv_length);
  kv.Fill(std::span(state.tokens).first(state.kv_length));
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name));
  const Status filled = branch.Fill(kv.view(), {.durability = Level()});
  return filled.code() == StatusCode::kNoSpace ? Status::Ok() : filled;
}

Status History::DropOne(Store& store, StoreState* next) {
  const std::string name = Pick(*next);
  next->erase(name);
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(name));
  CAIRN_RETURN_IF_ERROR(branch.Drop(level));
  if (level >= ack_level_) acknowledged_ = started();
  return Status::Ok();
}

// A batch over two branches: both or none.
Status History::WriteTwo(Store& store, StoreState* next) {
  const std::string first = Pick(*next);
  const std::string name = NewName();
  const std::vector<TokenId> one = {static_cast<TokenId>(Below(50000))};
  const std::vector<TokenId> two = {1, 2, static_cast<TokenId>(Below(50000))};
  auto& tokens = (*next)[first].tokens;
  tokens.insert(tokens.end(), one.begin(), one.end());
  (*next)[name].tokens = two;
  Start(*next);
  const Durability level = Level();
  CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.FindBranch(first));
  CAIRN_ASSIGN_OR_RETURN(const ModelId model,
                         store.RegisterModel(TinyModel(), Durability::kMemory));
  WriteBatch batch;
  batch.Append(branch, {.tokens = one});
  const int made = batch.Create(model, {.name = name, .ns = ""});
  batch.Append(made, {.tokens = two});
  Result<Store::WriteResult> result = store.Write(batch, {.durability = level});
  while (!result.ok() && result.status().code() == StatusCode::kBusy) {
    // Write never waits. A rename to the same name does, and changes nothing.
    CAIRN_RETURN_IF_ERROR(Branch(branch).Rename(first, Durability::kProcess));
    result = store.Write(batch, {.durability = level});
  }
  CAIRN_RETURN_IF_ERROR(result.status());
  CAIRN_RETURN_IF_ERROR(result->ticket.Wait());
  if (level >= ack_level_) acknowledged_ = started();
  return Status::Ok();
}

}  // namespace cairn::crash
