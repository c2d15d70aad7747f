// SPDX-License-Identifier: Apache-2.0
#include "engine/transaction.h"

#include "base/core/check.h"

namespace cairn::engine {

Transaction::Participant::Participant(Transaction* transaction) : transaction_(transaction) {
  auto& all = transaction->participants_;
  const auto free = std::find(all.begin(), all.end(), nullptr);
  CAIRN_CHECK(free != all.end());
  *free = this;
}

// Steps of other participants may need what this one's refer to, so all are undone while it exists.
Transaction::Participant::~Participant() {
  auto& all = transaction_->participants_;
  *std::find(all.begin(), all.end(), this) = nullptr;
  transaction_->Rollback();
}

void Transaction::ReserveUndo(size_t steps) {
  open_ = true;
  const size_t needed = undo_.size() + steps;
  if (undo_.capacity() < needed) undo_.reserve(2 * needed);
}

void Transaction::Commit(const wal::Location& location, uint32_t token_prefix_bytes) {
  undo_.clear();
  for (Participant* const participant : participants_) {
    if (participant != nullptr) participant->OnCommit(location, token_prefix_bytes);
  }
  End();
}

void Transaction::Rollback() {
  if (!open_) return;
  while (!undo_.empty()) {
    undo_.back()();
    undo_.pop_back();
  }
  for (Participant* const participant : participants_) {
    if (participant != nullptr) participant->OnRollback();
  }
  End();
}

void Transaction::End() {
  undo_.clear();
  open_ = false;
  if (undo_.capacity() > kStepsKept) std::vector<std::function<void()>>().swap(undo_);
}

}  // namespace cairn::engine
