// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/shadow/device_upload.h"

#include <algorithm>
#include <cstring>

#include "base/core/out_of_memory.h"
#include "engine/sessions/shadow/constants.h"

namespace cairn::engine {

Result<std::unique_ptr<DeviceUpload>> DeviceUpload::Make(const GpuWaits* waits) {
  std::unique_ptr<DeviceUpload> upload(new DeviceUpload(waits));
  CAIRN_RETURN_IF_ERROR(upload->Open());
  return upload;
}

Status DeviceUpload::Open() {
  CAIRN_ASSIGN_OR_RETURN(stream_, waits_.device().NewStream(gpu::Priority::kHigh));
  has_stream_ = true;
  for (Half& half : halves_) {
    CAIRN_ASSIGN_OR_RETURN(half.copied, waits_.device().NewEvent());
    half.has_event = true;
    CAIRN_ASSIGN_OR_RETURN(half.at,
                           waits_.device().Allocate(gpu::Memory::kPinned, kShadowStagingBytes));
  }
  return Status::Ok();
}

// A device that does not answer may still copy from this memory: then nobody gets it again.
DeviceUpload::~DeviceUpload() {
  bool ended = !is_lost_;
  for (const Half& half : halves_) {
    if (half.has_event) ended &= waits_.For(half.copied, io::kNoDeadline).ok();
  }
  for (const Half& half : halves_) {
    if (half.at != nullptr && ended) waits_.device().Free(half.at);
    if (half.has_event) waits_.device().Return(half.copied);
  }
  if (has_stream_) waits_.device().Return(stream_);
}

Status DeviceUpload::Add(std::byte* to, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    Half& half = halves_[filling_];
    const size_t count = std::min(bytes.size(), kShadowStagingBytes - half.used);
    if (count == 0) {
      CAIRN_RETURN_IF_ERROR(Send());
      continue;
    }
    std::memcpy(half.at + half.used, bytes.data(), count);
    pieces_.push_back({to, half.at + half.used, count});
    half.used += count;
    to += count;
    bytes = bytes.subspan(count);
  }
  return Status::Ok();
}

// The other half is filled next, once it has been copied.
Status DeviceUpload::Send() {
  if (!pieces_.empty()) {
    CAIRN_RETURN_IF_ERROR(waits_.device().Copy(stream_, pieces_));
    pieces_.clear();
    const gpu::Event copied = halves_[filling_].copied;
    const Status recorded = CatchBadAlloc([&] { return waits_.device().Record(stream_, copied); });
    if (!recorded.ok()) {
      is_lost_ = true;
      static_cast<void>(CatchBadAlloc([&] {
        is_lost_ = !waits_.Drain(stream_, copied);
        return Status::Ok();
      }));
      return recorded;
    }
  }
  filling_ = 1 - filling_;
  halves_[filling_].used = 0;
  return waits_.For(halves_[filling_].copied, io::kNoDeadline);
}

Status DeviceUpload::Finish() {
  CAIRN_RETURN_IF_ERROR(Send());
  return waits_.For(halves_[1 - filling_].copied, io::kNoDeadline);
}

}  // namespace cairn::engine
