// SPDX-License-Identifier: Apache-2.0
//
// The bug: an object, or an append, that is larger than the store evicted everything else before it
// was refused; and one beyond its namespace's cap evicted others. Method: a store that may evict
// whole branches, and a value of 1.5 times its cap.
#include <random>

#include "tests/engine/objects_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kCap = 16 << 20;

class WhatNeverFits : public ::testing::Test {
 protected:
  void SetUp() override {
    Options options = TinyOptions();
    options.max_bytes = kCap;
    options.evict = Evict::kBranches;
    options.world = std::make_shared<io::World>(machine_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options));
    Objects space(store_);
    ASSERT_OK_ASSIGN(class_, space.RegisterClass({.name = "pages", .page_bytes = 65536}));
    for (int i = 0; i < 20; ++i) {
      keys_.push_back("k" + std::to_string(i));
      ASSERT_OK(Put(keys_.back(), Content(static_cast<uint64_t>(i), 256 << 10)));
    }
  }
  Status Put(const std::string& key, std::span<const std::byte> value, const std::string& ns = {}) {
    Objects space(store_);
    const ObjectPut put{.key = key, .value = value};
    const auto results = space.PutBatch({&put, 1}, {.ns = ns, .object_class = class_});
    return results.ok() ? (*results)[0].status : results.status();
  }
  void ExpectOthers() {
    machine_.scheduler->Sleep(500'000'000);
    const std::vector<std::string_view> views(keys_.begin(), keys_.end());
    EXPECT_EQ(keys_.size(), Objects(store_).Exists(views)->count);
    EXPECT_EQ(0u, store_.Metrics().evicted_branches + store_.Metrics().evicted_bytes);
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  Store store_;
  ObjectClassId class_{};
  std::vector<std::string> keys_;
};

TEST_F(WhatNeverFits, AsAnObjectIsRefusedAtOnce) {
  EXPECT_FAILS(Put("huge", Content(99, kCap + kCap / 2)), StatusCode::kNoSpace,
               "the cap of the store");
  ExpectOthers();
}

TEST_F(WhatNeverFits, ItsNamespaceIsRefusedAtOnce) {
  ASSERT_OK(Objects(store_).SetPolicy("small", {.max_bytes = 2 << 20, .evict = Evict::kBranches}));
  ASSERT_OK(Put("first", Content(98, 256 << 10), "small"));
  EXPECT_FAILS(Put("huge", Content(99, kCap / 2), "small"), StatusCode::kNoSpace, "namespace");
  ExpectOthers();
  const std::string_view first = "first";
  EXPECT_EQ(1u, Objects(store_).Exists({&first, 1}, "small")->count);
}

TEST_F(WhatNeverFits, AsAnAppendIsRefusedAtOnce) {
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(id));
  const uint64_t count = 3 * kCap / model.token_bytes();
  KvSet kv(model, Layout::kContiguous, 0, count);
  kv.Write(kSeed, 0, count);
  const std::vector<TokenId> ids = Tokens(count);
  const Delta delta = MakeDelta(ids, kv.View(0, count));
  EXPECT_FAILS(branch.AppendSync(delta), StatusCode::kNoSpace, "the cap of the store");
  ASSERT_OK_ASSIGN(Ticket ticket, branch.Append(delta));
  EXPECT_FAILS(ticket.Wait(), StatusCode::kNoSpace, "the cap of the store");
  ExpectOthers();
}

}  // namespace
}  // namespace cairn::testing
