// SPDX-License-Identifier: Apache-2.0
//
// Keeps an LsmIndex in shape: freezing, flushing, merging, and deleting needless tables.
#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "sstable/lsm_index.h"

namespace cairn::sstable {
namespace {

// Sets a flag of the index while a flush or merge runs. REQUIRES: taken under the lock.
class Running {
 public:
  Running(Mutex& mutex, bool& flag) : mutex_(mutex), flag_(flag) {
    CAIRN_CHECK(!flag_);
    flag_ = true;
  }
  ~Running() {
    MutexLock lock(&mutex_);
    CAIRN_CHECK(flag_);
    flag_ = false;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Mutex& mutex_;
  bool& flag_;
};

}  // namespace

Result<bool> LsmIndex::Freeze(uint64_t mark) {
  std::shared_ptr<Memtable> fresh = Memtable::TryMake(options_.tables.allocator);
  if (fresh == nullptr) return Status(StatusCode::kOutOfMemory, "no memory for a memtable");
  MutexLock lock(&mutex_);
  CAIRN_CHECK(mark >= last_mark_);
  last_mark_ = mark;
  View next = *view_;
  CAIRN_CHECK(next.frozen.empty() || next.frozen.back().mark <= mark);
  if (!next.active->empty()) {
    next.frozen.push_back({std::move(next.active), mark});
    next.active = std::move(fresh);
  } else if (!next.frozen.empty()) {
    next.frozen.back().mark = mark;  // Nothing was applied since.
  } else {
    return false;
  }
  SetViewLocked(std::move(next));
  return true;
}

Result<std::optional<FlushResult>> LsmIndex::Flush() {
  std::shared_ptr<const View> before;
  std::optional<Running> running;
  {
    MutexLock lock(&mutex_);
    if (flushing_) return Status(StatusCode::kBusy, "a memtable is being flushed");
    if (view_->frozen.empty()) return std::optional<FlushResult>();
    running.emplace(mutex_, flushing_);
    before = view_;
  }
  const std::shared_ptr<Memtable> oldest = before->frozen.front().memtable;
  OlderData older(before->levels, 0);
  const std::unique_ptr<RecordIterator> records = oldest->NewIterator();
  CAIRN_ASSIGN_OR_RETURN(const TableList tables,
                         WriteTables(options_.tables, *records, older, UINT64_MAX));
  CAIRN_CHECK(tables.size() <= 1);

  MutexLock lock(&mutex_);
  View next = *view_;
  CAIRN_CHECK(flushing_);
  CAIRN_CHECK(!next.frozen.empty());
  CAIRN_CHECK(next.frozen.front().memtable == oldest);
  CAIRN_CHECK(next.frozen.front().mark <= last_mark_);
  FlushResult result{.mark = next.frozen.front().mark, .edit = {}};
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
    MutexLock lock(&mutex_);
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
  CAIRN_CHECK(!sources.empty());
  MergingIterator records(std::move(sources), MergingIterator::Tombstones::kShow);
  OlderData older(levels, plan.output_level + 1);
  return WriteTables(options_.tables, records, older, options_.shape.table_bytes);
}

IndexEdit LsmIndex::InstallMerge(const MergePlan& plan, const TableList& outputs) {
  IndexEdit edit;
  MutexLock lock(&mutex_);
  CAIRN_CHECK(merging_);
  CAIRN_CHECK(plan.output_level > 0);
  auto levels = std::make_shared<Levels>(*view_->levels);
  const auto remove = [&](size_t level, const std::vector<uint64_t>& numbers) {
    std::erase_if((*levels)[level], [&](const auto& table) {
      const TableInfo& info = table->info();
      if (std::find(numbers.begin(), numbers.end(), info.number) == numbers.end()) return false;
      mutex_.AssertHeld();
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
  MutexLock lock(&mutex_);
  for (const uint64_t number : removed) {
    const auto found = std::find_if(removed_.begin(), removed_.end(), [&](const Removed& table) {
      return table.file.number == number;
    });
    CAIRN_CHECK(found != removed_.end());
    CAIRN_CHECK(!found->released);
    found->released = true;
  }
}

Status LsmIndex::DeleteReleased(std::vector<LiveTable>* deleted) {
  std::vector<Removed> free;
  {
    MutexLock lock(&mutex_);
    // No new holder can appear for a table that the view does not name; this list itself is one
    // holder.
    const auto held = [](const Removed& table) {
      return !table.released || (table.table != nullptr && table.table.use_count() > 1);
    };
    const auto end = std::stable_partition(removed_.begin(), removed_.end(), held);
    free.assign(std::make_move_iterator(end), std::make_move_iterator(removed_.end()));
    removed_.erase(end, removed_.end());
  }
  Status first;
  for (Removed& table : free) {
    CAIRN_CHECK(table.released);
    CAIRN_CHECK(table.table.use_count() <= 1);
    table.table = nullptr;
    Status status = DeleteTable(options_.tables, table.file.number, table.file.bytes);
    if (status.ok()) {
      if (deleted != nullptr) deleted->push_back(table.file);
      continue;
    }
    if (first.ok()) first = std::move(status);
    MutexLock lock(&mutex_);
    removed_.push_back(std::move(table));
  }
  return first;
}

}  // namespace cairn::sstable
