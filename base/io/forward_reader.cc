// SPDX-License-Identifier: Apache-2.0
#include "base/io/forward_reader.h"

#include <algorithm>

#include "base/core/align.h"
#include "base/core/check.h"

namespace cairn::io {

void ForwardReader::Open(File* file, uint64_t end) {
  file_ = file;
  file_end_ = AlignUp(end, kBlockBytes);
  begin_ = end_ = 0;
}

Result<std::span<const std::byte>> ForwardReader::Read(uint64_t offset, uint64_t bytes) {
  CAIRN_CHECK(file_ != nullptr);
  if (offset < begin_ || offset + bytes > end_) {
    const uint64_t begin = offset / kBlockBytes * kBlockBytes;
    const uint64_t end = AlignUp(offset + bytes, kBlockBytes);
    const uint64_t ahead = std::max(end, std::min(begin + kForwardReadBytes, file_end_));
    Status status = Fill(begin, ahead);
    if (!status.ok() && ahead != end) status = Fill(begin, end);
    CAIRN_RETURN_IF_ERROR(status);
  }
  return std::span<const std::byte>(memory_.span()).subspan(offset - begin_, bytes);
}

Status ForwardReader::Fill(uint64_t begin, uint64_t end) {
  const uint64_t bytes = end - begin;
  begin_ = end_ = 0;
  if (memory_.size() < bytes) {
    memory_ = AlignedBuffer::TryAllocate(allocator_, bytes, kBlockBytes);
    if (memory_.empty()) {
      return Status(StatusCode::kOutOfMemory, "no memory to read " + file_->path());
    }
  }
  ++reads_;
  read_bytes_ += bytes;
  CAIRN_RETURN_IF_ERROR(file_->Read(begin, memory_.span().first(bytes)));
  begin_ = begin;
  end_ = end;
  return Status::Ok();
}

}  // namespace cairn::io
