// SPDX-License-Identifier: Apache-2.0
#include "base/io/cow_bytes.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace cairn::io {
namespace {

size_t PagesFor(uint64_t bytes) {
  return static_cast<size_t>((bytes + CowBytes::kPageBytes - 1) / CowBytes::kPageBytes);
}

}  // namespace

uint64_t CowBytes::MissingBytes(uint64_t offset, uint64_t length) const {
  if (length == 0) return 0;
  uint64_t missing = 0;
  for (size_t index = static_cast<size_t>(offset / kPageBytes); index < PagesFor(offset + length);
       ++index) {
    const bool held =
        pages_ != nullptr && index < pages_->slots.size() && pages_->slots[index] != nullptr;
    if (!held) missing += kPageBytes;
  }
  return missing;
}

size_t CowBytes::Read(uint64_t offset, std::span<std::byte> into) const {
  if (offset >= size_) return 0;
  const size_t length = std::min<uint64_t>(into.size(), size_ - offset);
  for (size_t done = 0; done < length;) {
    const uint64_t at = offset + done;
    const size_t index = static_cast<size_t>(at / kPageBytes);
    const size_t start = static_cast<size_t>(at % kPageBytes);
    const size_t piece = std::min(kPageBytes - start, length - done);
    const Page* page =
        pages_ != nullptr && index < pages_->slots.size() ? pages_->slots[index].get() : nullptr;
    if (page == nullptr) {
      std::memset(into.data() + done, 0, piece);
    } else {
      std::memcpy(into.data() + done, page->bytes + start, piece);
    }
    done += piece;
  }
  return length;
}

bool CowBytes::Write(uint64_t offset, std::span<const std::byte> from) {
  if (from.empty()) return true;
  if (!GrowTable(offset + from.size())) return false;
  for (size_t done = 0; done < from.size();) {
    const uint64_t at = offset + done;
    const size_t start = static_cast<size_t>(at % kPageBytes);
    const size_t piece = std::min(kPageBytes - start, from.size() - done);
    Page* page = OwnPage(static_cast<size_t>(at / kPageBytes));
    if (page == nullptr) return false;
    std::memcpy(page->bytes + start, from.data() + done, piece);
    done += piece;
    size_ = std::max(size_, at + piece);
  }
  return true;
}

bool CowBytes::Resize(uint64_t bytes) {
  if (bytes < size_ && pages_ != nullptr) {
    if (!OwnTable()) return false;
    // Bytes behind the end read as zeros when the file grows again.
    const size_t tail = static_cast<size_t>(bytes % kPageBytes);
    const size_t last = static_cast<size_t>(bytes / kPageBytes);
    if (tail != 0 && last < pages_->slots.size() && pages_->slots[last] != nullptr) {
      Page* page = OwnPage(last);
      if (page == nullptr) return false;
      std::memset(page->bytes + tail, 0, kPageBytes - tail);
    }
    while (pages_->slots.size() > PagesFor(bytes)) {
      if (pages_->slots.back() != nullptr) --pages_->held;
      pages_->slots.pop_back();
    }
  }
  size_ = bytes;
  return true;
}

bool CowBytes::Allocate(uint64_t bytes) {
  if (!GrowTable(bytes)) return false;
  for (size_t index = 0; index < PagesFor(bytes); ++index) {
    if (pages_->slots[index] == nullptr && OwnPage(index) == nullptr) return false;
  }
  size_ = std::max(size_, bytes);
  return true;
}

bool CowBytes::OwnTable() {
  if (pages_ != nullptr && pages_.use_count() == 1) return true;
  try {
    pages_ =
        pages_ == nullptr ? std::make_shared<PageTable>() : std::make_shared<PageTable>(*pages_);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

bool CowBytes::GrowTable(uint64_t bytes) {
  if (!OwnTable()) return false;
  const size_t count = PagesFor(bytes);
  if (count <= pages_->slots.size()) return true;
  try {
    pages_->slots.resize(count);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

// The page at `index`, in a table already owned, for writing.
CowBytes::Page* CowBytes::OwnPage(size_t index) {
  std::shared_ptr<Page>& slot = pages_->slots[index];
  if (slot != nullptr && slot.use_count() == 1) return slot.get();
  try {
    const bool fresh = slot == nullptr;
    slot = fresh ? std::make_shared<Page>() : std::make_shared<Page>(*slot);
    if (fresh) ++pages_->held;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  return slot.get();
}

}  // namespace cairn::io
