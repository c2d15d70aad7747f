// SPDX-License-Identifier: Apache-2.0
//
// Property: what is derived of a path is found by every branch that has that path, for as long as
// its content is what it was computed of, after restarts and crashes as well; then its table goes.
// A lost or damaged one is never an error of anything but itself.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/io/file_util.h"
#include "engine/config/constants.h"
#include "engine/store/store_core.h"
#include "engine/tree/memory/path.h"
#include "sim/world.h"
#include "tests/engine/tree_op_test.h"

namespace cairn::testing {
namespace {

using engine::DerivedTables;

constexpr uint32_t kKind = 3, kOther = 4;

// A table that says of what it was computed: one frame with the position and a text.
Status WriteSaying(const DerivedTables::Owner& owner, sstable::SnapshotWriter* table,
                   const std::string& text) {
  table->BeginFragment({.node = static_cast<uint64_t>(owner.node),
                        .lane = 1,
                        .begin = owner.position,
                        .count = 1,
                        .page_rows = 1,
                        .slices = 1});
  const std::string says = text + " " + std::to_string(owner.position);
  return table->AddFrame(std::as_bytes(std::span(says)), static_cast<uint32_t>(says.size()));
}

std::string Says(const DerivedTables::Found& found) {
  std::string text;
  found.table->VerifyEach(
      [&](const sstable::FragmentEntry&, uint32_t, const sstable::FrameEntry&,
          std::span<const std::byte> stored) {
        text.assign(reinterpret_cast<const char*>(stored.data()), stored.size());
        return Status::Ok();
      },
      [](const Status& damage) { ADD_FAILURE() << damage.ToString(); });
  return text;
}

Status Make(Branch& branch, uint64_t position, const std::string& text, uint32_t kind = kKind) {
  return branch.core()
      ->derived()
      .Make(branch.id(), position, kind,
            [&](const DerivedTables::Owner& owner, sstable::SnapshotWriter* table) {
              return WriteSaying(owner, table, text);
            })
      .status();
}

// The table found for the branch, or the code of the error.
std::string Found(const Branch& branch, uint64_t at_most = UINT64_MAX, uint32_t kind = kKind) {
  auto found = branch.core()->derived().Find(branch.id(), at_most, kind);
  if (!found.ok()) return std::string(StatusCodeName(found.status().code()));
  return Says(*found);
}
const std::string kNone(StatusCodeName(StatusCode::kNotFound));

class DerivedTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    chat_ = Create(Register(model_), "chat");
    ASSERT_OK(AppendSome(chat_, model_, 0, 20));
  }
  void Reopened() {
    Reopen();
    chat_ = Find("chat");
  }
  uint64_t Tables() { return store_.Metrics().tables; }
  // This many are left once what nothing needs is deleted.
  void ExpectTables(uint64_t tables) {
    ASSERT_OK(store_.Compact());
    EXPECT_EQ(tables, Tables());
  }

  const ModelSpec model_ = TinyModel();
  Branch chat_;
};

TEST_P(DerivedTest, IsFoundByAllThatHaveThePath) {
  EXPECT_EQ(kNone, Found(chat_));
  ASSERT_OK(Make(chat_, 12, "landmarks"));
  ASSERT_OK(Make(chat_, 16, "landmarks"));
  ASSERT_OK(Make(chat_, 14, "keys", kOther));
  ASSERT_OK_ASSIGN(Branch early, chat_.ForkAt(10, {.name = "early"}));
  ASSERT_OK_ASSIGN(Branch between, chat_.ForkAt(13, {.name = "between"}));
  ASSERT_OK_ASSIGN(Branch late, chat_.ForkAt(20, {.name = "late"}));
  ASSERT_OK(AppendSome(late, model_, 20, 4));
  for (int opening = 0; opening < 3; ++opening) {
    EXPECT_EQ("landmarks 16", Found(chat_));
    EXPECT_EQ("landmarks 12", Found(chat_, 15));
    EXPECT_EQ(kNone, Found(chat_, 11));
    EXPECT_EQ("keys 14", Found(chat_, 20, kOther));
    EXPECT_EQ(kNone, Found(early));
    EXPECT_EQ("landmarks 12", Found(between));
    EXPECT_EQ("landmarks 16", Found(late));
    // Sealing, merging and the index leave it as it is.
    if (opening == 1) {
      ASSERT_OK(store_.Compact());
    }
    Reopened();
    early = Find("early");
    between = Find("between");
    late = Find("late");
  }
  ASSERT_OK(store_.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
}

TEST_P(DerivedTest, ANewOneTakesThePlaceOfTheOld) {
  ASSERT_OK(store_.Compact());
  const uint64_t before = Tables();
  ASSERT_OK(Make(chat_, 12, "old"));
  ASSERT_OK_ASSIGN(const auto old, chat_.core()->derived().Find(chat_.id(), 12, kKind));
  ASSERT_OK(Make(chat_, 12, "new"));
  EXPECT_EQ("new 12", Found(chat_));
  // A thread that found the old one spoilt does not drop the new one.
  EXPECT_FAILS(chat_.core()->derived().Drop(old.owner), StatusCode::kNotFound);
  EXPECT_EQ("new 12", Found(chat_));
  ExpectTables(before + 1);
  ASSERT_OK_ASSIGN(const auto found, chat_.core()->derived().Find(chat_.id(), 12, kKind));
  ASSERT_OK(chat_.core()->derived().Drop(found.owner));
  EXPECT_EQ(kNone, Found(chat_));
  EXPECT_EQ("new 12", Says(found));  // Pinned.
  EXPECT_FAILS(chat_.core()->derived().Drop(found.owner), StatusCode::kNotFound);
}

TEST_P(DerivedTest, GoesWithTheContentThatItWasComputedOf) {
  ASSERT_OK(store_.Compact());
  const uint64_t before = Tables();
  ASSERT_OK(Make(chat_, 12, "a"));
  ASSERT_OK(Make(chat_, 16, "b"));
  ASSERT_OK(chat_.Rewind(16));
  EXPECT_EQ("b 16", Found(chat_));
  ASSERT_OK(chat_.Rewind(14));
  EXPECT_EQ("a 12", Found(chat_));
  ExpectTables(before + 1);
  ASSERT_OK(AppendSome(chat_, model_, 14, 6, /*seed=*/9));  // Other content at the same positions.
  EXPECT_EQ("a 12", Found(chat_));
  Reopened();
  EXPECT_EQ("a 12", Found(chat_));
  ASSERT_OK(chat_.Rewind(11));
  EXPECT_EQ(kNone, Found(chat_));
  ExpectTables(before);
  ASSERT_OK(Make(chat_, 11, "c"));
  ASSERT_OK(chat_.Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0U, Tables());
}

TEST_P(DerivedTest, IsHandedOnWhenNodesAreJoined) {
  ASSERT_OK(Make(chat_, 12, "above"));
  ASSERT_OK(Make(chat_, 18, "beyond"));
  ASSERT_OK_ASSIGN(Branch fork, chat_.ForkAt(15, {.name = "fork"}));
  ASSERT_OK(AppendSome(fork, model_, 15, 5));
  ASSERT_OK(Make(fork, 17, "below"));
  ASSERT_OK(chat_.Drop());
  ASSERT_OK(store_.Compact());
  ASSERT_OK_ASSIGN(const auto path, fork.Path());
  EXPECT_EQ(1U, path.size());
  for (int opening = 0; opening < 2; ++opening) {
    EXPECT_EQ("below 17", Found(fork));
    EXPECT_EQ("above 12", Found(fork, 16));
    Reopen();
    fork = Find("fork");
  }
  const auto report = store_.Verify(VerifyLevel::kAll);
  ASSERT_OK(report);
  EXPECT_TRUE(report->damages.empty());
}

TEST_P(DerivedTest, GoesWithKvThatIsEvicted) {
  Options options = world_->options();
  options.evict = Evict::kKv;
  ASSERT_NO_FATAL_FAILURE(Reopen(options));
  chat_ = Find("chat");
  ASSERT_OK(Make(chat_, 12, "a"));
  ASSERT_OK(store_.SetNamespace("", {.max_bytes = 40 * 64}));
  Branch more = Create(Register(model_), "more");
  for (uint64_t at = 0; at < 30; at += 10) ASSERT_OK(AppendSome(more, model_, at, 10));
  ASSERT_OK_ASSIGN(const auto holes, chat_.EvictedKv(0, 20));
  ASSERT_FALSE(holes.empty());
  EXPECT_EQ(holes.front().begin < 12 ? kNone : "a 12", Found(chat_));
}

TEST_P(DerivedTest, IsRefusedWhereItBelongsToNothing) {
  EXPECT_FAILS(Make(chat_, 0, "a"), StatusCode::kInvalidArgument, "position is 0");
  EXPECT_FAILS(Make(chat_, 21, "a"), StatusCode::kInvalidArgument, "has 20 tokens");
  EXPECT_FAILS(Make(chat_, 12, "a", 0), StatusCode::kInvalidArgument, "kind");
  Branch other = chat_;
  DerivedTables& derived = chat_.core()->derived();
  ASSERT_OK(store_.Compact());
  const uint64_t before = Tables();
  // The branch is dropped while it is computed...
  EXPECT_FAILS(derived
                   .Make(chat_.id(), 12, kKind,
                         [&](const DerivedTables::Owner& owner, sstable::SnapshotWriter* table) {
                           EXPECT_OK(other.Drop());
                           return WriteSaying(owner, table, "a");
                         })
                   .status(),
               StatusCode::kNotFound);
  chat_ = Create(Register(model_), "chat");
  ASSERT_OK(AppendSome(chat_, model_, 0, 20));
  // ...or its maker gives up.
  EXPECT_FAILS(derived
                   .Make(chat_.id(), 12, kKind,
                         [&](const DerivedTables::Owner& owner, sstable::SnapshotWriter* table) {
                           EXPECT_OK(WriteSaying(owner, table, "a"));
                           return Status(StatusCode::kCancelled, "enough");
                         })
                   .status(),
               StatusCode::kCancelled);
  EXPECT_EQ(kNone, Found(chat_));
  ASSERT_OK(store_.Compact());
  EXPECT_LE(Tables(), before + 1);
}

// While it is computed nobody changes in place what it is computed of.
TEST_P(DerivedTest, ARewindMeanwhileLeavesItsNode) {
  Branch same = chat_;
  const Status made =
      chat_.core()
          ->derived()
          .Make(chat_.id(), 18, kKind,
                [&](const DerivedTables::Owner& owner, sstable::SnapshotWriter* table) {
                  EXPECT_OK(same.Rewind(10));
                  EXPECT_OK(AppendSome(same, model_, 10, 10, /*seed=*/9));
                  return WriteSaying(owner, table, "stale");
                })
          .status();
  // Its node is gone or is another one by now: what it says of the old content is not found.
  if (!made.ok()) {
    EXPECT_EQ(StatusCode::kNotFound, made.code()) << made.ToString();
  }
  EXPECT_EQ(kNone, Found(chat_));
}

INSTANTIATE_TEST_SUITE_P(Worlds, DerivedTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

class DerivedFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.create_if_missing = true;
    Open();
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK(AppendSome(chat_, model_, 0, 20, kSeed, Durability::kPower));
    ASSERT_OK(Make(chat_, 12, "a"));
    ASSERT_OK(store_.Flush());
  }
  void Open() {
    options_.world = std::make_shared<const io::World>(machine_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("/s", options_));
    if (auto found = store_.FindBranch("chat"); found.ok()) chat_ = *found;
  }
  std::vector<std::string> Files() {
    auto names = machine_.disk->List("/s/tables");
    EXPECT_OK(names);
    std::erase_if(*names, [](const std::string& name) { return !name.ends_with(".snapshot"); });
    return *names;
  }

  const ModelSpec model_ = TinyModel();
  io::SimWorld machine_ = io::MakeSimWorld(1);
  Options options_;
  Store store_;
  Branch chat_;
};

TEST_F(DerivedFilesTest, ALostOneIsToldOfAndGivenUp) {
  for (const bool damaged : {false, true}) {
    ASSERT_OK(store_.Close());
    std::vector<std::string> files = Files();
    ASSERT_FALSE(files.empty());
    std::sort(files.begin(), files.end());  // It was made first.
    const std::string path = "/s/tables/" + files[0];
    if (damaged) {
      ASSERT_OK_ASSIGN(const io::FileInfo info, machine_.disk->Info(path));
      ASSERT_OK(machine_.disk->FlipBit(path, info.bytes - 100, 1));
    } else {
      ASSERT_OK(machine_.disk->Remove(path));
    }
    Open();
    EXPECT_TRUE(HasKv(chat_, model_, 0, 20));
    ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
    ASSERT_EQ(1U, report.damages.size());
    EXPECT_NE(std::string::npos, report.damages[0].what.find("derived")) << report.damages[0].what;
    ASSERT_OK(store_.Checkpoint(damaged ? "/copy2" : "/copy1"));
    EXPECT_EQ(kNone, Found(chat_));
    ASSERT_OK_ASSIGN(const VerifyReport after, store_.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(after.damages.empty());
    ASSERT_OK(Make(chat_, 12, "again"));
    EXPECT_EQ("again 12", Found(chat_));
    ASSERT_OK(store_.Compact());
  }
}

TEST_F(DerivedFilesTest, ACrashKeepsWhatWasLoggedAndNothingElse) {
  // One that no durable record names.
  ASSERT_OK(Make(chat_, 14, "b"));
  machine_ = io::CrashWorld(*machine_.disk, io::CrashChoice::LoseAll());
  Store lost = std::move(store_);
  store_ = Store();
  Open();
  EXPECT_EQ("a 12", Found(chat_));
  std::vector<std::string> named = Files();
  EXPECT_EQ(1U, named.size());
  EXPECT_TRUE(HasKv(chat_, model_, 0, 20));
}

TEST_F(DerivedFilesTest, ACopyHasIt) {
  ASSERT_OK(store_.Checkpoint("/copy"));
  ASSERT_OK_ASSIGN(Store copy, Store::Open("/copy", options_));
  ASSERT_OK_ASSIGN(const Branch same, copy.FindBranch("chat"));
  EXPECT_EQ("a 12", Found(same));
}

TEST_F(DerivedFilesTest, AReaderFindsItToo) {
  Options options = options_;
  options.create_if_missing = false;
  options.read_only = true;
  ASSERT_OK_ASSIGN(Store reader, Store::Open("/s", options));
  ASSERT_OK_ASSIGN(Branch same, reader.FindBranch("chat"));
  EXPECT_EQ("a 12", Found(same));
  EXPECT_FAILS(Make(same, 12, "b"), StatusCode::kReadOnly);
}

class DerivedOpTest : public TreeOpTest {
 protected:
  DerivedOpTest() : TreeOpTest(20) {}
  static constexpr engine::TableRef kTable{77, 4096};
};

TEST_F(DerivedOpTest, AReplayComesToTheSame) {
  Do(engine::ResolveDerive(tree_, NodeOf(base_), 12, kKind, kTable));
  Do(engine::ResolveDerive(tree_, NodeOf(base_), 12, kOther, {78, 5000}));
  Do(engine::ResolveDerive(tree_, NodeOf(base_), 10, kKind, {79, 6000}));
  for (engine::Tree* const tree : {&tree_, &replayed_}) {
    ASSERT_EQ(3U, At(*tree, base_).derived.size());
    EXPECT_EQ(79U, At(*tree, base_).derived[0].place.table);
    EXPECT_EQ(4096U, tree->tables().at(77).live_bytes);
    EXPECT_TRUE(tree->tables().at(77).derived());
  }
  Do(engine::ResolveDropDerived(tree_, NodeOf(base_), 12, kKind, 77));
  EXPECT_EQ(0U, replayed_.tables().at(77).live_bytes);
  EXPECT_FAILS(engine::ResolveDropDerived(tree_, NodeOf(base_), 12, kKind, 77).status(),
               StatusCode::kNotFound);
  EXPECT_FAILS(engine::ResolveDerive(tree_, NodeOf(base_), 21, kKind, kTable).status(),
               StatusCode::kNotFound);
}

TEST_F(DerivedOpTest, WhatIsUndoneLeavesNoTrace) {
  Do(engine::ResolveDerive(tree_, NodeOf(base_), 12, kKind, kTable));
  const auto undo = [&](const Result<engine::Op>& op) {
    ASSERT_OK(op);
    engine::Transaction transaction;
    engine::TreeChanges changes(&tree_, &transaction);
    ASSERT_OK(changes.Apply(*op));
    transaction.Rollback();
  };
  undo(engine::ResolveDerive(tree_, NodeOf(base_), 12, kKind, {78, 5000}));
  undo(engine::ResolveDropDerived(tree_, NodeOf(base_), 12, kKind, 77));
  undo(engine::ResolveRewind(tree_, base_, 5));
  undo(engine::ResolveDrop(tree_, base_));
  ASSERT_EQ(1U, At(tree_, base_).derived.size());
  EXPECT_EQ(77U, At(tree_, base_).derived[0].place.table);
  EXPECT_EQ(4096U, tree_.tables().at(77).live_bytes);
  EXPECT_FALSE(tree_.tables().contains(78));
}

TEST_F(DerivedOpTest, ABadLogIsRefused) {
  const uint64_t node = NodeOf(base_);
  Do(engine::ResolveDerive(tree_, node, 12, kKind, kTable));
  const auto refused = [&](auto&& spoil) {
    engine::Op op = *engine::ResolveDerive(tree_, node, 15, kKind, {80, 4096});
    spoil(op);
    engine::Transaction transaction;
    engine::TreeChanges changes(&tree_, &transaction);
    EXPECT_FAILS(changes.Apply(op), StatusCode::kCorruption);
    transaction.Rollback();
  };
  refused([](engine::Op& op) { op.node = 999; });
  refused([](engine::Op& op) { op.position = 0; });
  refused([](engine::Op& op) { op.position = 21; });
  refused([](engine::Op& op) { op.other = 0; });
  refused([](engine::Op& op) { op.other = uint64_t{1} << 32; });
  refused([](engine::Op& op) { op.table.number = 77; });  // Holds something else.
  refused([](engine::Op& op) { op.table.bytes = 0; });
  EXPECT_EQ(1U, At(tree_, base_).derived.size());
}

}  // namespace
}  // namespace cairn::testing
