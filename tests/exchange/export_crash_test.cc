// SPDX-License-Identifier: Apache-2.0
//
// Property: a power cut or a failing disk at any moment leaves an export's file as it was or whole,
// and an import's branch absent or whole under its name; what an import leaves, the next one takes
// up; a part leaves a branch that is what it was, or longer, and the next import completes it.
#include <cerrno>

#include "tests/exchange/exchange_test.h"
#include "tests/support/power_cuts.h"

namespace cairn::testing {
namespace {

class ExportCrashTest : public ExchangeTest {
 protected:
  void SetUp() override {
    ExchangeTest::SetUp();
    chat_ = Create(spec_, "chat");
    const SamplerState sampler;
    for (int round = 0; round < 3; ++round) {
      Append(chat_, spec_, 9, round != 1);
      ASSERT_OK(chat_.AppendSync({.sampler = &sampler}));
    }
    ASSERT_OK(ExportBranch(chat_, "/chat"));
    ASSERT_OK(ExportBranch(chat_, "/base", {.end = 10}));
    ASSERT_OK(ExportBranch(chat_, "/part", {.begin = 10}));
    ASSERT_OK(chat_.ForkAt(12, {.name = "fork"}));
    ASSERT_OK(ExportForest(from_, "/all"));
    ASSERT_OK(from_.Flush());
  }
  Store OpenIn(const PowerCuts::Machine& machine, const std::string& path) {
    auto store = Store::Open(path, OptionsIn(machine.world));
    EXPECT_OK(store);
    return store.ok() ? std::move(*store) : Store();
  }
  // What an import of the whole file made, in another machine.
  void ExpectChat(Store& store) {
    const auto copy = store.FindBranch("chat");
    ASSERT_OK(copy);
    ASSERT_OK_ASSIGN(const BranchInfo info, copy->Info());
    EXPECT_EQ(27U, info.length);
    EXPECT_EQ(27U, info.kv_lengths[0]);
    KvSet got(spec_, Layout::kContiguous, 0, 27), want(spec_, Layout::kContiguous, 0, 27);
    want.Write(kExportSeed, 0, 27);
    RestoreRequest request;
    request.into = got.View(0, 27);
    ASSERT_OK_ASSIGN(const RestoreResult restored, copy->Restore(request));
    EXPECT_TRUE(got == want);
    EXPECT_EQ(9 * spec_.token_bytes(), restored.approximate_bytes);
    EXPECT_OK(copy->SamplerAt(9));
  }

  const ModelSpec spec_ = TinyModel();
  Branch chat_;
};

TEST_F(ExportCrashTest, APowerCutLeavesTheFileAsItWasOrWhole) {
  const std::string whole = ReadFile("/chat");
  WriteFile("/out", "something else");
  PowerCuts cuts(sim_);
  cuts.Begin();
  ASSERT_OK(ExportBranch(chat_, "/out", {.replace = true}));
  cuts.Acknowledge();
  ASSERT_OK(ExportBranch(chat_, "/new"));
  cuts.End();
  ASSERT_GT(cuts.machines().size(), 20U);
  for (const PowerCuts::Machine& one : cuts.machines()) {
    SCOPED_TRACE("power lost before " + one.when);
    const std::string left = ReadFile(*one.world.disk, "/out");
    EXPECT_TRUE(left == whole || (one.acknowledged == 0 && left == "something else"));
    if (one.world.disk->Info("/new").ok()) {
      EXPECT_TRUE(ReadFile(*one.world.disk, "/new") == whole);
    }
  }
}

TEST_F(ExportCrashTest, APowerCutLeavesNoHalfOfAnImport) {
  PowerCuts cuts(sim_);
  cuts.Begin();
  ASSERT_OK(ImportBranch(into_, "/chat"));
  cuts.Acknowledge();
  ASSERT_OK(into_.Flush());
  cuts.End();
  ASSERT_GT(cuts.machines().size(), 10U);
  int absent = 0;
  for (const PowerCuts::Machine& one : cuts.machines()) {
    SCOPED_TRACE("power lost before " + one.when);
    Store store = OpenIn(one, "/into");
    const std::vector<std::string> names = Names(store);
    if (names == std::vector<std::string>{"chat"}) {
      ExpectChat(store);
      continue;
    }
    EXPECT_EQ(0, one.acknowledged);
    ++absent;
    EXPECT_TRUE(names.empty() || names[0].starts_with("cairn-import-"));
    EXPECT_LE(names.size(), 1U);
    ASSERT_OK_ASSIGN(const ImportInfo brought, ImportBranch(store, "/chat"));
    EXPECT_LE(brought.found, 27U);
    EXPECT_EQ(std::vector<std::string>{"chat"}, Names(store));
    ExpectChat(store);
  }
  EXPECT_GT(absent, 0);
}

TEST_F(ExportCrashTest, APowerCutLeavesAPartThatGoesOn) {
  ASSERT_OK(ImportBranch(into_, "/base"));
  PowerCuts cuts(sim_);
  cuts.Begin();
  ASSERT_OK(ImportBranch(into_, "/part"));
  cuts.Acknowledge();
  ASSERT_OK(into_.Flush());
  cuts.End();
  for (const PowerCuts::Machine& one : cuts.machines()) {
    SCOPED_TRACE("power lost before " + one.when);
    Store store = OpenIn(one, "/into");
    ASSERT_OK_ASSIGN(const ImportInfo brought, ImportBranch(store, "/part"));
    EXPECT_TRUE(one.acknowledged == 0 || brought.found == 27);
    ExpectChat(store);
  }
  EXPECT_GT(cuts.machines().size(), 5U);
}

TEST_F(ExportCrashTest, APowerCutLeavesAllOfAForestOrNothing) {
  PowerCuts cuts(sim_);
  cuts.Begin();
  ASSERT_OK(ImportForest(into_, "/all"));
  cuts.Acknowledge();
  ASSERT_OK(into_.Flush());
  cuts.End();
  const std::vector<std::string> all = {"chat", "fork"};
  for (const PowerCuts::Machine& one : cuts.machines()) {
    SCOPED_TRACE("power lost before " + one.when);
    Store store = OpenIn(one, "/into");
    if (Names(store) == all) continue;
    EXPECT_EQ(0, one.acknowledged);
    for (const std::string& name : Names(store)) EXPECT_TRUE(name.starts_with("cairn-import-"));
    ASSERT_OK(ImportForest(store, "/all"));
    EXPECT_EQ(all, Names(store));
    EXPECT_EQ(12U, *store.FindBranch("fork")->length());
  }
}

// Each operation of an export or import fails once: the call says so, and leaves nothing.
TEST_F(ExportCrashTest, AFailingDiskLeavesNothing) {
  const auto fails_at = [&](const std::string& file, uint64_t number, io::SimOp op) {
    auto left = std::make_shared<uint64_t>(number);
    sim_.disk->AddFault({.when =
                             [=](const io::SimOperation& one) {
                               return one.op == op && one.path.find(file) != one.path.npos &&
                                      (*left)-- == 0;
                             },
                         .error = EIO});
  };
  int failed = 0;
  for (const io::SimOp op : {io::SimOp::kCreate, io::SimOp::kOpen, io::SimOp::kWrite,
                             io::SimOp::kSync, io::SimOp::kTruncate, io::SimOp::kRename}) {
    for (uint64_t number = 0; number < 200; ++number) {
      fails_at("out.tmp", number, op);
      const auto made = ExportBranch(chat_, "/out");
      sim_.disk->ClearFaults();
      if (made.ok()) {
        ASSERT_OK(sim_.disk->Remove("/out"));
        break;
      }
      ++failed;
      EXPECT_EQ(StatusCode::kIoError, made.status().code()) << made.status().ToString();
      EXPECT_FALSE(Exists("/out"));
      EXPECT_FALSE(Exists("/out.tmp"));
    }
  }
  EXPECT_GT(failed, 10);
  failed = 0;
  for (const io::SimOp op : {io::SimOp::kOpen, io::SimOp::kStat, io::SimOp::kRead}) {
    for (const char* const file : {"chat", "all"}) {
      for (uint64_t number = 0; number < 200; ++number) {
        fails_at(file, number, op);
        const Status status = std::string(file) == "all" ? ImportForest(into_, "/all").status()
                                                         : ImportBranch(into_, "/chat").status();
        sim_.disk->ClearFaults();
        for (const std::string& name : Names(into_)) {
          EXPECT_TRUE(status.ok()) << name;
          ASSERT_OK(into_.FindBranch(name)->Drop());
        }
        if (status.ok()) break;
        ++failed;
        EXPECT_EQ(StatusCode::kIoError, status.code()) << status.ToString();
      }
    }
  }
  EXPECT_GT(failed, 10);
}

TEST_F(ExportCrashTest, AStoreWithoutRoomTakesNothing) {
  Options options = OptionsIn(sim_);
  options.max_bytes = 12 << 20;
  ASSERT_OK_ASSIGN(Store small, Store::Open("/small", options));
  const ModelSpec wide = WideModel();
  Branch large = Create(wide, "large");
  for (int round = 0; round < 12; ++round) Append(large, wide, 256);
  ASSERT_OK(ExportBranch(large, "/large"));
  EXPECT_FAILS(ImportBranch(small, "/large"), StatusCode::kNoSpace);
  EXPECT_TRUE(Names(small).empty());
  ASSERT_OK(ImportBranch(into_, "/large"));
  ExpectSameKv(large, *into_.FindBranch("large"), wide, 3072);
}

}  // namespace
}  // namespace cairn::testing
