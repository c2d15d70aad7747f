// SPDX-License-Identifier: Apache-2.0
//
// Property: a snapshot table gives back what was written into it, or says which file and offset is
// damaged; a writer that fails or loses its power leaves no file that passes for a table.
// Method: small tables on the simulated disk; every byte flipped, every operation failed, the power
// cut before every operation.
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

#include "base/core/align.h"
#include "base/core/check.h"
#include "base/core/seeded_random.h"
#include "base/io/file_util.h"
#include "sim/disk.h"
#include "sstable/snapshot_table.h"
#include "sstable/snapshot_writer.h"
#include "tests/sstable/table_fixture.h"
#include "tests/support/source_dir.h"
#include "tests/support/status.h"
#include "tests/support/table_callbacks.h"

namespace cairn::sstable {
namespace {

constexpr StoreId kStore{{1, 2, 3, 4}};

struct Machine {
  explicit Machine(std::unique_ptr<io::SimDisk> on = std::make_unique<io::SimDisk>())
      : disk(std::move(on)) {
    context.files = disk.get();
    context.directory = "tables";
    context.store = kStore;
    context.callbacks = &callbacks;
    context.counters = &counters;
  }
  std::unique_ptr<io::SimDisk> disk;
  cairn::testing::CountingTableCallbacks callbacks;
  TableCounters counters;
  TableContext context;
};

std::vector<std::byte> BytesOf(uint64_t seed, size_t count) {
  SeededRandom random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next());
  return bytes;
}

// A fragment and the bytes of its frames.
struct Fragment {
  FragmentSpec spec;
  std::vector<std::vector<std::byte>> frames;
};

Fragment MakeFragment(uint64_t seed, const FragmentSpec& spec, size_t frame_bytes) {
  Fragment fragment{spec, {}};
  const uint64_t pages = (spec.count + spec.page_rows - 1) / spec.page_rows;
  for (uint64_t i = 0; i < spec.slices * pages; ++i) {
    fragment.frames.push_back(BytesOf(seed * 1000 + i, 1 + (frame_bytes + i * 37) % 5000));
  }
  return fragment;
}

std::vector<Fragment> SomeFragments() {
  return {
      MakeFragment(1, {.node = 3, .lane = 0, .begin = 0, .count = 10, .page_rows = 16, .slices = 1},
                   40),
      MakeFragment(2, {.node = 3, .lane = 1, .begin = 0, .count = 10, .page_rows = 4, .slices = 6},
                   700),
      MakeFragment(3,
                   {.node = 3,
                    .lane = 1,
                    .begin = 20,
                    .count = 4,
                    .page_rows = 4,
                    .slices = 6,
                    .flags = kApproximateFragment},
                   100),
      MakeFragment(4, {.node = 9, .lane = 1, .begin = 5, .count = 1, .page_rows = 256, .slices = 2},
                   4000),
  };
}

Result<SnapshotInfo> Write(const TableContext& context, uint64_t number,
                           const std::vector<Fragment>& fragments) {
  CAIRN_ASSIGN_OR_RETURN(auto writer,
                         SnapshotWriter::Create(context, SnapshotKind::kPages, number));
  for (const Fragment& fragment : fragments) {
    writer->BeginFragment(fragment.spec);
    for (const auto& frame : fragment.frames) {
      CAIRN_RETURN_IF_ERROR(writer->AddFrame(frame, static_cast<uint32_t>(frame.size() * 2)));
    }
  }
  return writer->Finish();
}

// Reads a table back through its interface and compares; the first difference, or Ok.
Status Compare(const TableContext& context, uint64_t number,
               const std::vector<Fragment>& fragments) {
  CAIRN_ASSIGN_OR_RETURN(auto table, SnapshotTable::Open(context, number));
  const auto wrong = [](const std::string& what) {
    return Status(StatusCode::kInvalidState, "wrong data served: " + what);
  };
  CAIRN_ASSIGN_OR_RETURN(const auto entries, table->Fragments());
  if (entries.size() != fragments.size()) return wrong("fragments");
  for (const Fragment& fragment : fragments) {
    const FragmentSpec& spec = fragment.spec;
    CAIRN_ASSIGN_OR_RETURN(const auto found,
                           table->Find(spec.node, spec.lane, spec.begin + spec.count - 1));
    if (!found || found->begin != spec.begin || found->count != spec.count ||
        found->page_rows != spec.page_rows || found->slices != spec.slices ||
        found->flags != spec.flags) {
      return wrong("a fragment");
    }
    CAIRN_ASSIGN_OR_RETURN(const auto frames, table->Frames(*found));
    if (frames.size() != fragment.frames.size()) return wrong("frames");
    for (size_t i = 0; i < frames.size(); ++i) {
      if (frames[i].stored_bytes != fragment.frames[i].size()) return wrong("a length");
      if (frames[i].raw_bytes != 2 * fragment.frames[i].size()) return wrong("a raw length");
      CAIRN_ASSIGN_OR_RETURN(
          auto whole,
          io::ReadWholeFile(*context.files, SnapshotTablePath(context.directory, number), 1 << 30));
      const auto stored = std::span(whole).subspan(frames[i].offset, frames[i].stored_bytes);
      CAIRN_RETURN_IF_ERROR(table->Verify(frames[i], stored));
      if (!std::equal(stored.begin(), stored.end(), fragment.frames[i].begin())) {
        return wrong("a frame");
      }
    }
  }
  return table->VerifyAll();
}

class SnapshotTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(machine_.disk->CreateDirectory("tables").ok());
    ASSERT_TRUE(machine_.disk->SyncDirectory("").ok());
  }
  std::string path_ = SnapshotTablePath("tables", 5);
  Machine machine_;
};

TEST_F(SnapshotTableTest, GivesBackWhatWasWritten) {
  const auto fragments = SomeFragments();
  const auto info = Write(machine_.context, 5, fragments);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(4u, info->fragments);
  EXPECT_EQ(1u + 18 + 6 + 2, info->frames);
  EXPECT_EQ(2 * info->stored_bytes, info->raw_bytes);
  EXPECT_EQ(info->bytes, machine_.callbacks.taken);
  const Status same = Compare(machine_.context, 5, fragments);
  EXPECT_TRUE(same.ok()) << same.ToString();
  auto table = SnapshotTable::Open(machine_.context, 5);
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(*info, (*table)->info());
  EXPECT_EQ(StatusCode::kNotFound, SnapshotTable::Open(machine_.context, 6).status().code());
}

TEST_F(SnapshotTableTest, FindsByPositionOrTheNextBehind) {
  ASSERT_TRUE(Write(machine_.context, 5, SomeFragments()).ok());
  auto table = SnapshotTable::Open(machine_.context, 5);
  ASSERT_TRUE(table.ok());
  const auto begin_of = [&](uint64_t node, uint32_t lane, uint64_t position) -> int64_t {
    const auto found = (*table)->Find(node, lane, position);
    EXPECT_TRUE(found.ok());
    return *found ? static_cast<int64_t>((*found)->begin) : -1;
  };
  EXPECT_EQ(0, begin_of(3, 1, 0));
  EXPECT_EQ(0, begin_of(3, 1, 9));
  EXPECT_EQ(20, begin_of(3, 1, 10));
  EXPECT_EQ(20, begin_of(3, 1, 23));
  EXPECT_EQ(-1, begin_of(3, 1, 24));
  EXPECT_EQ(-1, begin_of(3, 2, 0));
  EXPECT_EQ(5, begin_of(9, 1, 0));
  EXPECT_EQ(-1, begin_of(4, 1, 0));
  EXPECT_EQ(-1, begin_of(10, 0, 0));
  const auto last = (*table)->Find(3, 1, 9);
  EXPECT_EQ(4u, (*last)->rows(0));
  EXPECT_EQ(2u, (*last)->rows(2));
}

// The footer comes with the list of fragments, unless that is long; then it is read when needed.
TEST_F(SnapshotTableTest, OpeningReadsOnce) {
  std::vector<Fragment> many;
  for (uint64_t node = 1; node <= kOpenReadBytes / sizeof(FragmentEntry); ++node) {
    many.push_back(MakeFragment(
        node, {.node = node, .lane = 1, .begin = 0, .count = 1, .page_rows = 1, .slices = 1}, 1));
  }
  machine_.disk->set_trace(true);
  const auto reads = [&] {
    size_t count = 0;
    for (const std::string& line : machine_.disk->trace()) count += line.starts_with("read ");
    return count;
  };
  for (const bool few : {true, false}) {
    const uint64_t number = few ? 5 : 6;
    ASSERT_TRUE(Write(machine_.context, number, few ? SomeFragments() : many).ok());
    const size_t before = reads();
    auto table = SnapshotTable::Open(machine_.context, number);
    ASSERT_TRUE(table.ok());
    EXPECT_EQ(before + 1, reads());
    for (int i = 0; i < 2; ++i) {
      const auto found = (*table)->Find(3, 1, 0);
      ASSERT_TRUE(found.ok() && *found);
      EXPECT_EQ(before + (few ? 1 : 2), reads());
    }
  }
}

// So that a small fragment, or several, come with one read.
TEST_F(SnapshotTableTest, FragmentsLieOneBehindTheOther) {
  ASSERT_TRUE(Write(machine_.context, 5, SomeFragments()).ok());
  auto table = SnapshotTable::Open(machine_.context, 5);
  ASSERT_TRUE(table.ok());
  const auto fragments = (*table)->Fragments();
  ASSERT_TRUE(fragments.ok());
  uint64_t end = 0;
  for (const FragmentEntry& fragment : *fragments) {
    EXPECT_EQ(AlignUp(end, kFrameAlignment), fragment.offset);
    end = fragment.offset + fragment.bytes();
    const auto frames = (*table)->Frames(fragment);
    ASSERT_TRUE(frames.ok());
    for (const FrameEntry& frame : *frames) {
      EXPECT_GE(frame.offset, fragment.offset);
      EXPECT_LE(frame.offset + frame.stored_bytes, fragment.entries_offset);
    }
    // Entries that were read along are checked like those that are read here.
    const auto whole = *machine_.disk->ReadRaw(path_);
    std::vector<std::byte> entries(whole.begin() + fragment.entries_offset, whole.begin() + end);
    EXPECT_TRUE((*table)->ParseFrames(fragment, entries).ok());
    entries.back() ^= std::byte{1};
    EXPECT_EQ(StatusCode::kCorruption, (*table)->ParseFrames(fragment, entries).status().code());
  }
}

TEST_F(SnapshotTableTest, LargerThanTheWriteBuffers) {
  std::vector<Fragment> fragments;
  for (uint64_t node = 1; node <= 10; ++node) {
    FragmentSpec spec{
        .node = node, .lane = 1, .begin = 0, .count = 512, .page_rows = 64, .slices = 64};
    fragments.push_back(MakeFragment(node, spec, 4000));
  }
  const auto info = Write(machine_.context, 5, fragments);
  ASSERT_TRUE(info.ok());
  EXPECT_GT(info->bytes, 4 * kSnapshotWriteBytes);
  auto table = SnapshotTable::Open(machine_.context, 5);
  ASSERT_TRUE(table.ok());
  EXPECT_TRUE((*table)->VerifyAll().ok());
  EXPECT_EQ(info->bytes, machine_.disk->Info(path_)->bytes);
}

// Every byte of the file: what is served is right, or the damage is named.
TEST_F(SnapshotTableTest, EveryByteFlipped) {
  const std::vector<Fragment> fragments = {MakeFragment(
      1, {.node = 1, .lane = 1, .begin = 0, .count = 3, .page_rows = 2, .slices = 2}, 30)};
  ASSERT_TRUE(Write(machine_.context, 5, fragments).ok());
  const uint64_t bytes = machine_.disk->Info(path_)->bytes;
  uint64_t seen = 0;
  for (uint64_t at = 0; at < bytes; ++at) {
    ASSERT_TRUE(machine_.disk->FlipBit(path_, at, at % 8).ok());
    const Status status = Compare(machine_.context, 5, fragments);
    if (!status.ok()) {
      ++seen;
      EXPECT_TRUE(status.code() == StatusCode::kCorruption) << at << ": " << status.ToString();
      EXPECT_NE(std::string::npos, status.ToString().find(path_)) << status.ToString();
      EXPECT_NE(std::string::npos, status.ToString().find("offset")) << status.ToString();
    }
    ASSERT_TRUE(machine_.disk->FlipBit(path_, at, at % 8).ok());
  }
  EXPECT_GT(seen, kTableAlignment) << "the footer at least is checked as a whole";
  EXPECT_TRUE(Compare(machine_.context, 5, fragments).ok());
}

// The writer sealed them like this: the checksum is right.
TEST_F(SnapshotTableTest, AFrameOutsideOfItsFragmentIsRefused) {
  ASSERT_TRUE(Write(machine_.context, 5, SomeFragments()).ok());
  ASSERT_OK_ASSIGN(const auto table, SnapshotTable::Open(machine_.context, 5));
  ASSERT_OK_ASSIGN(const auto fragments, table->Fragments());
  FragmentEntry fragment = fragments.back();
  ASSERT_OK_ASSIGN(const std::vector<FrameEntry> whole, table->Frames(fragment));
  const auto parse = [&](const std::function<void(FrameEntry&)>& change) {
    std::vector<FrameEntry> frames = whole;
    change(frames.back());
    const auto bytes = std::as_bytes(std::span(frames));
    fragment.frames_hash = PlacedHash(bytes, kStore, 5, fragment.entries_offset);
    return table->ParseFrames(fragment, bytes).status();
  };
  EXPECT_OK(parse([](FrameEntry&) {}));
  const std::vector<std::function<void(FrameEntry&)>> changes = {
      [&](FrameEntry& frame) { frame.offset = fragment.offset - kFrameAlignment; },
      [&](FrameEntry& frame) { frame.offset = AlignUp(fragment.entries_offset, kFrameAlignment); },
      [&](FrameEntry& frame) { frame.offset = UINT64_MAX - kFrameAlignment + 1; },
      [](FrameEntry& frame) { ++frame.offset; },
      [](FrameEntry& frame) { frame.stored_bytes = 0; },
      [](FrameEntry& frame) { frame.raw_bytes = 0; },
      [](FrameEntry& frame) { frame.stored_bytes = UINT32_MAX; },
      [&](FrameEntry& frame) {
        frame.stored_bytes = static_cast<uint32_t>(fragment.entries_offset - frame.offset + 1);
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_FAILS(parse(changes[i]), StatusCode::kCorruption, "cannot be where it is said to be");
  }
}

TEST_F(SnapshotTableTest, CutShortOrMovedOrNewer) {
  const auto fragments = SomeFragments();
  ASSERT_TRUE(Write(machine_.context, 5, fragments).ok());
  const auto original = *machine_.disk->ReadRaw(path_);
  for (uint64_t bytes = 0; bytes < original.size(); bytes += 512) {
    ASSERT_TRUE(machine_.disk->TruncateRaw(path_, bytes).ok());
    EXPECT_EQ(StatusCode::kCorruption, Compare(machine_.context, 5, fragments).code()) << bytes;
    ASSERT_TRUE(machine_.disk->WriteRaw(path_, 0, original).ok());
  }
  // The right bytes under another number or in another store.
  ASSERT_TRUE(machine_.disk->Rename(path_, SnapshotTablePath("tables", 6)).ok());
  EXPECT_EQ(StatusCode::kCorruption, Compare(machine_.context, 6, fragments).code());
  ASSERT_TRUE(machine_.disk->Rename(SnapshotTablePath("tables", 6), path_).ok());
  TableContext other = machine_.context;
  other.store.bytes[0] ^= 1;
  EXPECT_EQ(StatusCode::kCorruption, Compare(other, 5, fragments).code());

  std::string block(kTableAlignment, '\0');
  const uint64_t at = original.size() - kTableAlignment;
  std::memcpy(block.data(), original.data() + at, block.size());
  const uint32_t newer = kSnapshotFormatVersion + 1;
  std::memcpy(block.data() + offsetof(SnapshotFooter, format_version), &newer, sizeof(newer));
  SealBlock(block, kStore, 5, at);
  ASSERT_TRUE(machine_.disk->WriteRaw(path_, at, std::as_bytes(std::span(block))).ok());
  const Status refused = SnapshotTable::Open(machine_.context, 5).status();
  EXPECT_EQ(StatusCode::kUnsupportedFormat, refused.code());
  EXPECT_NE(std::string::npos, refused.ToString().find(path_));
}

// The writer sealed it like this.
TEST_F(SnapshotTableTest, WhatNoWriterCanHaveWrittenIsRefused) {
  ASSERT_TRUE(Write(machine_.context, 5, SomeFragments()).ok());
  const auto original = *machine_.disk->ReadRaw(path_);
  const uint64_t footer_at = original.size() - kTableAlignment;
  const auto write = [&](const SnapshotFooter& footer) {
    std::string block(kTableAlignment, '\0');
    std::memcpy(block.data(), &footer, sizeof(footer));
    SealBlock(block, kStore, 5, footer_at);
    ASSERT_OK(machine_.disk->WriteRaw(path_, footer_at, std::as_bytes(std::span(block))));
  };
  const auto footer = LoadAs<SnapshotFooter>(original.data() + footer_at);
  const std::vector<std::function<void(SnapshotFooter&)>> footers = {
      [](SnapshotFooter& changed) { changed.kind = 9; },
      [](SnapshotFooter& changed) { changed.fragment_count = 0; },
      [](SnapshotFooter& changed) { changed.fragment_count = UINT64_MAX / 32; },
      [](SnapshotFooter& changed) { changed.frame_count = UINT64_MAX; },
      [](SnapshotFooter& changed) { changed.fragments_offset += kTableAlignment; },
      [](SnapshotFooter& changed) { changed.table = 6; },
  };
  for (size_t i = 0; i < footers.size(); ++i) {
    SCOPED_TRACE(i);
    SnapshotFooter changed = footer;
    footers[i](changed);
    write(changed);
    EXPECT_FAILS(SnapshotTable::Open(machine_.context, 5), StatusCode::kCorruption,
                 path_ + ": offset " + std::to_string(footer_at));
    EXPECT_FAILS(SnapshotTable::Open(machine_.context, 5), StatusCode::kCorruption,
                 "impossible contents");
  }

  std::vector<FragmentEntry> whole(footer.fragment_count);
  std::memcpy(whole.data(), original.data() + footer.fragments_offset,
              whole.size() * sizeof(FragmentEntry));
  struct Wrong {
    std::function<void(std::vector<FragmentEntry>&)> change;
    uint64_t fragment;
  };
  const std::vector<Wrong> wrongs = {
      {[](auto& entries) { entries[1].node = 0; }, 1},
      {[](auto& entries) { std::swap(entries[0], entries[1]); }, 0},
      {[](auto& entries) { entries[2].begin = 0; }, 2},
      {[](auto& entries) { entries[3].offset += kFrameAlignment; }, 3},
      {[](auto& entries) { entries[3].slices = UINT32_MAX; }, 3},
      {[](auto& entries) { entries[2].flags = 2; }, 2},
  };
  const auto open_with = [&](std::vector<FragmentEntry> entries, uint64_t frames) {
    const auto bytes = std::as_bytes(std::span(entries));
    ASSERT_OK(machine_.disk->WriteRaw(path_, footer.fragments_offset, bytes));
    SnapshotFooter changed = footer;
    changed.frame_count = frames;
    changed.fragments_hash = PlacedHash(bytes, kStore, 5, footer.fragments_offset);
    write(changed);
  };
  for (size_t i = 0; i < wrongs.size(); ++i) {
    SCOPED_TRACE(i);
    std::vector<FragmentEntry> entries = whole;
    wrongs[i].change(entries);
    open_with(entries, footer.frame_count);
    ASSERT_OK_ASSIGN(const auto table, SnapshotTable::Open(machine_.context, 5));
    const uint64_t at = footer.fragments_offset + wrongs[i].fragment * sizeof(FragmentEntry);
    const std::string what = path_ + ": offset " + std::to_string(at) + ": an impossible fragment";
    EXPECT_FAILS(table->Fragments(), StatusCode::kCorruption, what);
    EXPECT_FAILS(table->VerifyAll(), StatusCode::kCorruption, what);
  }
  open_with(whole, footer.frame_count - 1);
  ASSERT_OK_ASSIGN(const auto table, SnapshotTable::Open(machine_.context, 5));
  EXPECT_FAILS(table->Fragments(), StatusCode::kCorruption, "frames that belong to no fragment");
}

TEST_F(SnapshotTableTest, VerifyingNamesTheFirstDamage) {
  ASSERT_TRUE(Write(machine_.context, 5, SomeFragments()).ok());
  ASSERT_OK_ASSIGN(const auto table, SnapshotTable::Open(machine_.context, 5));
  ASSERT_OK_ASSIGN(const auto fragments, table->Fragments());
  for (const size_t i : {1, 2}) {
    ASSERT_OK(machine_.disk->FlipBit(path_, fragments[i].offset, 2));
  }
  EXPECT_FAILS(table->VerifyAll(), StatusCode::kCorruption,
               path_ + ": offset " + std::to_string(fragments[1].offset) + ": a frame of ");
}

TEST_F(SnapshotTableTest, NoMemoryToWrite) {
  for (uint64_t refused = 0; refused < kSnapshotWriteBuffers; ++refused) {
    TestAllocator memory;
    memory.refuse_at = refused;
    machine_.context.allocator = memory.allocator();
    EXPECT_FAILS(Write(machine_.context, 5, SomeFragments()), StatusCode::kOutOfMemory,
                 "no memory to write " + path_ + ".tmp");
    EXPECT_EQ(memory.live, 0u);
    EXPECT_TRUE(machine_.disk->Files().empty());
  }
}

TEST_F(SnapshotTableTest, EveryOperationFailed) {
  const auto fragments = SomeFragments();
  const uint64_t before = machine_.disk->operations();
  ASSERT_TRUE(Write(machine_.context, 5, fragments).ok());
  const uint64_t operations = machine_.disk->operations() - before;
  ASSERT_GT(operations, 4u);
  for (uint64_t i = 0; i < operations; ++i) {
    for (const int error : {EIO, ENOSPC}) {
      Machine machine;
      ASSERT_TRUE(machine.disk->CreateDirectory("tables").ok());
      machine.disk->AddFault(
          {.when = {}, .at_index = machine.disk->operations() + i, .error = error});
      const auto written = Write(machine.context, 5, fragments);
      ASSERT_FALSE(written.ok()) << i;
      EXPECT_EQ(error == EIO ? StatusCode::kIoError : StatusCode::kNoSpace, written.status().code())
          << written.status().ToString();
      EXPECT_EQ(0u, machine.callbacks.taken) << "space is returned";
      EXPECT_TRUE(machine.disk->Files().empty()) << machine.disk->Files().front();
    }
  }
}

TEST_F(SnapshotTableTest, TheCapOfTheHost) {
  machine_.callbacks.limit = 3 * kTableAlignment;
  const auto written = Write(machine_.context, 5, SomeFragments());
  EXPECT_EQ(StatusCode::kNoSpace, written.status().code());
  EXPECT_EQ(0u, machine_.callbacks.taken);
  EXPECT_TRUE(machine_.disk->Files().empty());
}

// Before each operation the power goes, with every choice of what survives.
TEST_F(SnapshotTableTest, ThePowerGoes) {
  const auto fragments = SomeFragments();
  std::vector<std::unique_ptr<io::SimDisk>> found;
  machine_.disk->set_on_operation([&](const io::SimOperation&) {
    found.push_back(machine_.disk->CrashClone(io::CrashChoice::LoseAll()));
    found.push_back(machine_.disk->CrashClone(io::CrashChoice::KeepAll()));
    for (uint64_t seed = 0; seed < 20; ++seed) {
      found.push_back(machine_.disk->CrashClone(io::CrashChoice::Seeded(seed)));
    }
  });
  ASSERT_TRUE(Write(machine_.context, 5, fragments).ok());
  machine_.disk->set_on_operation(nullptr);
  size_t tables = 0;
  for (auto& disk : found) {
    Machine machine(std::move(disk));
    for (const std::string& name : machine.disk->Files()) {
      if (name != path_) continue;
      ++tables;
      const Status status = Compare(machine.context, 5, fragments);
      EXPECT_TRUE(status.ok()) << "it has its name, so it is whole: " << status.ToString();
    }
    ASSERT_TRUE(RemoveTableOrphans(*machine.disk, "tables", {}).ok());
    EXPECT_TRUE(machine.disk->Files().empty());
  }
  EXPECT_GT(tables, 0u);
  // Finished: nothing can take it any more.
  Machine machine(machine_.disk->CrashClone(io::CrashChoice::LoseAll()));
  EXPECT_TRUE(Compare(machine.context, 5, fragments).ok());
  const uint64_t live[] = {5};
  ASSERT_TRUE(RemoveTableOrphans(*machine.disk, "tables", live).ok());
  EXPECT_EQ(1u, machine.disk->Files().size());
}

// The example of sstable/FORMAT.md, line by line.
TEST_F(SnapshotTableTest, TheExampleOfTheFormatDocument) {
  for (size_t i = 0; i < 16; ++i) machine_.context.store.bytes[i] = static_cast<uint8_t>(i);
  auto writer = SnapshotWriter::Create(machine_.context, SnapshotKind::kPages, 5);
  ASSERT_TRUE(writer.ok());
  (*writer)->BeginFragment(
      {.node = 7, .lane = 1, .begin = 0, .count = 2, .page_rows = 2, .slices = 1});
  const std::byte frame[] = {std::byte{0xaa}, std::byte{0xbb}, std::byte{0xcc}};
  ASSERT_TRUE((*writer)->AddFrame(frame, 8).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto bytes = *machine_.disk->ReadRaw(path_);

  std::ifstream document(testing::SourcePath("/sstable/FORMAT.md"));
  std::string text(std::istreambuf_iterator<char>(document), {});
  text = text.substr(text.find("# Snapshot tables"));
  text = text.substr(text.find("### Example"));
  std::vector<std::byte> described(bytes.size());
  size_t lines = 0;
  std::istringstream rest(text.substr(0, text.find("### Why not")));
  for (std::string line; std::getline(rest, line);) {
    unsigned long long at = 0;
    std::istringstream words(line);
    if (line.size() < 7 || line.compare(5, 2, "  ") != 0 || !(words >> std::hex >> at)) continue;
    ++lines;
    for (size_t i = 0; i < 16; ++i) {
      unsigned byte = 0;
      ASSERT_TRUE(words >> std::hex >> byte) << line;
      described.at(at + i) = static_cast<std::byte>(byte);
    }
  }
  EXPECT_EQ(13u, lines);
  EXPECT_TRUE(bytes == described);
}

}  // namespace
}  // namespace cairn::sstable
