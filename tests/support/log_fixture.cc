// SPDX-License-Identifier: Apache-2.0
#include "tests/support/log_fixture.h"

#include <algorithm>
#include <map>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/core/seeded_random.h"
#include "base/io/file_util.h"
#include "wal/segment_files.h"

namespace cairn::wal {

// The crash tests compare gigabytes; the standard library compares std::byte one by one.
bool TestRecord::operator==(const TestRecord& other) const {
  const auto same = [](const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
  };
  return sequence == other.sequence && kind == other.kind && same(fields, other.fields) &&
         std::equal(strips.begin(), strips.end(), other.strips.begin(), other.strips.end(), same);
}

std::vector<std::byte> BytesOf(uint64_t seed, size_t count) {
  SeededRandom random(seed);
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; i += 8) {
    const uint64_t value = random.Next();
    std::memcpy(bytes.data() + i, &value, std::min<size_t>(8, count - i));
  }
  return bytes;
}

TestRecord WithStrips(uint64_t seed, std::vector<size_t> strip_bytes) {
  TestRecord record;
  record.kind = static_cast<uint16_t>(1 + seed % 7);
  record.fields = BytesOf(seed * 3 + 1, 8 * (seed % 5));
  for (size_t i = 0; i < strip_bytes.size(); ++i) {
    record.strips.push_back(BytesOf(seed * 1000 + i, strip_bytes[i]));
  }
  return record;
}

TestRecord Payload(uint64_t seed, size_t bytes) { return WithStrips(seed, {bytes}); }

Recovered RecoverLog(io::World& world, const RecoveryOptions& options, bool read_payload) {
  Recovered found;
  std::unique_ptr<io::File> file;
  uint64_t file_segment = 0;
  const auto on_record = [&](const RecordView& view) -> Status {
    TestRecord record{view.sequence, view.kind, {view.fields.begin(), view.fields.end()}, {}};
    if (read_payload) {
      if (file == nullptr || file_segment != view.location.segment) {
        file_segment = view.location.segment;
        auto opened = world.files->Open(SegmentPath(options.directory, file_segment), {});
        if (!opened.ok()) return opened.status();
        file = std::move(*opened);
      }
      std::vector<std::byte> bytes(view.location.bytes);
      const Status read = file->Read(view.location.offset, bytes);
      if (!read.ok()) return read;
      for (size_t i = 0; i < view.strip_count(); ++i) {
        if (!view.VerifyStrip(bytes, i, options.store).ok()) {
          found.damaged_strips.push_back(view.sequence);
          record.strips.emplace_back();
          continue;
        }
        const auto begin = bytes.begin() + view.strip_offset(i);
        record.strips.emplace_back(begin, begin + view.strip(i).bytes);
      }
    }
    found.records.push_back(std::move(record));
    return Status::Ok();
  };
  Result<RecoveredLog> recovered = Recover(world, options, on_record);
  if (recovered.ok()) {
    found.log = std::move(*recovered);
  } else {
    found.status = recovered.status();
  }
  return found;
}

bool SameState(const RecoveredLog& a, const RecoveredLog& b) {
  const auto same_segment = [](const SegmentInfo& x, const SegmentInfo& y) {
    return x.number == y.number && x.epoch == y.epoch && x.end_offset == y.end_offset &&
           x.first_sequence == y.first_sequence && x.last_sequence == y.last_sequence;
  };
  return a.segments.size() == b.segments.size() &&
         std::equal(a.segments.begin(), a.segments.end(), b.segments.begin(), same_segment) &&
         a.last_sequence == b.last_sequence && a.last_hash == b.last_hash &&
         a.next_epoch == b.next_epoch && a.torn_tail == b.torn_tail;
}

LogFixture::LogFixture(io::World in_world, std::string directory) : world(std::move(in_world)) {
  options.directory = std::move(directory);
  options.store = kTestStore;
  options.segment_bytes = 256 << 10;
  options.hot_tail_bytes = 1 << 20;
  options.chunk_bytes = 64 << 10;
  EXPECT_TRUE(io::CreateDirectoryIfMissing(*world.files, options.directory).ok());
}

Status LogFixture::TryOpenLog(RecoveredLog recovered) {
  Result<std::unique_ptr<Log>> opened = Log::Open(world, options, std::move(recovered));
  if (!opened.ok()) return opened.status();
  log = std::move(*opened);
  return Status::Ok();
}

void LogFixture::OpenLog(RecoveredLog recovered) {
  const Status status = TryOpenLog(std::move(recovered));
  ASSERT_TRUE(status.ok()) << status.ToString();
}

Recovered LogFixture::RecoverAll() {
  RecoveryOptions recovery;
  recovery.directory = options.directory;
  recovery.store = options.store;
  return RecoverLog(world, recovery);
}

Recovered LogFixture::Reopen() {
  Recovered found = RecoverAll();
  EXPECT_TRUE(found.status.ok()) << found.status.ToString();
  if (found.status.ok()) OpenLog(found.log);
  return found;
}

void Fill(Log& log, Log::Slot& slot, const TestRecord& record, size_t piece_bytes) {
  std::vector<uint64_t> hashes;
  uint64_t filled = 0;
  for (size_t i = 0; i < record.strips.size(); ++i) {
    const std::vector<std::byte>& strip = record.strips[i];
    const size_t step = piece_bytes == 0 ? std::max<size_t>(strip.size(), 1) : piece_bytes;
    for (size_t at = 0; at < strip.size(); at += step) {
      const size_t length = std::min(step, strip.size() - at);
      std::memcpy(slot.payload + slot.strip_offsets[i] + at, strip.data() + at, length);
      filled = slot.strip_offsets[i] + at + length;
      if (piece_bytes != 0) log.PieceReady(slot, filled);
    }
    hashes.push_back(Hash(strip));
  }
  log.Publish(slot, hashes);
}

Result<Log::Slot> ReserveWithRoom(Log& log, const RecordSpec& spec) {
  for (;;) {
    Result<Log::Slot> slot = log.Reserve(spec, Log::Purpose::kData);
    if (slot.ok() || slot.status().code() != StatusCode::kBusy) return slot;
    CAIRN_RETURN_IF_ERROR(log.WaitForRoom(io::kNoDeadline));
  }
}

Result<uint64_t> LogFixture::TryAppend(TestRecord record, Log::Purpose purpose) {
  std::vector<Strip> strips;
  for (const auto& strip : record.strips) {
    strips.push_back({static_cast<uint32_t>(strips.size()), static_cast<uint32_t>(strip.size())});
  }
  const RecordSpec spec{record.kind, false, 0, record.fields, strips};
  Result<Log::Slot> slot = log->Reserve(spec, purpose);
  if (!slot.ok()) return slot.status();
  record.sequence = slot->sequence;
  const uint64_t sequence = slot->sequence;
  Fill(*log, *slot, record);
  appended.push_back(std::move(record));
  return sequence;
}

uint64_t LogFixture::Append(TestRecord record, Log::Purpose purpose) {
  for (;;) {
    const Result<uint64_t> sequence = TryAppend(record, purpose);
    if (sequence.ok()) return *sequence;
    EXPECT_EQ(sequence.status().code(), StatusCode::kBusy) << sequence.status().ToString();
    if (sequence.status().code() != StatusCode::kBusy) return 0;
    EXPECT_TRUE(log->WaitForRoom(io::kNoDeadline).ok());
  }
}

}  // namespace cairn::wal
