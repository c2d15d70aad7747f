// SPDX-License-Identifier: Apache-2.0
//
// Clients that ask for a branch's ids: whatever is found holds them, no more of them than some
// branch of the namespaces that were asked has or had, and, where the answer says that it is
// complete, no fewer than that branch has.
#include <algorithm>

#include "tests/sim/swarm_clients.h"

namespace cairn::sim {
namespace {

uint64_t CommonLength(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return static_cast<uint64_t>(end - a.begin());
}

}  // namespace

// By present and past content: a part that was cut off may still be found.
uint64_t SwarmClients::LongestCommon(std::span<const TokenId> ids, bool mixed,
                                     std::span<const std::string_view> namespaces) const {
  uint64_t longest = 0;
  for (const KnownBranch& branch : known_.all()) {
    if (std::ranges::find(namespaces, branch.ns) == namespaces.end()) continue;
    for (const Version& version : branch.versions) {
      if (version.state == nullptr || version.state->mixed != mixed) continue;
      longest = std::max(longest, CommonLength(ids, version.state->tokens));
    }
  }
  return longest;
}

// Reads a hit: it holds the requested ids.
void SwarmClients::ReadHit(const PrefixHit& hit, std::span<const TokenId> ids, bool mixed) {
  const ModelSpec spec = mixed ? MixedModel() : TinyModel();
  std::vector<TokenId> got(hit.matched);
  RestoreRequest request{.end = hit.matched};
  request.tokens = got;
  Status status = store_->Restore(hit, request).status();
  if (status.ok() && !std::ranges::equal(got, ids.first(hit.matched))) {
    return Violation("a hit has other tokens");
  }
  if (status.ok() && hit.restorable != 0) {
    KvMemory kv(spec, 0, hit.restorable);
    request = {.end = hit.restorable};
    request.into = kv.view();
    status = store_->Restore(hit, request).status();
    if (status.ok() && !kv.Matches(ids, hit.restorable)) Violation("a hit has other KV");
  }
  // Others may drop it, or write other ids there, and without a lease nothing keeps it.
  const StatusCode code = status.code();
  const bool gone = code == StatusCode::kNotFound || code == StatusCode::kConflict;
  if (!gone) Tell(status, "restore of a hit");
}

void SwarmClients::Find(Client& client) {
  const auto index = PickAny(client);
  if (!index.has_value()) return;
  ++known_[*index].holders;
  const auto state = known_[*index].last().state;
  const std::string ns = known_[*index].ns, other = ns.empty() ? kMixedNamespace : "";
  std::vector<TokenId> ids = state->tokens;
  for (uint64_t more = client.random.Below(3); more != 0; --more) {
    ids.push_back(static_cast<TokenId>(client.random.Below(50'000)));
  }
  std::vector<std::string_view> namespaces;
  const uint64_t which = client.random.Below(4);
  if (which != 0) namespaces.push_back(ns);
  if (which < 2) namespaces.push_back(other);
  const auto model = store_->RegisterModel(state->model(), Durability::kMemory);
  PrefixQuery query;
  query.model = model.ok() ? *model : ModelId{};
  query.tokens = ids;
  query.ns = namespaces[0];
  query.also = std::span(namespaces).subspan(1);
  query.lease_ns = client.random.Below(2) * 100'000'000;
  query.approximate = true;
  const auto hit = model.ok() ? store_->FindPrefix(query) : Result<PrefixHit>(model.status());
  ++result_->finds;
  if (!hit.ok()) {
    Tell(hit.status(), "find");
  } else {
    if (std::max(hit->matched, hit->longest.matched) >
        LongestCommon(ids, state->mixed, namespaces)) {
      Violation("found is more than there is of " + known_[*index].last().name);
    }
    // To the block. The hit itself may be shorter, where it has more KV.
    const uint64_t blocks = state->tokens.size() / kPrefixBlock * kPrefixBlock;
    if (hit->complete && which != 0 && hit->longest.matched < blocks && !faults_.lied() &&
        !IsPoisoned()) {
      Violation("found are " + std::to_string(hit->longest.matched) + " of " +
                std::to_string(blocks) + " tokens of " + known_[*index].last().name);
    }
    result_->found += hit->found() ? 1 : 0;
    if (hit->found() && !IsPoisoned()) ReadHit(*hit, ids, state->mixed);
    if (!IsPoisoned()) Tell(store_->Release(hit->lease), "release");
  }
  --known_[*index].holders;
}

}  // namespace cairn::sim
