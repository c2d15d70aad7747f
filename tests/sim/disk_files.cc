// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/disk_files.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/io/path.h"

namespace cairn::io::testing {

std::vector<std::byte> Filled(size_t bytes, char with) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(with));
}

std::unique_ptr<File> MustOpen(SimDisk& disk, const std::string& path, bool direct) {
  auto file = disk.Open(path, {.write = true, .create = true, .direct = direct});
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  return std::move(file).value();
}

std::unique_ptr<File> DurableFile(SimDisk& disk, const std::string& path, size_t blocks) {
  auto file = MustOpen(disk, path);
  EXPECT_TRUE(file->Write(0, Filled(blocks * kBlockBytes, 'o'), false).ok());
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_TRUE(disk.SyncDirectory(ParentPath(path)).ok());
  EXPECT_EQ(disk.unsynced_writes(), 0u);
  return file;
}

std::string Blocks(const SimDisk& disk, const std::string& path) {
  const auto bytes = disk.ReadRaw(path);
  if (!bytes.ok()) return "absent";
  std::string letters;
  for (size_t at = 0; at < bytes->size(); at += kBlockBytes) {
    const auto first = (*bytes)[at];
    const size_t end = std::min(at + kBlockBytes, bytes->size());
    const bool same = std::all_of(bytes->begin() + static_cast<ptrdiff_t>(at),
                                  bytes->begin() + static_cast<ptrdiff_t>(end),
                                  [&](std::byte b) { return b == first; });
    letters += same ? static_cast<char>(first) : '?';
  }
  return letters;
}

}  // namespace cairn::io::testing
