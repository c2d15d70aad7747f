// SPDX-License-Identifier: Apache-2.0
#include "base/io/request_file.h"

namespace cairn::io {

Status RequestFile::Read(uint64_t offset, std::span<std::byte> into) {
  Request request{.kind = Request::Kind::kRead,
                  .file = this,
                  .data = into.data(),
                  .length = into.size(),
                  .offset = offset};
  Run(request);
  return request.status;
}

Status RequestFile::Write(uint64_t offset, std::span<const std::byte> from, bool durable) {
  Request request{.kind = durable ? Request::Kind::kDurableWrite : Request::Kind::kWrite,
                  .file = this,
                  .data = const_cast<std::byte*>(from.data()),
                  .length = from.size(),
                  .offset = offset};
  Run(request);
  return request.status;
}

Status RequestFile::Sync() {
  Request request{.kind = Request::Kind::kSync, .file = this};
  Run(request);
  return request.status;
}

}  // namespace cairn::io
