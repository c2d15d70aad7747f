// SPDX-License-Identifier: Apache-2.0
//
// A store in a world that the test is parametrised with, and short forms of common calls.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/store.h"
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {

// The content of a branch's KV in tests that do not care: one seed.
inline constexpr uint64_t kSeed = 7;

class WorldTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    world_ = TestWorld::Make(GetParam());
    if (world_ == nullptr) GTEST_SKIP() << GetParam() << " is not granted on this machine";
    Reopen();
  }

  // Closes and opens again.
  void Reopen(std::optional<Options> options = {}) {
    ASSERT_OK(store_.Close());
    auto opened = options.has_value() ? world_->Open(*options) : world_->Open();
    ASSERT_OK(opened);
    store_ = std::move(*opened);
  }

  ModelId Register(const ModelSpec& spec) {
    auto id = store_.RegisterModel(spec);
    EXPECT_OK(id);
    return id.ok() ? *id : ModelId{};
  }

  Branch Create(ModelId model, const std::string& name) {
    auto branch = store_.CreateBranch(model, {.name = name});
    EXPECT_OK(branch);
    return branch.ok() ? *branch : Branch();
  }

  Branch Find(const std::string& name) {
    auto branch = store_.FindBranch(name);
    EXPECT_OK(branch);
    return branch.ok() ? *branch : Branch();
  }

  std::unique_ptr<TestWorld> world_;
  Store store_;
};

inline std::vector<std::string> NamesOf(const Store& store) {
  const auto namespaces = store.Namespaces();
  EXPECT_OK(namespaces);
  std::vector<std::string> names;
  for (const NamespaceInfo& one : *namespaces) names.push_back(one.name);
  return names;
}

inline Delta MakeDelta(std::span<const TokenId> tokens, const KvView* kv = nullptr) {
  Delta delta;
  delta.tokens = tokens;
  delta.kv = kv;
  return delta;
}

// Appends `count` positions, tokens from `seed` and KV from kSeed for all groups.
inline Result<uint64_t> AppendSome(Branch& branch, const ModelSpec& model, uint64_t begin,
                                   uint64_t count, uint64_t seed = kSeed,
                                   Durability durability = Durability::kProcess) {
  KvSet kv(model, Layout::kContiguous, begin, count);
  kv.Write(seed, begin, begin + count);
  const std::vector<TokenId> tokens = Tokens(count, seed + begin);
  AppendOptions options;
  options.durability = durability;
  options.expected_length = begin;
  return branch.AppendSync(
      MakeDelta(tokens, model.groups.empty() ? nullptr : kv.View(begin, count)), options);
}

// Calls that never wait give kBusy while a tiny segment's successor is being prepared: tries again
// until it is.
template <typename Call>
auto WhileBusy(Store& store, Call&& call) {
  auto result = call();
  while (StatusOf(result).code() == StatusCode::kBusy && store.Flush().ok()) result = call();
  return result;
}

// Restores KV of all groups in [begin, end) and compares it with what `seed` makes.
inline ::testing::AssertionResult HasKv(const Branch& branch, const ModelSpec& model,
                                        uint64_t begin, uint64_t end, uint64_t seed = kSeed) {
  KvSet got(model, Layout::kContiguous, begin, end - begin);
  KvSet want(model, Layout::kContiguous, begin, end - begin);
  want.Write(seed, begin, end);
  RestoreRequest request;
  request.begin = begin;
  request.end = end;
  request.into = got.View(begin, end - begin);
  const auto result = branch.Restore(request);
  if (!result.ok()) return ::testing::AssertionFailure() << result.status().ToString();
  for (const uint64_t kv_end : result->kv_ends) {
    if (kv_end != end) return ::testing::AssertionFailure() << "KV only up to " << kv_end;
  }
  if (!(got == want)) return ::testing::AssertionFailure() << "bytes differ";
  return ::testing::AssertionSuccess();
}

}  // namespace cairn::testing
