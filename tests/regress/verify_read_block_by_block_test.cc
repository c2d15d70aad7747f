// SPDX-License-Identifier: Apache-2.0
//
// The bug: Verify(kAll) read every record of the log and every frame of the tables separately,
// mostly a block of 4 KiB, and opened the segment for each: about ten thousand reads for 40 MiB.
// Nor did it say how far it was. Method: a simulated disk counts the reads of a store of many small
// appends, in its log and in tables, and how many bytes they bring. Where a large read fails, what
// can be had alone is checked.
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

class VerifyReads : public ::testing::Test {
 protected:
  void SetUp() override {
    options_ = TinyOptions();
    options_.snapshot_interval_tokens = 0;
    options_.max_delta_chain = 0;
    options_.world = std::make_shared<io::World>(machine_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("store", options_));
    ASSERT_OK_ASSIGN(model_, store_.RegisterModel(spec_));
  }
  // Branches of some tokens each, in groups of their own.
  void Append(int branches) {
    for (int i = 0; i < branches; ++i) {
      ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(model_, {.durability = {}}));
      KvSet kv(spec_, Layout::kContiguous, 0, 8);
      kv.Write(i, 0, 8);
      const std::vector<TokenId> tokens = Tokens(8, i);
      ASSERT_OK(chat.AppendSync({.tokens = tokens, .kv = kv.View(0, 8)}));
    }
  }
  // Counts reads of files whose path has `part`.
  uint64_t ReadsOfVerify(const std::string& part, VerifyReport* report) {
    uint64_t reads = 0;
    machine_.disk->AddFault({.when =
                                 [&](const io::SimOperation& one) {
                                   reads += one.op == io::SimOp::kRead &&
                                            one.path.find(part) != std::string::npos;
                                   return false;
                                 },
                             .persistent = true});
    const auto verified = store_.Verify(VerifyLevel::kAll);
    machine_.disk->ClearFaults();
    EXPECT_OK(verified);
    if (verified.ok()) *report = *verified;
    return reads;
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  const ModelSpec spec_ = TinyModel();
  Options options_;
  Store store_;
  ModelId model_{};
};

TEST_F(VerifyReads, OfTheLogAreLarge) {
  Append(300);
  VerifyReport report;
  const uint64_t reads = ReadsOfVerify("/log/", &report);
  EXPECT_TRUE(report.damages.empty());
  EXPECT_GE(report.strips, 600u);
  // Once for the headers, once for the payload, and what is around a segment.
  EXPECT_LT(reads, 20 * store_.Metrics().log_segments + 20) << report.records << " records";
}

TEST_F(VerifyReads, OfTablesAreLarge) {
  Append(300);
  ASSERT_OK(store_.Compact());
  VerifyReport report;
  const uint64_t reads = ReadsOfVerify(".snapshot", &report);
  EXPECT_TRUE(report.damages.empty());
  EXPECT_GT(report.frames, 1000u);
  EXPECT_LT(reads, 8 * report.tables + 8) << report.frames << " frames";
}

// A block that cannot be read is damage of what lies in it, not of what lies around.
TEST_F(VerifyReads, ThatFailAreMadeUpForOneByOne) {
  Append(300);
  ASSERT_OK(store_.Compact());
  ASSERT_OK_ASSIGN(const VerifyReport before, store_.Verify(VerifyLevel::kAll));
  ASSERT_TRUE(before.damages.empty());
  const auto covers_block = [](const io::SimOperation& one) {
    constexpr uint64_t kBlock = 2 * io::kBlockBytes;
    return one.op == io::SimOp::kRead && one.path.find(".snapshot") != std::string::npos &&
           one.offset <= kBlock && one.offset + one.length > kBlock;
  };
  machine_.disk->AddFault({.when = covers_block, .error = EIO, .persistent = true});
  ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
  machine_.disk->ClearFaults();
  EXPECT_FALSE(report.damages.empty());
  for (const VerifyReport::Damage& damage : report.damages) {
    EXPECT_NE(damage.what.find("IoError"), std::string::npos) << damage.what;
  }
  // A block holds a few fragments; of each that lies in it some frames, or the entries, are lost.
  const size_t most_frames = before.frames / 4;
  EXPECT_GT(report.frames + most_frames, before.frames);
  EXPECT_LT(report.damages.size(), most_frames);
}

TEST_F(VerifyReads, TellHowFarTheyAre) {
  Append(100);
  ASSERT_OK(store_.Compact());
  Append(100);
  for (const VerifyLevel level : {VerifyLevel::kHeaders, VerifyLevel::kIndex, VerifyLevel::kAll}) {
    uint64_t calls = 0, last = 0, last_total = 0;
    ASSERT_OK(store_.Verify(level, [&](uint64_t done, uint64_t total) {
      EXPECT_GE(done, last);
      EXPECT_LE(done, total);
      EXPECT_TRUE(calls == 0 || total == last_total);
      ++calls;
      last = done;
      last_total = total;
    }));
    EXPECT_GT(last_total, 100u << 10);
    EXPECT_EQ(last, last_total);
    EXPECT_GT(calls, level == VerifyLevel::kAll ? 200u : 4u);
  }
}

}  // namespace
}  // namespace cairn::testing
