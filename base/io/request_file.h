// SPDX-License-Identifier: Apache-2.0
//
// A file whose blocking transfers are requests that run on the calling thread.
#pragma once

#include "base/io/world.h"

namespace cairn::io {

class RequestFile : public File {
 public:
  Status Read(uint64_t offset, std::span<std::byte> into) final;
  Status Write(uint64_t offset, std::span<const std::byte> from, bool durable) final;
  Status Sync() final;

 private:
  // Executes what is left of the request on the calling thread.
  virtual void Run(Request& request) = 0;
};

}  // namespace cairn::io
