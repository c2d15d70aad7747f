// SPDX-License-Identifier: Apache-2.0
#include "sstable/merging_iterator.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"

namespace cairn::sstable {

MergingIterator::MergingIterator(std::vector<std::unique_ptr<RecordIterator>> sources,
                                 Tombstones tombstones, std::string end)
    : sources_(std::move(sources)), tombstones_(tombstones), end_(std::move(end)) {
  heap_.reserve(sources_.size());
}

bool MergingIterator::IsBehind(size_t a, size_t b) const {
  const int order = sources_[a]->key().compare(sources_[b]->key());
  return order != 0 ? order > 0 : a > b;
}

void MergingIterator::Push(size_t source) {
  CAIRN_CHECK(heap_.size() < sources_.size());  // Each is in it once.
  if (!sources_[source]->valid()) {
    if (status_.ok()) status_ = sources_[source]->status();
    return;
  }
  heap_.push_back(source);
  std::push_heap(heap_.begin(), heap_.end(), [this](size_t a, size_t b) { return IsBehind(a, b); });
}

void MergingIterator::Seek(std::string_view target) {
  heap_.clear();
  status_ = Status::Ok();
  hidden_ = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    sources_[i]->Seek(target);
    Push(i);
  }
  Settle();
}

void MergingIterator::Next() {
  CAIRN_CHECK(valid_);
  CAIRN_CHECK(status_.ok());
  hidden_ = 0;
  Advance();
  Settle();
}

void MergingIterator::Advance() {
  CAIRN_CHECK(!heap_.empty());
  present_.assign(top().key());
  while (!heap_.empty() && top().key() == present_) {
    const size_t source = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(),
                  [this](size_t a, size_t b) { return IsBehind(a, b); });
    heap_.pop_back();
    sources_[source]->Next();
    Push(source);
  }
}

void MergingIterator::Settle() {
  while (status_.ok() && !AtEnd() && tombstones_ == Tombstones::kHide && !top().value()) {
    ++hidden_;
    Advance();
    std::swap(last_hidden_, present_);
  }
  valid_ = status_.ok() && !AtEnd();
}

LevelIterator::LevelIterator(std::shared_ptr<const TableList> tables, Access access,
                             const ReadOptions& options)
    : tables_(std::move(tables)), access_(access), options_(options) {}

void LevelIterator::Open(size_t table) {
  CAIRN_CHECK(table <= tables_->size());
  table_ = table;
  if (table == tables_->size()) {
    records_ = nullptr;
  } else {
    const IndexTable& opened = *(*tables_)[table];
    records_ = access_ == Access::kMerge ? opened.NewMergeIterator() : opened.NewIterator(options_);
  }
}

void LevelIterator::Seek(std::string_view target) {
  const size_t table = FirstTableNotBefore(*tables_, target);
  if (records_ == nullptr || table != table_) Open(table);
  if (records_ == nullptr) return;
  records_->Seek(target);
  SkipEnds();
}

void LevelIterator::Next() {
  CAIRN_CHECK(records_ != nullptr);
  records_->Next();
  SkipEnds();
}

void LevelIterator::SkipEnds() {
  while (records_ != nullptr && !records_->valid() && records_->status().ok()) {
    Open(table_ + 1);
    if (records_ != nullptr) records_->Seek("");
  }
}

size_t FirstTableNotBefore(const TableList& tables, std::string_view key) {
  const auto found = std::partition_point(tables.begin(), tables.end(), [&](const auto& table) {
    return std::string_view(table->info().largest) < key;
  });
  return static_cast<size_t>(found - tables.begin());
}

}  // namespace cairn::sstable
