// SPDX-License-Identifier: Apache-2.0
//
// Property: Exists reports what exists, whether the directory knows all, is being filled, or has no
// room; objects go whole, the deepest first, and one that was touched is passed over once.
#include <random>

#include "engine/store/store_core.h"
#include "tests/engine/objects_test.h"

namespace cairn::testing {
namespace {

class ObjectDirectoryTest : public ObjectsTest {
 protected:
  std::string KeyAt(uint64_t i) { return "key " + std::to_string(i); }
  // The answers of Exists for the first `count` keys, as a text of 0 and 1.
  std::string Seen(uint64_t count) {
    std::vector<std::string> keys;
    for (uint64_t i = 0; i < count; ++i) keys.push_back(KeyAt(i));
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    auto found = Space().Exists(views);
    EXPECT_OK(found);
    std::string text;
    for (uint64_t i = 0; i < count; ++i) text += (*found)[i] ? '1' : '0';
    EXPECT_EQ(std::count(text.begin(), text.end(), '1'), static_cast<int64_t>(found->count));
    EXPECT_EQ(std::min(text.find('0'), text.size()), found->leading);
    return text;
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, ObjectDirectoryTest, ::testing::Values("threads", "simulated"),
                         NameOf);

TEST_P(ObjectDirectoryTest, TellsWhatIsThere) {
  constexpr uint64_t kKeys = 700;
  std::mt19937_64 random(1);
  std::string there(kKeys, '0');
  const auto value = Content(1, 40);
  for (int round = 0; round < 12; ++round) {
    std::vector<std::string> keys;
    std::vector<ObjectPut> puts;
    std::vector<uint64_t> picked;
    for (int i = 0; i < 100; ++i) picked.push_back(random() % kKeys);
    for (const uint64_t i : picked) keys.push_back(KeyAt(i));
    if (round % 3 == 2) {
      const std::vector<std::string_view> views(keys.begin(), keys.end());
      ASSERT_OK(Space().Delete(views));
    } else {
      for (const std::string& key : keys) puts.push_back({.key = key, .value = value});
      ASSERT_OK(Space().PutBatch(
          puts, {.object_class = class_,
                 .if_present = round % 2 == 0 ? IfPresent::kKeep : IfPresent::kReplace}));
    }
    for (const uint64_t i : picked) there[i] = round % 3 == 2 ? '0' : '1';
    EXPECT_EQ(there, Seen(kKeys)) << round;
    if (round % 4 == 3) {
      Reopen();
      EXPECT_EQ(there, Seen(kKeys)) << "while it may be filled";
      ASSERT_TRUE(AwaitDirectory());
      EXPECT_EQ(there, Seen(kKeys));
    }
  }
  const StoreMetrics metrics = store_.Metrics();
  EXPECT_EQ(static_cast<uint64_t>(std::count(there.begin(), there.end(), '1')),
            metrics.object_directory_entries);
  EXPECT_GT(metrics.object_directory_bytes, 0u);
  // The index is not asked: nothing is loaded for keys that are not in memory.
  Reopen();
  ASSERT_TRUE(AwaitDirectory());
  const uint64_t unknown = store_.Metrics().objects_unknown;
  EXPECT_EQ(there, Seen(kKeys));
  EXPECT_EQ(unknown, store_.Metrics().objects_unknown);
}

TEST_P(ObjectDirectoryTest, WhatItDoesNotKnowTheIndexIsAskedFor) {
  const auto value = Content(1, 8);
  for (uint64_t i = 0; i < 50; i += 2) ASSERT_OK(Put(KeyAt(i), value).status);
  ASSERT_OK(store_.Compact());
  Reopen();
  store_.core()->objects().directory().Close();
  EXPECT_EQ(0u, store_.Metrics().object_directory_entries);
  std::string there;
  for (uint64_t i = 0; i < 50; ++i) there += i % 2 == 0 ? '1' : '0';
  EXPECT_EQ(there, Seen(50));
  EXPECT_EQ(50u, store_.Metrics().objects_unknown);
  EXPECT_EQ(0u, store_.Metrics().tree_loads) << "memory is left as it is";
  ASSERT_OK(Delete(KeyAt(0)));
  ASSERT_OK(Put(KeyAt(1), value).status);
  std::swap(there[0], there[1]);
  EXPECT_EQ(there, Seen(50));
}

TEST_P(ObjectDirectoryTest, AnObjectGoesWholeTheDeepestFirst) {
  const auto value = Content(1, 8192);
  ASSERT_OK(Space().SetPolicy("t", {.max_bytes = 6 * 8400, .evict = Evict::kKv}));
  std::vector<ObjectPut> puts;
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < 5; ++i) keys.push_back(KeyAt(i));
  for (uint64_t i = 0; i < 5; ++i) {
    puts.push_back({.key = keys[i], .value = value, .depth = static_cast<uint32_t>(i)});
  }
  ASSERT_OK(Space().PutBatch(puts, {.ns = "t", .object_class = class_}));
  ASSERT_OK(Put("pinned", value, {.ns = "t", .pinned = true}).status);
  for (int i = 0; i < 3; ++i) {
    const PutResult put = Put("new " + std::to_string(i), value, {.ns = "t"});
    ASSERT_OK(put.status);
    EXPECT_TRUE(put.stored);
  }
  EXPECT_TRUE(Has("pinned", "t"));
  EXPECT_FALSE(Has(keys[4], "t"));
  EXPECT_TRUE(Has(keys[0], "t"));
  EXPECT_GT(store_.Metrics().evicted_branches, 0u);
  EXPECT_EQ(0u, store_.Metrics().missing_kv_bytes) << "no object is there without its bytes";
  for (const std::string& key : Keys("t")) EXPECT_EQ(value, Get(key, "t")) << key;
  // Larger than the cap: nothing goes for it in vain, and nothing of it is left.
  const size_t before = Keys("t").size();
  EXPECT_FAILS(Put("huge", Content(2, 100'000), {.ns = "t"}).status, StatusCode::kNoSpace,
               "max_bytes of namespace");
  EXPECT_EQ(before, Keys("t").size());
  EXPECT_EQ(before, Space().Usage()->at(0).branches);
}

// Else a pass would walk over all objects that were touched before it frees anything.
TEST_P(ObjectDirectoryTest, SomeThousandThatWereTouchedArePassedOverTheNextGoes) {
  constexpr uint64_t kSpared = 2048, kKeys = kSpared + 600;
  const auto value = Content(1, 400);
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < kKeys; ++i) keys.push_back(KeyAt(i));
  std::vector<ObjectPut> puts;
  for (const std::string& key : keys) puts.push_back({.key = key, .value = value});
  ASSERT_OK(Space().PutBatch(puts, {.object_class = class_}));
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  ASSERT_OK(Space().Touch(views));
  // Objects beyond seven eighths of the cap are evicted, down to three quarters: 15 of 100 of
  // these.
  const uint64_t cap = Space().Usage()->at(0).bytes / 88 * 100;
  ASSERT_OK(Space().SetPolicy("", {.max_bytes = cap, .evict = Evict::kBranches}));
  for (int i = 0; i < 1000 && Space().Usage()->at(0).bytes > cap / 8 * 7; ++i) {
    ASSERT_OK(store_.Compact());
    world_->world().scheduler->Sleep(1'000'000);
  }
  const std::string there = Seen(kKeys);
  EXPECT_EQ(kSpared, there.find('0')) << "the first that goes";
  const uint64_t gone = static_cast<uint64_t>(std::count(there.begin(), there.end(), '0'));
  EXPECT_GT(gone, 200u);
  EXPECT_LT(gone, 600u);
  EXPECT_GE(store_.Metrics().evicted_bytes, gone * value.size());
}

TEST_P(ObjectDirectoryTest, WhatWasTouchedIsPassedOverOnce) {
  const auto value = Content(1, 8192);
  ASSERT_OK(Space().SetPolicy("", {.max_bytes = 8 * 8400, .evict = Evict::kBranches}));
  for (uint64_t i = 0; i < 8; ++i) {
    ASSERT_OK(Put(KeyAt(i), value).status);
    world_->world().scheduler->Sleep(2'000'000);
  }
  const std::vector<std::string> keys = {KeyAt(0), KeyAt(1)};
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  const uint64_t sequence = store_.Metrics().last_sequence;
  ASSERT_OK(Space().Touch(views));
  EXPECT_EQ(sequence, store_.Metrics().last_sequence);
  ASSERT_OK(Put("new", value).status);
  EXPECT_TRUE(Has(KeyAt(0)) && Has(KeyAt(1)));
  EXPECT_FALSE(Has(KeyAt(2)));
  // All of them: somebody goes all the same.
  const std::vector<std::string> rest = Keys();
  const std::vector<std::string_view> all(rest.begin(), rest.end());
  ASSERT_OK(Space().Touch(all));
  for (int i = 0; i < 6; ++i) ASSERT_OK(Put("newer " + std::to_string(i), value).status);
}

// A record of a batch holds thousands of ops, and a replay takes as long as these do.
TEST_P(ObjectDirectoryTest, AnOpeningReplaysFewOps) {
  constexpr uint64_t kCount = 2000;
  const auto value = Content(1, 8);
  std::vector<std::string> keys;
  std::vector<ObjectPut> puts;
  for (uint64_t i = 0; i < kCount; ++i) keys.push_back(KeyAt(i));
  for (const std::string& key : keys) puts.push_back({.key = key, .value = value});
  ASSERT_OK(Space().PutBatch(puts, {.object_class = class_}));
  const uint64_t records = store_.Metrics().last_sequence;
  EXPECT_LT(records, world_->options().replay_records_max / 16) << "as records they are few";
  Reopen();
  EXPECT_LT(store_.Metrics().replayed_records, records / 4);
  EXPECT_EQ(std::string(kCount, '1'), Seen(kCount));
}

TEST_P(ObjectDirectoryTest, TimeToLive) {
  const auto value = Content(1, 100);
  ASSERT_OK(Space().SetPolicy("t", {.ttl_ns = 3'000'000'000}));
  ASSERT_OK(Put("of the namespace", value, {.ns = "t"}).status);
  ASSERT_OK(Put("large", Content(2, 300'000), {.ns = "t"}).status);
  ASSERT_OK(Put("its own", value, {.ttl_ns = 3'000'000'000}).status);
  ASSERT_OK(Put("pinned", value, {.pinned = true, .ttl_ns = 3'000'000'000}).status);
  ASSERT_OK(Put("none", value).status);
  EXPECT_EQ(3'000'000'000u, Space().Stat("large", "t")->ttl_ns);
  if (GetParam() != "simulated") return;  // Seconds of a machine's time.
  world_->world().scheduler->Sleep(10'000'000'000);
  EXPECT_FALSE(Has("of the namespace", "t"));
  EXPECT_FALSE(Has("large", "t"));
  EXPECT_FALSE(Has("its own"));
  EXPECT_TRUE(Has("pinned"));
  EXPECT_TRUE(Has("none"));
}

}  // namespace
}  // namespace cairn::testing
