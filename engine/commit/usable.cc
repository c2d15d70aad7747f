// SPDX-License-Identifier: Apache-2.0
//
// Who may call what, and when: open or closed, in which process, for writing, healthy; and the
// times that calls go by.
#include "base/core/mutation.h"
#include "base/io/no_cancel.h"
#include "engine/store_core.h"

namespace cairn {

// A child of fork() has a copy of everything, made at a moment when others held locks of it and
// were on their way to the disk; its threads do not exist. So it takes nothing apart.
void StoreCore::Destroy(StoreCore* core) {
  const io::NoCancel guard;
  if (!core->IsInChild()) delete core;
}

// A Use begins before its call looks whether the store is open, so Close either sees it or is seen.
StoreCore::Use::Use(StoreCore* core) : core_(core) { core_->uses_.fetch_add(1); }

StoreCore::Use::~Use() {
  core_->uses_.fetch_sub(1);
  if (!core_->open_.load()) core_->world_.scheduler->WakeAll(core_->uses_);
}

Status StoreCore::CheckUsable() const {
  if (!open_.load()) {
    return Status(StatusCode::kInvalidState, "the store is closed");
  }
  return Status::Ok();
}

bool StoreCore::IsInChild() const {
  return CAIRN_KEPT(kNotInChild) && world_.scheduler->ProcessId() != process_id_;
}

Status StoreCore::CheckProcess() const {
  if (!IsInChild()) return Status::Ok();
  return Status(StatusCode::kInvalidState, "used in a child process after fork()");
}

Status StoreCore::CheckDurability(Durability durability) {
  if (durability <= Durability::kPower) return Status::Ok();
  return Status(StatusCode::kInvalidArgument, "durability " +
                                                  std::to_string(static_cast<int>(durability)) +
                                                  " is none of kMemory, kProcess, kPower");
}

Status StoreCore::CheckWritable(Durability durability) const {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckDurability(durability));
  if (options_.read_only) {
    return Status(StatusCode::kReadOnly, path_ + ": the store was opened for reading only");
  }
  return PoisonStatus();
}

Status StoreCore::CheckWritable(const AppendOptions& options) const {
  if (options.overload > Overload::kShedKv) {
    return Status(StatusCode::kInvalidArgument, "overload is neither kFail nor kShedKv");
  }
  return CheckWritable(options.durability);
}

Status StoreCore::PoisonStatus() const { return engine::PoisonStatusOf(*log_); }

uint64_t StoreCore::NowNs() const {
  return opened_wall_ns_ + (world_.scheduler->MonotonicNs() - opened_ns_);
}

uint64_t StoreCore::Deadline(uint64_t timeout_ns) const {
  if (timeout_ns == UINT64_MAX) return io::kNoDeadline;
  const uint64_t now = world_.scheduler->MonotonicNs();
  return timeout_ns > io::kNoDeadline - now ? io::kNoDeadline : now + timeout_ns;
}

Status StoreCore::poisoned() const {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  return PoisonStatus();
}

}  // namespace cairn
