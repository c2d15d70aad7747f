// SPDX-License-Identifier: Apache-2.0
//
// Property: a sealed table has the same bytes on any number of threads, all device writes are
// announced in small steps, and a table that does not read back as it was packed is not left
// behind.
#include "engine/background/seal_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "base/io/file_util.h"
#include "engine/background/read_back.h"
#include "engine/config/constants.h"
#include "engine/tree/memory/seal_source.h"
#include "sim/disk.h"
#include "tests/support/status.h"
#include "tests/support/table_callbacks.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

using engine::SealReader;
using engine::TableSet;
using engine::Tree;
using io::ParallelFor;

// Content that follows from where it is: smooth enough to pack, and nowhere the same.
class MadeUp final : public SealReader {
 public:
  Status ReadTokens(const engine::SealSource& source, std::span<TokenId> into) override {
    for (size_t i = 0; i < into.size(); ++i) {
      into[i] = static_cast<TokenId>((source.begin + i) * 2654435761U % 50'000);
    }
    return Status::Ok();
  }
  Status ReadKv(const engine::SealSource& source, const GroupView& into) override {
    const LayerGroup& group = source.model->groups[into.group];
    ++kv_reads;
    for (size_t plane = 0; plane < group.planes.size(); ++plane) {
      const PlaneView& view = into.planes[plane];
      for (size_t layer = 0; layer < view.layer_bases.size(); ++layer) {
        for (uint64_t row = 0; row < into.count; ++row) {
          const uint64_t token = into.position - source.begin + row;
          for (uint32_t head = 0; head < group.planes[plane].heads; ++head) {
            std::byte* at = view.layer_bases[layer] +
                            static_cast<int64_t>(row) * view.token_stride +
                            static_cast<int64_t>(head) * view.head_stride;
            for (uint32_t i = 0; i + 1 < group.planes[plane].row_bytes; i += 2) {
              const auto value = static_cast<uint16_t>(
                  0x3F00 + (token * 7 + layer * 31 + plane * 3 + head * 11 + i) % 256);
              std::memcpy(at + i, &value, sizeof value);
            }
          }
        }
      }
    }
    return Status::Ok();
  }
  Result<std::vector<std::byte>> ReadState(const engine::SealSource&) override {
    return std::vector<std::byte>(1000, std::byte{5});
  }
  Status Take(uint64_t written_bytes) override {
    written += written_bytes;
    largest = std::max(largest, written_bytes);
    return on_take ? on_take(*this) : Status::Ok();
  }
  // Plays the read-back.
  Status Reclaim(uint64_t read_bytes) {
    read += read_bytes;
    ++reads;
    largest = std::max(largest, read_bytes);
    return on_take ? on_take(*this) : Status::Ok();
  }

  bool Quiet() const override { return quiet; }

  bool quiet = true;
  uint64_t read = 0, reads = 0, written = 0, largest = 0, kv_reads = 0;
  std::function<Status(const MadeUp&)> on_take;
};

constexpr uint64_t kSmallNodes = 300;

std::vector<engine::SealSource> Sources() {
  const auto model = std::make_shared<const ModelSpec>(WideModel());
  std::vector<engine::SealSource> sources;
  const auto add = [&](uint64_t node, uint32_t lane, uint64_t begin, uint32_t count) {
    sources.push_back({.node = node, .lane = lane, .begin = begin, .count = count, .model = model});
    for (uint32_t first = 0; first < count; first += 250) {
      sources.back().extents.push_back(
          {.begin = begin + first, .count = std::min(250u, count - first), .place = {}});
    }
  };
  for (const uint64_t node : {3, 4}) {
    add(node, engine::kTokenLane, 0, 9000);
    add(node, 1, 0, 1500);  // Twelve MiB: several batches.
    add(node, 1, 1500, 3);
    add(node, engine::kMetadataLane, 1503, 1);
  }
  for (uint64_t node = 5; node < 5 + kSmallNodes; ++node) {
    add(node, engine::kTokenLane, 0, 2);
    add(node, 1, 0, 2);
  }
  return sources;
}

struct Sealed {
  explicit Sealed(std::shared_ptr<io::FileSystem> file_system) : files(std::move(file_system)) {
    EXPECT_OK(files->CreateDirectory("t"));
    sstable::TableContext context;
    context.files = files.get();
    context.directory = "t";
    context.store = {{1, 2, 3}};
    context.callbacks = &host;
    context.counters = &counters;
    tables.SetContext(context);
  }
  // And reads it back.
  Status Write(ParallelFor* parallel_for, uint64_t stage_bytes = 64 << 20) {
    auto sources = Sources();
    engine::StageMemory stages;
    CAIRN_ASSIGN_OR_RETURN(engine::WrittenTable table,
                           engine::WriteSealTable(&tables, Allocator::Default(), sources, &reader,
                                                  parallel_for, stage_bytes, &stages));
    const engine::ReadBackDeps deps{
        .tables = &tables,
        .parallel_for = parallel_for,
        .take = [this](uint64_t read_bytes) { return reader.Reclaim(read_bytes); },
        .quiet = [this] { return reader.quiet; }};
    CAIRN_RETURN_IF_ERROR(
        engine::VerifyReadBack(deps, table.info().number, sources, table.hashes()));
    table.Keep();
    return Status::Ok();
  }
  std::vector<std::byte> Bytes() {
    auto file = files->Open(sstable::SnapshotTablePath("t", 7), {});
    EXPECT_OK(file);
    std::vector<std::byte> bytes(host.taken);
    EXPECT_OK((*file)->Read(0, bytes));
    return bytes;
  }

  std::shared_ptr<io::FileSystem> files;
  CountingTableCallbacks host{7};
  sstable::TableCounters counters;
  MadeUp reader;
  TableSet tables{UINT64_MAX};
};

TEST(SealTableTest, TheBytesDoNotDependOnWhoPacks) {
  std::vector<std::byte> alone;
  for (const size_t helpers : {0, 1, 7}) {
    const io::World world = io::MakeMemoryWorld();
    io::Executor executor(*world.scheduler, "seal", std::max<size_t>(1, helpers));
    ParallelFor parallel_for(*world.scheduler, &executor, helpers);
    Sealed sealed(world.files);
    ASSERT_OK(sealed.Write(&parallel_for));
    if (helpers == 0) {
      alone = sealed.Bytes();
      EXPECT_GT(alone.size(), 2 * engine::kFrameBatchBytes);
    }
    EXPECT_EQ(alone, sealed.Bytes()) << helpers << " helpers";
    EXPECT_LE(sealed.reader.largest, engine::kSpacePieceBytes);
    EXPECT_GT(sealed.reader.written, alone.size() * 9 / 10);
    EXPECT_GT(sealed.reader.read, alone.size() * 9 / 10);
    // Neighbours are read at once, not a block or two for each.
    EXPECT_LT(sealed.reader.read, alone.size() * 11 / 10);
    EXPECT_LT(sealed.reader.reads, alone.size() / engine::kSpacePieceBytes * 2);
  }
}

TEST(SealTableTest, NorOnWhatIsReadAheadOrHowMuchAtATime) {
  std::vector<std::byte> first;
  for (const uint64_t stage_bytes : {0, 13 << 20, 64 << 20}) {
    for (const bool quiet : {true, false}) {
      const io::World world = io::MakeMemoryWorld();
      io::Executor executor(*world.scheduler, "seal", 1);
      ParallelFor parallel_for(*world.scheduler, &executor, 1);
      Sealed sealed(world.files);
      sealed.reader.quiet = quiet;
      ASSERT_OK(sealed.Write(&parallel_for, stage_bytes));
      if (first.empty()) first = sealed.Bytes();
      EXPECT_EQ(first, sealed.Bytes()) << stage_bytes << " bytes to stage";
      EXPECT_LE(sealed.reader.largest,
                quiet ? engine::kSpacePieceBytes : engine::kSpaceAlonePieceBytes);
      if (stage_bytes == 0) {
        EXPECT_EQ(sealed.reader.kv_reads, 4 + kSmallNodes) << "each at once";
      } else {
        EXPECT_GT(sealed.reader.kv_reads, 4 + kSmallNodes);
      }
    }
  }
}

TEST(SealTableTest, WhatDoesNotReadBackAsItWasPackedIsNotLeftBehind) {
  const io::World world = io::MakeMemoryWorld();
  ParallelFor parallel_for(*world.scheduler, nullptr, 0);
  const std::string path = sstable::SnapshotTablePath("t", 7);
  for (const uint64_t at_mib : {0, 1, 3, 17}) {  // The last among small fragments.
    const auto disk = std::make_shared<io::SimDisk>();
    Sealed sealed(disk);
    sealed.reader.on_take = [&](const MadeUp& reader) {
      // Damaged right before the first byte is read back.
      return reader.read > 0 && reader.read <= engine::kSpacePieceBytes
                 ? disk->FlipBit(path, (at_mib << 20) + 100, 3)
                 : Status::Ok();
    };
    EXPECT_FAILS(sealed.Write(&parallel_for), StatusCode::kCorruption, path);
    EXPECT_EQ(0U, sealed.host.taken);
    EXPECT_FAILS(disk->Info(path), StatusCode::kNotFound);
  }
}

TEST(SealTableTest, AnEndInTheMiddleLeavesNothing) {
  const io::World world = io::MakeMemoryWorld();
  io::Executor executor(*world.scheduler, "seal", 2);
  ParallelFor parallel_for(*world.scheduler, &executor, 2);
  for (const bool reading : {false, true}) {
    Sealed sealed(world.files);
    sealed.reader.on_take = [&](const MadeUp& reader) {
      const bool now = reading ? reader.read > (1 << 20) : reader.written > (1 << 20);
      return now ? Status(StatusCode::kCancelled, "the store is closing") : Status::Ok();
    };
    EXPECT_FAILS(sealed.Write(&parallel_for), StatusCode::kCancelled);
    EXPECT_EQ(0U, sealed.host.taken);
    ASSERT_OK_ASSIGN(const auto names, sealed.files->List("t"));
    EXPECT_EQ(std::vector<std::string>(), names);
    ASSERT_OK(world.files->Remove("t"));
  }
}

}  // namespace
}  // namespace cairn::testing
