// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/raw.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/core/check.h"
#include "tools/bench/ring.h"

namespace cairn::bench {
namespace {

constexpr size_t kAlignment = 4096;

uint64_t RoundUp(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// 0 or errno. A short transfer is EIO: on a pre-written file there is no reason for one.
template <typename Call>
int Whole(size_t bytes, Call call) {
  ssize_t done = 0;
  do {
    done = call();
  } while (done < 0 && errno == EINTR);
  if (done < 0) return errno;
  return static_cast<size_t>(done) == bytes ? 0 : EIO;
}

}  // namespace

const char* RawMethodName(RawMethod method) {
  switch (method) {
    case RawMethod::kWriteSync: return "pwrite_fdatasync";
    case RawMethod::kDsyncWrite: return "dsync_write";
    case RawMethod::kRing: return "ring_fdatasync";
  }
  return "";
}

Status RawFile::Error(const char* call, int error) const {
  return Status(StatusCode::kIoError, path_ + ": " + call + ": " + std::strerror(error));
}

Result<std::unique_ptr<RawFile>> RawFile::Create(const std::string& path, uint64_t bytes,
                                                 bool written) {
  CAIRN_CHECK(bytes % kAlignment == 0);
  std::unique_ptr<RawFile> file(new RawFile());
  file->path_ = path;
  file->bytes_ = bytes;
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  file->fd_ = open(path.c_str(), kFlags | O_DIRECT, 0644);
  file->direct_ = file->fd_ >= 0;
  // A refused O_DIRECT may have created the file all the same.
  if (file->fd_ < 0 && errno == EINVAL) file->fd_ = open(path.c_str(), kFlags & ~O_EXCL, 0644);
  if (file->fd_ < 0) return file->Error("open", errno);
  file->ring_ = Ring::TryCreate();

  const int error = posix_fallocate(file->fd_, 0, static_cast<off_t>(bytes));
  if (error != 0) return file->Error("posix_fallocate", error);
  if (!written) return file;
  AlignedBuffer zeros = AlignedBuffer::TryAllocate(Allocator::Default(), 8 << 20, kAlignment);
  if (zeros.empty()) return Status(StatusCode::kOutOfMemory, "8 MiB of zeros");
  std::memset(zeros.data(), 0, zeros.size());
  for (uint64_t offset = 0; offset < bytes; offset += zeros.size()) {
    const size_t length = std::min<uint64_t>(zeros.size(), bytes - offset);
    const int failed = Whole(length, [&] {
      return pwrite(file->fd_, zeros.data(), length, static_cast<off_t>(offset));
    });
    if (failed != 0) return file->Error("pwrite", failed);
  }
  if (fdatasync(file->fd_) != 0) return file->Error("fdatasync", errno);
  return file;
}

RawFile::~RawFile() {
  if (fd_ >= 0) close(fd_);
}

Status RawFile::WriteDurable(RawMethod method, uint64_t offset, std::span<const std::byte> data) {
  const auto at = static_cast<off_t>(offset);
  int error = 0;
  switch (method) {
    case RawMethod::kWriteSync:
      error = Whole(data.size(), [&] { return pwrite(fd_, data.data(), data.size(), at); });
      if (error == 0 && fdatasync(fd_) != 0) error = errno;
      break;
    case RawMethod::kDsyncWrite: {
      const iovec vector{const_cast<std::byte*>(data.data()), data.size()};
      error = Whole(data.size(), [&] { return pwritev2(fd_, &vector, 1, at, RWF_DSYNC); });
      break;
    }
    case RawMethod::kRing:
      CAIRN_CHECK(ring_ != nullptr);
      error = ring_->WriteDurable(fd_, offset, data.data(), data.size());
      break;
  }
  return error == 0 ? Status::Ok() : Error(RawMethodName(method), error);
}

Status RawFile::Read(uint64_t offset, std::span<std::byte> into) {
  int error = 0;
  if (ring_ != nullptr) {
    error = ring_->Read(fd_, offset, into.data(), into.size());
    return error == 0 ? Status::Ok() : Error("ring read", error);
  }
  for (size_t done = 0; done < into.size() && error == 0; done += Ring::kPieceBytes) {
    const size_t length = std::min(Ring::kPieceBytes, into.size() - done);
    error = Whole(length, [&] {
      return pread(fd_, into.data() + done, length, static_cast<off_t>(offset + done));
    });
  }
  return error == 0 ? Status::Ok() : Error("pread", error);
}

RawAppender::RawAppender(RawFile& file, RawMethod method, const KvPool& pool, uint64_t first_token,
                         uint64_t tokens)
    : file_(file), method_(method), pool_(pool), cursor_(pool, first_token), tokens_(tokens) {
  const uint64_t bytes = tokens * pool.model().token_bytes();
  CAIRN_CHECK(RoundUp(bytes) <= file.bytes());
  buffer_ = AlignedBuffer::TryAllocate(Allocator::Default(), RoundUp(bytes), kAlignment);
  CAIRN_CHECK(!buffer_.empty());
  std::memset(buffer_.data(), 0, buffer_.size());
  arm_.name = std::string("raw ") + RawMethodName(method);
  arm_.bytes_per_op = bytes;
  arm_.prepare = [this] { return Prepare(); };
  arm_.op = [this](double* inner_us) { return Append(inner_us); };
}

Status RawAppender::Prepare() {
  ListPieces(pool_.model(), cursor_.At(position_, tokens_), &pieces_);
  position_ += tokens_;
  if (offset_ + buffer_.size() > file_.bytes()) offset_ = 0;
  return Status::Ok();
}

Status RawAppender::Append(double* inner_us) {
  Gather(pieces_, buffer_.data());
  const double start = NowUs();
  CAIRN_RETURN_IF_ERROR(file_.WriteDurable(method_, offset_, buffer_.span()));
  *inner_us = NowUs() - start;
  offset_ += buffer_.size();
  return Status::Ok();
}

std::vector<std::unique_ptr<RawAppender>> RawAppenders(RawFile& file, const KvPool& pool,
                                                       uint64_t tokens) {
  std::vector<std::unique_ptr<RawAppender>> appenders;
  for (const RawMethod method : kRawMethods) {
    if (!file.Supports(method)) continue;
    // Each from another part of the pool, so that none finds its source in the cache.
    const uint64_t first = pool.tokens() / 4 * (appenders.size() + 1) / kTokensPerBlock;
    appenders.push_back(
        std::make_unique<RawAppender>(file, method, pool, first * kTokensPerBlock, tokens));
  }
  return appenders;
}

Arm& BestRaw(std::vector<std::unique_ptr<RawAppender>>& appenders, Report* report) {
  Arm* best = nullptr;
  for (const auto& appender : appenders) {
    if (best == nullptr || appender->arm().p50_us() < best->p50_us()) best = &appender->arm();
  }
  report->Text("raw_method", best->name.substr(4), "the fastest raw method of this run");
  return *best;
}

}  // namespace cairn::bench
