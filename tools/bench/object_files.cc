// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/bench/object_bench.h"

namespace cairn::bench {

namespace {

Status Failed(const char* call, const std::string& path) {
  return Status(StatusCode::kIoError,
                path + ": " + call + ": " + std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace

std::string KeyAt(uint64_t i) {
  char text[65];
  uint64_t state = i + 1;
  for (int part = 0; part < 4; ++part) {
    state = (state ^ (state >> 29)) * 0xBF58476D1CE4E5B9 + 0x9E3779B97F4A7C15;
    std::snprintf(text + 16 * part, 17, "%016llx", static_cast<unsigned long long>(state));
  }
  return text;
}

std::vector<std::string> KeysFrom(uint64_t first, uint64_t count) {
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < count; ++i) keys.push_back(KeyAt(first + i));
  return keys;
}

Result<Files> Files::Create(std::string directory) {
  if (mkdir(directory.c_str(), 0700) != 0) return Failed("mkdir", directory);
  return Files(std::move(directory));
}

Status Files::Put(const std::string& key, std::span<const std::byte> bytes, bool synced) const {
  const std::string path = PathOf(key), beside = path + ".tmp";
  const int file = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return Failed("open", beside);
  const bool written =
      write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
      (!synced || fdatasync(file) == 0);
  close(file);
  if (!written) return Failed("write", beside);
  if (rename(beside.c_str(), path.c_str()) != 0) return Failed("rename", path);
  return Status::Ok();
}

Status Files::SyncNames() const {
  const int directory = open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = directory >= 0 && fsync(directory) == 0;
  if (directory >= 0) close(directory);
  return synced ? Status::Ok() : Failed("fsync", directory_);
}

Status Files::Get(const std::string& key, std::span<std::byte> into) const {
  const std::string path = PathOf(key);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return Failed("open", path);
  const bool whole = read(file, into.data(), into.size()) == static_cast<ssize_t>(into.size());
  close(file);
  return whole ? Status::Ok() : Failed("read", path);
}

bool Files::Has(const std::string& key) const { return access(PathOf(key).c_str(), F_OK) == 0; }

}  // namespace cairn::bench
