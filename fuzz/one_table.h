// SPDX-License-Identifier: Apache-2.0
//
// A machine with room for one table, for the targets that change one.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "base/io/memory_file_system.h"
#include "sstable/table_files.h"

namespace cairn::fuzz {

inline constexpr StoreId kTableStore{{1, 2, 3, 4}};
inline constexpr uint64_t kTableNumber = 7;

class OneTable {
 public:
  // `path_of`: sstable::IndexTablePath, sstable::SnapshotTablePath.
  explicit OneTable(std::string (*path_of)(const std::string& directory, uint64_t number))
      : path_(path_of(kDirectory, kTableNumber)) {
    context.files = &files_;
    context.directory = kDirectory;
    context.store = kTableStore;
    context.callbacks = &callbacks_;
    context.counters = &counters_;
    CAIRN_CHECK(files_.CreateDirectory(kDirectory).ok());
  }
  OneTable(const OneTable&) = delete;

  std::unique_ptr<io::File> Open(bool create) {
    auto file = files_.Open(path_, {.write = true, .create = create});
    CAIRN_CHECK(file.ok());
    return std::move(*file);
  }
  std::vector<std::byte> Content() {
    const auto file = Open(false);
    std::vector<std::byte> bytes(*file->Size());
    CAIRN_CHECK(file->Read(0, bytes).ok());
    return bytes;
  }

  sstable::TableContext context;

 private:
  static constexpr char kDirectory[] = "tables";
  class Callbacks final : public sstable::TableCallbacks {
   public:
    Result<uint64_t> NewTableNumber() override { return kTableNumber; }
    Status TakeSpace(uint64_t) override { return Status::Ok(); }
    void ReturnSpace(uint64_t) override {}
  };

  const std::string path_;
  io::MemoryFileSystem files_;
  Callbacks callbacks_;
  sstable::TableCounters counters_;
};

}  // namespace cairn::fuzz
