// SPDX-License-Identifier: Apache-2.0
//
// lost/: where an opening puts damaged files that the store goes on without. Each opening that does
// so has a directory there, named by the time: lost/2026-01-31T12-00-00Z/<file>. Nothing reads
// them; they are for people. Not in copies of the store.
//
// One thread, by the opening. Errors: those of the file system.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/io/world.h"

namespace cairn::engine {

class LostFiles {
 public:
  // `directory`: the store's. `wall_ns`: the time that names the files' directory.
  LostFiles(const io::World& world, const std::string& directory, uint64_t wall_ns);

  // "lost/<time>"; empty: nothing was moved there.
  const std::string& moved_to() const { return moved_to_; }
  // Moves a file there, durably.
  Status Move(const std::string& path);
  // Prepares the same: the file has a second name there, if the file system allows that, and its
  // own until Move. So a crash between the two leaves it in both places.
  Status Link(const std::string& path);

  // Removes the oldest files until the rest takes at most `bytes_max`. Returns what they take.
  Result<uint64_t> Bound(uint64_t bytes_max);

 private:
  Status MakeDirectory();
  Status PathFor(const std::string& path, std::string* to);

  io::World world_;
  const std::string store_, lost_;
  const uint64_t wall_ns_;
  std::string moved_to_, made_;
  std::vector<std::string> linked_;
};

}  // namespace cairn::engine
