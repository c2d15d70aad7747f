// SPDX-License-Identifier: Apache-2.0
#include "tests/sstable/table_fixture.h"

#include <cstdio>
#include <cstdlib>

#include "base/core/check.h"

namespace cairn::sstable {
namespace {

void* CountingAllocate(void* context, size_t bytes, size_t alignment) {
  auto* self = static_cast<TestAllocator*>(context);
  if (self->allocations++ >= self->refuse_at) return nullptr;
  if (self->live + bytes > self->live_max) return nullptr;
  self->live += bytes;
  return std::aligned_alloc(alignment, AlignUp(bytes, alignment));
}

void CountingFree(void* context, void* memory, size_t bytes, size_t) {
  static_cast<TestAllocator*>(context)->live -= bytes;
  std::free(memory);
}

class MapIterator final : public RecordIterator {
 public:
  MapIterator(Records records, Status end)
      : records_(std::move(records)), end_(std::move(end)), at_(records_.end()) {}
  void Seek(std::string_view target) override { at_ = records_.lower_bound(std::string(target)); }
  void Next() override { ++at_; }
  bool valid() const override { return at_ != records_.end(); }
  std::string_view key() const override { return at_->first; }
  MaybeValue value() const override {
    return at_->second ? MaybeValue(*at_->second) : std::nullopt;
  }
  Status status() const override { return valid() ? Status() : end_; }

 private:
  const Records records_;
  const Status end_;
  Records::const_iterator at_;
};

}  // namespace

Allocator TestAllocator::allocator() { return {CountingAllocate, CountingFree, this}; }

TestTables::TestTables(std::shared_ptr<io::FileSystem> file_system, size_t cache_bytes)
    : files(std::move(file_system)), cache(std::make_unique<BlockCache>(cache_bytes)) {
  context.files = files.get();
  context.directory = std::string("t");
  context.store = kTestStore;
  context.cache = cache.get();
  context.callbacks = callbacks.get();
  context.counters = counters.get();
}

TestTables TestTables::InMemory() {
  TestTables tables(io::MakeMemoryWorld().files);
  CAIRN_CHECK(tables.files->CreateDirectory("t").ok());
  return tables;
}

TestTables TestTables::OnDisk(std::shared_ptr<io::SimDisk> disk, size_t cache_bytes) {
  if (!disk->Info("t").ok()) {
    CAIRN_CHECK(disk->CreateDirectory("t").ok());
    CAIRN_CHECK(disk->SyncDirectory(".").ok());
  }
  return TestTables(std::move(disk), cache_bytes);
}

std::string KeyOf(uint64_t i) {
  char text[24];
  std::snprintf(text, sizeof(text), "key%08llu", static_cast<unsigned long long>(i));
  return text;
}

std::string ValueOf(uint64_t i, size_t bytes) {
  std::string value(bytes, '\0');
  uint64_t state = i * 0x9E3779B97F4A7C15u + 1;
  for (char& byte : value) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<char>(state >> 56);
  }
  return value;
}

Records MakeRecords(uint64_t count, size_t value_bytes, uint64_t tombstone_every, uint64_t step) {
  Records records;
  for (uint64_t i = 0; i < count; ++i) {
    std::optional<std::string>& value = records[KeyOf(i * step)];
    if (tombstone_every == 0 || i % tombstone_every != 0) value = ValueOf(i, value_bytes);
  }
  return records;
}

Result<TableInfo> WriteTable(const TableContext& context, uint64_t number, const Records& records) {
  CAIRN_ASSIGN_OR_RETURN(const auto writer, IndexWriter::Create(context, number));
  for (const auto& [key, value] : records) {
    CAIRN_RETURN_IF_ERROR(writer->Add(key, value ? MaybeValue(*value) : std::nullopt));
  }
  return writer->Finish();
}

RecordList Walk(RecordIterator& records, std::string_view target) {
  RecordList list;
  for (records.Seek(target); records.valid(); records.Next()) {
    auto& [key, value] = list.emplace_back(records.key(), std::nullopt);
    if (records.value()) value.emplace(*records.value());
  }
  return list;
}

RecordList ListOf(const Records& records) { return {records.begin(), records.end()}; }

RecordList LiveOf(const Records& records) {
  RecordList list;
  for (const auto& [key, value] : records) {
    if (value) list.emplace_back(key, value);
  }
  return list;
}

std::unique_ptr<RecordIterator> IterateRecords(Records records, Status end) {
  return std::make_unique<MapIterator>(std::move(records), std::move(end));
}

}  // namespace cairn::sstable
