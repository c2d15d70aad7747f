// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/ops/transaction.h"

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
  const auto own = std::find(all.begin(), all.end(), this);
  CAIRN_CHECK(own != all.end());
  *own = nullptr;
  transaction_->Rollback();
}

void Transaction::ReserveUndo(size_t steps) {
  open_ = true;
  const size_t needed = undo_.size() + steps;
  if (undo_.capacity() < needed) undo_.reserve(2 * needed);
  CAIRN_CHECK(undo_.capacity() - undo_.size() >= steps);
}

void Transaction::Commit(const wal::Location& location, uint32_t token_prefix_bytes) {
  CAIRN_CHECK(location.segment != 0);  // The log has it.
  CAIRN_CHECK(token_prefix_bytes <= location.bytes);
  undo_.clear();
  for (Participant* const participant : participants_) {
    if (participant != nullptr) participant->OnCommit(location, token_prefix_bytes);
  }
  CAIRN_CHECK(undo_.empty());  // A commit changes nothing that could be undone...
  End();
}

void Transaction::Rollback() {
  if (!open_) return;
  while (!undo_.empty()) {
    const size_t left = undo_.size();
    undo_.back()();
    CAIRN_CHECK(undo_.size() == left);  // ...and neither does a step that undoes.
    undo_.pop_back();
  }
  for (Participant* const participant : participants_) {
    if (participant != nullptr) participant->OnRollback();
  }
  CAIRN_CHECK(undo_.empty());
  End();
}

void Transaction::End() {
  undo_.clear();
  open_ = false;
  if (undo_.capacity() > kStepsKept) std::vector<std::function<void()>>().swap(undo_);
}

}  // namespace cairn::engine
