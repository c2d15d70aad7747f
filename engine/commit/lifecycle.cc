// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/lifecycle.h"

#include <utility>

#include "base/core/mutation.h"
#include "engine/commit/tree_access.h"

namespace cairn::engine {

Lifecycle::Lifecycle(io::Scheduler& scheduler, std::string directory, const Options* options)
    : scheduler_(scheduler), directory_(std::move(directory)), options_(*options) {}

Lifecycle::Call::~Call() {
  of_->calls_.fetch_sub(1);
  if (!of_->open_.load()) of_->scheduler_.WakeAll(of_->calls_);
}

void Lifecycle::AwaitCalls() {
  for (uint32_t calls = calls_.load(); calls != 0; calls = calls_.load()) {
    scheduler_.Wait(calls_, calls, io::kNoDeadline);
  }
}

Status Lifecycle::CheckUsable() const {
  if (!open_.load()) {
    return Status(StatusCode::kInvalidState, "the store is closed");
  }
  return Status::Ok();
}

bool Lifecycle::IsInChild() const {
  return CAIRN_KEPT(kNotInChild) && scheduler_.ProcessId() != process_id_;
}

Status Lifecycle::CheckProcess() const {
  if (!IsInChild()) return Status::Ok();
  return Status(StatusCode::kInvalidState, "used in a child process after fork()");
}

Status Lifecycle::CheckDurability(Durability durability) {
  if (durability <= Durability::kPower) return Status::Ok();
  return Status(StatusCode::kInvalidArgument, "durability " +
                                                  std::to_string(static_cast<int>(durability)) +
                                                  " is none of kMemory, kProcess, kPower");
}

Status Lifecycle::CheckWritable(Durability durability) const {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckDurability(durability));
  if (options_.read_only) {
    return Status(StatusCode::kReadOnly, directory_ + ": the store was opened for reading only");
  }
  return PoisonStatus();
}

Status Lifecycle::CheckWritable(const AppendOptions& options) const {
  if (options.overload > Overload::kShedKv) {
    return Status(StatusCode::kInvalidArgument, "overload is neither kFail nor kShedKv");
  }
  return CheckWritable(options.durability);
}

Status Lifecycle::PoisonStatus() const { return PoisonStatusOf(*log_); }

uint64_t Lifecycle::NowNs() const {
  return opened_wall_ns_ + (scheduler_.MonotonicNs() - opened_ns_);
}

uint64_t Lifecycle::Deadline(uint64_t timeout_ns) const {
  if (timeout_ns == UINT64_MAX) return io::kNoDeadline;
  const uint64_t now = scheduler_.MonotonicNs();
  return timeout_ns > io::kNoDeadline - now ? io::kNoDeadline : now + timeout_ns;
}

}  // namespace cairn::engine
