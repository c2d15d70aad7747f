// SPDX-License-Identifier: Apache-2.0
//
// The content of a file in memory: 4 KiB pages that copies share until one of them writes. A copy
// is one pointer. Pages never written take no memory and read as zeros.
//
// Not thread-safe; two threads must not use a content and its copy either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace cairn::io {

class CowBytes {
 public:
  static constexpr size_t kPageBytes = 4096;

  uint64_t size() const { return size_; }
  uint64_t allocated_bytes() const { return pages_ ? pages_->held * kPageBytes : 0; }
  // How much a write to [offset, offset + length) would add to allocated_bytes().
  uint64_t MissingBytes(uint64_t offset, uint64_t length) const;

  // Copies the existing part of [offset, offset + into.size()); returns its size.
  size_t Read(uint64_t offset, std::span<std::byte> into) const;

  // All three return false when memory ran out. The content up to the old size is then unchanged,
  // except for what Write had already written.
  [[nodiscard]] bool Write(uint64_t offset, std::span<const std::byte> from);  // May grow.
  [[nodiscard]] bool Resize(uint64_t bytes);    // Shrinks, or grows with a hole.
  [[nodiscard]] bool Allocate(uint64_t bytes);  // Pages for [0, bytes); grows, never shrinks.

 private:
  struct Page {
    std::byte bytes[kPageBytes];
  };
  struct PageTable {
    std::vector<std::shared_ptr<Page>> slots;
    uint64_t held = 0;  // Slots that are not null.
  };

  bool OwnTable();
  bool GrowTable(uint64_t bytes);
  Page* OwnPage(size_t index);

  std::shared_ptr<PageTable> pages_;
  uint64_t size_ = 0;
};

}  // namespace cairn::io
