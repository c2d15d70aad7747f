// SPDX-License-Identifier: Apache-2.0
//
// Property: a checkpoint is a store that holds exactly the changes up to the sequence it names, all
// acknowledged ones among them; it is whole and durable or it does not open; and neither of the two
// stores notices what becomes of the other.
// Method: in every world checkpoints are made of sealed, unsealed and busy stores and compared; on
// the simulated disk every operation of making one fails once, and the power is cut before each.
#include <array>
#include <atomic>
#include <cerrno>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

// A store with a sealed branch ("sealed", 40 positions) and, in the log, "late" (12) forked off it.
void FillStore(Store& store, const ModelSpec& model) {
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch sealed, store.CreateBranch(id, {.name = "sealed"}));
  ASSERT_OK(AppendSome(sealed, model, 0, 40));
  ASSERT_OK(store.Compact());
  ASSERT_OK_ASSIGN(Branch late, sealed.ForkAt(10, {.name = "late"}));
  ASSERT_OK(AppendSome(late, model, 10, 2));
}

void CheckStore(const Store& store, const ModelSpec& model) {
  ASSERT_OK_ASSIGN(const Branch sealed, store.FindBranch("sealed"));
  ASSERT_OK_ASSIGN(const Branch late, store.FindBranch("late"));
  EXPECT_EQ(40U, *sealed.length());
  EXPECT_EQ(12U, *late.length());
  EXPECT_TRUE(HasKv(sealed, model, 0, 40));
  EXPECT_TRUE(HasKv(late, model, 0, 12));
  ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
  EXPECT_EQ(0U, report.damages.size());
}

class CheckpointTest : public WorldTest {
 protected:
  std::string Target(const std::string& name = "copy") const { return world_->path() + "-" + name; }
  Result<Store> OpenAt(const std::string& path) {
    Options options = world_->options();
    options.create_if_missing = false;
    return Store::Open(path, options);
  }
  io::FileSystem& files() { return *world_->world().files; }
};

TEST_P(CheckpointTest, HoldsWhatWasThereAndNothingLater) {
  const ModelSpec model = WideModel();
  FillStore(store_, model);
  uint64_t done = 0, total = 0;
  ASSERT_OK_ASSIGN(const CheckpointInfo info,
                   store_.Checkpoint(Target(), [&](uint64_t now, uint64_t of) {
                     EXPECT_LT(done, now);
                     EXPECT_LE(now, of);
                     done = now;
                     total = of;
                   }));
  EXPECT_GT(total, 0U);
  EXPECT_EQ(info.copied_bytes, done);
  EXPECT_EQ(store_.Metrics().last_sequence, info.sequence);
  EXPECT_GE(info.linked_tables, 2U) << "a snapshot table and one of the index";
  EXPECT_EQ(0U, info.copied_tables);
  Branch late = Find("late");
  ASSERT_OK(AppendSome(late, model, 12, 5));
  {
    ASSERT_OK_ASSIGN(Store copy, OpenAt(Target()));
    EXPECT_EQ(info.sequence, copy.Metrics().last_sequence);
    EXPECT_EQ("", copy.recovery_note());
    CheckStore(copy, model);
    // The copy goes on independently.
    ASSERT_OK_ASSIGN(Branch other, copy.FindBranch("late"));
    ASSERT_OK(AppendSome(other, model, 12, 50, kSeed + 1));
    ASSERT_OK(copy.Compact());
    ASSERT_OK(copy.Close());
  }
  EXPECT_TRUE(HasKv(late, model, 0, 17));
  ASSERT_OK_ASSIGN(const Store copy, OpenAt(Target()));
  ASSERT_OK_ASSIGN(const Branch other, copy.FindBranch("late"));
  EXPECT_EQ(62U, *other.length());
}

// A copy of three tokens took a whole segment.
TEST_P(CheckpointTest, TakesWhatIsWrittenAndOpensInEveryMode) {
  const ModelSpec model = WideModel();
  FillStore(store_, model);
  ASSERT_OK(store_.Close());
  ASSERT_OK_ASSIGN(store_, OpenAt(world_->path()));  // Another segment, of which little is used.
  Branch late = Find("late");
  ASSERT_OK(AppendSome(late, model, 12, 3));
  ASSERT_OK_ASSIGN(const CheckpointInfo info, store_.Checkpoint(Target()));
  uint64_t bytes = 0;
  ASSERT_OK_ASSIGN(const auto names, files().List(Target() + "/log"));
  for (const std::string& name : names) {
    ASSERT_OK_ASSIGN(const io::FileInfo file, files().Info(Target() + "/log/" + name));
    bytes += file.bytes;
  }
  EXPECT_EQ(info.copied_bytes, bytes);
  const auto check = [&](const Store& copy, uint64_t tokens) {
    ASSERT_OK_ASSIGN(const Branch branch, copy.FindBranch("late"));
    EXPECT_EQ(tokens, *branch.length());
    EXPECT_TRUE(HasKv(branch, model, 0, tokens));
    ASSERT_OK_ASSIGN(const VerifyReport report, copy.Verify(VerifyLevel::kAll));
    EXPECT_EQ(0U, report.damages.size());
    EXPECT_EQ("", copy.recovery_note());
  };
  const auto follow = [&](Recovery recovery) {
    Options options = world_->options();
    options.create_if_missing = false;
    options.read_only = true;
    options.recovery = recovery;
    return Store::Open(Target(), options);
  };
  for (const Recovery recovery : {Recovery::kRefuse, Recovery::kSetAside}) {
    ASSERT_OK_ASSIGN(const Store looked_at, follow(recovery));
    check(looked_at, 15);
  }
  for (uint64_t tokens = 15; tokens < 18; ++tokens) {
    ASSERT_OK_ASSIGN(Store copy, OpenAt(Target()));
    check(copy, tokens);
    ASSERT_OK_ASSIGN(Branch grows, copy.FindBranch("late"));
    ASSERT_OK(AppendSome(grows, model, tokens, 1));
    ASSERT_OK(copy.Flush());
    ASSERT_OK_ASSIGN(const Store beside, follow(Recovery::kRefuse));
    check(beside, tokens + 1);
    if (tokens == 16) {
      ASSERT_OK(copy.Compact());
    }
    const std::string again = Target("again-" + std::to_string(tokens));
    ASSERT_OK(copy.Checkpoint(again));
    ASSERT_OK_ASSIGN(const Store copied_again, OpenAt(again));
    check(copied_again, tokens + 1);
    ASSERT_OK(copy.Close());
  }
}

TEST_P(CheckpointTest, LinkedTablesOutliveTheStoreThatMadeThem) {
  const ModelSpec model = WideModel();
  FillStore(store_, model);
  ASSERT_OK(store_.Checkpoint(Target()));
  ASSERT_OK(Find("sealed").Drop());
  ASSERT_OK(Find("late").Drop());
  ASSERT_OK(store_.Compact());
  ASSERT_OK_ASSIGN(const auto names, files().List(world_->path() + "/tables"));
  for (const std::string& name : names) {
    EXPECT_FALSE(name.ends_with(".snapshot")) << name;
  }
  ASSERT_OK_ASSIGN(const Store copy, OpenAt(Target()));
  CheckStore(copy, model);
}

TEST_P(CheckpointTest, ANewStoreAndACopyOfACopy) {
  ASSERT_OK_ASSIGN(const CheckpointInfo empty, store_.Checkpoint(Target("empty")));
  EXPECT_EQ(0U, empty.sequence);
  ASSERT_OK_ASSIGN(Store first, OpenAt(Target("empty")));
  const ModelSpec model = TinyModel();
  FillStore(first, model);
  ASSERT_OK(files().CreateDirectory(Target("second")));
  ASSERT_OK(first.Checkpoint(Target("second"))) << "an empty directory is as good as none";
  ASSERT_OK(first.Close());
  ASSERT_OK_ASSIGN(const Store second, OpenAt(Target("second")));
  CheckStore(second, model);
}

TEST_P(CheckpointTest, APlaceThatIsTakenIsLeftAlone) {
  ASSERT_OK(store_.Checkpoint(Target("store")));
  EXPECT_FAILS(store_.Checkpoint(Target("store")), StatusCode::kAlreadyExists, Target("store"));
  EXPECT_FAILS(store_.Checkpoint(world_->path()), StatusCode::kAlreadyExists, world_->path());
  ASSERT_OK(files().CreateDirectory(Target("full")));
  ASSERT_OK(files().Open(Target("full") + "/thesis", {.write = true, .create = true}));
  EXPECT_FAILS(store_.Checkpoint(Target("full")), StatusCode::kInvalidState, "thesis");
  EXPECT_FAILS(store_.Checkpoint(Target("full") + "/thesis"), StatusCode::kInvalidState, "a file");
  EXPECT_EQ(std::vector<std::string>{"thesis"}, *files().List(Target("full")));
  EXPECT_FAILS(store_.Checkpoint(Target("none") + "/copy"), StatusCode::kNotFound, "none");
  EXPECT_FAILS(store_.Checkpoint(""), StatusCode::kInvalidArgument);
  EXPECT_FAILS(store_.Checkpoint(world_->path() + "/tables/copy"), StatusCode::kInvalidArgument,
               "within the store");
  // Somebody else is making one there, and just has the lock.
  ASSERT_OK(files().CreateDirectory(Target("busy")));
  ASSERT_OK_ASSIGN(const auto lock, files().Lock(Target("busy") + "/LOCK"));
  EXPECT_FAILS(store_.Checkpoint(Target("busy")), StatusCode::kInvalidState, "LOCK");
}

TEST_P(CheckpointTest, OnlyAStoreThatWritesCanMakeOne) {
  ASSERT_OK(store_.Close());
  EXPECT_FAILS(store_.Checkpoint(Target()), StatusCode::kInvalidState);
  Options options = world_->options();
  options.create_if_missing = false;
  options.read_only = true;
  ASSERT_OK_ASSIGN(store_, Store::Open(world_->path(), options));
  EXPECT_FAILS(store_.Checkpoint(Target()), StatusCode::kReadOnly);
}

TEST_P(CheckpointTest, IsMadeWhileOthersWriteAndSeal) {
  const ModelSpec model = TinyModel();
  const ModelId id = Register(model);
  constexpr size_t kWriters = 3;
  constexpr uint64_t kPauseNs = 200'000;
  io::Scheduler& scheduler = *world_->world().scheduler;
  std::array<std::atomic<uint64_t>, kWriters> acknowledged{};
  // Bounds the appends made meanwhile: the slower the rounds are, the more there would be, and the
  // slower the rounds.
  constexpr uint64_t kTokensPerRound = 300;
  std::atomic<uint64_t> allowed{kTokensPerRound};
  std::atomic<bool> stop{false};
  std::vector<std::unique_ptr<io::Thread>> threads;
  for (size_t w = 0; w < kWriters; ++w) {
    threads.push_back(scheduler.StartThread("writer", [&, w] {
      Branch branch = Create(id, "writer-" + std::to_string(w));
      for (uint64_t length = 0; !stop.load(); scheduler.Sleep(kPauseNs)) {
        if (length >= allowed.load()) continue;
        ASSERT_OK(WhileBusy(store_, [&] { return AppendSome(branch, model, length, 3); }));
        length += 3;
        acknowledged[w].store(length);
      }
    }));
  }
  threads.push_back(scheduler.StartThread("compactor", [&] {
    while (!stop.load()) {
      ASSERT_OK(store_.Compact());
      scheduler.Sleep(kPauseNs);
    }
  }));
  for (const auto& length : acknowledged) {
    while (length.load() < 30) scheduler.Sleep(kPauseNs);
  }
  for (int round = 0; round < 5; ++round) {
    std::array<uint64_t, kWriters> before{};
    for (size_t w = 0; w < kWriters; ++w) before[w] = acknowledged[w].load();
    const std::string target = Target(std::to_string(round));
    allowed.fetch_add(kTokensPerRound);
    ASSERT_OK_ASSIGN(const CheckpointInfo info, store_.Checkpoint(target));
    ASSERT_OK_ASSIGN(const Store copy, OpenAt(target));
    EXPECT_EQ(info.sequence, copy.Metrics().last_sequence);
    EXPECT_EQ("", copy.recovery_note());
    for (size_t w = 0; w < kWriters; ++w) {
      ASSERT_OK_ASSIGN(const Branch branch, copy.FindBranch("writer-" + std::to_string(w)));
      ASSERT_OK_ASSIGN(const uint64_t length, branch.length());
      EXPECT_GE(length, before[w]);
      EXPECT_EQ(0U, length % 3);
      EXPECT_TRUE(HasKv(branch, model, 0, length));
    }
  }
  stop.store(true);
  threads.clear();
}

TEST_P(CheckpointTest, ClosingEndsTheOnesThatWait) {
  const ModelSpec model = WideModel();
  FillStore(store_, model);
  io::Scheduler& scheduler = *world_->world().scheduler;
  std::vector<std::unique_ptr<io::Thread>> threads;
  std::array<Status, 4> outcomes;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    threads.push_back(scheduler.StartThread(
        "asker", [&, i] { outcomes[i] = store_.Checkpoint(Target(std::to_string(i))).status(); }));
  }
  scheduler.Sleep(1'000'000);
  ASSERT_OK(store_.Close());
  threads.clear();
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const auto copy = OpenAt(Target(std::to_string(i)));
    if (outcomes[i].ok()) {
      ASSERT_OK(copy);
      CheckStore(*copy, model);
    } else {
      EXPECT_TRUE(outcomes[i].code() == StatusCode::kInvalidState ||
                  outcomes[i].code() == StatusCode::kCancelled)
          << outcomes[i].ToString();
      EXPECT_FAILS(files().Info(Target(std::to_string(i))), StatusCode::kNotFound);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, CheckpointTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

// --- Errors and crashes

class CheckpointFaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_ = TinyOptions();
    options_.world = std::make_shared<io::World>(sim_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
    FillStore(store_, model_);
  }
  bool IsOfTheCopy(const io::SimOperation& operation) const {
    return operation.path.find("/copy") != std::string::npos || operation.path == "/";
  }

  io::SimWorld sim_ = io::MakeSimWorld(3);
  const ModelSpec model_ = TinyModel();
  Options options_;
  Store store_;
};

TEST_F(CheckpointFaultTest, AnotherVolumeGetsCopiesOfTheTables) {
  sim_.disk->AddFault(
      {.when = [](const io::SimOperation& operation) { return operation.op == io::SimOp::kLink; },
       .error = EXDEV,
       .persistent = true});
  ASSERT_OK_ASSIGN(const CheckpointInfo info, store_.Checkpoint("/copy"));
  EXPECT_EQ(0U, info.linked_tables);
  EXPECT_GE(info.copied_tables, 2U);
  uint64_t table_bytes = 0;
  for (const std::string& path : sim_.disk->Files()) {
    if (!path.starts_with("copy/tables/")) continue;
    table_bytes += sim_.disk->ReadRaw(path)->size();
    EXPECT_EQ(*sim_.disk->ReadRaw(path), *sim_.disk->ReadRaw("store" + path.substr(4)));
  }
  EXPECT_GT(info.copied_bytes, table_bytes);
  // A file of its own: what happens to one happens to it alone.
  for (const std::string& path : sim_.disk->Files()) {
    if (!path.starts_with("store/tables/")) continue;
    ASSERT_OK(sim_.disk->TruncateRaw(path, 0));
  }
  Options options = options_;
  options.create_if_missing = false;
  ASSERT_OK_ASSIGN(const Store copy, Store::Open("/copy", options));
  CheckStore(copy, model_);
}

TEST_F(CheckpointFaultTest, AnErrorAnywhereLeavesNothing) {
  for (const bool copies : {false, true}) {
    uint64_t failed = 0;
    for (;; ++failed) {
      if (copies) {
        sim_.disk->AddFault(
            {.when =
                 [](const io::SimOperation& operation) { return operation.op == io::SimOp::kLink; },
             .error = EXDEV,
             .persistent = true});
      }
      uint64_t seen = 0;
      bool hit = false;
      sim_.disk->AddFault({.when =
                               [&](const io::SimOperation& operation) {
                                 if (hit || !IsOfTheCopy(operation)) return false;
                                 if (copies && operation.op == io::SimOp::kLink) return false;
                                 hit = operation.changes_world() && seen++ == failed;
                                 return hit;
                               },
                           .error = EIO});
      const auto made = store_.Checkpoint("/copy");
      sim_.disk->ClearFaults();
      if (!hit) {
        ASSERT_OK(made);
        break;
      }
      EXPECT_FAILS(made, StatusCode::kIoError, "EIO");
      EXPECT_EQ(StatusCode::kNotFound, sim_.disk->Info("/copy").status().code()) << failed;
    }
    EXPECT_GT(failed, 10U);
    EXPECT_OK(store_.poisoned());
    Options options = options_;
    options.create_if_missing = false;
    {
      ASSERT_OK_ASSIGN(const Store copy, Store::Open("/copy", options));
      CheckStore(copy, model_);
    }
    for (const std::string& path : sim_.disk->Files()) {
      if (!path.starts_with("copy/")) continue;
      ASSERT_OK(sim_.disk->Remove(path));
    }
    for (const char* path : {"copy/log", "copy/tables", "copy"}) ASSERT_OK(sim_.disk->Remove(path));
  }
}

TEST_F(CheckpointFaultTest, WhatCannotBeRemovedIsSaid) {
  sim_.disk->AddFault({.when =
                           [&](const io::SimOperation& operation) {
                             return IsOfTheCopy(operation) && (operation.op == io::SimOp::kSync ||
                                                               operation.op == io::SimOp::kRemove);
                           },
                       .error = EIO,
                       .persistent = true});
  EXPECT_FAILS(store_.Checkpoint("/copy"), StatusCode::kIoError, "is left at /copy");
}

// Wherever the power goes: the store is as it was, and the copy is whole or none.
TEST_F(CheckpointFaultTest, ACrashAnywhereLeavesAWholeCopyOrNone) {
  uint64_t crashes = 0, whole = 0, refused = 0, none = 0;
  const auto look = [&](const io::CrashChoice& choice) {
    const io::SimWorld crashed = io::CrashWorld(*sim_.disk, choice);
    Options options = options_;
    options.world = std::make_shared<io::World>(crashed.world());
    options.read_only = true;
    options.create_if_missing = false;
    ++crashes;
    const auto copy = Store::Open("/copy", options);
    if (copy.ok()) {
      ++whole;
      CheckStore(*copy, model_);
    } else if (copy.status().code() == StatusCode::kCorruption) {
      ++refused;  // By name, so that it is not taken for an empty place either.
    } else {
      EXPECT_FAILS(copy, StatusCode::kNotFound) << choice.seed;
      ++none;
      for (const std::string& path : crashed.disk->Files()) {
        EXPECT_FALSE(path.starts_with("copy/tables/")) << path;
      }
    }
    ASSERT_OK_ASSIGN(const Store store, Store::Open("/store", options));
    CheckStore(store, model_);
  };
  sim_.disk->set_on_operation([&](const io::SimOperation& operation) {
    if (!IsOfTheCopy(operation)) return;
    look(io::CrashChoice::LoseAll());
    look(io::CrashChoice::KeepAll());
    for (uint64_t seed = 1; seed <= 3; ++seed) look(io::CrashChoice::Seeded(seed));
  });
  ASSERT_OK(store_.Checkpoint("/copy"));
  sim_.disk->set_on_operation({});
  EXPECT_GT(refused, 0U);
  EXPECT_GT(none, 0U);
  const uint64_t before = whole;
  look(io::CrashChoice::LoseAll());
  EXPECT_EQ(before + 1, whole) << "it was durable when the call returned";
}

// Tables without manifest were a store once; making a new one there would delete them.
TEST_F(CheckpointFaultTest, TablesWithoutManifestAreNoEmptyPlace) {
  ASSERT_OK(store_.Checkpoint("/copy"));
  for (const std::string& path : sim_.disk->Files()) {
    if (!path.starts_with("copy/") || path.starts_with("copy/tables/")) continue;
    ASSERT_OK(sim_.disk->Remove(path));
  }
  const std::vector<std::string> before = sim_.disk->Files();
  EXPECT_FAILS(Store::Open("/copy", options_), StatusCode::kCorruption, "no MANIFEST");
  EXPECT_EQ(before, sim_.disk->Files());
}

TEST_F(CheckpointFaultTest, ALogThatCannotBeReadIsNotCopied) {
  std::string segment;
  for (const std::string& path : sim_.disk->Files()) {
    if (path.starts_with("store/log/0") && segment.empty()) segment = path;
  }
  ASSERT_OK(sim_.disk->FlipBit(segment, 4096 + 20, 1));
  EXPECT_FAILS(store_.Checkpoint("/copy"), StatusCode::kCorruption);
  EXPECT_EQ(StatusCode::kNotFound, sim_.disk->Info("/copy").status().code());
}

}  // namespace
}  // namespace cairn::testing
