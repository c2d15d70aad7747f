// SPDX-License-Identifier: Apache-2.0
#include "engine/manifest/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>

#include "base/codec/fields.h"
#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/text.h"
#include "base/io/file_util.h"
#include "cairn/store_types.h"
#include "engine/tree/memory/op.h"
#include "sstable/merge_plan.h"
#include "wal/constants.h"
#include "wal/format.h"

namespace cairn::engine {

namespace {

constexpr char kMagic[8] = {'C', 'a', 'i', 'r', 'n', 'M', 'a', 'n'};
constexpr size_t kHeadBytes = 16;  // Magic, version, table bytes.
constexpr size_t kHashBytes = 8;
constexpr uint64_t kManifestBytesMax = 64u << 20;
constexpr std::string_view kPrefix = "MANIFEST-";

// Field ids; on disk, never change.
enum ManifestField : uint16_t {
  kStoreId = 1,
  kSegmentBytes = 2,
  kLogStart = 3,
  kNextFile = 4,
  kNextId = 5,
  kLastSequence = 6,
  kCreatedAt = 7,
  kIndexTable = 8,  // LiveTableBytes; one field each.
  kIndexSequence = 9,
  kReplayFrom = 10,  // LogPositionBytes.
  kWritten = 11,     // engine/manifest/hourly_write_counter.h; not critical.
  kEpoch = 12,       // Not critical.
  kHistory = 13,     // HistoryId; not critical.
  kEarlier = 14,     // HistoryPoint each, newest first; not critical.
  kNamedIndex = 15,  // A table of IndexFields, one field each; critical unless it is derived.
  kIndexStep = 16,   // IndexStepBytes, one field each; not critical.
  kSegments = 17,    // counted_from, and RestingBytes each.
};
constexpr std::array<uint16_t, 17> kKnown = {
    kStoreId,   kSegmentBytes, kLogStart,      kNextFile,   kNextId,  kLastSequence,
    kCreatedAt, kIndexTable,   kIndexSequence, kReplayFrom, kWritten, kEpoch,
    kHistory,   kEarlier,      kNamedIndex,    kIndexStep,  kSegments};

enum IndexField : uint16_t {
  kIndexName = 1,
  kIndexDerived = 2,     // U64 1, or absent.
  kNamedIndexTable = 3,  // LiveTableBytes; one field each.
};
constexpr std::array<uint16_t, 3> kKnownOfIndex = {kIndexName, kIndexDerived, kNamedIndexTable};

struct LiveTableBytes {
  uint64_t number, bytes;
  uint32_t level, zero;
};
static_assert(sizeof(LiveTableBytes) == 24);
struct LogPositionBytes {
  uint64_t segment, epoch, offset, last_sequence, last_hash;
};
static_assert(sizeof(LogPositionBytes) == 40);
struct IndexStepBytes {
  uint64_t table, index_sequence;
  LogPositionBytes from;
};
static_assert(sizeof(IndexStepBytes) == 56);

struct RestingBytes {
  uint64_t number, end_offset;
};
static_assert(sizeof(RestingBytes) == 16);

LogPositionBytes Pack(const wal::LogPosition& at) {
  return {at.segment, at.epoch, at.offset, at.last_sequence, at.last_hash};
}
wal::LogPosition Unpack(const LogPositionBytes& at) {
  return {at.segment, at.epoch, at.offset, at.last_sequence, at.last_hash};
}

std::string ManifestName(uint64_t number) { return std::string(kPrefix) + std::to_string(number); }

Status Damaged(const std::string& path, const std::string& what) {
  return Status(StatusCode::kCorruption, path + ": " + what);
}

// The number in "MANIFEST-12"; 0 for other names, "MANIFEST-012" among them.
uint64_t NumberOf(const std::string& name) {
  if (!name.starts_with(kPrefix)) return 0;
  uint64_t number = 0;
  const char* first = name.data() + kPrefix.size();
  const char* last = name.data() + name.size();
  const auto [end, error] = std::from_chars(first, last, number);
  return error == std::errc() && end == last && name == ManifestName(number) ? number : 0;
}

uint64_t PercentileOf(std::vector<uint64_t> values, double quantile) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(static_cast<double>(values.size() - 1) * quantile)];
}

}  // namespace

namespace {

Status CheckResting(const std::string& path, const Manifest& manifest) {
  if (manifest.counted_from != kCountsNone && !IsNumber(manifest.counted_from)) {
    return Damaged(path, "impossible segment to count from");
  }
  uint64_t before = manifest.counted_from - 1;
  for (const wal::RestingSegment& segment : manifest.resting) {
    if (segment.number <= before) {
      return Damaged(path, "segment " + std::to_string(segment.number) +
                               " of the log is named as resting twice, or out of order");
    }
    before = segment.number;
    if (segment.number >= manifest.log_start_segment || segment.end_offset % io::kBlockBytes != 0 ||
        segment.end_offset <= wal::kFirstGroupOffset ||
        segment.end_offset > manifest.segment_bytes) {
      return Damaged(
          path, "impossible segment " + std::to_string(segment.number) + " of the log that rests");
    }
  }
  return Status::Ok();
}

// Limits that no store exceeds. They are not checked again later: sums of such numbers do not
// overflow, and objects of such sizes can be made.
Status CheckPossible(const std::string& path, const Manifest& manifest) {
  if (manifest.segment_bytes < kMinSegmentBytes || manifest.segment_bytes > wal::kMaxSegmentBytes ||
      manifest.segment_bytes % io::kBlockBytes != 0) {
    return Damaged(path, "segments of " + std::to_string(manifest.segment_bytes) + " bytes");
  }
  const wal::LogPosition& from = manifest.replay_from;
  const std::array<std::pair<const char*, uint64_t>, 9> counters = {
      {{"log start", manifest.log_start_segment},
       {"next file number", manifest.next_file_number},
       {"next id", manifest.next_id},
       {"last sequence", manifest.last_sequence},
       {"index sequence", manifest.index_sequence},
       {"epoch", manifest.epoch},
       {"segment to replay from", from.segment},
       {"epoch to replay from", from.epoch},
       {"sequence to replay from", from.last_sequence}}};
  for (const auto& [name, value] : counters) {
    if (value >= kNumberMax) return Damaged(path, std::string("impossible ") + name);
  }
  if (manifest.log_start_segment == 0) return Damaged(path, "no log start");
  if (manifest.next_file_number == 0 || manifest.next_id == 0) {
    return Damaged(path, "no next number");
  }
  if (manifest.index_sequence > manifest.last_sequence) {
    return Damaged(path, "the index has sequence " + std::to_string(manifest.index_sequence) +
                             ", the log had " + std::to_string(manifest.last_sequence));
  }
  for (const IndexStep& step : manifest.steps) {
    if (!IsNumber(step.table) || step.index_sequence > manifest.index_sequence ||
        step.replay_from.segment >= kNumberMax || step.replay_from.epoch >= kNumberMax ||
        step.replay_from.last_sequence >= kNumberMax) {
      return Damaged(path, "impossible step of the index");
    }
  }
  CAIRN_RETURN_IF_ERROR(CheckResting(path, manifest));
  std::vector<uint64_t> numbers;
  const auto possible = [&](const std::vector<sstable::LiveTable>& tables) {
    for (const sstable::LiveTable& table : tables) {
      if (!IsNumber(table.number) || table.level >= sstable::kLevels) return false;
      numbers.push_back(table.number);
    }
    return true;
  };
  if (!possible(manifest.index)) return Damaged(path, "impossible table of the index");
  std::set<std::string_view> names;
  for (const NamedIndex& named : manifest.named) {
    if (!names.insert(named.name).second) {
      return Damaged(path, "the index " + Quoted(named.name) + " is named twice");
    }
    if (!possible(named.tables)) {
      return Damaged(path, "impossible table of the index " + Quoted(named.name));
    }
  }
  std::sort(numbers.begin(), numbers.end());
  const auto twice = std::adjacent_find(numbers.begin(), numbers.end());
  if (twice == numbers.end()) return Status::Ok();
  return Damaged(path, "table " + std::to_string(*twice) + " of the index is named twice");
}

}  // namespace

namespace {

void PutTables(uint16_t id, const std::vector<sstable::LiveTable>& tables, FieldWriter* fields) {
  for (const sstable::LiveTable& table : tables) {
    const LiveTableBytes bytes{table.number, table.bytes, table.level, 0};
    fields->Bytes(id, std::as_bytes(std::span(&bytes, 1)));
  }
}

// Without counted segments there is no such field, as in stores of libraries that did not count.
void PutSegments(const Manifest& manifest, FieldWriter* fields) {
  if (manifest.counted_from == kCountsNone) return;
  std::vector<std::byte> bytes(sizeof(uint64_t) + manifest.resting.size() * sizeof(RestingBytes));
  std::memcpy(bytes.data(), &manifest.counted_from, sizeof(uint64_t));
  std::byte* to = bytes.data() + sizeof(uint64_t);
  for (const wal::RestingSegment& segment : manifest.resting) {
    const RestingBytes one{segment.number, segment.end_offset};
    std::memcpy(to, &one, sizeof(one));
    to += sizeof(one);
  }
  fields->Bytes(kSegments, bytes);
}

Status GetSegments(const std::string& path, std::span<const std::byte> bytes, Manifest* manifest) {
  if (bytes.empty()) return Status::Ok();
  if (bytes.size() < sizeof(uint64_t) ||
      (bytes.size() - sizeof(uint64_t)) % sizeof(RestingBytes) != 0) {
    return Damaged(path, "bad list of segments that rest");
  }
  std::memcpy(&manifest->counted_from, bytes.data(), sizeof(uint64_t));
  if (manifest->counted_from == kCountsNone) return Damaged(path, "no segment to count from");
  for (size_t at = sizeof(uint64_t); at < bytes.size(); at += sizeof(RestingBytes)) {
    RestingBytes one;
    std::memcpy(&one, bytes.data() + at, sizeof(one));
    manifest->resting.push_back({one.number, one.end_offset});
  }
  return Status::Ok();
}

Status GetTables(const std::string& path, uint16_t id, const FieldReader& fields,
                 std::vector<sstable::LiveTable>* tables) {
  for (const Field& field : fields.fields()) {
    if (field.id != id) continue;
    LiveTableBytes table;
    if (field.value.size() != sizeof(table)) return Damaged(path, "bad table of the index");
    std::memcpy(&table, field.value.data(), sizeof(table));
    tables->push_back({table.number, table.level, table.bytes});
  }
  return Status::Ok();
}

// Nothing: it is derived, and the reader does not use it.
Result<std::optional<NamedIndex>> GetNamedIndex(const std::string& path,
                                                std::span<const std::byte> bytes,
                                                std::span<const std::string_view> known) {
  auto fields = FieldReader::Parse(bytes);
  if (!fields.ok()) return fields.status().WithContext(path);
  NamedIndex named;
  named.name = fields->TextOr(kIndexName, "");
  named.derived = fields->U64Or(kIndexDerived, 0) != 0;
  if (named.name.empty() || named.name.size() > kIndexNameBytesMax) {
    return Damaged(path, "an index with a name of " + std::to_string(named.name.size()) + " bytes");
  }
  if (std::find(known.begin(), known.end(), named.name) == known.end()) {
    if (named.derived) return std::optional<NamedIndex>();
    return Status(StatusCode::kUnsupportedFormat, path + ": the store has an index " +
                                                      Quoted(named.name) +
                                                      ", which this library does not know");
  }
  CAIRN_RETURN_IF_ERROR(fields->CheckCritical(kKnownOfIndex).WithContext(path));
  CAIRN_RETURN_IF_ERROR(GetTables(path, kNamedIndexTable, *fields, &named.tables));
  return std::optional(std::move(named));
}

}  // namespace

std::vector<std::byte> EncodeManifest(const Manifest& manifest) {
  FieldWriter fields;
  fields.Bytes(kStoreId, std::as_bytes(std::span(manifest.store.bytes)));
  fields.U64(kSegmentBytes, manifest.segment_bytes);
  fields.U64(kLogStart, manifest.log_start_segment);
  fields.U64(kNextFile, manifest.next_file_number);
  fields.U64(kNextId, manifest.next_id);
  fields.U64(kLastSequence, manifest.last_sequence);
  fields.U64(kCreatedAt, manifest.created_at_ns);
  PutTables(kIndexTable, manifest.index, &fields);
  fields.U64(kIndexSequence, manifest.index_sequence);
  const LogPositionBytes position = Pack(manifest.replay_from);
  fields.Bytes(kReplayFrom, std::as_bytes(std::span(&position, 1)));
  fields.Bytes(kWritten, manifest.written.Encode(), /*critical=*/false);
  fields.U64(kEpoch, manifest.epoch, /*critical=*/false);
  const History& history = manifest.history;
  fields.Bytes(kHistory, history.id.bytes, /*critical=*/false);
  fields.Bytes(kEarlier, std::as_bytes(std::span(history.earlier)), /*critical=*/false);
  for (const NamedIndex& named : manifest.named) {
    FieldWriter index;
    index.Text(kIndexName, named.name);
    if (named.derived) index.U64(kIndexDerived, 1);
    PutTables(kNamedIndexTable, named.tables, &index);
    fields.Table(kNamedIndex, index, /*critical=*/!named.derived);
  }
  for (const IndexStep& step : manifest.steps) {
    const IndexStepBytes packed{step.table, step.index_sequence, Pack(step.replay_from)};
    fields.Bytes(kIndexStep, std::as_bytes(std::span(&packed, 1)), /*critical=*/false);
  }
  PutSegments(manifest, &fields);
  const std::span<const std::byte> table = fields.bytes();
  std::vector<std::byte> bytes(kHeadBytes + table.size() + kHashBytes);
  const uint32_t version = kFormatVersion;
  const auto table_bytes = static_cast<uint32_t>(table.size());
  std::memcpy(bytes.data(), kMagic, 8);
  std::memcpy(bytes.data() + 8, &version, 4);
  std::memcpy(bytes.data() + 12, &table_bytes, 4);
  std::memcpy(bytes.data() + kHeadBytes, table.data(), table.size());
  const uint64_t hash = Hash(std::span(bytes).first(bytes.size() - kHashBytes));
  std::memcpy(bytes.data() + bytes.size() - kHashBytes, &hash, kHashBytes);
  return bytes;
}

Result<Manifest> DecodeManifest(const std::string& path, std::span<const std::byte> bytes,
                                std::span<const std::string_view> known) {
  if (bytes.size() < kHeadBytes + kHashBytes) {
    return Damaged(path, "only " + std::to_string(bytes.size()) + " bytes long");
  }
  if (std::memcmp(bytes.data(), kMagic, 8) != 0) return Damaged(path, "offset 0: bad magic");
  uint32_t version = 0;
  uint32_t table_bytes = 0;
  std::memcpy(&version, bytes.data() + 8, 4);
  std::memcpy(&table_bytes, bytes.data() + 12, 4);
  uint64_t stored = 0;
  std::memcpy(&stored, bytes.data() + bytes.size() - kHashBytes, kHashBytes);
  const bool intact = stored == Hash(bytes.first(bytes.size() - kHashBytes));
  if (version > kFormatVersion) {
    return Status(StatusCode::kUnsupportedFormat,
                  path + ": format version " + std::to_string(version) +
                      (intact ? "" : " (its checksum fails, too)") + "; this library knows up to " +
                      std::to_string(kFormatVersion));
  }
  if (CAIRN_KEPT(kHashOfManifest) && !intact) return Damaged(path, "checksum mismatch");
  if (version == 0) return Damaged(path, "offset 8: format version 0");
  if (CAIRN_KEPT(kLengthOfManifest) && kHeadBytes + table_bytes + kHashBytes != bytes.size()) {
    return Damaged(path, "offset 12: table of " + std::to_string(table_bytes) +
                             " bytes in a file of " + std::to_string(bytes.size()));
  }
  auto parsed = FieldReader::Parse(bytes.subspan(kHeadBytes, table_bytes));
  if (!parsed.ok()) return parsed.status().WithContext(path);
  CAIRN_RETURN_IF_ERROR(parsed->CheckCritical(kKnown).WithContext(path));
  Manifest manifest;
  const std::span<const std::byte> id = parsed->BytesOr(kStoreId, {});
  if (id.size() != manifest.store.bytes.size()) return Damaged(path, "no store id");
  std::memcpy(manifest.store.bytes.data(), id.data(), id.size());
  manifest.segment_bytes = parsed->U64Or(kSegmentBytes, 0);
  manifest.log_start_segment = parsed->U64Or(kLogStart, 0);
  manifest.next_file_number = parsed->U64Or(kNextFile, 1);
  manifest.next_id = parsed->U64Or(kNextId, 1);
  manifest.last_sequence = parsed->U64Or(kLastSequence, 0);
  manifest.created_at_ns = parsed->U64Or(kCreatedAt, 0);
  CAIRN_RETURN_IF_ERROR(GetTables(path, kIndexTable, *parsed, &manifest.index));
  for (const Field& field : parsed->fields()) {
    if (field.id == kIndexStep) {
      IndexStepBytes step;
      if (field.value.size() != sizeof(step)) return Damaged(path, "bad step of the index");
      std::memcpy(&step, field.value.data(), sizeof(step));
      manifest.steps.push_back({step.table, step.index_sequence, Unpack(step.from)});
    }
    if (field.id != kNamedIndex) continue;
    CAIRN_ASSIGN_OR_RETURN(auto named, GetNamedIndex(path, field.value, known));
    if (named.has_value()) manifest.named.push_back(std::move(*named));
  }
  CAIRN_RETURN_IF_ERROR(GetSegments(path, parsed->BytesOr(kSegments, {}), &manifest));
  manifest.index_sequence = parsed->U64Or(kIndexSequence, 0);
  LogPositionBytes from{};
  const std::span<const std::byte> position = parsed->BytesOr(kReplayFrom, {});
  if (!position.empty() && position.size() != sizeof(from)) {
    return Damaged(path, "bad place in the log");
  }
  if (!position.empty()) std::memcpy(&from, position.data(), sizeof(from));
  manifest.replay_from = Unpack(from);
  manifest.epoch = parsed->U64Or(kEpoch, from.epoch);
  manifest.written = HourlyWriteCounter::Decode(parsed->BytesOr(kWritten, {}));
  const std::span<const std::byte> history = parsed->BytesOr(kHistory, {});
  const std::span<const std::byte> earlier = parsed->BytesOr(kEarlier, {});
  if ((!history.empty() && history.size() != sizeof(HistoryId)) ||
      earlier.size() % sizeof(HistoryPoint) != 0 ||
      earlier.size() / sizeof(HistoryPoint) > History::kEarlierMax) {
    return Damaged(path, "bad history");
  }
  if (!history.empty()) std::memcpy(&manifest.history.id, history.data(), history.size());
  manifest.history.earlier.resize(earlier.size() / sizeof(HistoryPoint));
  if (!earlier.empty()) {
    std::memcpy(manifest.history.earlier.data(), earlier.data(), earlier.size());
  }
  CAIRN_RETURN_IF_ERROR(CheckPossible(path, manifest));
  return manifest;
}

namespace {

Result<Manifest> ReadNewest(io::FileSystem& files, const std::string& directory) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory));
  uint64_t newest = 0;
  for (const std::string& name : names) newest = std::max(newest, NumberOf(name));
  if (newest == 0) return Status(StatusCode::kNotFound, directory + ": no MANIFEST here");
  const std::string path = io::JoinPath(directory, ManifestName(newest));
  if (!IsNumber(newest)) return Damaged(path, "an impossible number");
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                         io::ReadWholeFile(files, path, kManifestBytesMax));
  CAIRN_ASSIGN_OR_RETURN(Manifest manifest, DecodeManifest(path, bytes, std::array{kHintsName}));
  manifest.number = newest;
  return manifest;
}

}  // namespace

Result<Manifest> ReadManifest(io::FileSystem& files, const std::string& directory) {
  constexpr int kAttempts = 5;
  auto manifest = ReadNewest(files, directory);
  for (int attempt = 1; attempt < kAttempts; ++attempt) {
    if (manifest.status().code() != StatusCode::kNotFound) break;
    manifest = ReadNewest(files, directory);
  }
  return manifest;
}

Status WriteManifest(io::FileSystem& files, const std::string& directory,
                     const Manifest& manifest) {
  CAIRN_CHECK(manifest.number > 0);
  const std::string path = io::JoinPath(directory, ManifestName(manifest.number));
  CAIRN_RETURN_IF_ERROR(io::WriteFileDurably(files, path, EncodeManifest(manifest)));
  if (manifest.number == 1) return Status::Ok();
  // Only the newest counts, and it is written. An old one that stays is removed at the next
  // opening.
  static_cast<void>(
      io::RemoveIfExists(files, io::JoinPath(directory, ManifestName(manifest.number - 1))));
  return Status::Ok();
}

Status RemoveOldManifests(io::FileSystem& files, const std::string& directory, uint64_t newest) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory));
  for (const std::string& name : names) {
    const uint64_t number = NumberOf(name);
    if (number == 0 || number >= newest) continue;
    CAIRN_RETURN_IF_ERROR(files.Remove(io::JoinPath(directory, name)));
  }
  return Status::Ok();
}

Status WriteOptionsFile(io::FileSystem& files, const std::string& directory,
                        const StoreOptionsFile& options) {
  const std::string text =
      std::string("# Chosen when the store was made; `cairn doctor --probe` measures again.\n") +
      "sync_method=" +
      (options.sync_method == wal::SyncMethod::kDurableWrite ? "dsync" : "fdatasync") +
      "\nprobe=" + options.probe + "\nvolume=" + options.volume + "\n";
  return io::WriteFileDurably(files, io::JoinPath(directory, "OPTIONS"),
                              std::as_bytes(std::span(text)));
}

Result<StoreOptionsFile> ReadOptionsFile(io::FileSystem& files, const std::string& directory) {
  const std::string path = io::JoinPath(directory, "OPTIONS");
  auto bytes = io::ReadWholeFile(files, path, 1 << 20);
  StoreOptionsFile options;
  if (!bytes.ok() && bytes.status().code() == StatusCode::kNotFound) return options;
  if (!bytes.ok()) return bytes.status();
  std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  for (size_t line_number = 1; !text.empty(); ++line_number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    const size_t equals = line.find('=');
    const auto bad = [&](const std::string& why) {
      return Damaged(path, "line " + std::to_string(line_number) + ": " + why +
                               "; without the file a store opens with the defaults");
    };
    if (equals == std::string_view::npos) return bad("no \"=\"");
    const std::string_view key = line.substr(0, equals);
    const std::string_view value = line.substr(equals + 1);
    if (key == "sync_method") {
      if (value != "dsync" && value != "fdatasync") return bad("unknown sync_method");
      options.sync_method =
          value == "dsync" ? wal::SyncMethod::kDurableWrite : wal::SyncMethod::kFdatasync;
    } else if (key == "probe") {
      options.probe = value;
    } else if (key == "volume") {
      options.volume = value;
    }  // Other keys are of another version, and only for people.
  }
  return options;
}

Result<StoreOptionsFile> ProbeSync(io::World& world, const std::string& directory) {
  constexpr size_t kProbeBytes = 256 << 10;
  constexpr int kRounds = 24;
  const std::string path = io::JoinPath(directory, "probe.tmp");
  StoreOptionsFile result;
  const AlignedBuffer buffer =
      AlignedBuffer::TryAllocate(Allocator::Default(), kProbeBytes, io::kBlockBytes);
  if (buffer.empty()) return Status(StatusCode::kOutOfMemory, "sync probe");
  std::memset(buffer.data(), 0, kProbeBytes);
  {
    CAIRN_ASSIGN_OR_RETURN(
        const std::unique_ptr<io::File> file,
        world.files->Open(path,
                          {.write = true, .create = true, .exclusive = false, .direct = true}));
    CAIRN_RETURN_IF_ERROR(file->Allocate(0, kProbeBytes));
    CAIRN_RETURN_IF_ERROR(file->Write(0, buffer.span(), false));
    CAIRN_RETURN_IF_ERROR(file->Sync());
    std::vector<uint64_t> sync_ns;
    std::vector<uint64_t> durable_ns;
    const std::span<const std::byte> block = buffer.span().first(io::kBlockBytes);
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t offset = static_cast<uint64_t>(round) * io::kBlockBytes;
      const uint64_t start = world.scheduler->MonotonicNs();
      CAIRN_RETURN_IF_ERROR(file->Write(offset, block, false));
      CAIRN_RETURN_IF_ERROR(file->Sync());
      const uint64_t middle = world.scheduler->MonotonicNs();
      CAIRN_RETURN_IF_ERROR(file->Write(offset, block, true));
      sync_ns.push_back(middle - start);
      durable_ns.push_back(world.scheduler->MonotonicNs() - middle);
    }
    const uint64_t sync = PercentileOf(sync_ns, 0.1);
    const uint64_t durable = PercentileOf(durable_ns, 0.1);
    // fdatasync unless the other is clearly faster: it also covers earlier writes.
    if (durable + durable / 16 < sync) result.sync_method = wal::SyncMethod::kDurableWrite;
    result.probe = "fdatasync " + std::to_string(sync / 1000) + " us, dsync " +
                   std::to_string(durable / 1000) + " us (p10 of " + std::to_string(kRounds) +
                   " interleaved 4 KiB writes)";
  }
  CAIRN_RETURN_IF_ERROR(world.files->Remove(path));
  CAIRN_ASSIGN_OR_RETURN(const io::VolumeInfo volume, world.files->Volume(directory));
  result.volume = volume.file_system;
  return result;
}

}  // namespace cairn::engine
