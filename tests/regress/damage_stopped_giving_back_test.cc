// SPDX-License-Identifier: Apache-2.0
//
// The bug: one damaged record, one damaged table, or one branch that the index could not read,
// ended every round of the space thread where it was met. So nothing was evicted or rewritten any
// more, of no branch, and a store with a cap was full for ever.
// Method: a bit of one branch is flipped on a simulated disk, and others go on.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kTokens = 24;  // 192 KiB.

class DamageStoppedGivingBack : public ::testing::Test {
 protected:
  void SetUp() override {
    options_ = TinyOptions();
    options_.world = std::make_shared<io::World>(machine_.world());
    options_.listener = std::make_shared<EventListener>();
    options_.listener->on_event = [this](const std::string& line) {
      met_ += line.starts_with("space: Corruption") ? 1 : 0;
    };
    Reopen();
    ASSERT_OK_ASSIGN(id_, store_.RegisterModel(model_));
  }
  void Reopen() {
    store_ = Store();
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
  }
  Branch Add(const std::string& name) {
    auto made = store_.CreateBranch(id_, {.name = name});
    EXPECT_OK(made);
    EXPECT_OK(AppendSome(*made, model_, 0, kTokens));
    return *made;
  }
  std::vector<std::string> FilesThatEndWith(const std::string& suffix) {
    std::vector<std::string> found;
    for (const std::string& file : machine_.disk->Files()) {
      if (file.ends_with(suffix)) found.push_back("/" + file);
    }
    return found;
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  const ModelSpec model_ = WideModel();
  Options options_;
  Store store_;
  ModelId id_{};
  int met_ = 0;  // Damage, by the space thread.
};

TEST_F(DamageStoppedGivingBack, OfTheLogOthersAreEvictedAndItself) {
  options_.max_bytes = 4 << 20;
  options_.evict = Evict::kKv;
  ASSERT_OK(store_.Close());
  Reopen();
  Add("damaged");
  ASSERT_OK(store_.Close());
  ASSERT_OK(machine_.disk->FlipBit(FilesThatEndWith("/0000000000000002.log").at(0), 100'000, 3));
  Reopen();
  ASSERT_OK_ASSIGN(Branch damaged, store_.FindBranch("damaged"));
  EXPECT_FALSE(HasKv(damaged, model_, 0, kTokens));
  for (int i = 0; i < 200 && !HasFailure(); ++i) {  // 38 MiB.
    Add("b" + std::to_string(i));
  }
  EXPECT_GT(met_, 0);
  EXPECT_EQ(0U, store_.Metrics().background_failing) << "it was evicted";
  ASSERT_OK(damaged.Drop());
  ASSERT_OK(store_.Compact());
  ASSERT_OK(store_.Close());
}

TEST_F(DamageStoppedGivingBack, OfOneBranchInTheIndexTheOthersAreEvicted) {
  Add("damaged");
  for (int i = 0; i < 8; ++i) Add("b" + std::to_string(i));
  for (int i = 0; i < 200; ++i) {  // So that its record lies in another block than the order does.
    ASSERT_OK(store_.CreateBranch(id_, {.name = "empty" + std::to_string(i)}));
  }
  ASSERT_OK(store_.Compact());
  ASSERT_OK(store_.Close());
  for (const std::string& table : FilesThatEndWith(".index")) {
    ASSERT_OK_ASSIGN(const std::vector<std::byte> bytes, machine_.disk->ReadRaw(table));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (const size_t at = text.find("damaged"); at != std::string_view::npos) {
      ASSERT_OK(machine_.disk->FlipBit(table, at, 3));
    }
  }
  options_.max_bytes = 8 << 20;
  options_.evict = Evict::kKv;
  Reopen();
  ASSERT_FALSE(store_.FindBranch("damaged").ok());
  for (int i = 0; i < 80 && !HasFailure(); ++i) Add("c" + std::to_string(i));  // 15 MiB.
  EXPECT_GT(met_, 0) << "it is told of";
  EXPECT_GT(store_.Metrics().evicted_bytes, 6U << 20);
}

TEST_F(DamageStoppedGivingBack, OfOneTableTheOthersAreWrittenAnew) {
  // Two tables, of each of which a third is needed.
  std::vector<Branch> needed;
  for (int table = 0; table < 2; ++table) {
    for (int i = 0; i < 3; ++i) {
      const Branch branch = Add(std::to_string(table) + std::to_string(i));
      if (i == 0) needed.push_back(branch);
    }
    ASSERT_OK(store_.Compact());
    ASSERT_EQ(table + 1U, FilesThatEndWith(".snapshot").size());
  }
  ASSERT_OK(store_.PauseBackground());
  for (int table = 0; table < 2; ++table) {
    for (int i = 1; i < 3; ++i) {
      ASSERT_OK_ASSIGN(Branch branch, store_.FindBranch(std::to_string(table) + std::to_string(i)));
      ASSERT_OK(branch.Drop());
    }
  }
  ASSERT_OK(store_.Close());
  // The one that is looked at first: they are equally empty.
  const std::string first = FilesThatEndWith(".snapshot").at(0);
  ASSERT_OK_ASSIGN(const std::vector<std::byte> bytes, machine_.disk->ReadRaw(first));
  for (uint64_t at = 10'000; at < bytes.size() / 2; at += 10'000) {
    ASSERT_OK(machine_.disk->FlipBit(first, at, 3));
  }
  Reopen();
  EXPECT_FAILS(store_.Compact(), StatusCode::kCorruption, ".snapshot");
  EXPECT_EQ(1U, store_.Metrics().rewritten_tables);
  EXPECT_EQ(1U, store_.Metrics().background_failing);
  EXPECT_FALSE(store_.Health().ok);
  ASSERT_OK_ASSIGN(needed[1], store_.FindBranch("10"));
  EXPECT_TRUE(HasKv(needed[1], model_, 0, kTokens));
  ASSERT_OK_ASSIGN(needed[0], store_.FindBranch("00"));
  ASSERT_OK(needed[0].Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0U, store_.Metrics().background_failing);
  EXPECT_EQ(1U, FilesThatEndWith(".snapshot").size());
  ASSERT_OK(store_.Close());
}

}  // namespace
}  // namespace cairn::testing
