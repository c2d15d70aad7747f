// SPDX-License-Identifier: Apache-2.0
//
// Memory that ends at a page that traps, and that can be made to trap as a whole, for ever. An
// access then ends the process at once, in every build.
#pragma once

#include <cstddef>

namespace cairn::io {

class GuardedMemory {
 public:
  // `bytes` is 1 or more; the end is aligned to 256. If there is no memory, see ok().
  explicit GuardedMemory(size_t bytes);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  bool ok() const { return memory_ != nullptr; }
  std::byte* data() const { return data_; }
  // From here on any access traps. The pages are freed, the addresses are not.
  void Trap();

 private:
  size_t mapped_bytes_;
  void* memory_;
  std::byte* data_ = nullptr;
};

}  // namespace cairn::io
