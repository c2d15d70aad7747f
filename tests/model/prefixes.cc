// SPDX-License-Identifier: Apache-2.0
#include "tests/model/prefixes.h"

#include <algorithm>

#include "engine/store/store_core.h"

namespace cairn::testing {
namespace {

// No branch has it.
constexpr TokenId kOtherToken = 250'000;
// Up to this many paths with the same first block are all looked at, whatever their nodes.
constexpr size_t kFewPaths = kPrefixCandidates / 2;
constexpr uint64_t kLeaseNs = 10'000'000'000;  // Longer than a fork takes.

bool Contains(std::span<const std::string_view> namespaces, std::string_view ns) {
  return std::find(namespaces.begin(), namespaces.end(), ns) != namespaces.end();
}

}  // namespace

Prefixes::Path Prefixes::PathOf(const ModelBranch& branch) {
  Path path{.model = branch.model, .ns = branch.ns, .tokens = {}, .positions = {}};
  for (const ModelPosition& position : branch.positions) {
    path.tokens.push_back(position.token);
    path.positions.push_back(position.id);
  }
  return path;
}

void Prefixes::OnAppended(const ModelBranch& branch, uint64_t count) {
  for (uint64_t at = branch.length() - count; at < branch.length(); ++at) {
    const uint64_t id = branch.positions[at].id;
    if (ns_of_.size() <= id) ns_of_.resize(id + 1);
    ns_of_[id] = branch.ns;
  }
}

void Prefixes::OnCut(const ModelBranch& branch) {
  if (branch.length() >= kPrefixBlock) gone_.push_back(PathOf(branch));
}

bool Prefixes::IsAsked(const Question& question, uint64_t position) const {
  return Contains(question.namespaces, ns_of_[position]);
}

uint64_t Prefixes::CommonWith(const Question& question, const Path& path) const {
  if (path.model != question.path.model) return 0;
  const std::vector<TokenId>& ids = question.path.tokens;
  const auto end =
      std::mismatch(ids.begin(), ids.end(), path.tokens.begin(), path.tokens.end()).first;
  return static_cast<uint64_t>(end - ids.begin());
}

// A path goes on from other namespaces, and is found by what is its own: tokens, or KV.
bool Prefixes::MayBeFound(const Question& question, const Path& path) const {
  return Contains(question.namespaces, path.ns) ||
         std::any_of(path.positions.begin(), path.positions.end(),
                     [&](uint64_t position) { return IsAsked(question, position); });
}

void Prefixes::CompareHit(const Question& question, const ModelBranch& want, const Branch& branch,
                          const PrefixHit& hit) const {
  uint64_t most = 0;
  size_t paths = 0;  // That have the first block.
  const auto look = [&](const Path& path) {
    const uint64_t common = CommonWith(question, path);
    paths += common >= kPrefixBlock ? 1 : 0;
    if (common > most && MayBeFound(question, path)) most = common;
  };
  for (const auto& [id, other] : model_.branches()) look(PathOf(other));
  for (const Path& path : gone_) look(path);
  const uint64_t longest = hit.longest.matched;
  if (longest > most) {
    Fail("found are " + std::to_string(longest) + " tokens, there are " + std::to_string(most));
  }
  Holds(hit.matched <= longest, "a hit is longer than the longest match");
  Holds(hit.restorable <= hit.matched, "more of a hit is restorable than there is");
  const uint64_t length = want.length();
  const bool all_asked =
      std::all_of(want.positions.begin(), want.positions.end(),
                  [&](const ModelPosition& position) { return ns_of_[position.id] == want.ns; }) &&
      Contains(question.namespaces, want.ns);
  if (!hit.complete || !all_asked || length < kPrefixBlock) return;
  Holds(longest >= length / kPrefixBlock * kPrefixBlock, "a prefix is not found to the block");
  // The one with most KV, then the longest.
  const bool may_be_gone =
      model_.MayEvict(want) ||
      std::any_of(want.positions.begin(), want.positions.end(),
                  [](const ModelPosition& position) { return position.kv_may_be_gone; });
  if (paths > kFewPaths || (may_be_gone && !specs_[want.model].groups.empty())) return;
  const uint64_t restorable = ForkableLength(want, branch);
  if (hit.restorable < restorable) {
    Fail("of a prefix " + std::to_string(hit.restorable) +
         " tokens are restorable, of its branch " + std::to_string(restorable));
  }
  Holds(hit.restorable > restorable || hit.matched == length, "a prefix is not found to the token");
}

// A hit promises what a fork of it has, and a fork never ends inside an atomic span. A fork may
// have less than its source: KV that the source has on a node of its own is not the fork's.
uint64_t Prefixes::ForkableLength(const ModelBranch& want, Branch source) {
  auto length = source.RestorableLength();
  MustBeOk(length, "RestorableLength");
  for (uint64_t at_most = UINT64_MAX; *length < at_most;) {
    at_most = *length;
    while (!want.MayCut(at_most)) --at_most;
    auto fork = source.ForkAt(at_most, {});
    MustBeOk(fork, "ForkAt");
    length = fork->RestorableLength();
    MustBeOk(length, "RestorableLength of a fork");
    MustBeOk(fork->Drop(), "Drop of a fork");
  }
  return *length;
}

// The lease keeps it until then.
void Prefixes::ForkHit(Store& store, const PrefixHit& hit) {
  if (hit.lease == LeaseId{}) return;
  auto fork = store.Fork(hit, hit.restorable, {});
  MustBeOk(fork, "Fork of a hit");
  auto restorable = fork->RestorableLength();
  MustBeOk(restorable, "RestorableLength of a fork of a hit");
  Same(hit.restorable, *restorable, "KV of a fork of a hit");
  MustBeOk(fork->Drop(), "Drop of a fork of a hit");
  MustBeOk(store.Release(hit.lease), "Release");
}

void Prefixes::Ask(Store& store, const ModelBranch& want, const Branch& branch, uint64_t which) {
  Question question{.path = PathOf(want), .namespaces = {}};
  const size_t own = static_cast<size_t>(
      std::find(std::begin(kNamespaces), std::end(kNamespaces), want.ns) - std::begin(kNamespaces));
  const char* const other = kNamespaces[(own + 1 + which / 3 % 3) % std::size(kNamespaces)];
  if (which % 3 != 0) question.namespaces.push_back(want.ns);
  if (which % 3 != 1) question.namespaces.push_back(other);
  if (which % 2 == 0) question.path.tokens.push_back(kOtherToken);
  auto info = branch.Info();
  MustBeOk(info, "Info");
  PrefixQuery query;
  query.model = info->model;
  query.tokens = question.path.tokens;
  query.spans = want.spans;
  query.ns = question.namespaces[0];
  query.also = std::span(question.namespaces).subspan(1);
  query.approximate = true;
  query.lease_ns = kLeaseNs;
  auto hit = store.FindPrefix(query);
  MustBeOk(hit, "FindPrefix");
  found_ += hit->found() ? 1 : 0;
  CompareHit(question, want, branch, *hit);
  ForkHit(store, *hit);
}

// The node may be joined or trimmed meanwhile; as long as a fork of it can be made, it has the ids.
void Prefixes::AskChunks(Store& store, const ModelBranch& want, const Branch& branch) {
  auto info = branch.Info();
  MustBeOk(info, "Info");
  const std::vector<TokenId> ids = PathOf(want).tokens;
  PrefixQuery query;
  query.model = info->model;
  query.tokens = ids;
  query.spans = want.spans;
  query.ns = want.ns;
  const auto found = store.core()->chunks().Find(query);
  MustBeOk(found, "a search of chunks");
  for (const engine::ChunkMatch& match : found->matches) {
    const uint64_t end = match.source + match.end - match.begin;
    const auto fork = store.core()->changes().ForkNode(NodeId{match.node}, end, {});
    if (!fork.ok()) continue;
    Branch made(store.core(), *fork);
    const auto got = made.ReadTokens(match.source, end);
    MustBeOk(got, "ReadTokens of a fork of a chunk");
    Holds(std::equal(got->begin(), got->end(), ids.begin() + static_cast<ptrdiff_t>(match.begin)),
          "a chunk has other ids");
    ++chunks_found_;
    MustBeOk(made.Drop(), "Drop of a fork of a chunk");
  }
}

// What a plan loads has the prompt's ids. The prompt is the branch, behind other tokens.
void Prefixes::AskPlan(Store& store, const ModelBranch& want, const Branch& branch) {
  auto info = branch.Info();
  MustBeOk(info, "Info");
  std::vector<TokenId> ids = PathOf(want).tokens;
  ids.insert(ids.begin(), 2, kOtherToken);
  PrefixQuery query;
  query.model = info->model;
  query.tokens = ids;
  query.ns = want.ns;
  query.lease_ns = kLeaseNs;
  BlendOptions options;
  options.min_tokens = kMinBlendTokens;
  options.position_correction = false;
  const auto plan = store.PlanBlend(query, options);
  if (plan.status().code() == StatusCode::kInvalidArgument) return;  // The model keeps states.
  MustBeOk(plan, "PlanBlend");
  if (plan->lease == LeaseId{}) return;
  auto segment = plan->segments.begin();
  for (const BlendStep& step : plan->steps) {
    for (uint64_t at = step.begin; step.loads && at < step.end;) {
      while (segment->end <= at) ++segment;
      const uint64_t until = std::min(step.end, segment->end);
      const uint64_t source = at - segment->begin + segment->source;
      const auto fork =
          store.core()->changes().ForkNode(segment->node, source + until - at, BranchOptions());
      MustBeOk(fork, "a fork of what a plan has on lease");
      Branch made(store.core(), *fork);
      const auto got = made.ReadTokens(source, source + until - at);
      MustBeOk(got, "ReadTokens of a fork of a plan's source");
      Holds(std::equal(got->begin(), got->end(), ids.begin() + static_cast<ptrdiff_t>(at)),
            "a plan loads other ids");
      planned_ += until - at;
      MustBeOk(made.Drop(), "Drop of a fork of a plan's source");
      at = until;
    }
  }
  MustBeOk(store.Restore(*plan, {}), "Restore of a plan");
  MustBeOk(store.Release(plan->lease), "Release");
}

void Prefixes::Compare(Store& store, const BranchIds& branches_of) {
  for (const auto& [id, branch] : branches_of) {
    const ModelBranch& want = model_.branches().at(id);
    if (want.length() == 0) continue;
    Ask(store, want, Branch(store.core(), branch), id);
    if (model_.Policy(want.ns).index != Index::kChunks) continue;
    AskChunks(store, want, Branch(store.core(), branch));
    AskPlan(store, want, Branch(store.core(), branch));
  }
}

}  // namespace cairn::testing
