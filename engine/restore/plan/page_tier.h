// SPDX-License-Identifier: Apache-2.0
//
// A source of records and pages for a restore. The tiers are asked in order, nearest first
// (reader.cc): each gives the sinks what it has of what the items still lack, and notes that; the
// last one, the files (file_tier.h), has everything. Results are in the outcomes of the items: a
// tier skips items that have ended.
#pragma once

#include <span>

#include "base/io/parallel_for.h"
#include "engine/restore/plan/page_cache.h"
#include "engine/restore/plan/read_ahead_buffer.h"
#include "engine/restore/plan/restore_item.h"
#include "wal/log.h"

namespace cairn::engine {

class PageTier {
 public:
  virtual ~PageTier() = default;
  virtual void Serve(std::span<ItemRun> items) = 0;
};

// Small records that were read ahead by the space thread. Null: none.
class ReadAheadTier final : public PageTier {
 public:
  explicit ReadAheadTier(const ReadAheadBuffer* read_ahead) : read_ahead_(read_ahead) {}
  void Serve(std::span<ItemRun> items) override;

 private:
  const ReadAheadBuffer* const read_ahead_;
};

// The newest records, in the memory of the log. Helpers share the unpacking and the copying.
class HotTier final : public PageTier {
 public:
  HotTier(wal::Log* log, io::Scheduler& scheduler, io::Executor* executor, size_t helpers)
      : log_(log), scheduler_(scheduler), executor_(executor), helpers_(helpers) {}
  void Serve(std::span<ItemRun> items) override;

 private:
  bool Give(size_t index, ItemRun* item) const;

  wal::Log* const log_;
  io::Scheduler& scheduler_;
  io::Executor* const executor_;
  const size_t helpers_;
};

// Frames of tables, and slices of records, that were unpacked before. Helpers share the look-ups
// and the copying. Null: no cache.
class CacheTier final : public PageTier {
 public:
  CacheTier(PageCache* cache, io::Scheduler& scheduler, io::Executor* executor, size_t helpers)
      : cache_(cache), scheduler_(scheduler), executor_(executor), helpers_(helpers) {}
  void Serve(std::span<ItemRun> items) override;

 private:
  void ServeRecords(std::span<ItemRun> items) const;
  void ServeSmall(ItemRun* item) const;
  void ServeSlice(uint32_t slice, ItemRun* item) const;

  PageCache* const cache_;
  io::Scheduler& scheduler_;
  io::Executor* const executor_;
  const size_t helpers_;
};

// The record in the memory of the log, if it is complete.
wal::Pinned FindHot(wal::Log* log, const wal::Location& location, uint32_t bytes);

}  // namespace cairn::engine
