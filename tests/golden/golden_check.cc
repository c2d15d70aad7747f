// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/golden_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/status.h"

namespace cairn::golden {

namespace {

using testing::ModelBranch;

// Distance between positions of a branch that are restored to.
constexpr uint64_t kStride = 41;

void ExpectStates(const Branch& branch, const ModelBranch& want) {
  for (uint64_t at = 0; at <= want.length(); ++at) {
    const auto sampler = want.samplers.upper_bound(at);
    const auto got_sampler = branch.SamplerAt(at);
    if (sampler == want.samplers.begin()) {
      EXPECT_FAILS(got_sampler, StatusCode::kNotFound);
    } else {
      ASSERT_OK(got_sampler);
      EXPECT_EQ(std::prev(sampler)->first, got_sampler->position);
      EXPECT_TRUE(SamplerOf(std::prev(sampler)->second) == *got_sampler->sampler);
    }
    const auto metadata = want.metadata.upper_bound(at);
    const auto got_metadata = branch.MetadataAt(at);
    if (metadata == want.metadata.begin()) {
      EXPECT_FAILS(got_metadata, StatusCode::kNotFound);
    } else {
      ASSERT_OK(got_metadata);
      EXPECT_EQ(std::prev(metadata)->first, got_metadata->position);
      EXPECT_TRUE(MetadataOf(std::prev(metadata)->second) == *got_metadata->metadata);
    }
  }
}

// The result of a restore up to `end`; returns how many bytes of it went through 8-bit integers.
uint64_t ExpectRestore(const Branch& branch, const ModelSpec& spec, const ModelBranch& want,
                       uint64_t end) {
  SCOPED_TRACE("restored up to " + std::to_string(end));
  const uint64_t restorable = want.RestorableLength(spec, end);
  const auto said = branch.RestorableLength(end);
  EXPECT_OK(said);
  EXPECT_EQ(restorable, said.ok() ? *said : 0);
  if (restorable == 0) return 0;
  const std::vector<RowRange> ranges(spec.groups.size(), {0, restorable});
  Rows got(spec, ranges), expected(spec, ranges);
  for (size_t group = 0; group < spec.groups.size(); ++group) {
    for (uint64_t at = 0; at < restorable; ++at) {
      const auto& seed = want.positions[at].kv[group];
      if (seed.has_value()) expected.Write(group, at, *seed);
    }
  }
  RestoreRequest request;
  request.end = restorable;
  request.into = got.view();
  const auto restored = branch.Restore(request);
  EXPECT_OK(restored);
  if (!restored.ok()) return 0;
  EXPECT_TRUE(got == expected);
  return restored->lossy_bytes;
}

void ExpectHoles(const Branch& branch, const ModelSpec& spec, const ModelBranch& want) {
  if (std::ranges::any_of(spec.groups, [](const LayerGroup& group) {
        return group.retention.kind != Retention::kAll;
      })) {
    return;  // There it depends on where a restore ends; RestorableLength was compared.
  }
  std::set<std::pair<uint32_t, uint64_t>> missing, expected;
  const auto holes = branch.EvictedKv();
  ASSERT_OK(holes);
  for (const KvHole& hole : *holes) {
    for (uint64_t at = hole.begin; at < hole.end; ++at) missing.insert({hole.group, at});
  }
  for (uint32_t group = 0; group < spec.groups.size(); ++group) {
    for (uint64_t at = 0; at < want.kv_lengths[group]; ++at) {
      if (!want.positions[at].kv[group].has_value()) expected.insert({group, at});
    }
  }
  EXPECT_EQ(expected, missing);
}

void ExpectBranch(const Store& store, const BranchInfo& info, const Book& book,
                  const ModelBranch& want, uint64_t* lossy_bytes) {
  const Branch branch(store.core(), info.id);
  const ModelSpec& spec = book.models[want.model];
  ASSERT_EQ(want.length(), info.length);
  EXPECT_EQ(want.kv_lengths, info.kv_lengths);
  EXPECT_NE(0u, info.created_at_ns);
  EXPECT_TRUE(want.keep == info.keep);
  const auto model = store.GetModel(info.model);
  ASSERT_OK(model);
  EXPECT_EQ("", spec.FirstDifference(model->spec));
  if (!want.name.empty()) {
    const auto found = store.FindBranch(want.name, want.ns);
    ASSERT_OK(found);
    EXPECT_EQ(info.id, found->id());
  }
  std::vector<TokenId> tokens;
  for (const testing::ModelPosition& position : want.positions) tokens.push_back(position.token);
  const auto read = branch.ReadTokens(0, want.length());
  ASSERT_OK(read);
  EXPECT_EQ(tokens, *read);
  const auto spans = branch.Spans(0, want.length());
  ASSERT_OK(spans);
  EXPECT_EQ(want.spans, *spans);
  ExpectStates(branch, want);
  if (spec.groups.empty()) return;
  ExpectHoles(branch, spec, want);
  for (uint64_t end = 1; end < want.length(); end += kStride) {
    *lossy_bytes += ExpectRestore(branch, spec, want, end);
  }
  *lossy_bytes += ExpectRestore(branch, spec, want, want.length());
}

}  // namespace

void ExpectAll(const Store& store, const Book& book, uint64_t* lossy_bytes) {
  *lossy_bytes = 0;
  std::map<std::string, uint64_t> by_namespace;
  for (const auto& [name, branch] : book.branches) ++by_namespace[branch.ns];
  for (const auto& [ns, branches] : by_namespace) {
    const auto page = store.ListBranches(ns, "", SIZE_MAX);
    ASSERT_OK(page);
    EXPECT_EQ(branches, page->branches.size());
    for (const BranchInfo& info : page->branches) {
      SCOPED_TRACE("branch \"" + info.name + "\"");
      const auto want = book.branches.find(info.name);
      if (want == book.branches.end() || want->second.ns != ns) {
        ADD_FAILURE() << "is not in the book";
        continue;
      }
      ExpectBranch(store, info, book, want->second, lossy_bytes);
    }
  }
  const auto namespaces = store.Namespaces();
  ASSERT_OK(namespaces);
  std::map<std::string, NamespacePolicy> policies;
  for (const NamespaceInfo& info : *namespaces) {
    EXPECT_EQ(by_namespace[info.name], info.branches) << info.name;
    if (!(info.policy == NamespacePolicy())) policies[info.name] = info.policy;
  }
  EXPECT_TRUE(book.policies == policies);
  EXPECT_EQ(book.models.size(), store.Models().size());
}

}  // namespace cairn::golden
