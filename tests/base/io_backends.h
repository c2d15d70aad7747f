// SPDX-License-Identifier: Apache-2.0
//
// The worlds that the I/O tests run on, by name, each with an empty directory to work in.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/io/world.h"

namespace cairn::io::testing {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual World& world() = 0;
  virtual const std::string& root() const = 0;
};

// "io_uring" (where this build has it), "threads", "memory", "simulated", "no_disk".
std::vector<std::string> BackendNames();

// Null when this machine does not grant it.
std::unique_ptr<Backend> MakeBackend(const std::string& name);

// A directory of the real file system, removed with all in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// `bytes` bytes that depend on `seed`.
std::vector<std::byte> Pattern(size_t bytes, uint64_t seed);

// Memory that direct I/O accepts, filled with zeros.
class Block {
 public:
  explicit Block(size_t bytes);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  std::byte* data() const { return data_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  std::byte* data_;
  size_t bytes_;
};

}  // namespace cairn::io::testing
