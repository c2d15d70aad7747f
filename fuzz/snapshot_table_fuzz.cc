// SPDX-License-Identifier: Apache-2.0
//
// The directory of a snapshot table: footer, list of fragments, entries of frames. Whatever they
// say, under checksums that fit, is refused or lies inside of the file.
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "fuzz/input.h"
#include "fuzz/one_table.h"
#include "sstable/snapshot_table.h"
#include "sstable/snapshot_writer.h"

using namespace cairn;
using namespace cairn::sstable;

namespace {

constexpr StoreId kStore = fuzz::kTableStore;
constexpr uint64_t kNumber = fuzz::kTableNumber;

std::vector<std::byte> WholeTable() {
  fuzz::OneTable machine(SnapshotTablePath);
  auto writer = SnapshotWriter::Create(machine.context, SnapshotKind::kPages, kNumber);
  CAIRN_CHECK(writer.ok());
  for (const FragmentSpec& spec : {
           FragmentSpec{.node = 1, .lane = 0, .begin = 0, .count = 9, .page_rows = 16, .slices = 1},
           FragmentSpec{.node = 1, .lane = 1, .begin = 0, .count = 9, .page_rows = 4, .slices = 2},
           FragmentSpec{.node = 4, .lane = 1, .begin = 3, .count = 1, .page_rows = 4, .slices = 2},
       }) {
    (*writer)->BeginFragment(spec);
    const uint32_t pages = (spec.count + spec.page_rows - 1) / spec.page_rows;
    for (uint32_t i = 0; i < pages * spec.slices; ++i) {
      const std::vector<std::byte> frame(40 + 30 * i, static_cast<std::byte>(i));
      CAIRN_CHECK((*writer)->AddFrame(frame, 100).ok());
    }
  }
  CAIRN_CHECK((*writer)->Finish().ok());
  return machine.Content();
}

void Put(std::vector<std::byte>& bytes, uint64_t offset, uint64_t hash) {
  std::memcpy(bytes.data() + offset, &hash, sizeof(hash));
}

// Gives everything the checksum that it needs to be looked at.
void Seal(std::vector<std::byte>& bytes) {
  const uint64_t footer_at = bytes.size() - kTableAlignment;
  const auto footer = LoadAs<SnapshotFooter>(bytes.data() + footer_at);
  const uint64_t list_at = footer.fragments_offset;
  const uint64_t count = std::min<uint64_t>(footer.fragment_count, 64);
  if (list_at <= footer_at && count * sizeof(FragmentEntry) <= footer_at - list_at) {
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t at = list_at + i * sizeof(FragmentEntry);
      const auto entry = LoadAs<FragmentEntry>(bytes.data() + at);
      if (entry.entries_offset > footer_at || entry.slices > 64 || entry.pages > 64 ||
          entry.entries_bytes() > footer_at - entry.entries_offset) {
        continue;
      }
      Put(bytes, at + offsetof(FragmentEntry, frames_hash),
          PlacedHash(std::span(bytes).subspan(entry.entries_offset, entry.entries_bytes()), kStore,
                     kNumber, entry.entries_offset));
    }
    Put(bytes, footer_at + offsetof(SnapshotFooter, fragments_hash),
        PlacedHash(std::span(bytes).subspan(list_at, count * sizeof(FragmentEntry)), kStore,
                   kNumber, list_at));
  }
  std::string block(kTableAlignment, '\0');
  std::memcpy(block.data(), bytes.data() + footer_at, block.size());
  SealBlock(block, kStore, kNumber, footer_at);
  std::memcpy(bytes.data() + footer_at, block.data(), block.size());
}

// Each four bytes of the input change one: of the entries of frames, the list, or the footer.
void Change(std::vector<std::byte>& bytes, fuzz::Input& input) {
  const uint64_t footer_at = bytes.size() - kTableAlignment;
  const auto footer = LoadAs<SnapshotFooter>(bytes.data() + footer_at);
  const auto last = LoadAs<FragmentEntry>(bytes.data() + footer.fragments_offset +
                                          (footer.fragment_count - 1) * sizeof(FragmentEntry));
  const std::array<std::pair<uint64_t, uint64_t>, 3> places = {{
      {last.entries_offset, last.entries_bytes()},
      {footer.fragments_offset, footer.fragment_count * sizeof(FragmentEntry)},
      {footer_at, sizeof(SnapshotFooter)},
  }};
  for (int i = 0; i < 32 && !input.empty(); ++i) {
    const auto [at, length] = places[input.Take<uint8_t>() % places.size()];
    const uint64_t offset = at + input.Take<uint16_t>() % length;
    bytes[offset] ^= input.Take<std::byte>();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::byte> whole = WholeTable();
  fuzz::Input input(data, size);
  const bool sealed = input.Take<uint8_t>() % 4 != 0;
  std::vector<std::byte> bytes = whole;
  Change(bytes, input);
  if (sealed) Seal(bytes);

  fuzz::OneTable machine(SnapshotTablePath);
  CAIRN_CHECK(machine.Open(true)->Write(0, bytes, /*durable=*/false).ok());
  const auto table = SnapshotTable::Open(machine.context, kNumber);
  if (!table.ok()) {
    CAIRN_CHECK(table.status().code() != StatusCode::kIoError);
    return 0;
  }
  const auto fragments = (*table)->Fragments();
  uint64_t frames_seen = 0;
  for (size_t i = 0; fragments.ok() && i < fragments->size(); ++i) {
    const FragmentEntry& fragment = (*fragments)[i];
    const auto found = (*table)->Find(fragment.node, fragment.lane, fragment.begin);
    CAIRN_CHECK(found.ok() && found->has_value());
    const auto frames = (*table)->Frames(fragment);
    if (!frames.ok()) continue;
    for (const FrameEntry& frame : *frames) {
      CAIRN_CHECK(frame.offset <= bytes.size());
      CAIRN_CHECK(frame.stored_bytes <= bytes.size() - frame.offset);
      const auto stored = std::span(bytes).subspan(frame.offset, frame.stored_bytes);
      static_cast<void>((*table)->Verify(frame, stored));
      ++frames_seen;
    }
  }
  CAIRN_CHECK(!fragments.ok() || frames_seen <= (*table)->info().frames);
  const Status all = (*table)->VerifyAll();
  CAIRN_CHECK(all.ok() || all.code() == StatusCode::kCorruption);
  return 0;
}
