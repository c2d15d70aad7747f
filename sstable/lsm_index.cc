// SPDX-License-Identifier: Apache-2.0
#include "sstable/lsm_index.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"

namespace cairn::sstable {
namespace {

// The list of a level, kept alive by all levels.
std::shared_ptr<const TableList> Share(const std::shared_ptr<const Levels>& levels, size_t level) {
  CAIRN_CHECK(level < kLevels);
  return {levels, &(*levels)[level]};
}

Status CheckList(std::span<const LiveTable> live) {
  std::vector<uint64_t> numbers;
  for (const LiveTable& file : live) {
    if (file.level >= kLevels) {
      return Status(StatusCode::kInvalidArgument, "index table " + std::to_string(file.number) +
                                                      ": no level " + std::to_string(file.level));
    }
    numbers.push_back(file.number);
  }
  std::sort(numbers.begin(), numbers.end());
  const auto twice = std::adjacent_find(numbers.begin(), numbers.end());
  if (twice == numbers.end()) return Status::Ok();
  return Status(StatusCode::kInvalidArgument,
                "index table " + std::to_string(*twice) + " is listed twice");
}

}  // namespace

Result<std::unique_ptr<LsmIndex>> LsmIndex::Open(const LsmOptions& options,
                                                 std::span<const LiveTable> live) {
  CAIRN_CHECK(options.tables.cache != nullptr);
  CAIRN_CHECK(options.tables.counters != nullptr);
  CAIRN_RETURN_IF_ERROR(CheckList(live));
  auto levels = std::make_shared<Levels>();
  for (const LiveTable& file : live) {
    CAIRN_ASSIGN_OR_RETURN(auto table, IndexTable::Open(options.tables, file.number));
    if (table->info().bytes != file.bytes) {
      return Status(StatusCode::kCorruption,
                    At(table->path(), 0) + "the table has " + std::to_string(table->info().bytes) +
                        " bytes, the store knows it with " + std::to_string(file.bytes));
    }
    (*levels)[file.level].push_back(std::move(table));
  }
  for (size_t level = 0; level < kLevels; ++level) {
    SortLevel(level, (*levels)[level]);
    const IndexTable* overlapping = level == 0 ? nullptr : FindOverlap((*levels)[level]);
    if (overlapping != nullptr) {
      return Status(
          StatusCode::kCorruption,
          At(overlapping->path(), 0) + "overlaps another table of level " + std::to_string(level));
    }
  }
  std::shared_ptr<Memtable> memtable = Memtable::TryMake(options.tables.allocator);
  if (memtable == nullptr) return Status(StatusCode::kOutOfMemory, "no memory for a memtable");
  std::unique_ptr<LsmIndex> index(new LsmIndex(options));
  MutexLock lock(&index->mutex_);
  index->SetViewLocked({.active = std::move(memtable), .frozen = {}, .levels = std::move(levels)});
  return index;
}

LsmIndex::~LsmIndex() {
  CAIRN_CHECK(!flushing_);
  CAIRN_CHECK(!merging_);
}

std::shared_ptr<const LsmIndex::View> LsmIndex::view() const {
  MutexLock lock(&mutex_);
  return view_;
}

void LsmIndex::Apply(WriteBatch&& batch) {
  MutexLock lock(&mutex_);
  view_->active->Apply(std::move(batch), [this](std::string_view key) {
    mutex_.AssertHeld();
    tombstone_ranges_.OnPut(key);
  });
}

LookupResult LsmIndex::Get(std::string_view key, const ReadOptions& options) const {
  const std::shared_ptr<const View> now = view();
  const auto in_memory = [&](const Memtable& memtable, std::optional<std::string>& value) {
    const std::optional<MaybeValue> found = memtable.Get(key);
    if (found && *found) value.emplace(**found);
    return found.has_value();
  };
  std::optional<std::string> value;
  if (in_memory(*now->active, value)) return value;
  for (auto frozen = now->frozen.rbegin(); frozen != now->frozen.rend(); ++frozen) {
    if (in_memory(*frozen->memtable, value)) return value;
  }
  for (size_t level = 0; level < kLevels; ++level) {
    const TableList& tables = (*now->levels)[level];
    const size_t first = level == 0 ? 0 : FirstTableNotBefore(tables, key);
    const size_t end = level == 0 ? tables.size() : std::min(first + 1, tables.size());
    for (size_t i = first; i < end; ++i) {
      CAIRN_ASSIGN_OR_RETURN(auto found, tables[i]->Get(key, options));
      if (!found) continue;
      if (!found->tombstone) value = std::move(found->value);
      return value;
    }
  }
  return value;
}

std::vector<LookupResult> LsmIndex::MultiGet(std::span<const std::string_view> keys,
                                             const ReadOptions& options) const {
  const std::shared_ptr<const View> now = view();
  LookupRounds lookup(keys, options, &queues_);
  lookup.AskMemtable(*now->active);
  for (auto frozen = now->frozen.rbegin(); frozen != now->frozen.rend(); ++frozen) {
    lookup.AskMemtable(*frozen->memtable);
  }
  lookup.AskTables(*now->levels);
  return lookup.TakeResults();
}

void LsmIndex::ReadAhead(std::span<const std::string_view> keys) const {
  LookupRounds(keys, {}, &queues_).ReadAhead(*view()->levels);
}

// Takes a new view at each Seek and remembers the tombstones that it crossed.
class LsmIndex::Scan final : public RecordIterator {
 public:
  Scan(LsmIndex& index, ScanOptions options) : index_(index), options_(std::move(options)) {}

  void Seek(std::string_view target) override {
    records_ = nullptr;
    view_ = nullptr;
    Search search(index_, target);
    view_ = search.view();
    records_ = std::make_unique<MergingIterator>(Sources(), MergingIterator::Tombstones::kHide,
                                                 options_.end);
    records_->Seek(search.start());
    if (records_->status().ok() && records_->hidden() >= kTombstonesToRemember) {
      search.TombstonesEndBehind(records_->last_hidden());
    }
  }
  void Next() override {
    CAIRN_CHECK(records_ != nullptr);
    records_->Next();
  }
  bool valid() const override { return records_ != nullptr && records_->valid(); }
  std::string_view key() const override {
    CAIRN_CHECK(valid());
    return records_->key();
  }
  MaybeValue value() const override {
    CAIRN_CHECK(valid());
    return records_->value();
  }
  Status status() const override { return records_ == nullptr ? Status() : records_->status(); }

 private:
  // Announces a search to tombstone_ranges_, for as long as it lives.
  class Search {
   public:
    Search(LsmIndex& index, std::string_view from) : index_(index) {
      MutexLock lock(&index_.mutex_);
      start_ = index_.tombstone_ranges_.StartOf(from);
      view_ = index_.view_;
      ticket_ = index_.tombstone_ranges_.Begin(from);
    }
    ~Search() {
      MutexLock lock(&index_.mutex_);
      index_.tombstone_ranges_.End(ticket_, tombstones_end_);
    }
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;

    const std::string& start() const { return start_; }
    const std::shared_ptr<const View>& view() const { return view_; }
    // The next key after the last tombstone: that key with a zero byte appended.
    void TombstonesEndBehind(const std::string& last_tombstone) {
      tombstones_end_ = last_tombstone + '\0';
    }

   private:
    LsmIndex& index_;
    std::string start_;
    std::shared_ptr<const View> view_;
    TombstoneRanges::Ticket ticket_;
    std::string tombstones_end_;  // Empty: none.
  };

  std::vector<std::unique_ptr<RecordIterator>> Sources() const {
    std::vector<std::unique_ptr<RecordIterator>> sources;
    sources.push_back(view_->active->NewIterator());
    for (auto frozen = view_->frozen.rbegin(); frozen != view_->frozen.rend(); ++frozen) {
      sources.push_back(frozen->memtable->NewIterator());
    }
    const Levels& levels = *view_->levels;
    for (const auto& table : levels[0]) sources.push_back(table->NewIterator(options_.read));
    for (size_t level = 1; level < kLevels; ++level) {
      if (levels[level].empty()) continue;
      sources.push_back(std::make_unique<LevelIterator>(
          Share(view_->levels, level), LevelIterator::Access::kScan, options_.read));
    }
    return sources;
  }

  LsmIndex& index_;
  const ScanOptions options_;
  std::shared_ptr<const View> view_;
  std::unique_ptr<MergingIterator> records_;
};

std::unique_ptr<RecordIterator> LsmIndex::NewScan(ScanOptions options) {
  return std::make_unique<Scan>(*this, std::move(options));
}

std::vector<LiveTable> LsmIndex::live() const {
  const std::shared_ptr<const View> now = view();
  std::vector<LiveTable> files;
  for (size_t level = 0; level < kLevels; ++level) {
    for (const auto& table : (*now->levels)[level]) {
      files.push_back({table->info().number, static_cast<uint32_t>(level), table->info().bytes});
    }
  }
  std::sort(files.begin(), files.end(), [](const LiveTable& a, const LiveTable& b) {
    return a.level != b.level ? a.level < b.level : a.number < b.number;
  });
  return files;
}

size_t LsmIndex::memtable_bytes() const { return view()->active->bytes(); }

LsmStats LsmIndex::stats() const {
  LsmStats stats;
  MutexLock lock(&mutex_);
  stats.memtable_bytes = view_->active->bytes();
  stats.frozen_memtables = view_->frozen.size();
  for (const Frozen& frozen : view_->frozen) stats.memtable_bytes += frozen.memtable->bytes();
  for (size_t level = 0; level < kLevels; ++level) {
    for (const auto& table : (*view_->levels)[level]) {
      ++stats.tables[level];
      stats.bytes[level] += table->info().bytes;
      stats.table_memory_bytes += table->memory_bytes();
      stats.records += table->info().records;
      stats.tombstones += table->info().tombstones;
    }
  }
  stats.removed_tables = removed_.size();
  for (const Removed& table : removed_) stats.removed_bytes += table.file.bytes;
  return stats;
}

Status LsmIndex::Verify() const {
  const std::shared_ptr<const View> now = view();
  for (const TableList& level : *now->levels) {
    for (const auto& table : level) CAIRN_RETURN_IF_ERROR(table->Verify());
  }
  return Status::Ok();
}

}  // namespace cairn::sstable
