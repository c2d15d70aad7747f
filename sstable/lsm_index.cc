// SPDX-License-Identifier: Apache-2.0
#include "sstable/lsm_index.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"

namespace cairn::sstable {
namespace {

// Sets a flag of the index while a flush or merge runs. REQUIRES: taken under the lock.
class Running {
 public:
  Running(std::mutex& mutex, bool& flag) : mutex_(mutex), flag_(flag) { flag_ = true; }
  ~Running() {
    std::lock_guard lock(mutex_);
    flag_ = false;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  std::mutex& mutex_;
  bool& flag_;
};

bool KeysBefore(const std::shared_ptr<const IndexTable>& a,
                const std::shared_ptr<const IndexTable>& b) {
  return a->info().smallest < b->info().smallest;
}

bool NewerFirst(const std::shared_ptr<const IndexTable>& a,
                const std::shared_ptr<const IndexTable>& b) {
  return a->info().number > b->info().number;
}

void SortLevel(size_t level, TableList& tables) {
  std::sort(tables.begin(), tables.end(), level == 0 ? NewerFirst : KeysBefore);
}

// The second of two tables of a level that overlap, or null.
const IndexTable* FindOverlap(const TableList& tables) {
  for (size_t i = 1; i < tables.size(); ++i) {
    if (tables[i]->info().smallest <= tables[i - 1]->info().largest) return tables[i].get();
  }
  return nullptr;
}

// The list of a level, kept alive by all levels.
std::shared_ptr<const TableList> Share(const std::shared_ptr<const Levels>& levels, size_t level) {
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
  CAIRN_CHECK(options.tables.cache != nullptr && options.tables.counters != nullptr);
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
  index->SetViewLocked({.active = std::move(memtable), .frozen = {}, .levels = std::move(levels)});
  return index;
}

LsmIndex::~LsmIndex() { CAIRN_CHECK(!flushing_ && !merging_); }

std::shared_ptr<const LsmIndex::View> LsmIndex::view() const {
  std::lock_guard lock(mutex_);
  return view_;
}

void LsmIndex::Apply(WriteBatch&& batch) {
  std::lock_guard lock(mutex_);
  view_->active->Apply(std::move(batch), [this](std::string_view key) { gaps_.OnPut(key); });
}

Result<std::optional<std::string>> LsmIndex::Get(std::string_view key,
                                                 const ReadOptions& options) const {
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

// Takes a fresh view at each Seek and leaves a note of the gap that it crossed.
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
    if (records_->status().ok() && records_->hidden() >= kGapTombstones) {
      search.NoteGapUpTo(records_->last_hidden());
    }
  }
  void Next() override { records_->Next(); }
  bool valid() const override { return records_ != nullptr && records_->valid(); }
  std::string_view key() const override { return records_->key(); }
  MaybeValue value() const override { return records_->value(); }
  Status status() const override { return records_ == nullptr ? Status() : records_->status(); }

 private:
  // Announces a search to the notes, for as long as it lives.
  class Search {
   public:
    Search(LsmIndex& index, std::string_view from) : index_(index) {
      std::lock_guard lock(index_.mutex_);
      start_ = index_.gaps_.StartOf(from);
      view_ = index_.view_;
      ticket_ = index_.gaps_.Begin(from);
    }
    ~Search() {
      std::lock_guard lock(index_.mutex_);
      index_.gaps_.End(ticket_, gap_end_);
    }
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;

    const std::string& start() const { return start_; }
    const std::shared_ptr<const View>& view() const { return view_; }
    // The next key after the last tombstone: that one with a zero byte behind.
    void NoteGapUpTo(const std::string& last_tombstone) { gap_end_ = last_tombstone + '\0'; }

   private:
    LsmIndex& index_;
    std::string start_;
    std::shared_ptr<const View> view_;
    GapNotes::Ticket ticket_;
    std::string gap_end_;  // Empty: no note.
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

Result<bool> LsmIndex::Freeze(uint64_t mark) {
  std::shared_ptr<Memtable> fresh = Memtable::TryMake(options_.tables.allocator);
  if (fresh == nullptr) return Status(StatusCode::kOutOfMemory, "no memory for a memtable");
  std::lock_guard lock(mutex_);
  CAIRN_CHECK(mark >= last_mark_);
  last_mark_ = mark;
  if (view_->active->empty()) return false;
  View next = *view_;
  next.frozen.push_back({std::move(next.active), mark});
  next.active = std::move(fresh);
  SetViewLocked(std::move(next));
  return true;
}

Result<std::optional<FlushResult>> LsmIndex::Flush() {
  std::shared_ptr<const View> before;
  std::optional<Running> running;
  {
    std::lock_guard lock(mutex_);
    if (flushing_) return Status(StatusCode::kBusy, "a memtable is being flushed");
    if (view_->frozen.empty()) return std::optional<FlushResult>();
    running.emplace(mutex_, flushing_);
    before = view_;
  }
  const Frozen& oldest = before->frozen.front();
  OlderData older(before->levels, 0);
  const std::unique_ptr<RecordIterator> records = oldest.memtable->NewIterator();
  CAIRN_ASSIGN_OR_RETURN(const TableList tables,
                         WriteTables(options_.tables, *records, older, UINT64_MAX));
  CAIRN_CHECK(tables.size() <= 1);

  FlushResult result{.mark = oldest.mark, .edit = {}};
  std::lock_guard lock(mutex_);
  View next = *view_;
  CAIRN_CHECK(next.frozen.front().memtable == oldest.memtable);
  next.frozen.erase(next.frozen.begin());
  if (!tables.empty()) {
    auto levels = std::make_shared<Levels>(*next.levels);
    TableList& level0 = (*levels)[0];
    const TableInfo& info = tables[0]->info();
    CAIRN_CHECK(level0.empty() || level0.front()->info().number < info.number);
    level0.insert(level0.begin(), tables[0]);
    result.edit.added.push_back({info.number, 0, info.bytes});
    next.levels = std::move(levels);
  }
  SetViewLocked(std::move(next));
  return std::optional<FlushResult>(std::move(result));
}

Result<std::optional<IndexEdit>> LsmIndex::CompactOnce() {
  std::shared_ptr<const Levels> levels;
  std::optional<MergePlan> plan;
  std::optional<Running> running;
  {
    std::lock_guard lock(mutex_);
    if (merging_) return Status(StatusCode::kBusy, "tables are being merged");
    plan = PickMerge(InfosOf(*view_->levels), options_.shape);
    if (!plan) return std::optional<IndexEdit>();
    running.emplace(mutex_, merging_);
    levels = view_->levels;
  }
  CAIRN_ASSIGN_OR_RETURN(const TableList outputs, Merge(*plan, levels));
  return std::optional<IndexEdit>(InstallMerge(*plan, outputs));
}

Result<TableList> LsmIndex::Merge(const MergePlan& plan,
                                  const std::shared_ptr<const Levels>& levels) const {
  const auto take = [&](size_t level, const std::vector<uint64_t>& numbers) {
    TableList tables;
    for (const auto& table : (*levels)[level]) {
      const uint64_t number = table->info().number;
      if (std::find(numbers.begin(), numbers.end(), number) != numbers.end()) {
        tables.push_back(table);
      }
    }
    CAIRN_CHECK(tables.size() == numbers.size());
    return tables;
  };
  std::vector<std::unique_ptr<RecordIterator>> sources;
  const auto add_level = [&](TableList tables) {
    if (tables.empty()) return;
    sources.push_back(
        std::make_unique<LevelIterator>(std::make_shared<const TableList>(std::move(tables)),
                                        LevelIterator::Access::kMerge, ReadOptions{}));
  };
  if (plan.level == 0) {
    for (const auto& table : take(0, plan.upper)) sources.push_back(table->NewMergeIterator());
  } else {
    add_level(take(plan.level, plan.upper));
  }
  add_level(take(plan.output_level, plan.lower));
  MergingIterator records(std::move(sources), MergingIterator::Tombstones::kShow);
  OlderData older(levels, plan.output_level + 1);
  return WriteTables(options_.tables, records, older, options_.shape.table_bytes);
}

IndexEdit LsmIndex::InstallMerge(const MergePlan& plan, const TableList& outputs) {
  IndexEdit edit;
  std::lock_guard lock(mutex_);
  auto levels = std::make_shared<Levels>(*view_->levels);
  const auto remove = [&](size_t level, const std::vector<uint64_t>& numbers) {
    std::erase_if((*levels)[level], [&](const auto& table) {
      const TableInfo& info = table->info();
      if (std::find(numbers.begin(), numbers.end(), info.number) == numbers.end()) return false;
      removed_.push_back({{info.number, static_cast<uint32_t>(level), info.bytes}, table});
      edit.removed.push_back(info.number);
      return true;
    });
  };
  remove(plan.level, plan.upper);
  remove(plan.output_level, plan.lower);
  CAIRN_CHECK(edit.removed.size() == plan.upper.size() + plan.lower.size());
  TableList& level = (*levels)[plan.output_level];
  for (const auto& table : outputs) {
    level.push_back(table);
    edit.added.push_back(
        {table->info().number, static_cast<uint32_t>(plan.output_level), table->info().bytes});
  }
  SortLevel(plan.output_level, level);
  CAIRN_CHECK(FindOverlap(level) == nullptr);
  View next = *view_;
  next.levels = std::move(levels);
  SetViewLocked(std::move(next));
  return edit;
}

void LsmIndex::Release(std::span<const uint64_t> removed) {
  std::lock_guard lock(mutex_);
  for (const uint64_t number : removed) {
    const auto found = std::find_if(removed_.begin(), removed_.end(), [&](const Removed& table) {
      return table.file.number == number;
    });
    CAIRN_CHECK(found != removed_.end() && !found->released);
    found->released = true;
  }
}

Status LsmIndex::DeleteReleased(std::vector<LiveTable>* deleted) {
  std::vector<Removed> free;
  {
    std::lock_guard lock(mutex_);
    // Nobody can come to hold a table that the view does not name: one holder is this list.
    const auto held = [](const Removed& table) {
      return !table.released || (table.table != nullptr && table.table.use_count() > 1);
    };
    const auto end = std::stable_partition(removed_.begin(), removed_.end(), held);
    free.assign(std::make_move_iterator(end), std::make_move_iterator(removed_.end()));
    removed_.erase(end, removed_.end());
  }
  Status status;
  while (!free.empty() && status.ok()) {
    Removed& table = free.back();
    table.table = nullptr;
    status = DeleteTable(options_.tables, table.file.number, table.file.bytes);
    if (!status.ok()) break;
    if (deleted != nullptr) deleted->push_back(table.file);
    free.pop_back();
  }
  if (!free.empty()) {
    std::lock_guard lock(mutex_);
    for (Removed& table : free) removed_.push_back(std::move(table));
  }
  return status;
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
  std::lock_guard lock(mutex_);
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
