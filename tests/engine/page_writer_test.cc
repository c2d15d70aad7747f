// SPDX-License-Identifier: Apache-2.0
//
// Property: who visits the frames of a table sees each of them once, says what it is, and sees what
// can be read back; and gathered or staged, the same rows make the same table.
#include "engine/commit/page_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/codec/token_block.h"
#include "base/io/world.h"
#include "engine/config/constants.h"
#include "sstable/snapshot_table.h"
#include "tests/support/status.h"
#include "tests/support/table_callbacks.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

using engine::FragmentLayout;
using engine::FrameName;
using engine::HeadSlice;
using engine::PageRange;
using engine::PageWriter;

constexpr uint64_t kNode = 9, kFirst = 100;
constexpr uint32_t kRows = 700;

// Keys are quantised when they are sealed, values are not.
ModelSpec Model() {
  ModelSpec model = WideModel();
  model.groups[0].planes[0].sealed_as = SealedAs::kInt8;
  return model;
}

// Made from where they are; staged, or gathered into the room that is given.
class Rows final : public engine::PageRows {
 public:
  Rows(const LayerGroup& group, uint32_t count, bool gathers)
      : group_(group), count_(count), gathers_(gathers) {
    for (uint32_t layer = 0; layer < group.layers; ++layer) {
      for (uint32_t plane = 0; plane < group.planes.size(); ++plane) {
        staged_.emplace_back(group.planes[plane].heads * uint64_t{count} *
                             group.planes[plane].row_bytes);
        auto& bytes = staged_.back();
        for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
          const auto value = static_cast<uint16_t>(0x3F00 + (i * 7 + layer * 31 + plane) % 251);
          std::memcpy(bytes.data() + i, &value, sizeof value);
        }
      }
    }
  }
  bool gathers() const override { return gathers_; }
  std::span<std::byte> Plane(uint32_t layer, uint32_t plane,
                             std::span<std::byte> room) const override {
    auto& rows = staged_[layer * group_.planes.size() + plane];
    if (!gathers_) return rows;
    std::memcpy(room.data(), rows.data(), rows.size());
    return room.first(rows.size());
  }

 private:
  const LayerGroup& group_;
  const uint32_t count_;
  const bool gathers_;
  mutable std::vector<std::vector<std::byte>> staged_;
};

class Seen final : public engine::FrameVisitor {
 public:
  using Key = std::tuple<uint32_t, uint64_t, uint32_t, uint32_t, uint32_t>;
  void OnFrame(const FrameName& name, std::span<const std::byte> raw) override {
    std::lock_guard lock(mutex_);
    EXPECT_EQ(kNode, name.positions.node);
    const Key key{name.positions.lane, name.positions.begin, name.layer, name.plane, name.head};
    EXPECT_TRUE(frames.emplace(key, std::vector<std::byte>(raw.begin(), raw.end())).second);
    counts[key] = name.positions.count;
  }
  std::map<Key, std::vector<std::byte>> frames;
  std::map<Key, uint32_t> counts;

 private:
  std::mutex mutex_;
};

struct Table {
  explicit Table(size_t helpers)
      : executor(*world.scheduler, "pack", std::max<size_t>(1, helpers)),
        parallel_for(*world.scheduler, &executor, helpers) {
    EXPECT_OK(world.files->CreateDirectory("t"));
    context.files = world.files.get();
    context.directory = "t";
    context.store = {{1, 2, 3}};
    context.callbacks = &host;
    context.counters = &counters;
  }
  Status Write(const ModelSpec& model, bool gathers, engine::FrameVisitor* visitor,
               uint64_t batch_bytes = 1 << 20) {
    CAIRN_ASSIGN_OR_RETURN(const auto writer, PageWriter::Create({.tables = context,
                                                                  .parallel_for = &parallel_for,
                                                                  .batch_bytes = batch_bytes,
                                                                  .visitor = visitor,
                                                                  .go_on = go_on}));
    const FragmentLayout ids_layout(model, engine::kTokenLane), layout(model, 1);
    std::vector<TokenId> ids(engine::kTokensPerPage + 5);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i * 3);
    CAIRN_RETURN_IF_ERROR(writer->AddTokens(
        {kNode, engine::kTokenLane, kFirst, static_cast<uint32_t>(ids.size())}, ids_layout, ids));
    const auto rows = std::make_shared<Rows>(model.groups[0], kRows, gathers);
    CAIRN_RETURN_IF_ERROR(writer->AddKv({kNode, 1, kFirst, kRows, false}, layout, rows));
    CAIRN_RETURN_IF_ERROR(writer->Pack());
    const std::vector<std::byte> state(engine::kStateFrameBytes + 10, std::byte{5});
    CAIRN_RETURN_IF_ERROR(writer->AddState({kNode, engine::kMetadataLane, kFirst, 1}, state));
    return writer->Finish().status();
  }
  std::vector<std::byte> Bytes() {
    auto file = world.files->Open(sstable::SnapshotTablePath("t", 7), {});
    EXPECT_OK(file);
    std::vector<std::byte> bytes(host.taken);
    EXPECT_OK((*file)->Read(0, bytes));
    return bytes;
  }

  io::World world = io::MakeMemoryWorld();
  io::Executor executor;
  io::ParallelFor parallel_for;
  CountingTableCallbacks host{7};
  sstable::TableCounters counters;
  sstable::TableContext context;
  std::function<Status(uint64_t)> go_on = [](uint64_t) { return Status::Ok(); };
};

TEST(PageWriterTest, GatheredOrStagedTheSameRowsMakeTheSameTable) {
  const ModelSpec model = Model();
  std::vector<std::byte> first;
  for (const bool gathers : {false, true}) {
    for (const size_t helpers : {0, 3}) {
      for (const uint64_t batch_bytes : {uint64_t{1}, uint64_t{1} << 20, uint64_t{1} << 26}) {
        Table table(helpers);
        ASSERT_OK(table.Write(model, gathers, nullptr, batch_bytes));
        if (first.empty()) first = table.Bytes();
        EXPECT_EQ(first, table.Bytes()) << gathers << " " << helpers << " " << batch_bytes;
      }
    }
  }
}

// The decoded frame of the table.
std::vector<std::byte> Decoded(const FragmentLayout& layout, uint32_t lane, uint32_t slice,
                               uint32_t rows, const sstable::FrameEntry& frame,
                               std::span<const std::byte> stored) {
  std::vector<std::byte> raw(frame.raw_bytes);
  if (lane == engine::kTokenLane) {
    std::vector<TokenId> ids(rows);
    EXPECT_OK(DecodeTokens(stored, ids));
    std::memcpy(raw.data(), ids.data(), raw.size());
  } else if (lane == 1) {
    EXPECT_OK(DecodeFrame(layout.Shape(slice, rows), stored, raw));
  } else {
    raw.assign(stored.begin(), stored.end());
  }
  return raw;
}

TEST(PageWriterTest, AVisitorSeesEachFrameAsItCanBeReadBack) {
  const ModelSpec model = Model();
  for (const bool gathers : {false, true}) {
    Table written(3);
    Seen seen;
    ASSERT_OK(written.Write(model, gathers, &seen));
    ASSERT_OK_ASSIGN(const auto table, sstable::SnapshotTable::Open(written.context, 7));
    size_t frames = 0;
    table->VerifyEach(
        [&](const sstable::FragmentEntry& fragment, uint32_t page, const sstable::FrameEntry& entry,
            std::span<const std::byte> stored) {
          // Which slice this is follows from the order: slice by slice, in each page by page.
          const auto all = table->Frames(fragment);
          EXPECT_OK(all);
          size_t index = 0;
          while ((*all)[index].offset != entry.offset) ++index;
          const auto slice = static_cast<uint32_t>(index / fragment.pages);
          const FragmentLayout layout(model, fragment.lane);
          const bool kv = fragment.lane == 1;
          const HeadSlice at = kv ? layout.At(slice) : HeadSlice{.layer = slice};
          const bool state = fragment.lane == engine::kMetadataLane;
          const uint64_t begin = fragment.begin + (state ? 0 : page * uint64_t{fragment.page_rows});
          const Seen::Key key{fragment.lane, begin, kv || state ? at.layer : 0, at.plane, at.head};
          EXPECT_TRUE(seen.frames.contains(key));
          const uint32_t rows = fragment.rows(page);
          EXPECT_EQ(rows, seen.counts[key]);
          EXPECT_EQ(seen.frames[key], Decoded(layout, fragment.lane, slice, rows, entry, stored));
          ++frames;
          return Status::Ok();
        },
        [](const Status& damage) { ADD_FAILURE() << damage.ToString(); });
    EXPECT_EQ(seen.frames.size(), frames);
    EXPECT_GT(frames, 2U + model.groups[0].layers * 2 * model.groups[0].planes[0].heads);
  }
}

TEST(PageWriterTest, AnEndInTheMiddleLeavesNothing) {
  const ModelSpec model = Model();
  Table table(1);
  uint64_t written = 0;
  table.go_on = [&](uint64_t stored_bytes) {
    written += stored_bytes;
    return written > 200'000 ? Status(StatusCode::kCancelled, "enough") : Status::Ok();
  };
  EXPECT_FAILS(table.Write(model, true, nullptr), StatusCode::kCancelled);
  EXPECT_EQ(0U, table.host.taken);
  ASSERT_OK_ASSIGN(const auto names, table.world.files->List("t"));
  EXPECT_EQ(std::vector<std::string>(), names);
}

}  // namespace
}  // namespace cairn::testing
