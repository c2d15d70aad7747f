// SPDX-License-Identifier: Apache-2.0
//
// Changes of one state machine or several that take effect together, with one record of the log, or
// not at all. Each change is made in memory at once, with the step that undoes it. All memory is
// taken before a step is made, so that neither a commit nor a rollback can fail: nothing can go
// wrong between the log's acceptance of a record and its publication.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "wal/record.h"

namespace cairn::engine {

class Transaction {
 public:
  // A state machine that takes part in transactions, one after the other, until it is destroyed.
  // Then uncommitted changes are undone.
  class Participant {
   public:
    Participant(const Participant&) = delete;
    Participant& operator=(const Participant&) = delete;

   protected:
    explicit Participant(Transaction* transaction);
    virtual ~Participant();

   private:
    friend class Transaction;
    // The record is at `location`; its first `token_prefix_bytes` hold header and token ids.
    virtual void OnCommit(const wal::Location& location, uint32_t token_prefix_bytes) = 0;
    virtual void OnRollback() = 0;  // The steps were undone.
    Transaction* const transaction_;
  };

  Transaction() = default;
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction() { Rollback(); }

  // Call before the first change: makes room for this many more undo steps. If there is not enough,
  // it makes room for twice as many, so that asking op by op moves the steps only a few times in
  // all.
  void ReserveUndo(size_t steps);
  // Steps are undone in reverse order across all participants. A step must not refer to its
  // participant, which may end before it. Does not throw if there is room, except for what `step`
  // itself holds.
  template <typename Step>
  void PushUndo(Step&& step) {
    undo_.emplace_back(std::forward<Step>(step));
  }

  // Either call ends the transaction; the next change begins a new one.
  void Commit(const wal::Location& location, uint32_t token_prefix_bytes);
  void Rollback();

 private:
  static constexpr size_t kParticipantsMax = 2;
  // Capacity kept for the next transaction; more was needed for a large batch only.
  static constexpr size_t kStepsKept = 1024;
  void End();

  std::vector<std::function<void()>> undo_;
  std::array<Participant*, kParticipantsMax> participants_{};
  bool open_ = false;  // Something may have to be undone.
};

// For a transaction that is used again: rolls back at the end of the scope unless committed.
struct RollbackUnlessCommitted {
  explicit RollbackUnlessCommitted(Transaction* transaction_in) : transaction(transaction_in) {}
  RollbackUnlessCommitted(const RollbackUnlessCommitted&) = delete;
  ~RollbackUnlessCommitted() { transaction->Rollback(); }
  Transaction* const transaction;
};

}  // namespace cairn::engine
