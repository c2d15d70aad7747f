// SPDX-License-Identifier: Apache-2.0
//
// A store on a simulated machine with one node that many branches need: more, if there are enough,
// than memory knows of.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "sim/world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {

class PopularNodeTest : public ::testing::Test {
 protected:
  void Make(const ModelSpec& model, int forks) {
    options_.world = std::make_shared<io::World>(machine_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
    ASSERT_OK_ASSIGN(id_, store_.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch base, store_.CreateBranch(id_, {.name = "base"}));
    ASSERT_OK(AppendSome(base, model, 0, 32, kSeed, Durability::kPower));
    branches_ = {base};
    for (int i = 0; i < forks; ++i) {
      ASSERT_OK_ASSIGN(Branch fork, base.ForkAt(32, {.durability = Durability::kMemory}));
      branches_.push_back(fork);
    }
  }
  // Options for this disk's content.
  Options FoundOn(std::shared_ptr<io::SimDisk> disk) const {
    Options options = options_;
    options.create_if_missing = false;
    options.world = std::make_shared<io::World>(
        io::World{.files = std::move(disk), .scheduler = std::make_shared<io::SimScheduler>(2)});
    return options;
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  Options options_ = TinyOptions();
  Store store_;
  ModelId id_{};
  std::vector<Branch> branches_;  // All that need it.
};

}  // namespace cairn::testing
