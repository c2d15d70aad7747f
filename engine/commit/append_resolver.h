// SPDX-License-Identifier: Apache-2.0
//
// The record that makes an append count: all of it, the end of a large one, or what was coalesced.
#pragma once

#include <optional>
#include <vector>

#include "engine/store_core.h"

namespace cairn {

class StoreCore::AppendResolver final : public engine::Resolver {
 public:
  // `written`: what of a large append lies before the record; null when the record holds all.
  // Refers to what it is given. `payload` is that of the record.
  AppendResolver(StoreCore* core, BranchId id, const Delta& delta, const Expected& expected,
                 engine::DeltaPayload* payload, const Written* written);

  engine::Attempt Prepare(Lock* lock) override;
  std::optional<BranchId> free_branch() const override {
    return written_ == nullptr ? std::optional(id_) : std::nullopt;
  }
  Status Resolve(engine::CommitOps* ops) override;
  Status CheckQuotas() const override;
  void Publish(wal::Log* log) override;
  void OnRefused(const Status& status) override;

  // REQUIRES: it is committed.
  Applied applied() const {
    return {.sequence = sequence(), .length = committed().front().length, .kv_shed = false};
  }

 private:
  bool is_whole() const { return written_ == nullptr && !expected_.joined; }
  Result<engine::Op> ResolveWritten(const engine::Tree& tree);

  StoreCore* const core_;
  const BranchId id_;
  const Delta& delta_;
  const Expected& expected_;
  engine::DeltaPayload* const payload_;
  const Written* const written_;
  const engine::Head* head_ = nullptr;  // While the lock is held.
};

}  // namespace cairn
