// SPDX-License-Identifier: Apache-2.0
//
// Property: a store that any released version wrote opens in this one, for reading and for writing,
// and every byte is found; and once more when all of it was rewritten. Method: the stores lie in
// this folder, format_<n>, as files. Their content follows from a story (golden_story.h). Segments
// of the log that were never written are left out, as they may be.
//
// A new store, once a format is released that differs:
//   CAIRN_GOLDEN_OUT=tests/golden/format_<n> build/release/bin/cairn_golden_test
//       --gtest_also_run_disabled_tests --gtest_filter=Golden.DISABLED_Write
// CAIRN_GOLDEN_STORE names another store that the same story made, as one of another processor.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "sim/world.h"
#include "tests/golden/golden_check.h"
#include "tests/golden/golden_story.h"
#include "tests/support/source_dir.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"
#include "wal/segment_files.h"

namespace cairn::golden {
namespace {

constexpr const char* kSimulatedPath = "/store";

// Machine and store, as the story made it.
struct Told {
  io::SimWorld machine = io::MakeSimWorld(1);
  std::shared_ptr<const io::World> world = std::make_shared<io::World>(machine.world());
  Book book = TellFormat1(world, kSimulatedPath);
};

std::map<std::string, std::string> FilesIn(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files[std::filesystem::relative(entry.path(), directory).string()] = {
        std::istreambuf_iterator<char>(file), {}};
  }
  return files;
}

void ExpectNoDamage(const Store& store, VerifyReport* report) {
  const auto verified = store.Verify(VerifyLevel::kAll);
  ASSERT_OK(verified);
  for (const VerifyReport::Damage& damage : verified->damages) {
    ADD_FAILURE() << damage.where << ": " << damage.what;
  }
  *report = *verified;
}

class GoldenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = directory_.path() + "/store";
    const char* other = std::getenv("CAIRN_GOLDEN_STORE");
    std::filesystem::copy(other != nullptr ? other : testing::SourcePath("/tests/golden/format_1"),
                          path_, std::filesystem::copy_options::recursive);
    book_ = TellFormat1();
  }
  Store Open(Options options) {
    auto opened = Store::Open(path_, options);
    EXPECT_OK(opened);
    return opened.ok() ? std::move(*opened) : Store();
  }

  testing::TempDirectory directory_;
  std::string path_;
  Book book_;
  uint64_t lossy_bytes_ = 0;
};

TEST_F(GoldenTest, AReaderFindsEveryByteAndWritesNone) {
  Options options = GoldenOptions();
  options.read_only = true;
  const auto before = FilesIn(path_);
  Store store = Open(options);
  ASSERT_NO_FATAL_FAILURE(ExpectAll(store, book_, &lossy_bytes_));
  VerifyReport report;
  ASSERT_NO_FATAL_FAILURE(ExpectNoDamage(store, &report));
  // The required counts of the store.
  EXPECT_GE(report.index_tables, 2u);
  EXPECT_GE(report.tables, 3u);
  EXPECT_GE(report.records, 10u);
  EXPECT_GT(lossy_bytes_, 0u);
  EXPECT_OK(store.Close());
  EXPECT_TRUE(before == FilesIn(path_));
}

TEST_F(GoldenTest, AWriterFindsEveryByteAgainAfterAllWasWrittenAnew) {
  VerifyReport report;
  Store store = Open(GoldenOptions());
  ASSERT_NO_FATAL_FAILURE(ExpectAll(store, book_, &lossy_bytes_));
  ASSERT_NO_FATAL_FAILURE(ExpectNoDamage(store, &report));
  ASSERT_OK(store.Compact());
  ASSERT_NO_FATAL_FAILURE(ExpectAll(store, book_, &lossy_bytes_));
  ASSERT_OK(store.Close());
  store = Open(GoldenOptions());
  ASSERT_NO_FATAL_FAILURE(ExpectAll(store, book_, &lossy_bytes_));
  // It goes on as any other store.
  for (auto& [name, branch] : book_.branches) {
    ASSERT_OK_ASSIGN(const BranchPage page, store.ListBranches(branch.ns, name, 1));
    Branch found(store.core(), page.branches.at(0).id);
    const std::vector<TokenId> ids = {1, 2, 70'000};
    ASSERT_OK(found.AppendSync({.tokens = ids}, {.expected_length = branch.length()}));
    for (const TokenId id : ids) branch.positions.push_back({.token = id, .kv = {}});
  }
  ASSERT_OK(store.Compact());
  ASSERT_OK(store.Close());
  store = Open(GoldenOptions());
  ASSERT_NO_FATAL_FAILURE(ExpectAll(store, book_, &lossy_bytes_));
  ASSERT_NO_FATAL_FAILURE(ExpectNoDamage(store, &report));
  ASSERT_OK(store.Close());
}

// As a program of today describes the models that the store has: what they could not say is written
// down once, and appends continue the stored content.
TEST_F(GoldenTest, ItsModelsAreRegisteredAgainWithWhatCanBeSaidToday) {
  const auto describe = [](ModelSpec spec) {
    for (LayerGroup& group : spec.groups) {
      const bool pair = group.planes.size() >= 2 && group.planes[0].role == PlaneRole::kKey;
      if (pair) {
        const Plane& key = group.planes[0];
        const LayerGroup preset =
            LayerGroup::FullAttention(group.layers, key.heads, key.row_bytes / 2, key.dtype);
        for (size_t i = 0; i < 2; ++i) group.planes[i].rotary = preset.planes[i].rotary;
        if (group.inv_freq.empty()) {
          group.inv_freq = RotaryFrequencies(key.row_bytes / 2, 10'000.0);
          group.mscale = 1.5F;
        }
      }
      if (group.name == "state") group.planes[0].state_parts = 4;
      spec.logical.push_back({.name = group.name,
                              .layers = 2 * group.layers,
                              .heads = pair ? 2 * group.planes[0].heads : 4,
                              .layer_end = group.layers,
                              .head_end = pair ? group.planes[0].heads : 4});
    }
    return spec;
  };
  Store store = Open(GoldenOptions());
  std::map<std::string, ModelId> ids;  // By identity and variant.
  const auto key = [](const ModelSpec& spec) { return spec.identity.name + spec.variant.name; };
  for (const ModelInfo& info : store.Models()) ids[key(info.spec)] = info.id;
  for (const ModelSpec& spec : book_.models) {
    const ModelSpec today = describe(spec);
    for (const ModelSpec& again : {today, today, spec}) {
      ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(again));
      EXPECT_EQ(ids.at(key(spec)), id);
    }
    ASSERT_OK_ASSIGN(const ModelInfo info, store.GetModel(ids.at(key(spec))));
    EXPECT_TRUE(info.spec == today);
    if (spec.groups.empty() || spec.groups[0].planes[0].role != PlaneRole::kKey) continue;
    ModelSpec other = today;
    other.groups[0].planes[0].rotary.pairing = RotaryPairing::kAdjacent;
    EXPECT_FAILS(store.RegisterModel(other), StatusCode::kModelMismatch,
                 "groups[0].planes[0].rotary.pairing");
    other = today;
    other.groups[0].inv_freq[1] *= 2;
    EXPECT_FAILS(store.RegisterModel(other), StatusCode::kModelMismatch, "groups[0].inv_freq");
    other = today;
    other.groups[0].mscale = 3.0F;
    EXPECT_FAILS(store.RegisterModel(other), StatusCode::kModelMismatch, "groups[0].mscale");
  }
  EXPECT_EQ(book_.models.size(), store.Models().size());
  for (size_t i = 0; i < book_.models.size(); ++i) book_.models[i] = describe(book_.models[i]);
  // Branches whose KV does not lag.
  for (const char* name : {"chat", "int8"}) {
    testing::ModelBranch& branch = book_.branches.at(name);
    const uint64_t begin = branch.length();
    ASSERT_EQ(begin, branch.kv_lengths[0]);
    Rows rows(book_.models[branch.model], {{begin, 2}});
    const std::vector<TokenId> ids_of_two = {5, 6};
    for (uint64_t at = begin; at < begin + 2; ++at) {
      rows.Write(0, at, at);
      branch.positions.push_back({.token = ids_of_two[at - begin], .kv = {}});
      branch.positions.back().kv[0] = at;
    }
    branch.kv_lengths[0] += 2;
    ASSERT_OK_ASSIGN(Branch found, store.FindBranch(name));
    ASSERT_OK(found.AppendSync({.tokens = ids_of_two, .kv = rows.view()},
                               {.expected_length = begin, .ends_turn = true}));
  }
  VerifyReport report;
  for (int opened = 0; opened < 2; ++opened) {
    for (const ModelSpec& spec : book_.models) {
      ASSERT_OK_ASSIGN(const ModelInfo info, store.GetModel(ids.at(key(spec))));
      EXPECT_TRUE(info.spec == spec);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectAll(store, book_, &lossy_bytes_));
    ASSERT_OK(store.Compact());
    ASSERT_NO_FATAL_FAILURE(ExpectAll(store, book_, &lossy_bytes_));
    ASSERT_NO_FATAL_FAILURE(ExpectNoDamage(store, &report));
    ASSERT_OK(store.Close());
    store = Open(GoldenOptions());
  }
  ASSERT_OK(store.Close());
}

TEST_F(GoldenTest, OneOtherRowIsNoticed) {
  Store store = Open(GoldenOptions());
  ++*book_.branches.at("int8").positions[77].kv[0];
  ::testing::TestPartResultArray failures;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    ExpectAll(store, book_, &lossy_bytes_);
  }
  EXPECT_GT(failures.size(), 0);
  EXPECT_OK(store.Close());
}

// The code that writes golden stores is used, so it goes on working.
TEST(Golden, ItsStoryFitsAStoreOfToday) {
  const Told told;
  uint64_t lossy_bytes = 0;
  Options options = GoldenOptions();
  options.world = told.world;
  ASSERT_OK_ASSIGN(Store store, Store::Open(kSimulatedPath, options));
  ASSERT_NO_FATAL_FAILURE(ExpectAll(store, told.book, &lossy_bytes));
  ASSERT_OK(store.Close());
}

TEST(Golden, DISABLED_Write) {
  const char* out = std::getenv("CAIRN_GOLDEN_OUT");
  ASSERT_TRUE(out != nullptr && !std::filesystem::exists(out))
      << "CAIRN_GOLDEN_OUT must name a directory that is not there";
  const Told told;
  for (const std::string& file : told.machine.disk->Files()) {
    const auto path = std::filesystem::path(out) / file.substr(std::string("store/").size());
    if (wal::IsLogFileName(path.filename().string())) {
      ASSERT_OK_ASSIGN(const bool written, wal::HoldsRecords(*told.machine.disk, "/" + file));
      if (!written) continue;
    }
    ASSERT_OK_ASSIGN(const std::vector<std::byte> bytes, told.machine.disk->ReadRaw(file));
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
}

}  // namespace
}  // namespace cairn::golden
