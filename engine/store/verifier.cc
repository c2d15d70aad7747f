// SPDX-License-Identifier: Apache-2.0
#include "engine/store/verifier.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/codec/kv_frame.h"
#include "base/codec/token_block.h"
#include "base/core/check.h"
#include "base/io/file_util.h"
#include "engine/commit/replayer.h"
#include "engine/config/constants.h"
#include "engine/tree/records/tree_records.h"
#include "sstable/index_table.h"
#include "wal/resting_segment.h"
#include "wal/segment_files.h"

namespace cairn::engine {

// Places of records; payloads are checked after the headers have been replayed.
struct Verifier::Found {
  wal::Location location;
  uint64_t sequence = 0;
};

namespace {

// Positions that should be in a table, by its number.
using Sealed = std::map<uint64_t, std::vector<SealedRange>>;

// A state of several frames; those before the last are kept here.
struct StateFrames {
  uint64_t fragment = 0;  // Offset of their fragment.
  uint32_t count = 0;
  std::vector<std::byte> bytes;
};

// Call once all frames of the state have been read. If one is damaged the others prove nothing.
Status CheckState(const sstable::FragmentEntry& fragment, std::span<const std::byte> stored,
                  StateFrames* frames) {
  if (fragment.slices > 1) {
    if (std::exchange(frames->fragment, fragment.offset) != fragment.offset) {
      frames->count = 0;
      frames->bytes.clear();
    }
    frames->bytes.insert(frames->bytes.end(), stored.begin(), stored.end());
    if (++frames->count < fragment.slices) return Status::Ok();
    stored = frames->bytes;
  }
  return fragment.lane == kSamplerLane ? DecodeSampler(stored).status()
                                       : DecodeMetadata(stored).status();
}

// Whether a frame is what its fragment says. A KV frame has its own shape in it.
Status CheckFrame(const sstable::FragmentEntry& fragment, uint32_t page,
                  const sstable::FrameEntry& frame, std::span<const std::byte> stored,
                  std::vector<std::byte>* memory, StateFrames* state) {
  const auto bad = [](const std::string& what) { return Status(StatusCode::kCorruption, what); };
  const uint32_t rows = fragment.rows(page);
  if (fragment.lane == kSamplerLane || fragment.lane == kMetadataLane) {
    return CheckState(fragment, stored, state);
  }
  if (fragment.lane == kTokenLane) {
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

// Removes `prefix` from every word of the text that begins with it.
void EraseWordBeginning(const std::string& prefix, std::string* text) {
  for (size_t at = text->find(prefix); at != std::string::npos; at = text->find(prefix, at + 1)) {
    if (at == 0 || (*text)[at - 1] == ' ') text->erase(at, prefix.size());
  }
}

// Whether the table has all of these positions. Ok when it does.
Status FindSealed(sstable::SnapshotTable& table, const SealedRange& range) {
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

// Reports the progress of the run to the caller, in bytes of the files, part by part.
class Meter {
 public:
  Meter(const VerifyProgress& progress, uint64_t total) : progress_(progress), total_(total) {}
  void BeginPart(uint64_t bytes) {
    begin_ = end_;
    end_ = std::min(begin_ + bytes, total_);
  }
  void BeginPartAnew() { Tell(begin_); }
  void Add(uint64_t bytes) { Tell(std::min(done_ + bytes, end_)); }
  void EndPart() { Tell(end_); }
  // There may have been less to read.
  void End() { Tell(total_); }

 private:
  void Tell(uint64_t done) {
    done_ = done;
    if (progress_) progress_(done_, total_);
  }

  const VerifyProgress& progress_;
  const uint64_t total_;
  uint64_t begin_ = 0, done_ = 0, end_ = 0;  // The part's bounds, and its progress.
};

}  // namespace

// Results for the strips of a record.
struct Verifier::Strips {
  uint64_t count = 0, bytes = 0;
  std::vector<Status> damages{};
};

// Results for one part of the store.
struct Verifier::Verified {
  Meter* meter = nullptr;
  VerifyReport report{};
  Sealed sealed{};
  void Damage(const std::string& where, const Status& status, uint64_t sequence = 0) {
    report.damages.push_back({where, io::MissingIsCorruption(status).ToString(), sequence});
  }
  void Add(Verified part) {
    report.records += part.report.records;
    report.strips += part.report.strips;
    report.index_tables += part.report.index_tables;
    report.tables += part.report.tables;
    report.frames += part.report.frames;
    report.bytes += part.report.bytes;
    for (VerifyReport::Damage& damage : part.report.damages) {
      report.damages.push_back(std::move(damage));
    }
    for (auto& [table, ranges] : part.sealed) {
      std::vector<SealedRange>& all = sealed[table];
      all.insert(all.end(), ranges.begin(), ranges.end());
    }
  }
};

Result<VerifyReport> Verifier::Run(VerifyLevel level, const VerifyProgress& progress) {
  const uint64_t log_bytes = from_.log->counters().segment_bytes_live;
  const uint64_t index_bytes = from_.manifest->IndexBytes();
  uint64_t table_bytes = 0;
  std::vector<std::pair<uint64_t, uint64_t>> tables;  // Number and bytes.
  {
    std::lock_guard lock(from_.committer->mutex());
    for (const auto& [number, table] : from_.committer->tree().tables()) {
      if (table.live_bytes == 0) continue;
      tables.emplace_back(number, table.bytes);
      table_bytes += table.bytes;
    }
  }
  const std::vector<wal::RestingSegment> resting = from_.manifest->resting();
  uint64_t resting_bytes = 0;
  for (const wal::RestingSegment& segment : resting) resting_bytes += segment.end_offset;
  Meter meter(progress, log_bytes + resting_bytes + index_bytes + table_bytes);
  Verified all{.meter = &meter};
  CAIRN_RETURN_IF_ERROR(CheckPart(&Verifier::CheckSmallFiles, level, 0, &all));
  CAIRN_RETURN_IF_ERROR(CheckPart(&Verifier::CheckLog, level, log_bytes, &all));
  for (const wal::RestingSegment& segment : resting) {
    meter.BeginPart(segment.end_offset);
    CAIRN_RETURN_IF_ERROR(CheckResting(segment, level, &all));
    meter.EndPart();
  }
  CAIRN_RETURN_IF_ERROR(CheckPart(&Verifier::CheckIndex, level, index_bytes, &all));
  for (const auto& [number, bytes] : tables) {
    meter.BeginPart(bytes);
    CAIRN_RETURN_IF_ERROR(CheckTable(number, level, all.sealed[number], &all));
    meter.EndPart();
  }
  meter.End();
  const std::string directory = io::JoinPath(from_.directory, "");
  for (VerifyReport::Damage& damage : all.report.damages) {
    EraseWordBeginning(directory, &damage.what);
  }
  return std::move(all.report);
}

// A part that seems damaged beside a writer may only have moved: then it is read again, in its
// present state.
Status Verifier::CheckPart(void (Verifier::*part)(VerifyLevel, Verified*), VerifyLevel level,
                           uint64_t bytes, Verified* all) {
  all->meter->BeginPart(bytes);
  for (int again = 0;; ++again) {
    const uint64_t seen = from_.manifest->number();
    all->meter->BeginPartAnew();
    Verified found{.meter = all->meter};
    (this->*part)(level, &found);
    if (found.report.damages.empty() || !from_.options->read_only ||
        !from_.follower->Refresh(/*read_anyway=*/true).ok() || from_.manifest->number() == seen) {
      all->Add(std::move(found));
      all->meter->EndPart();
      return Status::Ok();
    }
    if (again == kReadAgainMax) {
      return Status(StatusCode::kStale, "the writer has moved what was to be verified: " +
                                            found.report.damages[0].where + ": " +
                                            found.report.damages[0].what);
    }
  }
}

void Verifier::CheckSmallFiles(VerifyLevel, Verified* found) {
  if (Status status = ReadManifest(*from_.world.files, from_.directory).status(); !status.ok()) {
    found->Damage("MANIFEST", status);
  }
  if (Status status = ReadOptionsFile(*from_.world.files, from_.directory).status(); !status.ok()) {
    found->Damage("OPTIONS", status);
  }
}

void Verifier::CheckLog(VerifyLevel level, Verified* found) {
  std::unique_ptr<Pins::Pin> pin;
  wal::RecoveryOptions recovery;
  {
    std::lock_guard lock(from_.committer->mutex());
    recovery.first_segment = from_.space->log_reclaimer().log_start();
    pin = from_.reader->pins().TakeFrom({Pins::Of::kVerify}, recovery.first_segment);
  }
  recovery.directory = io::JoinPath(from_.directory, kLogDirectory);
  recovery.store = from_.reader->tables().context().store;
  recovery.read_only = true;
  recovery.salvage = from_.options->recovery == cairn::Recovery::kSetAside;
  recovery.stop_after = from_.log->written_sequence();
  std::vector<Found> records;
  io::World world = from_.world;
  const auto recovered = wal::Recover(world, recovery, [&](const wal::RecordView& record) {
    ++found->report.records;
    if (level == VerifyLevel::kAll) records.push_back({record.location, record.sequence});
    if (level == VerifyLevel::kHeaders) return Status::Ok();
    CAIRN_ASSIGN_OR_RETURN(const auto ops, DecodeRecord(record));
    for (const Op& op : ops) {
      const bool names_table = op.kind == OpKind::kAppend && op.table.number != 0;
      if (op.kind != OpKind::kSeal && !names_table) continue;
      std::vector<SealedRange>& sealed = found->sealed[names_table ? op.table.number : op.other];
      sealed.insert(sealed.end(), op.sealed.begin(), op.sealed.end());
    }
    return Status::Ok();
  });
  if (!recovered.ok()) found->Damage(kLogDirectory, recovered.status());
  // The last group alone does not show whether a later one was cut off; its writer knows.
  if (recovered.ok() && recovered->last_sequence < recovery.stop_after) {
    found->Damage(kLogDirectory,
                  Status(StatusCode::kCorruption,
                         "it ends with sequence " + std::to_string(recovered->last_sequence) +
                             ", but " + std::to_string(recovery.stop_after) + " was written" +
                             (recovered->torn_tail ? ": " + recovered->torn_detail : "")));
  }
  for (auto first = records.begin(); first != records.end();) {
    const auto end = std::find_if(first, records.end(), [&](const Found& record) {
      return record.location.segment != first->location.segment;
    });
    CheckSegment({first, end}, found);
    first = end;
  }
}

// A segment that rests, if it is still needed.
Status Verifier::CheckResting(const wal::RestingSegment& segment, VerifyLevel level,
                              Verified* all) {
  const auto needed = [&] {
    const SegmentUsage* const use = from_.committer->tree().segment_usages().Find(segment.number);
    return use != nullptr && use->live_bytes != 0;
  };
  std::unique_ptr<Pins::Pin> pin;
  {
    std::lock_guard lock(from_.committer->mutex());
    if (!needed()) return Status::Ok();
    pin = from_.reader->pins().Take({Pins::Of::kVerify}, {segment.number}, {});
  }
  Verified found{.meter = all->meter};
  const std::string directory = io::JoinPath(from_.directory, kLogDirectory);
  io::World world = from_.world;
  const bool whole = level == VerifyLevel::kAll;
  const Status checked =
      wal::CheckRestingSegment(world, directory, from_.reader->tables().context().store, segment,
                               whole, [&](const wal::RecordView& record) {
                                 ++found.report.records;
                                 if (!whole) return Status::Ok();
                                 found.report.strips += record.strip_count();
                                 found.report.bytes += record.location.bytes;
                                 found.meter->Add(record.location.bytes);
                                 return Status::Ok();
                               });
  if (!checked.ok()) found.Damage(wal::SegmentPath(kLogDirectory, segment.number), checked);
  if (from_.options->read_only && !checked.ok() &&
      from_.follower->Refresh(/*read_anyway=*/true).ok()) {
    std::lock_guard lock(from_.committer->mutex());
    if (!needed()) return Status::Ok();  // Removed while it was read.
  }
  all->Add(std::move(found));
  return Status::Ok();
}

// Reads all the records of a segment again.
void Verifier::CheckSegment(std::span<const Found> records, Verified* found) {
  std::vector<wal::Location> places;
  places.reserve(records.size());
  for (const Found& record : records) places.push_back(record.location);
  std::vector<Strips> strips(records.size());
  const std::vector<Status> checked =
      from_.reader->CheckRecords(places, [&](size_t index, std::span<const std::byte> bytes) {
        return CheckRecord(places[index], bytes, &strips[index]);
      });
  for (size_t i = 0; i < records.size(); ++i) {
    const auto damaged = [&](const Status& status) {
      found->Damage(PlaceText(places[i]), status, records[i].sequence);
    };
    found->report.strips += strips[i].count;
    found->report.bytes += strips[i].bytes;
    for (const Status& status : strips[i].damages) damaged(status);
    if (!checked[i].ok()) damaged(checked[i]);
    found->meter->Add(places[i].bytes);
  }
}

// Damage of a strip is reported separately.
Status Verifier::CheckRecord(const wal::Location& at, std::span<const std::byte> bytes,
                             Strips* strips) const {
  CAIRN_ASSIGN_OR_RETURN(const auto record,
                         wal::ParseRecord(bytes, at, from_.reader->tables().context().store));
  for (size_t strip = 0; strip < record.strip_count(); ++strip) {
    ++strips->count;
    strips->bytes += record.strip(strip).bytes;
    Status status = record.VerifyStrip(bytes, strip, from_.reader->tables().context().store);
    if (!status.ok()) strips->damages.push_back(std::move(status));
  }
  return Status::Ok();
}

void Verifier::CheckIndex(VerifyLevel level, Verified* found) {
  // Tables of the index stay as long as this manifest is used.
  from_.space->flusher().HoldTables();
  const auto release = [](IndexFlusher* flusher) { flusher->ReleaseTables(); };
  const std::unique_ptr<IndexFlusher, decltype(release)> hold(&from_.space->flusher(), release);
  const Manifest manifest = from_.manifest->Copy();
  sstable::TableContext context = from_.reader->tables().context();
  sstable::BlockCache cache(kVerifyCacheBytes);
  context.cache = &cache;
  bool whole = true;
  const auto check = [&](const sstable::LiveTable& live, const auto& damaged) {
    ++found->report.index_tables;
    const auto table = sstable::IndexTable::Open(context, live.number);
    if (!table.ok()) {
      damaged(table.status());
    } else if (level != VerifyLevel::kHeaders) {
      (*table)->VerifyEach(damaged);
    }
  };
  const auto path = [](const sstable::LiveTable& live) {
    return sstable::IndexTablePath(kTableDirectory, live.number);
  };
  for (const sstable::LiveTable& live : manifest.index) {
    check(live, [&](const Status& status) {
      whole = false;
      found->Damage(path(live), status);
    });
  }
  for (const NamedIndex& named : manifest.named) {
    for (const sstable::LiveTable& live : named.tables) {
      check(live, [&](const Status& status) {
        found->Damage(path(live), status.WithContext("of " + named.name + ", which are made anew"));
      });
    }
  }
  // Entries missing from a damaged index prove nothing.
  if (level == VerifyLevel::kHeaders || !whole || manifest.index.empty()) return;
  const auto index = sstable::LsmIndex::Open({context, {}}, manifest.index);
  if (!index.ok()) {
    found->Damage("tree", index.status());
    return;
  }
  TreeRecords::Check(
      **index, manifest.counted_from,
      [&](uint64_t table, const SealedRange& range) { found->sealed[table].push_back(range); },
      [&](const Status& status) { found->Damage("tree", status); });
}

// A snapshot table, if it is still needed, and whether it has the positions that others look for in
// it.
Status Verifier::CheckTable(uint64_t number, VerifyLevel level, std::span<const SealedRange> sealed,
                            Verified* all) {
  const auto needed = [this, number] {
    const auto found = from_.committer->tree().tables().find(number);
    return found != from_.committer->tree().tables().end() && found->second.live_bytes > 0;
  };
  std::unique_ptr<Pins::Pin> pin;
  bool derived = false;
  {
    std::lock_guard lock(from_.committer->mutex());
    if (!needed()) return Status::Ok();
    derived = from_.committer->tree().tables().at(number).derived();
    pin = from_.reader->pins().Take({Pins::Of::kVerify}, {}, {number});
  }
  Verified found{.meter = all->meter};
  const std::string where = sstable::SnapshotTablePath(kTableDirectory, number);
  const auto damaged = [&](const Status& status) {
    // One line, however much is wrong with it.
    if (derived && !found.report.damages.empty()) return;
    found.Damage(where, derived ? status.WithContext("derived, to be made again") : status);
  };
  ++found.report.tables;
  sstable::TableContext context = from_.reader->tables().context();
  sstable::BlockCache cache(kVerifyCacheBytes);
  context.cache = &cache;
  context.open_files = nullptr;  // The present file counts, not one that is open.
  const auto table = sstable::SnapshotTable::Open(context, number);
  if (!table.ok()) damaged(table.status());
  if (table.ok() && level != VerifyLevel::kHeaders) {
    std::vector<std::byte> memory;
    StateFrames state;
    sstable::SnapshotTable::CheckFrame check;
    if (level == VerifyLevel::kAll) {
      check = [&](const sstable::FragmentEntry& fragment, uint32_t page,
                  const sstable::FrameEntry& frame, std::span<const std::byte> stored) {
        ++found.report.frames;
        found.report.bytes += stored.size();
        found.meter->Add(stored.size());
        // Only its maker can read a derived table.
        return derived ? Status::Ok() : CheckFrame(fragment, page, frame, stored, &memory, &state);
      };
    }
    (*table)->VerifyEach(check, damaged);
    const bool whole = found.report.damages.empty();
    for (size_t i = 0; whole && i < sealed.size(); ++i) {
      if (Status status = FindSealed(**table, sealed[i]); !status.ok()) damaged(status);
    }
  }
  if (from_.options->read_only && !found.report.damages.empty() &&
      from_.follower->Refresh(/*read_anyway=*/true).ok()) {
    std::lock_guard lock(from_.committer->mutex());
    if (!needed()) return Status::Ok();  // Deleted while it was read.
  }
  all->Add(std::move(found));
  return Status::Ok();
}

}  // namespace cairn::engine
