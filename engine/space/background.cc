// SPDX-License-Identifier: Apache-2.0
//
// How far the background may go: its rate, its haste, standing still (engine/space/pacer.h), and
// what there is room for.
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
    if (core_->pacer_.working()) {
      // A merge reads about as much as it writes.
      CAIRN_RETURN_IF_ERROR(core_->pacer_.Take(bytes, bytes));
      CAIRN_RETURN_IF_ERROR(core_->DumpIfDue());
    }
    return core_->TakeSpace(bytes);
  }
  void ReturnSpace(uint64_t bytes) override { core_->ReturnSpace(bytes); }

 private:
  StoreCore* const core_;
};

// Where tables of appends ask for space: they are data. What is discarded of them is room.
class StoreCore::DataHost final : public sstable::TableHost {
 public:
  explicit DataHost(StoreCore* core) : core_(core) {}

  Result<uint64_t> NewTableNumber() override { return core_->NewTableNumber(); }
  Status TakeSpace(uint64_t bytes) override {
    const Status taken = core_->ledger_.Take(bytes, wal::Purpose::kData);
    core_->OnRefused(taken);
    return taken;
  }
  void ReturnSpace(uint64_t bytes) override {
    core_->ReturnSpace(bytes);
    core_->KickSpaceIfShort();
  }

 private:
  StoreCore* const core_;
};

void StoreCore::MakeHosts() {
  paced_host_ = std::make_unique<PacedHost>(this);
  data_host_ = std::make_unique<DataHost>(this);
}

sstable::TableContext StoreCore::IndexContext() const {
  sstable::TableContext context = reader_.tables().context();
  context.host = paced_host_.get();
  return context;
}

sstable::TableContext StoreCore::DataContext() const {
  sstable::TableContext context = reader_.tables().context();
  context.host = data_host_.get();
  return context;
}

double StoreCore::HasteNow() {
  return std::max(engine::Haste(log_->counters().segment_bytes_live, LogBytesMax()),
                  engine::Haste(ledger_.used_bytes(), ledger_.data_bytes_max()));
}

// What data could have of the log at most, if there was nothing else.
uint64_t StoreCore::LogBytesAtMost() const {
  const uint64_t ballast = wal::kBallastSegments * options_.segment_bytes;
  return ledger_.data_bytes_max() - std::min(ledger_.data_bytes_max(), ballast);
}

bool StoreCore::DataIsShort() const {
  return ledger_.room(wal::Purpose::kData) < options_.segment_bytes ||
         log_->counters().disk_is_full;
}

// What goes into one table: what is alive of it later must fit into the reserve, also when the log
// had to take a segment of that.
uint64_t StoreCore::TableRawBytesMax() const {
  const uint64_t reserve = ledger_.reserve_bytes();  // Of a small cap half, whatever a segment is.
  return std::min(engine::kTableRawBytes, reserve - std::min(reserve / 2, options_.segment_bytes));
}

// Something was freed.
void StoreCore::KickSpaceIfShort() {
  if (space_waits_.exchange(false)) KickSpace();
}

// Something was refused: what there is to give back is given back. Now and then also when that was
// tried and waits for something to be freed itself.
void StoreCore::OnRefused(const Status& status) {
  if (status.code() != StatusCode::kNoSpace) return;
  const uint64_t now_ns = world_.scheduler->MonotonicNs();
  const uint64_t kicked_ns = refused_kick_ns_.load();
  if (space_waits_.load() && now_ns < kicked_ns + engine::kRefusedAgainNs) return;
  refused_kick_ns_.store(now_ns);
  KickSpace();
}

Status StoreCore::PauseBackground() {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (!options_.read_only) {
    pacer_.Pause();
    compactions_word_.fetch_add(1);  // Nobody makes room now: whoever waits for it is told.
    world_.scheduler->WakeAll(compactions_word_);
    log_gate_.Wake();
  }
  return CheckUsable();
}

Status StoreCore::ResumeBackground() {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (options_.read_only || pacer_.Resume()) return Status::Ok();
  return Status(StatusCode::kInvalidState, "the background is not paused");
}

}  // namespace cairn
