// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/plan/page_tier.h"

#include <algorithm>

#include "engine/restore/plan/page_names.h"

namespace cairn::engine {

// The tree knows a record from its reservation on; another thread may still be copying its payload.
wal::Pinned FindHot(wal::Log* log, const wal::Location& location, uint32_t bytes) {
  wal::Pinned hot = log->FindHot(location, bytes);
  if (hot.owner != nullptr) log->AwaitSealed(hot);
  return hot;
}

namespace {

void GiveRecord(size_t index, const ReadBytes& bytes, bool verify, ItemRun* item) {
  const Status status = item->sink->Record(item->plan.jobs[index], bytes, verify);
  if (!status.ok()) return item->outcome.End(status);
  item->SetHasRecord(index);
  item->outcome.JobDone();
}

}  // namespace

void ReadAheadTier::Serve(std::span<ItemRun> items) {
  if (read_ahead_ == nullptr) return;
  for (ItemRun& item : items) {
    for (size_t i = 0; i < item.plan.jobs.size() && !item.outcome.ended(); ++i) {
      const RecordJob& job = item.plan.jobs[i];
      const std::span<const std::byte> staged = read_ahead_->Find(job.location, job.read_end());
      if (staged.empty()) continue;
      ++item.hits.log_records;
      GiveRecord(i, ReadBytes(staged.subspan(job.read_offset), nullptr), true, &item);
    }
  }
}

namespace {

// A record that an item still lacks.
struct LackedRecord {
  ItemRun* item;
  size_t job;
  bool given = false;
};

// Side by side if there are helpers: `give(item, job)` says whether it had the record.
template <typename Give>
void GiveRecords(io::ParallelFor parallel_for, std::vector<LackedRecord>* records,
                 const Give& give) {
  const Status status = parallel_for.Run([] { return Status::Ok(); }, records->size(),
                                         [&](size_t i) {
                                           LackedRecord& one = (*records)[i];
                                           one.given = give(one.item, one.job);
                                           return Status::Ok();
                                         });
  for (const LackedRecord& one : *records) {
    if (!status.ok()) one.item->outcome.End(status);
    if (one.given) one.item->SetHasRecord(one.job);
  }
}

}  // namespace

// Helpers take part if the records are large: they may be packed. Each is held only while it is
// given.
void HotTier::Serve(std::span<ItemRun> items) {
  std::vector<LackedRecord> lacked;
  uint64_t bytes = 0;
  for (ItemRun& item : items) {
    if (item.outcome.ended()) continue;
    item.hits.hot_bytes = item.sink->delivered().bytes;
    for (size_t i = 0; i < item.plan.jobs.size(); ++i) {
      if (item.HasRecord(i)) continue;
      bytes += item.plan.jobs[i].read_bytes;
      lacked.push_back({&item, i});
    }
  }
  GiveRecords({scheduler_, executor_, bytes < kReadHelpBytes ? 0 : helpers_}, &lacked,
              [this](ItemRun* item, size_t job) { return Give(job, item); });
  for (const LackedRecord& one : lacked) one.item->hits.hot_records += one.given ? 1 : 0;
  for (ItemRun& item : items) {
    if (item.sink == nullptr) continue;
    item.hits.hot_bytes = item.sink->delivered().bytes - item.hits.hot_bytes;
  }
}

// Whether the record is hot.
bool HotTier::Give(size_t index, ItemRun* item) const {
  if (item->outcome.ended() || item->outcome.Cancelled()) return false;
  const RecordJob& job = item->plan.jobs[index];
  const wal::Pinned hot = FindHot(log_, job.location, job.read_end());
  if (hot.owner == nullptr) return false;
  const ReadBytes bytes(hot.bytes.subspan(job.read_offset), &hot.owner);
  const Status status = item->sink->Record(job, bytes, /*verify=*/false);
  if (status.ok()) {
    item->outcome.JobDone();
  } else {
    item->outcome.End(status);
  }
  return true;
}

// Each on one thread: a record is a megabyte or more, or small.
void CacheTier::ServeRecords(std::span<ItemRun> items) const {
  std::vector<LackedRecord> lacked;
  for (ItemRun& item : items) {
    for (size_t i = 0; i < item.plan.jobs.size() && !item.outcome.ended(); ++i) {
      if (!item.HasRecord(i) && item.plan.jobs[i].outline != nullptr) lacked.push_back({&item, i});
    }
  }
  if (lacked.empty()) return;
  GiveRecords({scheduler_, executor_, lacked.size() == 1 ? 0 : helpers_}, &lacked,
              [](ItemRun* item, size_t job) {
                if (item->outcome.ended() || item->outcome.Cancelled()) return false;
                const auto bytes = item->sink->RecordFromCache(item->plan.jobs[job]);
                if (!bytes.has_value()) return false;
                item->cached_record_bytes.fetch_add(*bytes, std::memory_order_relaxed);
                item->outcome.JobDone();
                return true;
              });
}

// Layer by layer, so that the first layers are complete first.
void CacheTier::Serve(std::span<ItemRun> items) {
  if (cache_ == nullptr) return;
  ServeRecords(items);
  uint32_t slices = 0;
  for (ItemRun& item : items) {
    if (item.outcome.ended()) continue;
    for (OpenPiece& open : item.open) {
      if (open.small()) continue;
      slices = std::max(slices, open.end_slice);
      open.cached.resize(open.frames());
    }
    ServeSmall(&item);
  }
  if (slices == 0) return;
  io::ParallelFor parallel_for(scheduler_, executor_, helpers_);
  const Status status =
      parallel_for.Run([] { return Status::Ok(); }, slices,
                       [&](size_t slice) {
                         for (ItemRun& item : items) {
                           if (!item.outcome.ended() && !item.outcome.Cancelled()) {
                             ServeSlice(static_cast<uint32_t>(slice), &item);
                           }
                         }
                         return Status::Ok();
                       });
  for (ItemRun& item : items) {
    if (!status.ok()) item.outcome.End(status);
    for (OpenPiece& open : item.open) {
      const auto found = static_cast<size_t>(
          std::count(open.cached.begin(), open.cached.end(), OpenPiece::kOfPageCache));
      open.missing -= found;
      item.hits.cached_frames += found;
    }
  }
}

void CacheTier::ServeSmall(ItemRun* item) const {
  for (size_t i = 0; i < item->open.size(); ++i) {
    OpenPiece& open = item->open[i];
    if (!open.small() || open.is_state() || open.missing == 0) continue;
    PageCache::Page all = cache_->Find(NameOfFragment(open), open.fragment.frames_hash);
    if (all == nullptr) continue;
    const std::span<const std::byte> bytes = all->span();
    const std::shared_ptr<const void> owner = std::move(all);
    const ReadBytes raw(bytes, &owner);
    uint64_t at = 0, given = 0;
    for (uint32_t slice = 0; slice < open.end_slice; ++slice) {
      for (uint32_t page = 0; page < open.fragment.pages; ++page) {
        const uint64_t raw_bytes = open.RawBytes(slice, page);
        const bool wanted =
            slice >= open.first_slice && page >= open.first_page && page < open.end_page;
        if (wanted) given += item->sink->Unpacked({i, slice, page}, raw.Part(at, raw_bytes));
        at += raw_bytes;
      }
    }
    item->cached_bytes.fetch_add(given, std::memory_order_relaxed);
    item->hits.cached_frames += std::exchange(open.missing, 0);
    item->outcome.JobDone();
  }
}

void CacheTier::ServeSlice(uint32_t slice, ItemRun* item) const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < item->open.size(); ++i) {
    OpenPiece& open = item->open[i];
    if (open.small() || open.is_state() || slice < open.first_slice || slice >= open.end_slice) {
      continue;
    }
    for (uint32_t page = open.first_page; page < open.end_page; ++page) {
      if (open.IsCached(slice, page)) continue;
      PageCache::Page raw = cache_->Find(NameOfFrame(open, slice, page), open.fragment.frames_hash);
      if (raw == nullptr) continue;
      const std::span<const std::byte> frame = raw->span();
      const std::shared_ptr<const void> owner = std::move(raw);
      bytes += item->sink->Unpacked({i, slice, page}, ReadBytes(frame, &owner));
      open.cached[open.IndexOfWanted(slice, page)] = OpenPiece::kOfPageCache;
      item->outcome.JobDone();
    }
  }
  item->cached_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace cairn::engine
