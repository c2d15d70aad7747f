// SPDX-License-Identifier: Apache-2.0
//
// Property: the same rows make the same table, whatever packs them; and it reads back as they are.
#include "engine/background/page_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
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
using engine::HeadSlice;
using engine::PageRange;
using engine::PageWriter;

constexpr uint64_t kNode = 9, kFirst = 100;
constexpr uint32_t kRows = 700;
constexpr size_t kIds = engine::kTokensPerPage + 5, kStateBytes = engine::kStateFrameBytes + 10;

// Keys are quantised when they are sealed, values are not.
ModelSpec Model() {
  ModelSpec model = WideModel();
  model.groups[0].planes[0].sealed_as = SealedAs::kInt8;
  return model;
}

// All rows, as they are given to the writer.
class Rows final : public engine::PageRows {
 public:
  Rows(const LayerGroup& group, uint32_t count) : group_(group) {
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
  std::span<std::byte> Plane(uint32_t layer, uint32_t plane) const override {
    return staged_[layer * group_.planes.size() + plane];
  }

 private:
  const LayerGroup& group_;
  mutable std::vector<std::vector<std::byte>> staged_;
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
  Status Write(const ModelSpec& model, uint64_t batch_bytes = 1 << 20) {
    CAIRN_ASSIGN_OR_RETURN(const auto writer, PageWriter::Create({.tables = context,
                                                                  .parallel_for = &parallel_for,
                                                                  .batch_bytes = batch_bytes,
                                                                  .go_on = go_on}));
    const FragmentLayout ids_layout(model, engine::kTokenLane), layout(model, 1);
    std::vector<TokenId> ids(kIds);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i * 3);
    CAIRN_RETURN_IF_ERROR(writer->AddTokens(
        {kNode, engine::kTokenLane, kFirst, static_cast<uint32_t>(ids.size())}, ids_layout, ids));
    rows = std::make_shared<Rows>(model.groups[0], kRows);
    CAIRN_RETURN_IF_ERROR(writer->AddKv({kNode, 1, kFirst, kRows, false}, layout, rows));
    CAIRN_RETURN_IF_ERROR(writer->Pack());
    const std::vector<std::byte> state(kStateBytes, std::byte{5});
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
  std::shared_ptr<Rows> rows;  // Quantised by Write, where the plane is.
  std::function<Status(uint64_t)> go_on = [](uint64_t) { return Status::Ok(); };
};

TEST(PageWriterTest, TheSameRowsMakeTheSameTable) {
  const ModelSpec model = Model();
  std::vector<std::byte> first;
  for (const size_t helpers : {0, 3}) {
    for (const uint64_t batch_bytes : {uint64_t{1}, uint64_t{1} << 20, uint64_t{1} << 26}) {
      Table table(helpers);
      ASSERT_OK(table.Write(model, batch_bytes));
      if (first.empty()) first = table.Bytes();
      EXPECT_EQ(first, table.Bytes()) << helpers << " " << batch_bytes;
    }
  }
}

TEST(PageWriterTest, EachFrameReadsBackAsItsRows) {
  const ModelSpec model = Model();
  Table written(3);
  ASSERT_OK(written.Write(model));
  ASSERT_OK_ASSIGN(const auto table, sstable::SnapshotTable::Open(written.context, 7));
  size_t frames = 0;
  table->VerifyEach(
      [&](const sstable::FragmentEntry& fragment, uint32_t page, const sstable::FrameEntry& entry,
          std::span<const std::byte> stored) {
        ++frames;
        // Which slice this is follows from the order: slice by slice, in each page by page.
        const auto all = table->Frames(fragment);
        EXPECT_OK(all);
        size_t index = 0;
        while ((*all)[index].offset != entry.offset) ++index;
        const uint32_t rows = fragment.rows(page);
        if (fragment.lane == engine::kTokenLane) {
          std::vector<TokenId> ids(rows);
          EXPECT_OK(DecodeTokens(stored, ids));
          for (uint32_t i = 0; i < rows; ++i) {
            EXPECT_EQ((page * fragment.page_rows + i) * 3, ids[i]);
          }
        } else if (fragment.lane == engine::kMetadataLane) {
          EXPECT_TRUE(std::all_of(stored.begin(), stored.end(),
                                  [](std::byte byte) { return byte == std::byte{5}; }));
        } else {
          const auto slice = static_cast<uint32_t>(index / fragment.pages);
          const FragmentLayout layout(model, fragment.lane);
          const HeadSlice at = layout.At(slice);
          std::vector<std::byte> raw(entry.raw_bytes);
          EXPECT_OK(DecodeFrame(layout.Shape(slice, rows), stored, raw));
          const uint32_t row_bytes = model.groups[0].planes[at.plane].row_bytes;
          const auto want =
              written.rows->Plane(at.layer, at.plane)
                  .subspan((uint64_t{at.head} * kRows + page * fragment.page_rows) * row_bytes,
                           raw.size());
          EXPECT_TRUE(std::equal(raw.begin(), raw.end(), want.begin())) << slice << " " << page;
        }
        return Status::Ok();
      },
      [](const Status& damage) { ADD_FAILURE() << damage.ToString(); });
  EXPECT_GT(frames, 2U + model.groups[0].layers * 2 * model.groups[0].planes[0].heads);
}

TEST(PageWriterTest, AnEndInTheMiddleLeavesNothing) {
  const ModelSpec model = Model();
  Table table(1);
  uint64_t written = 0;
  table.go_on = [&](uint64_t stored_bytes) {
    written += stored_bytes;
    return written > 200'000 ? Status(StatusCode::kCancelled, "enough") : Status::Ok();
  };
  EXPECT_FAILS(table.Write(model), StatusCode::kCancelled);
  EXPECT_EQ(0U, table.host.taken);
  ASSERT_OK_ASSIGN(const auto names, table.world.files->List("t"));
  EXPECT_EQ(std::vector<std::string>(), names);
}

}  // namespace
}  // namespace cairn::testing
