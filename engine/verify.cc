// SPDX-License-Identifier: Apache-2.0
//
// Reads the store back from the device and checks what the level asks for. Nothing comes out of a
// cache: tables are opened anew and blocks go through a cache of this run.
#include <set>

#include "base/codec/kv_frame.h"
#include "base/codec/token_block.h"
#include "base/core/check.h"
#include "base/io/file_util.h"
#include "engine/store_core.h"
#include "sstable/index_table.h"

namespace cairn {

namespace {

// Where each record is; payloads are checked after the headers have been replayed.
struct Found {
  wal::Location location;
  uint64_t sequence;
};

// Positions that somebody says are in this table.
struct Sealed {
  uint64_t table;
  engine::SealedRange range;
};

// Whether a frame is what its fragment says. A KV frame tells its own shape.
Status CheckFrame(const sstable::FragmentEntry& fragment, uint32_t page,
                  const sstable::FrameEntry& frame, std::span<const std::byte> stored,
                  std::vector<std::byte>* memory) {
  const auto bad = [](const std::string& what) { return Status(StatusCode::kCorruption, what); };
  const uint32_t rows = fragment.rows(page);
  if (fragment.lane == engine::kSamplerLane) return engine::DecodeSampler(stored).status();
  if (fragment.lane == engine::kMetadataLane) return engine::DecodeMetadata(stored).status();
  if (fragment.lane == engine::kTokenLane) {
    std::vector<TokenId> ids(rows);
    if (frame.raw_bytes != rows * sizeof(TokenId)) return bad("a token block of another length");
    return DecodeTokens(stored, ids);
  }
  CAIRN_ASSIGN_OR_RETURN(const FrameHeader header, ReadFrameHeader(stored));
  if (header.shape.rows != rows || header.shape.raw_bytes() != frame.raw_bytes) {
    return bad("a KV frame of another shape");
  }
  if (memory->size() < frame.raw_bytes) memory->resize(frame.raw_bytes);
  return DecodeFrame(header.shape, stored, std::span(*memory).first(frame.raw_bytes));
}

// Whether the table has all of these positions. Ok when it does.
Status FindSealed(sstable::SnapshotTable& table, const engine::SealedRange& range) {
  const uint64_t end = range.begin + range.count;
  for (uint64_t position = range.begin; position < end;) {
    CAIRN_ASSIGN_OR_RETURN(const auto fragment, table.Find(range.node, range.lane, position));
    if (!fragment.has_value() || fragment->begin > position) {
      return Status(StatusCode::kCorruption, "it has no position " + std::to_string(position) +
                                                 " of lane " + std::to_string(range.lane) +
                                                 " of node " + std::to_string(range.node) +
                                                 ", which the tree looks for here");
    }
    position = fragment->end();
  }
  return Status::Ok();
}

}  // namespace

Result<VerifyReport> StoreCore::Verify(VerifyLevel level) {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (level > VerifyLevel::kAll) {
    return Status(StatusCode::kInvalidArgument, "level is none of kHeaders, kIndex and kAll");
  }
  if (!options_.read_only && log_->poisoned().ok()) CAIRN_RETURN_IF_ERROR(Flush());
  VerifyReport report;
  std::vector<uint64_t> tables;
  std::unique_ptr<engine::Pins::Pin> pin;
  uint64_t log_start = 0;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, use] : tree_.tables()) {
      if (use.live_bytes > 0) tables.push_back(number);
    }
    log_start = log_start_;
    pin = pins_.Take(log_start, tables);
  }
  // Tables of the index stay as long as this manifest is read by.
  index_holds_.fetch_add(1);
  const std::unique_ptr<std::atomic<uint32_t>, void (*)(std::atomic<uint32_t>*)> hold(
      &index_holds_, [](std::atomic<uint32_t>* holds) { holds->fetch_sub(1); });
  engine::Manifest manifest;
  {
    std::lock_guard lock(manifest_mutex_);
    manifest = manifest_;
  }
  const auto found_damage = [&](const std::string& where, const Status& status) {
    report.damages.push_back({where, status.ToString(), 0});
  };
  if (Status status = engine::ReadManifest(*world_.files, path_).status(); !status.ok()) {
    found_damage("MANIFEST", status);
  }
  if (Status status = engine::ReadOptionsFile(*world_.files, path_).status(); !status.ok()) {
    found_damage("OPTIONS", status);
  }
  std::vector<Sealed> sealed;
  std::vector<Found> records;
  wal::RecoveryOptions recovery;
  recovery.directory = io::JoinPath(path_, "log");
  recovery.store = store_id();
  recovery.first_segment = log_start;
  recovery.read_only = true;
  recovery.salvage = options_.salvage;
  recovery.stop_after = log_->written_sequence();
  const auto recovered = wal::Recover(world_, recovery, [&](const wal::RecordView& record) {
    ++report.records;
    records.push_back({record.location, record.sequence});
    if (level == VerifyLevel::kHeaders) return Status::Ok();
    CAIRN_ASSIGN_OR_RETURN(const auto ops, engine::DecodeRecord(record));
    for (const engine::Op& op : ops) {
      if (op.kind != engine::OpKind::kSeal) continue;
      for (const engine::SealedRange& range : op.sealed) sealed.push_back({op.other, range});
    }
    return Status::Ok();
  });
  if (!recovered.ok()) found_damage("log", recovered.status());
  // By itself the last group cannot be told from one that was cut; who wrote it knows better.
  if (recovered.ok() && recovered->last_sequence < recovery.stop_after) {
    found_damage("log", Status(StatusCode::kCorruption,
                               "it ends with sequence " + std::to_string(recovered->last_sequence) +
                                   ", but " + std::to_string(recovery.stop_after) + " was written" +
                                   (recovered->torn_tail ? ": " + recovered->torn_detail : "")));
  }
  if (level != VerifyLevel::kAll) records.clear();
  engine::ReadBuffer buffer;
  for (const Found& found : records) {
    const wal::Location& at = found.location;
    const uint64_t begin = at.offset / io::kBlockBytes * io::kBlockBytes;
    const uint64_t end =
        (at.offset + at.bytes + io::kBlockBytes - 1) / io::kBlockBytes * io::kBlockBytes;
    if (buffer.size() < end - begin) buffer = read_pool_.TakeBuffer(end - begin);
    if (buffer.empty()) return Status(StatusCode::kOutOfMemory, "verify");
    const auto damage = [&](const Status& status) {
      report.damages.push_back(
          {"log segment " + std::to_string(at.segment) + ", offset " + std::to_string(at.offset),
           status.ToString(), found.sequence});
    };
    auto file = log_->OpenSegment(at.segment);
    if (!file.ok()) {
      damage(file.status());
      continue;
    }
    if (Status status = (*file)->Read(begin, buffer.span().first(end - begin)); !status.ok()) {
      damage(status);
      continue;
    }
    const std::span<const std::byte> bytes = buffer.span().subspan(at.offset - begin, at.bytes);
    const auto record = wal::ParseRecord(bytes, at, store_id());
    if (!record.ok()) {
      damage(record.status());
      continue;
    }
    for (size_t strip = 0; strip < record->strip_count(); ++strip) {
      ++report.strips;
      report.bytes += record->strip(strip).bytes;
      if (Status status = record->VerifyStrip(bytes, strip, store_id()); !status.ok()) {
        damage(status);
      }
    }
  }

  sstable::TableContext context = tables_.context();
  sstable::BlockCache cache(engine::kVerifyCacheBytes);
  context.cache = &cache;
  engine::TableSet opened(engine::kOpenTables, memory_.directories);
  opened.SetContext(context);
  std::set<uint64_t> whole;  // Snapshot tables without damage.
  std::vector<std::byte> memory;
  for (const uint64_t number : tables) {
    const std::string where = sstable::SnapshotTablePath(engine::kTableDirectory, number);
    const size_t damages_before = report.damages.size();
    ++report.tables;
    const auto table = opened.Open(number);
    if (!table.ok()) found_damage(where, table.status());
    if (!table.ok() || level == VerifyLevel::kHeaders) continue;
    sstable::SnapshotTable::CheckFrame check;
    if (level == VerifyLevel::kAll) {
      check = [&](const sstable::FragmentEntry& fragment, uint32_t page,
                  const sstable::FrameEntry& frame, std::span<const std::byte> stored) {
        ++report.frames;
        report.bytes += stored.size();
        return CheckFrame(fragment, page, frame, stored, &memory);
      };
    }
    (*table)->VerifyEach(check, [&](const Status& status) { found_damage(where, status); });
    if (report.damages.size() == damages_before) whole.insert(number);
  }

  bool index_whole = true;
  for (const sstable::LiveTable& live : manifest.index) {
    const std::string where = sstable::IndexTablePath(engine::kTableDirectory, live.number);
    const auto damaged = [&](const Status& status) {
      index_whole = false;
      found_damage(where, status);
    };
    ++report.index_tables;
    const auto table = sstable::IndexTable::Open(context, live.number);
    if (!table.ok()) {
      damaged(table.status());
    } else if (level != VerifyLevel::kHeaders) {
      (*table)->VerifyEach(damaged);
    }
  }
  if (level == VerifyLevel::kHeaders) return report;

  // What is missing from a damaged index says nothing more.
  if (index_whole && !manifest.index.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const auto index,
                           sstable::LsmIndex::Open({context, {}}, manifest.index));
    engine::TreeRecords::Check(
        *index,
        [&](uint64_t table, const engine::SealedRange& range) { sealed.push_back({table, range}); },
        [&](const Status& status) { found_damage("tree", status); });
  }
  for (const Sealed& piece : sealed) {
    if (!whole.contains(piece.table)) continue;  // Damaged, or dead since then.
    const auto table = opened.Open(piece.table);
    const Status status = table.ok() ? FindSealed(**table, piece.range) : table.status();
    if (!status.ok()) {
      found_damage(sstable::SnapshotTablePath(engine::kTableDirectory, piece.table), status);
    }
  }
  return report;
}

}  // namespace cairn
