// SPDX-License-Identifier: Apache-2.0
//
// The bug: an index table that was cut, damaged or missing closed the store, in a salvage, too, and
// with it every server that keeps its KV there. Method: each file of a store on the simulated disk
// is removed, cut and damaged in turn. Recovery::kSetAside opens the store, and what it serves is
// compared with what was written; then it opens without that, too, and Verify finds nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/manifest/manifest.h"
#include "sim/world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr int kBranches = 12;
constexpr uint64_t kTokens = 30;

std::string NameOf(int i) { return "b" + std::to_string(i); }

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class OneBadFile : public ::testing::Test {
 protected:
  using Contents = std::map<std::string, std::vector<TokenId>>;

  void SetUp() override {
    options_.log_bytes_max = 4 * options_.segment_bytes;
    options_.replay_records_max = 20;
    options_.listener = std::make_shared<EventListener>();
    options_.listener->on_event = [this](const std::string& line) { events_ += line + "\n"; };
  }

  Result<Store> Open(Recovery recovery) {
    options_.recovery = recovery;
    options_.world = std::make_shared<io::World>(
        io::World{.files = disk_, .scheduler = std::make_shared<io::SimScheduler>(++lives_)});
    return Store::Open("/store", options_);
  }

  void Append(Store& store, const std::string& name, uint64_t count) {
    auto branch = store.FindBranch(name);
    if (!branch.ok()) branch = store.CreateBranch(store.Models().at(0).id, {.name = name});
    ASSERT_OK(branch);
    std::vector<TokenId>& tokens = written_[name];
    const uint64_t begin = tokens.size(), seed = 1000 * std::hash<std::string>()(name) % 9999;
    ASSERT_OK(AppendSome(*branch, model_, begin, count, seed));
    const std::vector<TokenId> more = Tokens(count, seed + begin);
    tokens.insert(tokens.end(), more.begin(), more.end());
    seeds_[name] = seed;
  }
  void Fork(Store& store, const std::string& name, uint64_t at, const std::string& to) {
    ASSERT_OK_ASSIGN(Branch branch, store.FindBranch(name));
    ASSERT_OK(branch.ForkAt(at, {.name = to}));
    written_[to] = {written_[name].begin(), written_[name].begin() + static_cast<ptrdiff_t>(at)};
    seeds_[to] = seeds_[name];
  }

  // A store whose log was given back in part, with index tables that follow each other.
  void Make() {
    ASSERT_OK_ASSIGN(Store store, Open(Recovery::kRefuse));
    ASSERT_OK(store.RegisterModel(model_));
    ASSERT_OK(store.SetNamespace("tenant", {.max_bytes = 1 << 30}));
    for (int i = 0; i < kBranches; ++i) {
      ASSERT_NO_FATAL_FAILURE(Append(store, NameOf(i), kTokens));
      if (i % 5 == 4) {
        ASSERT_OK(store.Compact());
      }
    }
    ASSERT_NO_FATAL_FAILURE(Fork(store, NameOf(2), 17, "fork"));
    ASSERT_NO_FATAL_FAILURE(Append(store, "gone", 9));
    ASSERT_OK(store.Compact());
    ASSERT_OK_ASSIGN(Branch gone, store.FindBranch("gone"));
    ASSERT_OK(gone.Drop());
    written_.erase("gone");
    ASSERT_OK_ASSIGN(Branch rewound, store.FindBranch(NameOf(0)));
    ASSERT_OK(rewound.Rewind(11));
    written_[NameOf(0)].resize(11);
    ASSERT_OK(store.Compact());
    for (int i = 5; i < 8; ++i) ASSERT_NO_FATAL_FAILURE(Append(store, NameOf(i), 4));
    ASSERT_OK(store.Close());
    made_ = disk_;
  }

  void Restart() {
    disk_ = made_->CrashClone(io::CrashChoice::KeepAll());
    events_.clear();
  }
  // As libraries leave it that know no steps of the index: the log alone is no way back.
  void ForgetSteps() {
    ASSERT_OK_ASSIGN(engine::Manifest manifest, engine::ReadManifest(*disk_, "/store"));
    manifest.steps.clear();
    ++manifest.number;
    ASSERT_OK(engine::WriteManifest(*disk_, "/store", manifest));
  }
  std::vector<std::string> FilesOf(const std::string& ending) const {
    std::vector<std::string> files;
    for (const std::string& path : disk_->Files()) {
      if (path.ends_with(ending)) files.push_back(path);
    }
    return files;
  }

  // How many branches are as they were written. Every one that exists is, or says that it is
  // damaged.
  int Same(const Store& store) {
    int same = 0;
    const auto page = store.ListBranches("", "", 100);
    EXPECT_OK(page);
    if (!page.ok()) return 0;
    for (const BranchInfo& info : page->branches) {
      const auto want = written_.find(info.name);
      if (want == written_.end()) {
        ADD_FAILURE() << info.name << " was dropped";
        continue;
      }
      const auto branch = store.FindBranch(info.name);
      const auto length = branch.ok() ? branch->length() : branch.status();
      const auto tokens = length.ok() ? branch->ReadTokens(0, *length) : length.status();
      if (!tokens.ok()) {
        EXPECT_EQ(tokens.status().code(), StatusCode::kCorruption) << tokens.status().ToString();
        continue;
      }
      EXPECT_LE(tokens->size(), want->second.size()) << info.name;
      const bool prefix = tokens->size() <= want->second.size() &&
                          std::equal(tokens->begin(), tokens->end(), want->second.begin());
      EXPECT_TRUE(prefix) << info.name << ": other ids";
      const auto kv = HasKv(*branch, model_, 0, *length, seeds_.at(info.name));
      EXPECT_FALSE(Has(kv.message(), "differ")) << info.name << ": " << kv.message();
      if (prefix && kv && *length == want->second.size()) ++same;
    }
    return same;
  }

  // Opens the damaged store, looks, and then as if nothing had been. How many branches are the
  // same, -1: refused.
  int SetAside(bool goes_on = true) {
    int same = 0;
    {
      auto store = Open(Recovery::kSetAside);
      if (!store.ok()) {
        EXPECT_EQ(store.status().code(), StatusCode::kCorruption) << store.status().ToString();
        return -1;
      }
      note_ = store->recovery_note();
      same = Same(*store);
      if (goes_on) {
        EXPECT_OK(store->Compact());
      }
      EXPECT_OK(store->Close());
    }
    const auto again = Open(Recovery::kRefuse);
    EXPECT_OK(again);
    if (again.ok()) {
      EXPECT_EQ(Same(*again), same);
    }
    return same;
  }

  const ModelSpec model_ = WideModel();
  Options options_ = TinyOptions();
  std::shared_ptr<io::SimDisk> disk_ = std::make_shared<io::SimDisk>();
  std::shared_ptr<io::SimDisk> made_;
  uint64_t lives_ = 0;
  Contents written_;
  std::map<std::string, uint64_t> seeds_;
  std::string events_, note_;
};

enum class How { kRemoved, kEmpty, kHalf, kWithoutItsEnd, kFlipped, kZeros };

void Damage(io::SimDisk* disk, const std::string& path, How how) {
  ASSERT_OK_ASSIGN(const std::vector<std::byte> bytes, disk->ReadRaw(path));
  switch (how) {
    case How::kRemoved: ASSERT_OK(disk->Remove(path)); break;
    case How::kEmpty: ASSERT_OK(disk->TruncateRaw(path, 0)); break;
    case How::kHalf: ASSERT_OK(disk->TruncateRaw(path, bytes.size() / 2)); break;
    case How::kWithoutItsEnd: ASSERT_OK(disk->TruncateRaw(path, bytes.size() - 4096)); break;
    case How::kFlipped:
      ASSERT_OK(disk->FlipBit(path, bytes.size() - 4000, 2));  // In a footer, of a table.
      break;
    case How::kZeros:
      ASSERT_OK(disk->WriteRaw(path, 0, std::vector<std::byte>(bytes.size())));
      break;
  }
}

TEST_F(OneBadFile, OfTheIndexCostsOnlyWhatCannotBeProved) {
  ASSERT_NO_FATAL_FAILURE(Make());
  const std::vector<std::string> tables = FilesOf(".index");
  ASSERT_GE(tables.size(), 2u);
  const int all = static_cast<int>(written_.size());
  int most = 0, least = all, exact = 0;
  for (const std::string& path : tables) {
    for (const How how : {How::kRemoved, How::kEmpty, How::kHalf, How::kWithoutItsEnd,
                          How::kFlipped, How::kZeros}) {
      for (const bool steps : {true, false}) {
        SCOPED_TRACE(path + ", damage " + std::to_string(static_cast<int>(how)));
        Restart();
        if (!steps) {
          ASSERT_NO_FATAL_FAILURE(ForgetSteps());
        }
        ASSERT_NO_FATAL_FAILURE(Damage(disk_.get(), path, how));
        const auto refused = Open(Recovery::kRefuse);
        const int same = SetAside();
        ASSERT_GE(same, 0) << "it is refused";
        most = std::max(most, same);
        least = std::min(least, same);
        if (refused.ok()) continue;  // The hints are made again.
        const std::string name = path.substr(path.rfind('/') + 1);
        EXPECT_TRUE(Has(note_, name)) << note_;
        EXPECT_TRUE(Has(events_, "set aside")) << events_;
        EXPECT_EQ(FilesOf(name).size(), how == How::kRemoved ? 0u : 1u);
        EXPECT_EQ(Has(note_, "lost/"), how != How::kRemoved) << note_;
        EXPECT_EQ(Has(note_, "nothing is gone") && same != all, false) << note_;
        exact += Has(note_, "nothing is gone") ? 1 : 0;
        ASSERT_OK_ASSIGN(const Store store, Open(Recovery::kRefuse));
        ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
        for (const auto& damage : report.damages) ADD_FAILURE() << damage.where << damage.what;
      }
    }
  }
  EXPECT_GT(exact, 0);
  EXPECT_LT(least, all);
  EXPECT_GT(most, 0);
}

// Whatever of the opening a crash leaves: the next one serves the same.
TEST_F(OneBadFile, SetAsideSurvivesACrashAtEveryStep) {
  ASSERT_NO_FATAL_FAILURE(Make());
  ASSERT_NO_FATAL_FAILURE(Damage(made_.get(), FilesOf(".index").front(), How::kHalf));
  Restart();
  const int same = SetAside(/*goes_on=*/false);
  ASSERT_GT(same, 0);
  Restart();
  std::vector<std::shared_ptr<io::SimDisk>> left;
  disk_->set_on_operation([&](const io::SimOperation&) {
    left.push_back(disk_->CrashClone(io::CrashChoice::Seeded(left.size())));
  });
  { ASSERT_OK_ASSIGN(const Store store, Open(Recovery::kSetAside)); }
  disk_->set_on_operation(nullptr);
  EXPECT_GT(left.size(), 20u);
  for (size_t i = 0; i < left.size() && !HasFailure(); ++i) {
    SCOPED_TRACE("operation " + std::to_string(i));
    disk_ = left[i];
    EXPECT_EQ(SetAside(/*goes_on=*/false), same);
  }
}

// Where the log has the store's first record still, nothing is gone.
TEST_F(OneBadFile, OfTheIndexCostsNothingThatTheLogHas) {
  options_.log_bytes_max = 1 << 30;
  ASSERT_OK_ASSIGN(Store store, Open(Recovery::kRefuse));
  ASSERT_OK(store.RegisterModel(model_));
  for (int i = 0; i < kBranches; ++i) ASSERT_NO_FATAL_FAILURE(Append(store, NameOf(i), 5));
  ASSERT_NO_FATAL_FAILURE(Fork(store, NameOf(2), 3, "fork"));
  ASSERT_OK(store.PauseBackground());
  ASSERT_NO_FATAL_FAILURE(Append(store, NameOf(4), 2));
  ASSERT_OK(store.Close());
  for (const std::string& path : FilesOf(".index")) ASSERT_OK(disk_->Remove(path));
  EXPECT_FAILS(Open(Recovery::kRefuse), StatusCode::kCorruption, ".index");
  EXPECT_EQ(SetAside(), kBranches + 1);
  EXPECT_TRUE(Has(note_, "nothing is gone")) << note_;
}

// A snapshot table, a spare, HINT: the store opens in any case, and serves what is whole.
TEST_F(OneBadFile, OfAnyOtherKindStopsNoOpening) {
  ASSERT_NO_FATAL_FAILURE(Make());
  for (const std::string& path : disk_->Files()) {
    if (path.ends_with(".index")) continue;
    for (const How how : {How::kRemoved, How::kHalf, How::kZeros}) {
      SCOPED_TRACE(path + ", damage " + std::to_string(static_cast<int>(how)));
      Restart();
      ASSERT_NO_FATAL_FAILURE(Damage(disk_.get(), path, how));
      const auto store = Open(Recovery::kSetAside);
      const bool may_refuse = Has(path, "MANIFEST") || Has(path, "OPTIONS") || Has(path, "/log/0");
      if (!store.ok()) {
        EXPECT_TRUE(may_refuse) << store.status().ToString();
        continue;
      }
      const int same = Same(*store);
      EXPECT_TRUE(same > 0 || may_refuse) << same;
    }
  }
}

// What was set aside counts under the cap, and only so much of it stays. It is in no copy.
TEST_F(OneBadFile, IsKeptWithinBounds) {
  ASSERT_NO_FATAL_FAILURE(Make());
  const std::string path = FilesOf(".index").front();
  ASSERT_NO_FATAL_FAILURE(Damage(disk_.get(), path, How::kHalf));
  options_.recovery = Recovery::kSetAside;
  uint64_t used = 0;
  {
    ASSERT_OK_ASSIGN(Store store, Open(Recovery::kSetAside));
    used = store.Metrics().physical_bytes;
    ASSERT_OK(store.Checkpoint("/copy"));
    ASSERT_OK(store.Close());
  }
  ASSERT_EQ(FilesOf(path.substr(path.rfind('/') + 1)).size(), 1u);
  for (const std::string& file : disk_->Files()) EXPECT_FALSE(Has(file, "copy/lost")) << file;
  const std::string old = "store/lost/2001-01-01T00-00-00Z/old";
  ASSERT_OK(disk_->CreateDirectory("store/lost/2001-01-01T00-00-00Z"));
  const std::vector<std::byte> bytes(1 << 20);
  {
    ASSERT_OK_ASSIGN(const auto file, disk_->Open(old, {.write = true, .create = true}));
    ASSERT_OK(file->Write(0, bytes, /*durable=*/true));
  }
  {
    ASSERT_OK_ASSIGN(Store store, Open(Recovery::kRefuse));
    EXPECT_GT(store.Metrics().physical_bytes, used + (1 << 19));
    ASSERT_OK(store.Close());
  }
  options_.max_bytes = 12 << 20;  // A sixteenth is less than both.
  ASSERT_OK_ASSIGN(Store store, Open(Recovery::kRefuse));
  EXPECT_FALSE(disk_->ReadRaw(old).ok());
  EXPECT_EQ(FilesOf(path.substr(path.rfind('/') + 1)).size(), 1u);
}

}  // namespace
}  // namespace cairn::testing
