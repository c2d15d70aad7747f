// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever a crash, a full disk or a failing one leaves, an object survives as it was
// given or not at all, one that was replaced is the old or the new one, what was acknowledged
// survives, and nothing of a put that did not come through stays.
#include <cerrno>

#include "sim/world.h"
#include "tests/engine/objects_test.h"
#include "tests/support/power_cuts.h"

namespace cairn::testing {
namespace {

constexpr uint32_t kPage = 512;

class ObjectCrashTest : public ::testing::Test {
 protected:
  static Options OptionsOf(const io::SimWorld& sim) {
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(sim.world());
    return options;
  }
  static Status PutOne(Store& store, std::string_view key, std::span<const std::byte> value,
                       IfPresent if_present = IfPresent::kKeep) {
    Objects space(store);
    CAIRN_ASSIGN_OR_RETURN(const ObjectClassId id,
                           space.RegisterClass({.name = "pages", .page_bytes = kPage}));
    const ObjectPut put{.key = key, .value = value};
    CAIRN_ASSIGN_OR_RETURN(const std::vector<PutResult> results,
                           space.PutBatch({&put, 1}, {.object_class = id,
                                                      .if_present = if_present,
                                                      .durability = Durability::kPower}));
    return results[0].status;
  }
  // Its bytes; none: it is not there.
  static std::vector<std::byte> GetOne(Store& store, std::string_view key) {
    Objects space(store);
    const auto info = space.Stat(key);
    if (info.status().code() == StatusCode::kNotFound) return {};
    EXPECT_OK(info);
    std::vector<std::byte> into(info.ok() ? info->bytes : 0);
    const ObjectGet get{.key = key, .into = into};
    const auto got = space.GetBatch({&get, 1});
    EXPECT_OK(got);
    EXPECT_OK((*got)[0].status);
    return into;
  }
};

TEST_F(ObjectCrashTest, PowerCutBeforeEveryOperation) {
  // A small one, and two in parts; then each is replaced by the next.
  const std::vector<std::byte> small = Content(1, 1300), parts = Content(2, 300'001),
                               more = Content(3, 500'000);
  io::SimWorld sim = io::MakeSimWorld(1);
  PowerCuts cuts(sim);
  const std::vector<const std::vector<std::byte>*> steps = {&small, &parts, &more, &parts, &small};
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", OptionsOf(sim)));
    ASSERT_OK(PutOne(store, "other", small));
    cuts.Begin();
    for (const auto* value : steps) {
      ASSERT_OK(PutOne(store, "a", *value, IfPresent::kReplace));
      cuts.Acknowledge();
    }
    cuts.End();
    ASSERT_OK(store.Close());
  }
  ASSERT_GT(cuts.machines().size(), 50U);
  uint64_t swept = 0;
  for (const PowerCuts::Machine& one : cuts.machines()) {
    SCOPED_TRACE("power lost before " + one.when + ", acknowledged " +
                 std::to_string(one.acknowledged));
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", OptionsOf(one.world)));
    EXPECT_EQ(small, GetOne(store, "other"));
    const std::vector<std::byte> got = GetOne(store, "a");
    const auto at = static_cast<size_t>(one.acknowledged);
    const std::vector<std::byte> before = at == 0 ? std::vector<std::byte>() : *steps[at - 1];
    EXPECT_TRUE(got == before || (at < steps.size() && got == *steps[at])) << got.size();
    // Unfinished puts are swept in the background.
    const uint64_t objects = got.empty() ? 1 : 2;
    swept += Objects(store).Usage()->at(0).branches != objects;
    for (int look = 0; look < 1000; ++look) {
      if (Objects(store).Usage()->at(0).branches == objects) break;
      one.world.world().scheduler->Sleep(1'000'000);
    }
    EXPECT_EQ(objects, Objects(store).Usage()->at(0).branches);
    EXPECT_EQ(objects, Objects(store).List("", 10)->objects.size());
    EXPECT_EQ(got, GetOne(store, "a"));
    ASSERT_OK(store.Close());
  }
  EXPECT_GT(swept, 0u) << "no crash left anything of a put";
}

TEST_F(ObjectCrashTest, AFullStoreSaysSoAndTakesObjectsAgain) {
  io::SimWorld sim = io::MakeSimWorld(1);
  Options options = OptionsOf(sim);
  options.max_bytes = 4 << 20;
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  uint64_t count = 0;
  Status status;
  for (; status.ok() && count < 200; ++count) {
    status = PutOne(store, "key " + std::to_string(count), Content(count, 60'000));
  }
  EXPECT_FAILS(status, StatusCode::kNoSpace);
  --count;
  ASSERT_GT(count, 10u);
  EXPECT_FAILS(PutOne(store, "large", Content(1, 300'000)), StatusCode::kNoSpace);
  EXPECT_FAILS(PutOne(store, "larger", Content(1, 500'000)), StatusCode::kNoSpace);
  EXPECT_EQ(count, Objects(store).Usage()->at(0).branches);
  for (uint64_t i = 0; i < count; ++i) {
    EXPECT_EQ(Content(i, 60'000), GetOne(store, "key " + std::to_string(i)));
  }
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < count; i += 2) keys.push_back("key " + std::to_string(i));
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  ASSERT_OK_ASSIGN(const std::vector<Status> deleted, Objects(store).Delete(views));
  for (const Status& one : deleted) EXPECT_OK(one);
  ASSERT_OK(store.Compact());
  EXPECT_OK(PutOne(store, "large", Content(1, 300'000)));
  EXPECT_EQ(Content(1, 300'000), GetOne(store, "large"));
  ASSERT_OK(store.Close());
}

// The device itself is full: no file can be made, and none gets blocks.
TEST_F(ObjectCrashTest, AFullDiskSaysSoAndTakesObjectsAgain) {
  io::SimWorld sim = io::MakeSimWorld(1);
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", OptionsOf(sim)));
  ASSERT_OK(PutOne(store, "first", Content(0, 1000)));
  sim.disk->AddFault({.when =
                          [](const io::SimOperation& one) {
                            return one.op == io::SimOp::kAllocate || one.op == io::SimOp::kCreate;
                          },
                      .error = ENOSPC,
                      .persistent = true});
  std::vector<std::string> there;
  Status status;
  for (uint64_t i = 0; status.ok() && i < 100; ++i) {
    const std::string key = "key " + std::to_string(i);
    status = PutOne(store, key, Content(i, 60'000));
    if (status.ok()) there.push_back(key);
  }
  EXPECT_FAILS(status, StatusCode::kNoSpace);
  EXPECT_FALSE(PutOne(store, "parts", Content(1, 300'000)).ok());
  EXPECT_FALSE(PutOne(store, "table", Content(1, 500'000)).ok());
  for (uint64_t i = 0; i < there.size(); ++i)
    EXPECT_EQ(Content(i, 60'000), GetOne(store, there[i]));
  EXPECT_EQ(there.size() + 1, Objects(store).List("", 200)->objects.size());
  sim.disk->ClearFaults();
  EXPECT_OK(store.poisoned());
  // That there is room again is found by who wants some.
  for (int tries = 0; tries < 50 && !PutOne(store, "parts", Content(1, 300'000)).ok(); ++tries) {
    sim.scheduler->Sleep(20'000'000);
  }
  EXPECT_EQ(Content(1, 300'000), GetOne(store, "parts"));
  EXPECT_EQ(there.size() + 2, Objects(store).Usage()->at(0).branches);
  ASSERT_OK(store.Close());
}

// The log fails: what was acknowledged survives, and Exists says what Get does.
TEST_F(ObjectCrashTest, AfterThatTheLogFailedNothingIsThereThatWasTakenBack) {
  io::SimWorld sim = io::MakeSimWorld(1);
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", OptionsOf(sim)));
  const auto value = Content(1, 1000);
  ASSERT_OK(PutOne(store, "safe", value));
  sim.disk->AddFault({.when =
                          [](const io::SimOperation& one) {
                            return one.changes_world() && one.path.find("/log/") != one.path.npos;
                          },
                      .error = EIO,
                      .persistent = true});
  EXPECT_FALSE(PutOne(store, "lost", value).ok());
  sim.disk->ClearFaults();
  EXPECT_FAILS(store.poisoned(), StatusCode::kPoisoned);
  const std::string_view keys[] = {"safe", "lost"};
  ASSERT_OK_ASSIGN(const ObjectsFound found, Objects(store).Exists(keys));
  EXPECT_TRUE(found[0]);
  EXPECT_FALSE(found[1]);
  EXPECT_EQ(value, GetOne(store, "safe"));
  EXPECT_TRUE(GetOne(store, "lost").empty());
  EXPECT_FAILS(PutOne(store, "more", value), StatusCode::kPoisoned);
}

}  // namespace
}  // namespace cairn::testing
