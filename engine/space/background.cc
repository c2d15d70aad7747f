// SPDX-License-Identifier: Apache-2.0
//
// How far the background may go: its rate, its haste, and standing still (engine/space/pacer.h).
#include <algorithm>

#include "base/core/check.h"
#include "engine/store_core.h"

namespace cairn {

// Where the index asks for space: so that flushes and merges are paced. Only the space thread does
// them; and whoever closes the store, after it, at full speed.
class StoreCore::PacedHost final : public sstable::TableHost {
 public:
  explicit PacedHost(StoreCore* core) : core_(core) {}

  Result<uint64_t> NewTableNumber() override { return core_->NewTableNumber(); }
  Status TakeSpace(uint64_t bytes) override {
    // A merge reads about as much as it writes.
    if (core_->pacer_.working()) CAIRN_RETURN_IF_ERROR(core_->pacer_.Take(bytes, bytes));
    return core_->TakeSpace(bytes);
  }
  void ReturnSpace(uint64_t bytes) override { core_->ReturnSpace(bytes); }

 private:
  StoreCore* const core_;
};

sstable::TableContext StoreCore::IndexContext() {
  if (paced_host_ == nullptr) paced_host_ = std::make_unique<PacedHost>(this);
  sstable::TableContext context = tables_.context();
  context.host = paced_host_.get();
  return context;
}

double StoreCore::HasteNow() {
  return std::max(engine::Haste(log_->counters().segment_bytes_live, LogBytesMax()),
                  engine::Haste(ledger_.used_bytes(), options_.max_bytes));
}

uint64_t StoreCore::LogBytesMax() const {
  return std::max(options_.log_bytes_max, engine::kLogSegmentsMin * options_.segment_bytes);
}

bool StoreCore::LogIsLong() const {
  return log_->counters().segment_bytes_live > engine::HasteBegins(LogBytesMax());
}

Status StoreCore::PauseBackground() {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (!options_.read_only) pacer_.Pause();
  return CheckUsable();
}

Status StoreCore::ResumeBackground() {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (options_.read_only || pacer_.Resume()) return Status::Ok();
  return Status(StatusCode::kInvalidState, "the background is not paused");
}

}  // namespace cairn
