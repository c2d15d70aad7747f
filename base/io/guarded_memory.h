// SPDX-License-Identifier: Apache-2.0
//
// Memory that ends at a page that traps, and that can be made to trap as a whole, for ever. What
// touches it then ends the process at once, in every build.
#pragma once

#include <cstddef>

namespace cairn::io {

class GuardedMemory {
 public:
  // `bytes` is 1 or more; the end is aligned to 256. Null when there is none: see ok().
  explicit GuardedMemory(size_t bytes);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  bool ok() const { return memory_ != nullptr; }
  std::byte* data() const { return data_; }
  // From here on nobody may touch it. Its pages are given back, its addresses are not.
  void Trap();

 private:
  size_t mapped_bytes_;
  void* memory_;
  std::byte* data_ = nullptr;
};

}  // namespace cairn::io
