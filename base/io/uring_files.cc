// SPDX-License-Identifier: Apache-2.0
#include "base/io/uring_files.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/core/out_of_memory.h"

namespace cairn::io {

std::shared_ptr<UringFiles> UringFiles::TryMake(io_uring* ring) {
  if (io_uring_register_files_sparse(ring, kPlaces) != 0) return nullptr;
  return std::make_shared<UringFiles>(ring, getpid());
}

Status UringFiles::Find(PosixFile& file, int* place) {
  *place = kNoPlace;
  {
    const MutexLock lock(&mutex_);
    for (Place& one : places_) {
      if (one.file_id != file.id()) continue;
      one.used = ++uses_;
      *place = static_cast<int>(&one - places_.data());
      return Status::Ok();
    }
  }
  CAIRN_RETURN_IF_ERROR(file.CheckDescriptor());
  // First: a file must never be held by a ring that it does not know.
  if (!CatchBadAlloc([&] { file.AddHolder(shared_from_this()); }).ok()) return Status::Ok();
  const MutexLock lock(&mutex_);
  const auto oldest =
      std::min_element(places_.begin(), places_.end(),
                       [](const Place& one, const Place& other) { return one.used < other.used; });
  const auto index = static_cast<unsigned>(oldest - places_.begin());
  *oldest = Place();
  const int fd = file.fd();
  if (io_uring_register_files_update(ring_, index, &fd, 1) != 1) return Status::Ok();
  *oldest = {.file_id = file.id(), .used = ++uses_};
  // Another thread may have closed the number after the look, and opened something else.
  const Status status = file.CheckDescriptor();
  if (!status.ok()) {
    constexpr int kNone = -1;
    io_uring_register_files_update(ring_, index, &kNone, 1);
    *oldest = Place();
    return status;
  }
  *place = static_cast<int>(index);
  return Status::Ok();
}

void UringFiles::Forget(uint64_t file_id) {
  if (getpid() != owner_) return;
  const MutexLock lock(&mutex_);
  if (ring_ == nullptr) return;
  const auto found = std::find_if(places_.begin(), places_.end(),
                                  [file_id](const Place& one) { return one.file_id == file_id; });
  if (found == places_.end()) return;
  constexpr int kNone = -1;
  io_uring_register_files_update(ring_, static_cast<unsigned>(found - places_.begin()), &kNone, 1);
  *found = Place();
}

// A ring ends some time after it is closed; by then a volume with one of its files may be meant to
// be unmounted.
void UringFiles::End() {
  const MutexLock lock(&mutex_);
  io_uring_unregister_files(ring_);
  ring_ = nullptr;
}

}  // namespace cairn::io
