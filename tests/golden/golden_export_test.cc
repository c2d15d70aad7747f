// SPDX-License-Identifier: Apache-2.0
//
// Property: every branch of a store that any released version wrote leaves as a file and comes back
// bit for bit: ids, states, spans, all KV that it has, and how it is kept; and all of them together
// without KV. Method: the golden store, exported and imported into a new one; the book says what
// must be found, but for KV that stands behind a gap, which no branch could be given.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cairn/export.h"
#include "tests/golden/golden_check.h"
#include "tests/golden/golden_story.h"
#include "tests/support/source_dir.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::golden {
namespace {

class GoldenExportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(testing::SourcePath("/tests/golden/format_1"), directory_.path() + "/old",
                          std::filesystem::copy_options::recursive);
    book_ = TellFormat1();
    Options options = GoldenOptions();
    ASSERT_OK_ASSIGN(old_, Store::Open(directory_.path() + "/old", options));
    options.create_if_missing = true;
    ASSERT_OK_ASSIGN(new_, Store::Open(directory_.path() + "/new", options));
    for (const ModelSpec& spec : book_.models) ASSERT_OK(new_.RegisterModel(spec));
    book_.policies.clear();
  }

  // What an import brings: of a group without gaps KV up to the first one, of others all.
  void CutBook() {
    for (auto& [name, branch] : book_.branches) {
      const std::vector<LayerGroup>& groups = book_.models[branch.model].groups;
      for (size_t group = 0; group < groups.size(); ++group) {
        uint64_t end = 0;
        for (uint64_t at = 0; at < branch.length(); ++at) {
          const bool has = branch.positions[at].kv[group].has_value();
          if (has) end = at + 1;
          if (!has && groups[group].retention.kind == Retention::kAll) break;
        }
        branch.CutKv(group, end);
      }
    }
  }
  void ExpectBook() {
    uint64_t lossy_bytes = 0;
    ASSERT_NO_FATAL_FAILURE(ExpectAll(new_, book_, &lossy_bytes));
    ASSERT_OK_ASSIGN(const VerifyReport report, new_.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty()) << report.damages[0].what;
  }
  void ExpectBookEverywhere() {
    ASSERT_NO_FATAL_FAILURE(ExpectBook());
    ASSERT_OK(new_.Compact());
    ASSERT_OK(new_.Close());
    ASSERT_OK_ASSIGN(new_, Store::Open(directory_.path() + "/new", GoldenOptions()));
    ASSERT_NO_FATAL_FAILURE(ExpectBook());
  }
  std::vector<Branch> Branches() {
    std::vector<Branch> found;
    for (const NamespaceInfo& one : *old_.Namespaces()) {
      const auto page = old_.ListBranches(one.name, "", SIZE_MAX);
      EXPECT_OK(page);
      for (const BranchInfo& info : page->branches) found.emplace_back(old_.core(), info.id);
    }
    return found;
  }

  testing::TempDirectory directory_;
  Store old_, new_;
  Book book_;
};

TEST_F(GoldenExportTest, EveryBranchComesBackBitForBit) {
  uint64_t number = 0, kv_bytes = 0;
  for (const Branch& branch : Branches()) {
    const std::string file = directory_.path() + "/" + std::to_string(number++) + ".safetensors";
    ASSERT_OK_ASSIGN(const ExportInfo made, ExportBranch(branch, file));
    EXPECT_EQ(made.file_bytes, std::filesystem::file_size(file));
    ASSERT_OK_ASSIGN(const ImportInfo brought, ImportBranch(new_, file));
    EXPECT_EQ(made.kv_bytes, brought.kv_bytes);
    kv_bytes += made.kv_bytes;
    // Once more from where it is now: the same file, but for the times.
    ASSERT_OK_ASSIGN(const ExportInfo again, ExportBranch(brought.branch, file, {.replace = true}));
    EXPECT_EQ(made.snapshot_id, again.snapshot_id);
    EXPECT_EQ(made.kv_ends, again.kv_ends);
    EXPECT_EQ(made.kv_bytes, again.kv_bytes);
  }
  EXPECT_EQ(book_.branches.size(), number);
  EXPECT_GT(kv_bytes, 0U);
  CutBook();
  ASSERT_NO_FATAL_FAILURE(ExpectBookEverywhere());
}

// Parts of every branch, cut at thirds: each continues what the ones before made.
TEST_F(GoldenExportTest, PartsComeBackInOrder) {
  uint64_t number = 0, parts = 0;
  for (const Branch& branch : Branches()) {
    ASSERT_OK_ASSIGN(const uint64_t length, branch.length());
    uint64_t begin = 0;
    std::vector<uint64_t> ends = {length / 3, 2 * length / 3, length};
    if (branch.Info()->name.empty()) ends = {length};  // Nothing finds it again.
    ASSERT_OK_ASSIGN(const std::vector<ContentSpan> spans, branch.Spans(0, length));
    for (uint64_t third : ends) {
      // A part begins where no span does that began before.
      for (const ContentSpan& span : spans) {
        if (span.begin < third && third < span.end) third = span.begin;
      }
      if (third <= begin && third != length) continue;
      const std::string file = directory_.path() + "/" + std::to_string(number++) + ".safetensors";
      // All KV that lags, or that was given later.
      const ExportOptions options{.begin = begin, .end = third, .kv_begin = 0};
      ASSERT_OK(ExportBranch(branch, file, options));
      ASSERT_OK_ASSIGN(const ImportInfo brought, ImportBranch(new_, file));
      EXPECT_EQ(begin, brought.found);
      parts += begin != 0;
      begin = third;
      if (third == length) break;
    }
  }
  EXPECT_GT(parts, 5U);
  CutBook();
  ASSERT_NO_FATAL_FAILURE(ExpectBookEverywhere());
}

TEST_F(GoldenExportTest, TheForestComesBackWithoutKv) {
  const std::string file = directory_.path() + "/all.msgpack";
  ASSERT_OK_ASSIGN(const ForestInfo made, ExportForest(old_, file));
  EXPECT_EQ(book_.branches.size(), made.branches);
  EXPECT_EQ(made.file_bytes, std::filesystem::file_size(file));
  uint64_t tokens = 0;
  for (const auto& [name, branch] : book_.branches) tokens += branch.length();
  EXPECT_LT(made.tokens, tokens);  // Forks share.
  ASSERT_OK_ASSIGN(const ForestInfo brought, ImportForest(new_, file));
  EXPECT_EQ(made.tokens, brought.tokens);
  EXPECT_EQ(made.branches, brought.branches);
  EXPECT_EQ(made.models, brought.models);
  for (auto& [name, branch] : book_.branches) {
    for (size_t group = 0; group < branch.kv_lengths.size(); ++group) branch.CutKv(group, 0);
  }
  ASSERT_NO_FATAL_FAILURE(ExpectBookEverywhere());
}

}  // namespace
}  // namespace cairn::golden
