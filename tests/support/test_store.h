// SPDX-License-Identifier: Apache-2.0
//
// Small models, small stores, and the worlds they can live in.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/io/world.h"
#include "cairn/store.h"
#include "sim/world.h"

namespace cairn::testing {

// A directory of the real disk, removed with all in it.
class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// One full-attention group: 2 layers x {k, v} x 2 heads x 8 bytes, 64 bytes per token.
ModelSpec TinyModel(const std::string& name = "tiny");
// Four groups: full attention, sliding window, MLA with a rotary part, and quantised KV with planes
// of scales whose heads and rows differ.
ModelSpec HybridModel(const std::string& name = "hybrid");
// A group of every retention rule, small enough for short branches, and one that is optional.
ModelSpec EveryRuleModel(const std::string& name = "every rule");
// 8 KiB per token.
ModelSpec WideModel(const std::string& name = "wide");
ModelSpec TokenModel(const std::string& name = "tokens");

// create_if_missing, segments of 256 KiB, a hot tail of a few groups.
Options TinyOptions();

// For Options::allocator: what a thread puts here is called, once, at its next allocation, wherever
// in the store that is.
extern thread_local std::function<void()> on_allocation;
Allocator CallingAllocator();

// Where a store can live; every one keeps its files between two stores.
class TestWorld {
 public:
  // "threads", "io_uring", "memory", "simulated".
  static std::vector<std::string> Names();
  // Null when this machine does not grant it.
  static std::unique_ptr<TestWorld> Make(const std::string& name, uint64_t seed = 1);

  const std::string& path() const { return path_; }
  Options options() const;
  io::World& world() { return *world_; }
  Result<Store> Open() { return Store::Open(path_, options()); }
  Result<Store> Open(Options options) {
    options.world = world_;
    return Store::Open(path_, options);
  }

 private:
  std::unique_ptr<TempDirectory> directory_;
  std::string path_;
  std::shared_ptr<io::World> world_;
};

std::vector<TokenId> Tokens(uint64_t count, uint64_t seed = 1);

// For INSTANTIATE_TEST_SUITE_P.
std::string NameOf(const ::testing::TestParamInfo<std::string>& info);

}  // namespace cairn::testing
