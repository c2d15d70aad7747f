// SPDX-License-Identifier: Apache-2.0
//
// Shared by the parts of `objects`: keys, and the file backend that it is compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/status.h"
#include "tools/bench/bench.h"

namespace cairn::bench {

inline constexpr uint64_t kAsked = 1000;  // Keys of one Exists.
inline constexpr int kLooks = 200;

// Names of pages, as engines make them of hashes: 64 hexadecimal digits.
std::string KeyAt(uint64_t i);
std::vector<std::string> KeysFrom(uint64_t first, uint64_t count);

// One file per key, as LMCache's fs backend and SGLang's HiCacheFile do it: written beside and
// renamed into place, read whole. Neither syncs anything; `synced` is what it takes to survive a
// power cut: fdatasync of each file, and once for a batch fsync of the directory.
class Files {
 public:
  static Result<Files> Create(std::string directory);
  const std::string& directory() const { return directory_; }

  Status Put(const std::string& key, std::span<const std::byte> bytes, bool synced) const;
  Status SyncNames() const;
  Status Get(const std::string& key, std::span<std::byte> into) const;
  bool Has(const std::string& key) const;

 private:
  explicit Files(std::string directory) : directory_(std::move(directory)) {}
  std::string PathOf(const std::string& key) const { return directory_ + "/" + key; }
  std::string directory_;
};

// Time of `ask` for kAsked keys, every other of which is one of the first `there`. `ask` returns
// whether half of them were found.
double AskUs(const std::function<bool(std::span<const std::string_view>)>& ask, uint64_t there,
             std::mt19937_64* random);

// Small objects, --branches of them: opening, the directory, Exists.
Status MeasureExists(const Config& config, const std::string& scratch, Report* report);

}  // namespace cairn::bench
