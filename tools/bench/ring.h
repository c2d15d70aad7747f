// SPDX-License-Identifier: Apache-2.0
//
// A bare io_uring for the raw arms; absent from builds without liburing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace cairn::bench {

class Ring {
 public:
  static constexpr size_t kPieceBytes = 512 << 10;
  static constexpr unsigned kDepth = 16;

  // Null where the kernel or the build has no io_uring.
  static std::unique_ptr<Ring> TryCreate();
  virtual ~Ring() = default;
  // Whole transfers in pieces, up to kDepth in flight. 0, or a positive errno.
  virtual int Read(int fd, uint64_t offset, std::byte* into, size_t bytes) = 0;
  // The write is followed by a data sync once all pieces are complete.
  virtual int WriteDurable(int fd, uint64_t offset, const std::byte* from, size_t bytes) = 0;
};

}  // namespace cairn::bench
