// SPDX-License-Identifier: Apache-2.0
//
// Property: a history holds what was seen of itself, and of those that it goes on from what was
// seen up to where they ended; of too many the newest. Every opening for writing begins one, also
// where the disk has no room to say so.
#include "engine/manifest/history.h"

#include <cerrno>

#include "engine/follow/hint.h"
#include "engine/manifest/manifest.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

using engine::History;
using engine::HistoryId;
using engine::HistoryPoint;

HistoryId Id(unsigned number) { return {{static_cast<std::byte>(number), std::byte{1}}}; }

TEST(History, HoldsWhatWasSeenUpToWhereItEnded) {
  History history;
  EXPECT_TRUE(history.Holds({HistoryId(), 1000, 1000})) << "one that has no name";
  history.GoOn(Id(1), {.history = {}, .sequence = 10, .next_file_number = 5});
  history.GoOn(Id(2), {.history = {}, .sequence = 20, .next_file_number = 9});
  EXPECT_TRUE(history.Holds({Id(2), 1000, 1000}));
  EXPECT_TRUE(history.Holds({Id(1), 20, 9}));
  EXPECT_FALSE(history.Holds({Id(1), 21, 9}));
  EXPECT_FALSE(history.Holds({Id(1), 20, 10}));
  EXPECT_TRUE(history.Holds({HistoryId(), 10, 5}));
  EXPECT_FALSE(history.Holds({HistoryId(), 11, 5}));
  EXPECT_FALSE(history.Holds({Id(3), 0, 0}));
}

TEST(History, KeepsTheNewest) {
  History history;
  for (unsigned i = 1; i <= 200; ++i) history.GoOn(Id(i), {});
  EXPECT_EQ(History::kEarlierMax, history.earlier.size());
  EXPECT_TRUE(history.Holds({Id(200 - History::kEarlierMax), 0, 0}));
  EXPECT_FALSE(history.Holds({Id(200 - History::kEarlierMax - 1), 0, 0}));
  engine::Manifest manifest;
  manifest.segment_bytes = 1 << 20;
  manifest.history = history;
  ASSERT_OK_ASSIGN(const engine::Manifest read,
                   engine::DecodeManifest("MANIFEST-1", engine::EncodeManifest(manifest)));
  EXPECT_EQ(history.id, read.history.id);
  EXPECT_EQ(history.earlier, read.history.earlier);
  manifest.history.earlier.emplace_back();
  EXPECT_FAILS(engine::DecodeManifest("MANIFEST-1", engine::EncodeManifest(manifest)),
               StatusCode::kCorruption, "MANIFEST-1: bad history");
}

class HistoryOfAStore : public ::testing::Test {
 protected:
  void SetUp() override {
    options_ = TinyOptions();
    options_.world = std::make_shared<io::World>(machine_.world());
  }
  engine::Manifest Read() { return *engine::ReadManifest(*machine_.disk, "/store"); }

  io::SimWorld machine_ = io::MakeSimWorld(1);
  Options options_;
};

TEST_F(HistoryOfAStore, EachOpeningForWritingBeginsOne) {
  std::vector<HistoryId> seen;
  for (int opening = 0; opening < 3; ++opening) {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options_));
    const History now = Read().history;
    ASSERT_EQ(seen.size(), now.earlier.size());
    for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], now.earlier[i].history);
    seen.insert(seen.begin(), now.id);
    ASSERT_OK_ASSIGN(const engine::Manifest manifest,
                     engine::ReadManifest(*machine_.disk, "/store"));
    const auto hint = engine::ReadHint(*machine_.disk, "/store", manifest.store);
    ASSERT_TRUE(hint.has_value());
    EXPECT_EQ(now.id, hint->history);
    ASSERT_OK(store.Close());
    Options reading = options_;
    reading.read_only = true;
    reading.create_if_missing = false;
    ASSERT_OK(Store::Open("/store", reading));
    EXPECT_EQ(now.id, Read().history.id);
  }
}

// A user that wants to make room is let in, and goes on with the existing history.
TEST_F(HistoryOfAStore, AFullDiskKeepsNobodyOut) {
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options_));
  const HistoryId before = Read().history.id;
  ASSERT_OK(store.Close());
  const auto manifest_fails = [&](int error) {
    machine_.disk->AddFault({.when =
                                 [](const io::SimOperation& one) {
                                   return one.op == io::SimOp::kWrite &&
                                          one.path.find("MANIFEST") != one.path.npos;
                                 },
                             .error = error});
  };
  manifest_fails(EIO);
  EXPECT_FAILS(Store::Open("/store", options_), StatusCode::kIoError, "MANIFEST");
  machine_.disk->ClearFaults();
  std::string told;
  options_.listener = std::make_shared<EventListener>();
  options_.listener->on_event = [&](const std::string& line) { told += line; };
  manifest_fails(ENOSPC);
  ASSERT_OK_ASSIGN(store, Store::Open("/store", options_));
  EXPECT_NE(std::string::npos, told.find("no room to write MANIFEST")) << told;
  EXPECT_EQ(before, Read().history.id);
  ASSERT_OK(store.Close());
  ASSERT_OK_ASSIGN(store, Store::Open("/store", options_));
  EXPECT_EQ(before, Read().history.earlier.at(0).history);
  ASSERT_OK(store.Close());
}

// HINT of a writer that knew of no histories.
TEST_F(HistoryOfAStore, AHintWithoutOneIsOfNone) {
  const StoreId id{{1, 2}};
  engine::HintWriter writer(*machine_.disk, "");
  ASSERT_OK(writer.Write({3, 77, 5, Id(4)}, id));
  EXPECT_EQ((engine::Hint{3, 77, 5, Id(4)}), *engine::ReadHint(*machine_.disk, "", id));
  const std::byte zeros[48] = {};  // Nor did it say anything about itself.
  ASSERT_OK(machine_.disk->WriteRaw(engine::kHintFile, 56, zeros));
  EXPECT_EQ((engine::Hint{3, 77, 5, {}}), *engine::ReadHint(*machine_.disk, "", id));
  ASSERT_OK(machine_.disk->FlipBit(engine::kHintFile, 60, 3));
  EXPECT_FALSE(engine::ReadHint(*machine_.disk, "", id).has_value());
}

}  // namespace
}  // namespace cairn::testing
