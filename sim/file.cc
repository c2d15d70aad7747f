// SPDX-License-Identifier: Apache-2.0
#include "sim/file.h"

#include <algorithm>
#include <cerrno>

#include "base/codec/hash.h"
#include "base/core/check.h"
#include "base/io/os_error.h"

namespace cairn::io {
namespace {

// How often a real backend would try before it gives up.
constexpr int kAttempts = 100;

bool IsRetried(int error) { return error == EINTR || error == EAGAIN; }

SimOp OpOf(Request::Kind kind) {
  switch (kind) {
    case Request::Kind::kRead: return SimOp::kRead;
    case Request::Kind::kWrite: return SimOp::kWrite;
    case Request::Kind::kDurableWrite: return SimOp::kDurableWrite;
    case Request::Kind::kSync: return SimOp::kSync;
  }
  return SimOp::kRead;
}

Status ErrorOf(int error, const Request& request) {
  return OsError(error, SimOpName(OpOf(request.kind)), request.file->path(),
                 request.offset + request.transferred, request.length - request.transferred);
}

}  // namespace

int SimFile::Refusal(const Request& request) const {
  const bool writes =
      request.kind == Request::Kind::kWrite || request.kind == Request::Kind::kDurableWrite;
  if (writes && !writable_) return EBADF;
  const auto address = reinterpret_cast<uintptr_t>(request.data);
  if (direct_ && request.kind != Request::Kind::kSync &&
      (address | request.offset | request.length) % kBlockBytes != 0) {
    return EINVAL;
  }
  return 0;
}

void SimFile::Run(Request& request) {
  SimDisk::Pending pending = disk_->Start(request);
  if (disk_->scheduler_ != nullptr) {
    disk_->scheduler_->Sleep(pending.ready_ns - disk_->scheduler_->MonotonicNs());
  }
  disk_->Complete(pending);
}

Result<uint64_t> SimFile::Size() {
  if (const int error = disk_->AnnounceLook(SimOp::kStat, path_)) {
    return OsError(error, "fstat", path_);
  }
  return inode_->content.size();
}

Status SimFile::Truncate(uint64_t bytes) {
  if (!writable_) return OsError(EINVAL, SimOpName(SimOp::kTruncate), path_, 0, bytes);
  return disk_->Resize(path_, *inode_, SimOp::kTruncate, bytes);
}

// The part before is allocated, too: no test needs the difference.
Status SimFile::Allocate(uint64_t, uint64_t end) {
  if (!writable_) return OsError(EBADF, SimOpName(SimOp::kAllocate), path_, 0, end);
  return disk_->Resize(path_, *inode_, SimOp::kAllocate, end);
}

SimDisk::Pending SimDisk::Start(Request& request) {
  const auto* file = static_cast<SimFile*>(request.file);
  Pending pending;
  pending.request = &request;
  pending.inode = file->inode();
  request.status = Status();
  request.transferred = 0;
  const SimLatency* latency = &options_.read;
  if (const int refusal = file->Refusal(request); refusal != 0) {
    request.status = ErrorOf(refusal, request);
  } else if (request.kind == Request::Kind::kRead) {
    StartRead(request);
  } else if (request.kind == Request::Kind::kSync) {
    latency = &options_.durable;
    StartSync(request, pending);
  } else {
    latency = request.kind == Request::Kind::kWrite ? &options_.write : &options_.durable;
    StartWrite(request, pending);
  }
  if (scheduler_ != nullptr) pending.ready_ns = scheduler_->MonotonicNs() + Draw(*latency);
  return pending;
}

void SimDisk::StartRead(Request& request) {
  const SimInode& inode = *static_cast<SimFile*>(request.file)->inode();
  const std::span<std::byte> all{request.data, request.length};
  const size_t found = inode.content.Read(request.offset, all);
  for (int attempt = 1;; ++attempt) {
    const auto fault =
        Announce(SimOp::kRead, request.file->path(), request.offset + request.transferred,
                 request.length - request.transferred,
                 all.first(found).subspan(std::min(request.transferred, found)));
    if (!fault) break;
    request.transferred = std::min<uint64_t>(found, request.transferred + fault->transferred);
    TraceOutcome(fault->error, request.transferred);
    if (fault->error == 0 && request.transferred < found && attempt < kAttempts) continue;
    if (IsRetried(fault->error) && attempt < kAttempts) continue;
    if (fault->error == 0) break;
    request.status = ErrorOf(fault->error, request);
    return;
  }
  request.transferred = found;
  if (found < request.length) {
    request.status = EndOfFile(request.file->path(), request.offset, request.length, found);
  }
}

// The bytes can be read from now on, as in a page cache; whether they survive is settled later.
void SimDisk::StartWrite(Request& request, Pending& pending) {
  SimInode& inode = *pending.inode;
  for (int attempt = 1;; ++attempt) {
    const uint64_t offset = request.offset + request.transferred;
    std::span<const std::byte> rest{request.data + request.transferred,
                                    request.length - request.transferred};
    auto fault = Announce(OpOf(request.kind), request.file->path(), offset, rest.size(), rest);
    std::vector<std::byte> stays;
    if (fault && fault->lies()) {
      stays.resize(rest.size());
      inode.content.Read(offset, stays);
      if (fault->misdirected) Misdirect(*fault->misdirected, rest);
      rest = stays;
      fault.reset();
    }
    if (!fault && !HasRoom(NewBytes(inode, offset, rest.size())))
      fault = SimFault{.when = {}, .error = ENOSPC};
    const uint64_t piece =
        fault ? std::min<uint64_t>(rest.size(), fault->transferred) : rest.size();
    if (piece > 0 && HasRoom(NewBytes(inode, offset, piece))) {
      const uint64_t first = offset / kSimSectorBytes * kSimSectorBytes;
      const uint64_t last =
          (offset + piece + kSimSectorBytes - 1) / kSimSectorBytes * kSimSectorBytes;
      CAIRN_CHECK(inode.Update([&](CowBytes& c) { return c.Write(offset, rest.first(piece)); }));
      auto image = std::make_shared<std::vector<std::byte>>(last - first);
      image->resize(inode.content.Read(first, *image));
      SimChange change;
      change.offset = first;
      change.image = std::move(image);
      ApplyAndRecord(inode, std::move(change), &pending);
      request.transferred += piece;
    }
    if (!fault) return;
    TraceOutcome(fault->error, request.transferred);
    const bool continues = fault->error == 0 || IsRetried(fault->error);
    if (continues && request.transferred == request.length && request.length > 0) return;
    if (continues && attempt < kAttempts) continue;
    request.status = ErrorOf(fault->error == 0 ? EIO : fault->error, request);
    return;
  }
}

void SimDisk::Misdirect(const SimPlace& place, std::span<const std::byte> bytes) {
  const auto inode = Find(place.path);
  if (inode == nullptr || inode->is_directory || place.offset >= inode->content.size()) return;
  bytes = bytes.first(std::min<uint64_t>(bytes.size(), inode->content.size() - place.offset));
  CAIRN_CHECK(WriteRaw(place.path, place.offset, bytes).ok());
}

void SimDisk::StartSync(Request& request, Pending& pending) {
  pending.completed_before = completions_;
  for (int attempt = 1;; ++attempt) {
    const auto fault = Announce(SimOp::kSync, request.file->path(), 0, 0, {});
    if (!fault || fault->error == 0) return;
    TraceOutcome(fault->error);
    if (IsRetried(fault->error) && attempt < kAttempts) continue;
    pending.loses_unsynced = fault->loses_unsynced;
    request.status = ErrorOf(fault->error, request);
    return;
  }
}

void SimDisk::Complete(Pending& pending) {
  SimInode& inode = *pending.inode;
  const Request& request = *pending.request;
  const bool durable = request.status.ok() && !drop_syncs_;
  ++completions_;
  for (const uint64_t id : pending.change_ids) {
    SimChange* change = inode.FindChange(id);
    change->completed_at = completions_;
    change->state = durable && request.kind == Request::Kind::kDurableWrite
                        ? SimChange::State::kDurable
                        : SimChange::State::kCompleted;
  }
  if (request.kind == Request::Kind::kSync) {
    const auto covered = [&](const SimChange& change) {
      return change.state == SimChange::State::kCompleted &&
             change.completed_at <= pending.completed_before;
    };
    if (pending.loses_unsynced) std::erase_if(inode.changes, covered);
    for (SimChange& change : inode.changes) {
      if (durable && covered(change)) change.state = SimChange::State::kDurable;
    }
  }
  inode.SettleChanges();
}

SimQueue::SimQueue(SimDisk* disk, size_t depth) : disk_(disk), depth_(depth) {
  CAIRN_CHECK(depth_ > 0);
}

SimQueue::~SimQueue() {
  while (!pending_.empty()) Reap();
}

void SimQueue::Submit(Request* request) {
  CAIRN_CHECK(pending_.size() < depth_);
  pending_.push_back(disk_->Start(*request));
}

Request* SimQueue::Reap() {
  CAIRN_CHECK(!pending_.empty());
  // Each has a completion time of its own, which is what reorders them.
  const auto earliest =
      std::min_element(pending_.begin(), pending_.end(),
                       [](const auto& a, const auto& b) { return a.ready_ns < b.ready_ns; });
  SimDisk::Pending pending = std::move(*earliest);
  pending_.erase(earliest);
  if (SimScheduler* scheduler = disk_->scheduler_; scheduler != nullptr) {
    const uint64_t now_ns = scheduler->MonotonicNs();
    scheduler->Sleep(pending.ready_ns > now_ns ? pending.ready_ns - now_ns : 0);
  }
  disk_->Complete(pending);
  return pending.request;
}

}  // namespace cairn::io
