// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/device.h"

namespace cairn::engine {

// A stream of the caller, for the length of a call.
class AdoptedStream {
 public:
  explicit AdoptedStream(gpu::Device* device) : device_(device) {}
  ~AdoptedStream() {
    if (has_stream_) device_->Return(stream_);
  }
  AdoptedStream(const AdoptedStream&) = delete;
  AdoptedStream& operator=(const AdoptedStream&) = delete;
  Result<gpu::Stream> Adopt(uintptr_t handle) {
    CAIRN_ASSIGN_OR_RETURN(stream_, device_->AdoptStream(handle));
    has_stream_ = true;
    return stream_;
  }

 private:
  gpu::Device* const device_;
  gpu::Stream stream_{};
  bool has_stream_ = false;
};

}  // namespace cairn::engine
