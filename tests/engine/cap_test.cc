// SPDX-License-Identifier: Apache-2.0
//
// Property: a store at its cap goes on working. Work that gives space back always finds room, in
// the reserve, for its own writes: the log is given back and tables are rewritten, however full of
// live content the store is, and freed space can be used again. Method: small caps, content that no
// codec packs, and the ledger; cap_slow_test.cc looks at blocks.
#include <algorithm>
#include <deque>

#include "base/core/text.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kCap = 4 << 20;
constexpr uint64_t kTokens = 32;  // 256 KiB.
constexpr uint64_t kSecond = 1'000'000'000;

class FullStoreTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (world_ == nullptr) return;
    options_ = world_->options();
    options_.max_bytes = kCap;
    options_.listener = std::make_shared<EventListener>();
    Reopen(options_);
    id_ = Register(model_);
  }
  std::string NameOf(int number) const { return "b" + std::to_string(number); }
  // Makes branches of kTokens positions until there is no space, and none comes.
  void Fill() {
    for (int refused = 0; refused < 20;) {
      const Status added = Add();
      if (added.ok()) {
        ASSERT_LT(live_.size(), 100U) << "the space never ran out";
        continue;
      }
      ASSERT_EQ(StatusCode::kNoSpace, added.code()) << added.ToString();
      ++refused;
      world_->world().scheduler->Sleep(kSecond / 100);
    }
  }
  Status Add() {
    const std::string name = NameOf(next_);
    auto found = store_.FindBranch(name);
    if (!found.ok()) found = store_.CreateBranch(id_, {.name = name});
    if (found.ok()) {
      const auto appended = AppendSome(*found, model_, 0, kTokens);
      if (appended.ok()) live_.push_back(next_++);
      return appended.status();
    }
    return found.status();
  }
  // Branches "many0" and so on, without content.
  std::vector<Branch> MakeEmpty(int count) {
    std::vector<Branch> many;
    for (int i = 0; i < count; ++i) {
      UntilOk([&] {
        auto made = store_.CreateBranch(id_, {.name = "many" + std::to_string(i)});
        if (made.ok()) many.push_back(*made);
        return made.status();
      });
    }
    return many;
  }
  void CheckLive() {
    for (const int number : live_) {
      EXPECT_TRUE(HasKv(Find(NameOf(number)), model_, 0, kTokens)) << number;
    }
    EXPECT_LE(store_.Metrics().physical_bytes, kCap);
  }
  // While the background has something to do it may take some time.
  void UntilOk(const std::function<Status()>& call) {
    Status status;
    for (int i = 0; i < 500; ++i) {
      status = call();
      if (status.ok()) return;
      world_->world().scheduler->Sleep(kSecond / 100);
    }
    ADD_FAILURE() << status.ToString();
  }

  const ModelSpec model_ = WideModel();
  Options options_;
  ModelId id_{};
  int next_ = 0;
  std::deque<int> live_;  // Oldest first.
};
INSTANTIATE_TEST_SUITE_P(Worlds, FullStoreTest, ::testing::ValuesIn(TestWorld::Names()),
                         cairn::testing::NameOf);

TEST_P(FullStoreTest, CompactGivesTheLogBackThoughAllIsAlive) {
  ASSERT_OK(store_.PauseBackground());
  Fill();
  const StoreMetrics before = store_.Metrics();
  EXPECT_GT(before.log_segments, 8U) << "the log has nearly all";
  ASSERT_OK(store_.ResumeBackground());
  ASSERT_OK(store_.Compact());
  const StoreMetrics after = store_.Metrics();
  EXPECT_LE(after.log_segments, 2U);
  EXPECT_GE(after.table_bytes, live_.size() * kTokens * model_.token_bytes());
  CheckLive();
  Reopen(options_);
  CheckLive();
}

TEST_P(FullStoreTest, WhatIsDroppedAtTheCapCanBeUsedAgain) {
  ASSERT_OK(store_.PauseBackground());
  Fill();
  const size_t full = live_.size();
  // The younger half: what gives the log back begins with what is alive.
  for (size_t i = 0; i < full / 2; ++i) {
    ASSERT_OK(Find(NameOf(live_.back())).Drop());
    live_.pop_back();
  }
  ASSERT_OK(store_.ResumeBackground());
  ASSERT_OK(store_.Compact());
  CheckLive();
  Fill();
  EXPECT_GE(live_.size(), full - 2);
  Reopen(options_);
  CheckLive();
}

TEST_P(FullStoreTest, GoesOnForEver) {
  Fill();
  // A tenth of the tables may be dead, and the log has some that is.
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(Find(NameOf(live_.back())).Drop());
    live_.pop_back();
  }
  const StoreMetrics begin = store_.Metrics();
  while (store_.Metrics().kv_bytes_appended - begin.kv_bytes_appended < 10 * kCap &&
         !HasFailure()) {
    // One of the oldest, or of the youngest goes, and one comes.
    const bool oldest = next_ % 3 != 0;
    ASSERT_OK(Find(NameOf(oldest ? live_.front() : live_.back())).Drop());
    oldest ? live_.pop_front() : live_.pop_back();
    UntilOk([&] { return Add(); });
    EXPECT_LE(store_.Metrics().physical_bytes, kCap);
  }
  EXPECT_GT(store_.Metrics().retired_segments, 30U);
  CheckLive();
  Reopen(options_);
  CheckLive();
}

TEST_P(FullStoreTest, ReleasesWorkHoweverManyThereAre) {
  constexpr int kMany = 400;  // More than the ballast of two segments has room for.
  std::vector<Branch> many = MakeEmpty(kMany);
  Fill();
  ASSERT_OK(store_.Compact());
  Fill();
  // The space that they leave is for the next, and not for data.
  for (Branch& branch : many) {
    UntilOk([&] { return branch.Drop(Durability::kPower); });
    ASSERT_FALSE(HasFailure());
    auto more = Find(NameOf(live_.front()));
    while (AppendSome(more, TokenModel(), *more.length(), 4).ok()) {
    }
    EXPECT_LE(store_.Metrics().physical_bytes, kCap);
  }
  Reopen(options_);
  CheckLive();
  EXPECT_FAILS(store_.FindBranch("many0"), StatusCode::kNotFound);
}

// While the background is paused nobody makes room. Releases leave what it needs to do so later:
// they used that up once, and the store stayed full for ever.
TEST_P(FullStoreTest, ReleasesBesideAPausedBackgroundLeaveItRoomToGoOn) {
  constexpr int kMany = 300;
  std::vector<Branch> many = MakeEmpty(kMany);
  Fill();
  ASSERT_OK(store_.PauseBackground());
  size_t dropped = 0;
  Status refused;
  while (dropped < many.size() && refused.ok()) {
    refused = many[dropped].Drop(Durability::kPower);
    dropped += refused.ok() ? 1 : 0;
  }
  EXPECT_GT(dropped, 50u);
  EXPECT_FAILS(refused, StatusCode::kNoSpace, "the background is paused");
  EXPECT_LE(store_.Metrics().physical_bytes, kCap);
  ASSERT_OK(store_.ResumeBackground());
  for (; dropped < many.size() && !HasFailure(); ++dropped) {
    UntilOk([&] { return many[dropped].Drop(Durability::kPower); });
  }
  UntilOk([&] { return store_.Compact(); });
  Reopen(options_);
  CheckLive();
  EXPECT_FAILS(store_.FindBranch("many0"), StatusCode::kNotFound);
}

TEST_P(FullStoreTest, ARewindGivesBackWhatIsInTables) {
  Fill();
  ASSERT_OK(store_.Compact());
  Fill();
  ASSERT_OK(store_.Compact());
  const uint64_t before = store_.Metrics().table_bytes;
  for (const int number : live_) ASSERT_OK(Find(NameOf(number)).Rewind(4));
  // Nobody asks for it.
  UntilOk([&] {
    return store_.Metrics().table_bytes < before / 3 ? Status::Ok()
                                                     : Status(StatusCode::kBusy, "not yet");
  });
  const size_t rewound = live_.size();
  Fill();
  EXPECT_GE(live_.size(), rewound + rewound / 2);
  for (size_t i = 0; i < rewound; ++i) {
    EXPECT_TRUE(HasKv(Find(NameOf(live_[i])), model_, 0, 4));
  }
}

TEST_P(FullStoreTest, ASmallerCapIsSaidAndLeavesRoomForDrops) {
  ASSERT_OK(store_.PauseBackground());
  Fill();
  ASSERT_OK(store_.Flush());
  std::vector<std::string> events;
  std::mutex mutex;
  options_.max_bytes = kCap / 2;
  options_.listener->on_event = [&](const std::string& line) {
    std::lock_guard lock(mutex);
    events.push_back(line);
  };
  Reopen(options_);
  EXPECT_GT(store_.Metrics().physical_bytes, options_.max_bytes) << "it is what it is";
  {
    std::lock_guard lock(mutex);
    EXPECT_TRUE(std::any_of(events.begin(), events.end(), [](const std::string& line) {
      return line.starts_with("max_bytes is");
    }));
  }
  EXPECT_FAILS(store_.CreateBranch(id_, {.name = "new"}), StatusCode::kNoSpace);
  for (const bool oldest : {true, false, true, false, true, false}) {
    ASSERT_OK(Find(NameOf(oldest ? live_.front() : live_.back())).Drop());
    oldest ? live_.pop_front() : live_.pop_back();
  }
  // Work without room is done when something was freed.
  UntilOk([&] { return store_.CreateBranch(id_, {.name = "new"}).status(); });
  EXPECT_LE(store_.Metrics().physical_bytes, options_.max_bytes);
  CheckLive();
  Reopen(world_->options());
}

// Nothing can be given back as long as no table can be written. Releases that went on until the log
// was full would leave no room for what gives space back later; nor would rounds that leave a
// memtable of the index each, which are as many tables then.
TEST(FullDiskInSimulationTest, ReleasesThatFreeNothingAreRefusedInTime) {
  const io::SimWorld machine = io::MakeSimWorld(4);
  Options options = TinyOptions();
  options.max_bytes = kCap;
  options.world = std::make_shared<io::World>(machine.world());
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  std::vector<Branch> many;
  for (int i = 0; i < 600; ++i) {
    ASSERT_OK_ASSIGN(Branch made, store.CreateBranch(id));
    many.push_back(made);
  }
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  machine.disk->AddFault({.when =
                              [](const io::SimOperation& operation) {
                                return operation.op == io::SimOp::kCreate &&
                                       operation.path.find("/tables/") != std::string::npos;
                              },
                          .error = EIO,
                          .persistent = true});
  uint64_t length = 0;
  while (AppendSome(chat, model, length, 8).ok()) length += 8;
  size_t dropped = 0;
  Status refused;
  while (dropped < many.size() && refused.ok()) {
    refused = many[dropped].Drop(Durability::kPower);
    dropped += refused.ok() ? 1 : 0;
  }
  EXPECT_GT(dropped, 50U);
  EXPECT_FAILS(refused, StatusCode::kNoSpace);
  EXPECT_FAILS(many[dropped].Drop(), StatusCode::kNoSpace);
  EXPECT_LE(store.Metrics().physical_bytes, kCap);

  machine.disk->ClearFaults();
  for (int i = 0; i < 500 && !store.Compact().ok(); ++i) {
    options.world->scheduler->Sleep(kSecond / 100);
  }
  ASSERT_OK(store.Compact());
  for (; dropped < many.size(); ++dropped) ASSERT_OK(many[dropped].Drop(Durability::kPower));
  EXPECT_TRUE(HasKv(chat, model, 0, length));
  ASSERT_OK(store.Close());
}

// Takes what the disk has, as others may.
void TakeAll(io::SimWorld& machine, const std::string& path) {
  const auto file = machine.disk->Open(path, {.write = true, .create = true});
  ASSERT_OK(file.status());
  const std::vector<std::byte> block(io::kBlockBytes);
  Status status;
  for (uint64_t at = 0; status.ok(); at += block.size()) status = (*file)->Write(at, block, true);
  ASSERT_EQ(StatusCode::kNoSpace, status.code()) << status.ToString();
}

// A store of defaults on disks of all sizes: it takes content, gives space back, and is refused by
// what the disk has.
TEST(FullDiskInSimulationTest, AStoreOfDefaultsBeginsOnAnyDisk) {
  struct Disk {
    uint64_t capacity_bytes, segment_bytes;
  };
  for (const auto [capacity_bytes, segment_bytes] :
       {Disk{4 << 20, 256 << 10}, Disk{40 << 20, 1 << 20}, Disk{262 << 20, 8 << 20},
        Disk{uint64_t{4} << 30, 64 << 20}}) {
    SCOPED_TRACE(std::to_string(capacity_bytes) + " bytes");
    io::SimDiskOptions disk;
    disk.capacity_bytes = capacity_bytes;
    io::SimWorld machine = io::MakeSimWorld(5, disk);
    Options options;
    options.create_if_missing = true;
    options.world = std::make_shared<io::World>(machine.world());
    const ModelSpec model = WideModel();
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    EXPECT_EQ(segment_bytes, store.Metrics().segment_bytes);
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    for (int round = 0; round < 3; ++round) {
      ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
      ASSERT_OK(AppendSome(chat, model, 0, 100));
      EXPECT_TRUE(HasKv(chat, model, 0, 100));
      ASSERT_OK(chat.Drop());
    }
    // Another size is the user's to choose; the store has its own by then.
    ASSERT_OK(store.Close());
    ASSERT_OK_ASSIGN(store, Store::Open("/store", options));
    EXPECT_EQ(segment_bytes, store.Metrics().segment_bytes);
    ASSERT_OK(store.Close());
  }
}

TEST(FullDiskInSimulationTest, AStoreOfDefaultsFollowsASmallCap) {
  io::SimWorld machine = io::MakeSimWorld(5);
  Options options;
  options.create_if_missing = true;
  options.max_bytes = 20 << 20;
  options.world = std::make_shared<io::World>(machine.world());
  {
    ASSERT_OK_ASSIGN(const Store store, Store::Open("/store", options));
    EXPECT_EQ(512u << 10, store.Metrics().segment_bytes);
  }
  options.segment_bytes = 64 << 20;
  EXPECT_FAILS(Store::Open("/other", options), StatusCode::kInvalidArgument,
               "room for 10 segments");
  options.max_bytes = 2 << 20;
  options.segment_bytes = 0;
  EXPECT_FAILS(Store::Open("/other", options), StatusCode::kInvalidArgument,
               "segment_bytes is 262144");
}

// As `df -h` says it, whatever the store has promised to its own files.
TEST(FullDiskInSimulationTest, TheRefusalSaysWhatTheDiskHas) {
  io::SimDiskOptions disk;
  disk.capacity_bytes = 40 << 20;
  io::SimWorld machine = io::MakeSimWorld(6, disk);
  Options options;
  options.create_if_missing = true;
  options.segment_bytes = 16 << 20;  // Too large for it.
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  const Status refused = store.RegisterModel(TinyModel()).status();
  ASSERT_EQ(StatusCode::kNoSpace, refused.code()) << refused.ToString();
  ASSERT_OK_ASSIGN(const io::DiskSpace space, machine.disk->Space("/store"));
  EXPECT_NE(refused.message().find("the disk has " + BytesText(space.free_bytes) + " available"),
            std::string::npos)
      << refused.message();
}

// Others may take the disk space that is left for giving space back.
TEST(FullDiskInSimulationTest, WithoutRoomForTablesNothingIsLost) {
  io::SimDiskOptions disk;
  disk.capacity_bytes = 3 << 20;
  io::SimWorld machine = io::MakeSimWorld(3, disk);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch first, store.CreateBranch(id, {.name = "first"}));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  ASSERT_OK(AppendSome(first, model, 0, 24));
  uint64_t length = 0;
  while (AppendSome(chat, model, length, 8).ok()) length += 8;
  ASSERT_GT(length, 100U);
  TakeAll(machine, "/others");
  EXPECT_FAILS(store.Compact(), StatusCode::kNoSpace);
  EXPECT_TRUE(HasKv(chat, model, 0, length));
  EXPECT_OK(store.Close()) << "what it gives back of the log is room for a MANIFEST";
  ASSERT_OK_ASSIGN(store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(chat, store.FindBranch("chat"));
  ASSERT_OK_ASSIGN(first, store.FindBranch("first"));
  EXPECT_TRUE(HasKv(first, model, 0, 24));
  EXPECT_TRUE(HasKv(chat, model, 0, length));
  ASSERT_OK(chat.Drop());
  EXPECT_TRUE(HasKv(first, model, 0, 24));
  // When they give it back, all goes on.
  ASSERT_OK(machine.disk->Remove("/others"));
  ASSERT_OK(machine.disk->SyncDirectory("/"));
  ASSERT_OK(store.Compact());
  ASSERT_OK(AppendSome(first, model, 24, 100));
  EXPECT_TRUE(HasKv(first, model, 0, 124));
  ASSERT_OK(store.Close());
}

// A disk full of live data still has room to reclaim the log, and all that is dropped comes back,
// again and again.
TEST(FullDiskInSimulationTest, IsFullOnlyAsLongAsItIsFull) {
  io::SimDiskOptions disk;
  disk.capacity_bytes = 6 << 20;
  io::SimWorld machine = io::MakeSimWorld(7, disk);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  size_t most_of[2] = {};
  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    // In odd rounds in parts.
    const uint64_t at_once = round % 2 == 0 ? kTokens / 4 : kTokens;
    std::vector<Branch> branches;
    for (int refused = 0; refused < 20;) {
      auto made = store.CreateBranch(id);
      uint64_t length = 0;
      Status status = made.status();
      while (status.ok() && length < kTokens) {
        status = AppendSome(*made, model, length, at_once).status();
        if (status.ok()) length += at_once;
      }
      if (made.ok()) branches.push_back(*made);
      if (status.ok()) continue;
      ASSERT_EQ(StatusCode::kNoSpace, status.code()) << status.ToString();
      ++refused;
      options.world->scheduler->Sleep(kSecond / 100);
    }
    size_t& most = most_of[round % 2];
    most = std::max(most, branches.size());
    EXPECT_GT(branches.size(), most - most / 4);
    ASSERT_OK(store.Compact());
    for (Branch& branch : branches) {
      EXPECT_TRUE(HasKv(branch, model, 0, *branch.length()));
      ASSERT_OK(branch.Drop());
    }
    ASSERT_OK(store.Compact());
    EXPECT_EQ(0U, store.Metrics().table_live_bytes);
    if (round == 3) {
      ASSERT_OK(store.Close());
      ASSERT_OK_ASSIGN(store, Store::Open("/store", options));
    }
  }
  ASSERT_OK(store.Close());
}

// Nobody calls Compact, and nothing may be evicted: what was dropped comes back all the same.
TEST(FullDiskInSimulationTest, WhatIsDroppedComesBackByItself) {
  io::SimDiskOptions disk;
  disk.capacity_bytes = 6 << 20;
  const io::SimWorld machine = io::MakeSimWorld(5, disk);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  std::vector<Branch> branches;
  for (bool full = false; !full;) {
    auto made = store.CreateBranch(id);
    full = !made.ok() || !AppendSome(*made, model, 0, kTokens).ok();
    if (made.ok()) branches.push_back(*made);
  }
  ASSERT_GT(branches.size(), 5U);
  for (Branch& branch : branches) ASSERT_OK(branch.Drop());
  Status appended(StatusCode::kNoSpace, "");
  for (int i = 0; i < 300 && !appended.ok(); ++i) {
    options.world->scheduler->Sleep(kSecond / 100);
    auto made = store.CreateBranch(id);
    appended = made.ok() ? AppendSome(*made, model, 0, kTokens).status() : made.status();
  }
  EXPECT_OK(appended);
  // The earlier attempt left nothing in the log that would have to be given back as well.
  EXPECT_LT(store.Metrics().retired_segments, 30U);
}

TEST(CapOptionTest, ACapThatHoldsNoStoreIsRefused) {
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.max_bytes = 10 * options.segment_bytes - 1;
  EXPECT_FAILS(world->Open(options), StatusCode::kInvalidArgument, "options.max_bytes");
  options.max_bytes += 1;
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  for (int i = 0; i < 40; ++i) {
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id));
    ASSERT_OK(AppendSome(branch, model, 0, 16));
    ASSERT_OK(branch.Drop());
    ASSERT_OK(store.Compact());
    options.world->scheduler->Sleep(kSecond / 50);  // The log looks for a segment again.
  }
  EXPECT_LE(store.Metrics().physical_bytes, options.max_bytes);
}

}  // namespace
}  // namespace cairn::testing
