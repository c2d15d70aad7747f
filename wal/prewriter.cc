// SPDX-License-Identifier: Apache-2.0
#include "wal/prewriter.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "base/core/zeros.h"
#include "wal/constants.h"

namespace cairn::wal {

// Direct writes.
static_assert(kPrewriteStepBytes % kBlock == 0);
static_assert(kZeroBytes % kBlock == 0);

void FillHistory::Filled(uint64_t now_ns, uint64_t group_bytes) {
  any_ = true;
  if (group_bytes > kSmallGroupBytes) {
    small_ = 0;
    return;
  }
  small_ns_[small_++ % small_ns_.size()] = now_ns;
}

size_t FillHistory::segments_wanted(uint64_t now_ns) const {
  const auto known = static_cast<ptrdiff_t>(std::min(small_, small_ns_.size()));
  return static_cast<size_t>(std::count_if(
      small_ns_.begin(), small_ns_.begin() + known,
      [now_ns](uint64_t at_ns) { return now_ns - std::min(now_ns, at_ns) < kUsageWindowNs; }));
}

Result<uint64_t> Prewriter::Step(uint64_t spare, const std::string& path, uint64_t bytes) {
  CAIRN_CHECK(spare != 0);
  CAIRN_CHECK(bytes % kBlock == 0);
  if (spare != spare_) {
    Drop();
    CAIRN_ASSIGN_OR_RETURN(file_, world_.files->Open(path, {.write = true, .direct = true}));
    CAIRN_RETURN_IF_ERROR(file_->Allocate(0, bytes));
    spare_ = spare;
  }
  const uint64_t begin = at_;
  CAIRN_CHECK(begin < bytes);
  CAIRN_RETURN_IF_ERROR(Write(std::min(bytes, begin + kPrewriteStepBytes)));
  const uint64_t written = at_ - begin;
  if (at_ == bytes) {
    CAIRN_RETURN_IF_ERROR(file_->Sync());
    Drop();
  }
  return written;
}

Status Prewriter::Write(uint64_t end) {
  CAIRN_CHECK(file_ != nullptr);
  std::array<io::Request, kPrewriteDepth> requests;
  const std::unique_ptr<io::Queue> queue = world_.files->NewQueue(requests.size());
  Status status;
  size_t used = 0;
  while (at_ < end || queue->in_flight() > 0) {
    io::Request* request = nullptr;
    if (used == requests.size() || at_ == end) {
      request = queue->Reap();
      if (status.ok()) status = std::move(request->status);
      if (!status.ok()) at_ = end;
    } else {
      request = &requests[used++];
    }
    if (at_ == end) continue;
    *request = io::Request();
    request->kind = io::Request::Kind::kWrite;
    request->file = file_.get();
    request->data = const_cast<std::byte*>(ZeroBytes().data());  // It is only read.
    request->length = std::min<uint64_t>(ZeroBytes().size(), end - at_);
    request->offset = at_;
    at_ += request->length;
    queue->Submit(request);
  }
  CAIRN_CHECK(at_ == end);
  return status;
}

void Prewriter::Drop() {
  file_ = nullptr;
  spare_ = at_ = 0;
}

}  // namespace cairn::wal
