// SPDX-License-Identifier: Apache-2.0
//
// The newest records, in memory and in order, until they are flushed to a table.
//
// A skip list (W. Pugh, CACM 33(6), 1990) whose towers follow from the hash of the key. A record
// that replaces another takes its place in every level; the old one stays allocated until the
// memtable goes, so that a reader that stands on it can go on.
//
// Threads: one writer at a time (Apply), under a lock of the owner. Readers need no lock and may
// run concurrently with the writer. They see each record whole or not at all; the records of a
// batch become visible one after the other, and an iterator may or may not see records written
// after its Seek.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "cairn/allocator.h"
#include "sstable/constants.h"
#include "sstable/record_iterator.h"

namespace cairn::sstable {

struct MemtableNode;

// Records on their way to a memtable. All memory is allocated here, so that applying them, which
// the engine does after the log has them, cannot fail. One thread at a time.
class WriteBatch {
 public:
  explicit WriteBatch(const Allocator& allocator) : allocator_(allocator) {}
  WriteBatch(WriteBatch&& other) noexcept;
  WriteBatch& operator=(WriteBatch&& other) noexcept;
  ~WriteBatch();

  // REQUIRES: within kMaxKeyBytes and kMaxValueBytes. The bytes are copied. If two have the same
  // key the later one counts. kOutOfMemory leaves the batch as it was.
  Status Put(std::string_view key, std::string_view value);
  Status Delete(std::string_view key);

  bool empty() const { return first_ == nullptr; }
  size_t bytes() const { return bytes_; }  // Growth of the memtable.

 private:
  friend class Memtable;
  Status Add(std::string_view key, MaybeValue value);

  Allocator allocator_;
  MemtableNode* first_ = nullptr;
  MemtableNode* last_ = nullptr;
  size_t bytes_ = 0;
};

class Memtable : public std::enable_shared_from_this<Memtable> {
 public:
  // Null when there is no memory.
  static std::shared_ptr<Memtable> TryMake(const Allocator& allocator);
  ~Memtable();
  Memtable(const Memtable&) = delete;
  Memtable& operator=(const Memtable&) = delete;

  // Takes the batch's memory; allocates nothing. REQUIRES: of the same allocator. `on_put` is
  // called with the key of each record that is no tombstone, before a reader can see it.
  template <typename OnPut>
  void Apply(WriteBatch&& batch, OnPut on_put);

  // Null: it does not know the key. Else its value, or null for a tombstone; valid as long as the
  // memtable.
  std::optional<MaybeValue> Get(std::string_view key) const;
  // Keeps the memtable alive.
  std::unique_ptr<RecordIterator> NewIterator() const;

  bool empty() const;
  // Memory of all records, replaced ones included.
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  class Iterator;
  explicit Memtable(const Allocator& allocator, MemtableNode* head)
      : allocator_(allocator), head_(head) {}

  // The first node whose key is not less. `before`, if given, gets the last smaller one of each
  // level.
  MemtableNode* FindNotLess(std::string_view key, MemtableNode** before) const;
  void Insert(MemtableNode* node);
  static MemtableNode* Detach(WriteBatch& batch);  // The first record, or null.
  static MaybeValue ValueOf(const MemtableNode* node);
  static std::string_view KeyOf(const MemtableNode* node);

  const Allocator allocator_;
  MemtableNode* const head_;       // Before all, with a full tower.
  MemtableNode* owned_ = nullptr;  // Every node ever inserted.
  std::atomic<size_t> bytes_{0};
};

template <typename OnPut>
void Memtable::Apply(WriteBatch&& batch, OnPut on_put) {
  while (MemtableNode* node = Detach(batch)) {
    if (ValueOf(node)) on_put(KeyOf(node));
    Insert(node);
  }
}

}  // namespace cairn::sstable
