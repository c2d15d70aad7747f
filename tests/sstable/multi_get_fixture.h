// SPDX-License-Identifier: Apache-2.0
//
// Shared by the tests of lookups of many keys: answers as text, a store of several levels, and a
// file system that counts requests in flight.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/forwarding_file_system.h"
#include "tests/sstable/lsm_fixture.h"

namespace cairn::sstable {

inline std::string TextOf(const LookupResult& result) {
  if (!result.ok()) return result.status().ToString();
  return result->has_value() ? "value " + **result : "absent";
}

inline std::string TextOf(const std::optional<std::string>& value) {
  return value ? "value " + *value : "absent";
}

inline std::vector<std::string> ByMultiGet(const LsmIndex& index,
                                           const std::vector<std::string>& keys,
                                           const ReadOptions& options = {}) {
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  std::vector<std::string> texts;
  for (const LookupResult& result : index.MultiGet(views, options)) texts.push_back(TextOf(result));
  return texts;
}

inline std::vector<std::string> ByGets(const LsmIndex& index, const std::vector<std::string>& keys,
                                       const ReadOptions& options = {}) {
  std::vector<std::string> texts;
  for (const std::string& key : keys) texts.push_back(TextOf(index.Get(key, options)));
  return texts;
}

inline std::vector<std::string> ByModel(const Records& model,
                                        const std::vector<std::string>& keys) {
  std::vector<std::string> texts;
  for (const std::string& key : keys) {
    const auto found = model.find(key);
    texts.push_back(TextOf(found == model.end() ? std::nullopt : found->second));
  }
  return texts;
}

// 3,000 records on levels 0 to 2, each newer table with some of the keys of those below it, and
// with tombstones; every second key below 6,000 was never there. Returns its tables.
inline std::vector<LiveTable> MakeSeveralLevels(const TestTables& tables, Records* model) {
  auto opened = LsmIndex::Open(OptionsOf(tables), {});
  CAIRN_CHECK(opened.ok());
  LsmIndex& index = **opened;
  const auto write = [&](uint64_t first, uint64_t step, bool tombstones) {
    for (uint64_t i = first; i < 3000; i += step) {
      const std::string key = KeyOf(i * 2);
      std::optional<std::string>& value = (*model)[key];
      if (tombstones && i % 3 == 0) {
        value.reset();
        Delete(index, key);
      } else {
        value = ValueOf(i * step, 100);
        Put(index, key, *value);
      }
    }
    FlushAll(index);
  };
  for (uint64_t first = 0; first < 8; ++first) {
    write(first, 8, /*tombstones=*/false);
    CompactAll(index);
  }
  for (const uint64_t step : {7, 11, 13}) write(step, step, /*tombstones=*/true);
  const LsmStats stats = index.stats();
  CAIRN_CHECK(stats.tables[0] == 3 && stats.tables[1] > 1 && stats.tables[2] > 1);
  return index.live();
}

// The keys of such a store, there or not, and some beyond its ends.
inline std::vector<std::string> AllKeys() {
  std::vector<std::string> keys = {"", "zzz"};
  for (uint64_t i = 0; i < 6000; ++i) keys.push_back(KeyOf(i));
  return keys;
}

// Counts of all queues that were made together.
class CountingFiles final : public io::ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  std::unique_ptr<io::Queue> NewQueue(size_t depth) override;

  size_t queues = 0;
  uint64_t reads = 0;
  size_t in_flight = 0, in_flight_max = 0;
  uint64_t bytes = 0, bytes_max = 0;
  // How often nothing was in flight any more: trips to the device, one behind the other.
  uint64_t rounds = 0;
};

class CountingQueue final : public io::Queue {
 public:
  CountingQueue(CountingFiles* files, std::unique_ptr<io::Queue> inner)
      : files_(*files), inner_(std::move(inner)) {}
  void Submit(io::Request* request) override {
    ++files_.reads;
    files_.in_flight_max = std::max(files_.in_flight_max, ++files_.in_flight);
    files_.bytes_max = std::max(files_.bytes_max, files_.bytes += request->length);
    inner_->Submit(request);
  }
  io::Request* Reap() override {
    io::Request* const request = inner_->Reap();
    files_.bytes -= request->length;
    if (--files_.in_flight == 0) ++files_.rounds;
    return request;
  }
  size_t in_flight() const override { return inner_->in_flight(); }

 private:
  CountingFiles& files_;
  const std::unique_ptr<io::Queue> inner_;
};

inline std::unique_ptr<io::Queue> CountingFiles::NewQueue(size_t depth) {
  ++queues;
  return std::make_unique<CountingQueue>(this, ForwardingFileSystem::NewQueue(depth));
}

}  // namespace cairn::sstable
