// SPDX-License-Identifier: Apache-2.0
#include "tests/model/comparison.h"

#include <algorithm>
#include <cstring>

namespace cairn::testing {

KvRows Comparison::RowsOf(const ModelBranch& branch, const std::vector<RowRange>& ranges) const {
  KvRows rows(specs_[branch.model], ranges);
  for (size_t group = 0; group < ranges.size(); ++group) {
    for (uint64_t at = ranges[group].begin; at < ranges[group].begin + ranges[group].count; ++at) {
      rows.Write(group, at, *branch.positions[at].kv[group]);
    }
  }
  return rows;
}

void Comparison::Info(const Store& store, uint64_t id, BranchId branch) {
  const ModelBranch& want = model_.branches().at(id);
  auto info = Branch(store.core(), branch).Info();
  MustBeOk(info, "Info");
  Same(want.length(), info->length, "length");
  Same(want.name, info->name, "name");
  Same(want.ns, info->ns, "namespace");
  Holds(want.keep == info->keep, "keep differs");
  Same(specs_[want.model].groups.size(), info->kv_lengths.size(), "groups");
  for (size_t group = 0; group < info->kv_lengths.size(); ++group) {
    Same(want.kv_length(group), info->kv_lengths[group], "kv_length");
    Digest(info->kv_lengths[group]);
  }
  Digest(info->length);
}

void Comparison::Content(const Store& store, uint64_t id, BranchId number, uint64_t begin,
                         uint64_t end) {
  const ModelBranch& want = model_.branches().at(id);
  const Branch branch(store.core(), number);
  auto tokens = branch.ReadTokens(begin, end);
  MustBeOk(tokens, "ReadTokens");
  Same(end - begin, tokens->size(), "tokens read");
  for (uint64_t at = begin; at < end; ++at) {
    Same(want.positions[at].token, (*tokens)[at - begin], "token");
    Digest((*tokens)[at - begin]);
  }
  Kv(branch, want, begin, end);
  for (const uint64_t position : {begin, end}) {
    State(want.samplers, position, branch.SamplerAt(position), /*is_sampler=*/true);
    State(want.metadata, position, branch.MetadataAt(position), /*is_sampler=*/false);
  }
  auto spans = branch.Spans(begin, end);
  MustBeOk(spans, "Spans");
  Holds(*spans == want.SpansIn(begin, end), "spans differ");
  for (const ContentSpan& span : *spans) Digest(span.begin ^ span.end << 20 ^ span.hash[0]);
}

void Comparison::State(const std::map<uint64_t, uint64_t>& states, uint64_t position,
                       const Result<Branch::StateAt>& got, bool is_sampler) {
  const auto state = states.upper_bound(position);
  if (state == states.begin()) return MustBe(StatusCode::kNotFound, got, "state");
  MustBeOk(got, "state");
  const auto& [at, number] = *std::prev(state);
  Same(at, got->position, "position of a state");
  uint64_t found = is_sampler ? got->sampler->philox_seed : 0;
  if (!is_sampler) std::memcpy(&found, got->metadata->bytes.data(), sizeof(found));
  Same(number, found, "state");
  Digest(found);
}

void Comparison::Kv(const Branch& branch, const ModelBranch& want, uint64_t begin, uint64_t end) {
  const ModelSpec& spec = specs_[want.model];
  if (spec.groups.empty()) return;
  uint64_t common = end;
  for (size_t group = 0; group < spec.groups.size(); ++group) {
    common = std::min(common, want.kv_length(group));
  }
  auto restorable = branch.RestorableLength(end);
  MustBeOk(restorable, "RestorableLength");
  Holds(*restorable <= common, "more is restorable than there is");
  bool may_be_gone = model_.MayEvict(want);
  for (uint64_t at = 0; at < common; ++at) may_be_gone |= want.positions[at].kv_may_be_gone;
  if (!may_be_gone) Same(common, *restorable, "restorable length");
  if (*restorable < common) Holes(branch, want, common);
  const uint64_t kv_end = may_be_gone ? *restorable : common;
  if (begin >= kv_end) return;
  std::vector<RowRange> ranges(spec.groups.size(), {begin, kv_end - begin});
  KvRows got(spec, ranges);
  RestoreRequest request;
  request.begin = begin;
  request.end = kv_end;
  request.into = got.view();
  auto restored = branch.Restore(request);
  // Another may have been evicted since.
  if (may_be_gone && restored.status().code() == StatusCode::kEvicted) return;
  MustBeOk(restored, "Restore");
  for (size_t i = 0; i < restored->kv_ends.size(); ++i) {
    const GroupView& view = got.view()->groups[i];
    Same(std::min(kv_end, view.position + view.count), restored->kv_ends[i], "KV restored up to");
  }
  Holds(got == RowsOf(want, ranges), "KV bytes differ");
  uint64_t approximate = 0;
  for (size_t group = 0; group < spec.groups.size(); ++group) {
    for (uint64_t at = begin; at < kv_end; ++at) {
      const bool exact = IsExact(*want.positions[at].kv[group]);
      approximate += exact ? 0 : spec.groups[group].token_bytes();
    }
  }
  Same(approximate, restored->approximate_bytes, "bytes that are approximate");
  approximate_bytes_ += approximate;
  if (!may_be_gone) Digest(got.Hash());
}

void Comparison::Holes(const Branch& branch, const ModelBranch& want, uint64_t common) {
  auto holes = branch.EvictedKv(0, common);
  MustBeOk(holes, "EvictedKv");
  Holds(!holes->empty(), "not restorable, but nothing is missing");
  for (const KvHole& hole : *holes) {
    Holds(hole.end <= want.kv_length(hole.group), "evicted where none was");
    for (uint64_t at = hole.begin; at < hole.end; ++at) {
      Holds(model_.MayEvict(want) || want.positions[at].kv_may_be_gone,
            "KV was evicted that must not be");
    }
  }
}

void Comparison::Listings(const Store& store, const BranchIds& branches_of, size_t page_size) {
  std::map<std::string, uint64_t> branches;
  std::map<BranchId, uint64_t> ids;
  for (const auto& [id, branch] : branches_of) ids.emplace(branch, id);
  for (const char* ns : kNamespaces) {
    std::string cursor, last;
    do {
      auto page = store.ListBranches(ns, "", page_size, cursor);
      MustBeOk(page, "ListBranches");
      for (const BranchInfo& info : page->branches) {
        const auto id = ids.find(info.id);
        Holds(id != ids.end(), "a branch that is not");
        const ModelBranch& want = model_.branches().at(id->second);
        Same(want.name, info.name, "name in a listing");
        auto model = store.GetModel(info.model);
        MustBeOk(model, "GetModel");
        Same(specs_[want.model].identity.name, model->spec.identity.name, "model");
        Same(std::string(ns), info.ns, "namespace in a listing");
        Holds(last <= info.name, "names out of order");
        last = info.name;
        Digest(info.name);
        ++branches[ns];
      }
      cursor = page->cursor;
    } while (!cursor.empty());
  }
  std::map<std::string, uint64_t> wanted;
  for (const auto& [id, branch] : model_.branches()) ++wanted[branch.ns];
  Holds(wanted == branches, "listings are not whole");
  Same(ids.size(), model_.branches().size(), "branches that have a slot");
  for (const auto& [id, branch] : model_.branches()) {
    if (branch.name.empty()) continue;
    auto found = store.FindBranch(branch.name, branch.ns);
    MustBeOk(found, "FindBranch");
    Same(id, ids.at(found->id()), "branch found by name");
  }
  auto namespaces = store.Namespaces();
  MustBeOk(namespaces, "Namespaces");
  std::map<std::string, uint64_t> counted;
  for (const NamespaceInfo& info : *namespaces) {
    if (info.branches != 0) counted[info.name] = info.branches;
    if (info.name == "q" || info.name == "p") {
      Holds(info.policy == model_.Policy(info.name), "policy differs");
    }
  }
  Holds(wanted == counted, "branches are counted wrong by namespace");
  Same(model_.branches().size(), store.Metrics().branches, "branches");
}

void Comparison::All(const Store& store, const BranchIds& branches_of) {
  for (const auto& [id, branch] : branches_of) {
    Info(store, id, branch);
    Content(store, id, branch, 0, model_.branches().at(id).length());
  }
  Listings(store, branches_of, SIZE_MAX);
}

// All that can be reached is held, and of tokens nothing else. KV that a branch gave to a node
// beyond what others have of it lies there as long as its positions do. How much that is, and how
// many nodes there are, is known as long as a store has the nodes of the model.
void Comparison::Liveness(const Store& store, bool other_nodes) {
  const ReferenceModel::Reached want = model_.Reach(specs_);
  const StoreMetrics got = store.Metrics();
  const auto within = [&](uint64_t least, uint64_t most, uint64_t found, const char* what) {
    if (other_nodes ? found >= least : found == most) return;
    Fail(std::string(what) + ": " + std::to_string(found) + " are held, reached are " +
         std::to_string(least) + ", and " + std::to_string(most) + " with all on their nodes");
  };
  Holds(got.nodes <= want.nodes + model_.branches().size(), "too many nodes");
  within(0, want.nodes, got.nodes, "nodes");
  Same(want.tokens, got.tokens, "tokens");
  within(want.raw_bytes, want.raw_bytes_on_nodes, got.raw_bytes + got.missing_kv_bytes,
         "raw bytes");
  if (!model_.branches().empty()) return;
  Same(uint64_t{0}, got.nodes, "nodes that nothing reaches");
  Same(uint64_t{0}, got.tokens, "tokens that nothing reaches");
  Same(uint64_t{0}, got.raw_bytes + got.missing_kv_bytes, "raw bytes that nothing reaches");
}

}  // namespace cairn::testing
