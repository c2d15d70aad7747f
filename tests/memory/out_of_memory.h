// SPDX-License-Identifier: Apache-2.0
//
// Runs a script on a store again and again, each time with another allocation failing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cairn::memory {

struct OutOfMemoryOptions {
  std::string script;
  bool persistent = false;  // Each allocation behind it fails as well, until the script is over.
  uint64_t stride = 1;
};

struct OutOfMemoryResult {
  uint64_t runs = 0;         // With an allocation that failed.
  uint64_t allocations = 0;  // The script's when none fails.
  uint64_t calls_failed = 0, poisoned = 0;
  std::string violation;  // The first; the run ends there.
  std::string ToString() const;
};

std::vector<std::string> OutOfMemoryScripts();
OutOfMemoryResult RunOutOfMemory(const OutOfMemoryOptions& options);

}  // namespace cairn::memory
