// SPDX-License-Identifier: Apache-2.0
#include "sstable/table_files.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>

#include "base/core/check.h"
#include "base/io/path.h"

namespace cairn::sstable {
namespace {

constexpr std::string_view kIndexSuffix = ".index";
constexpr std::string_view kSnapshotSuffix = ".snapshot";
constexpr size_t kDigits = 16;

std::string FileName(uint64_t number, std::string_view suffix) {
  char digits[kDigits + 1];
  const int written =
      std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(number));
  CAIRN_CHECK(written == static_cast<int>(kDigits));
  return digits + std::string(suffix);
}

// Parses the name of a finished table.
std::optional<uint64_t> ParseName(std::string_view name) {
  for (const std::string_view suffix : {kIndexSuffix, kSnapshotSuffix}) {
    if (name.size() != kDigits + suffix.size()) continue;
    uint64_t number = 0;
    (void)std::from_chars(name.data(), name.data() + kDigits, number, 16);
    if (FileName(number, suffix) == name) return number;
  }
  return std::nullopt;
}

}  // namespace

std::string IndexTablePath(const std::string& directory, uint64_t number) {
  return io::JoinPath(directory, FileName(number, kIndexSuffix));
}

std::string SnapshotTablePath(const std::string& directory, uint64_t number) {
  return io::JoinPath(directory, FileName(number, kSnapshotSuffix));
}

bool IsTableFileName(std::string_view name) { return ParseName(name).has_value(); }

Status RemoveTableOrphans(io::FileSystem& files, const std::string& directory,
                          std::span<const uint64_t> live) {
  CAIRN_ASSIGN_OR_RETURN(const auto names, files.List(directory));
  for (const std::string& name : names) {
    std::string_view finished = name;
    const bool unfinished = finished.ends_with(kUnfinishedSuffix);
    if (unfinished) finished.remove_suffix(std::string_view(kUnfinishedSuffix).size());
    const std::optional<uint64_t> number = ParseName(finished);
    if (!number) continue;
    if (!unfinished && std::find(live.begin(), live.end(), *number) != live.end()) continue;
    CAIRN_RETURN_IF_ERROR(files.Remove(io::JoinPath(directory, name)));
  }
  return Status::Ok();
}

}  // namespace cairn::sstable
