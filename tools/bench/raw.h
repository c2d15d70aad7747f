// SPDX-License-Identifier: Apache-2.0
//
// The raw limit: the device's rate for a program that keeps no index, no checksum and no ids. One
// file, written with zeros and synced beforehand so that a write changes no metadata, overwritten
// from the start with O_DIRECT. It makes system calls directly, not through the engine's I/O layer,
// so that a weakness there shows.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>

#include "base/core/aligned_buffer.h"
#include "cairn/status.h"
#include "tools/bench/bench.h"
#include "tools/bench/kv_source.h"

namespace cairn::bench {

enum class RawMethod {
  kWriteSync,   // pwrite, then fdatasync.
  kDsyncWrite,  // pwritev2 with RWF_DSYNC.
  kRing,        // io_uring: pieces of 512 KiB, 16 in flight, then fdatasync.
};
inline constexpr std::array kRawMethods = {RawMethod::kWriteSync, RawMethod::kDsyncWrite,
                                           RawMethod::kRing};
const char* RawMethodName(RawMethod method);

class Ring;

class RawFile {
 public:
  // Creates `bytes`, a multiple of 4096, and pre-writes them, or allocates them only. Falls back to
  // buffered I/O where the file system has no O_DIRECT (tmpfs).
  static Result<std::unique_ptr<RawFile>> Create(const std::string& path, uint64_t bytes,
                                                 bool written = true);
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  bool direct() const { return direct_; }
  // False where io_uring is refused or not built in.
  bool Supports(RawMethod method) const { return method != RawMethod::kRing || ring_ != nullptr; }

  // `data` is aligned to 4096 and a multiple of it long.
  Status WriteDurable(RawMethod method, uint64_t offset, std::span<const std::byte> data);
  // Ring of 512 KiB x 16 reads, or preads of 512 KiB without a ring.
  Status Read(uint64_t offset, std::span<std::byte> into);

 private:
  RawFile() = default;
  Status Error(const char* call, int error) const;

  std::string path_;
  int fd_ = -1;
  bool direct_ = false;
  uint64_t bytes_ = 0;
  std::unique_ptr<Ring> ring_;
};

// Gathers the next `tokens` of a pool into one buffer, writes it durably at the file's next place,
// wrapping at its end. The gathering counts as part of the op; the write alone is the inner time.
class RawAppender {
 public:
  RawAppender(RawFile& file, RawMethod method, const KvPool& pool, uint64_t first_token,
              uint64_t tokens);
  RawAppender(const RawAppender&) = delete;
  RawAppender& operator=(const RawAppender&) = delete;
  Arm& arm() { return arm_; }

 private:
  Status Prepare();
  Status Append(double* inner_us);

  RawFile& file_;
  const RawMethod method_;
  const KvPool& pool_;
  KvCursor cursor_;
  const uint64_t tokens_;
  uint64_t position_ = 0, offset_ = 0;
  std::vector<Piece> pieces_;
  AlignedBuffer buffer_;
  Arm arm_;
};

// One appender a method that works here, sharing `file`.
std::vector<std::unique_ptr<RawAppender>> RawAppenders(RawFile& file, const KvPool& pool,
                                                       uint64_t tokens);
// That with the smallest p50; names it in the report as `raw_method`.
Arm& BestRaw(std::vector<std::unique_ptr<RawAppender>>& appenders, Report* report);

}  // namespace cairn::bench
