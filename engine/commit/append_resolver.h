// SPDX-License-Identifier: Apache-2.0
//
// Resolves the record that makes an append count: the whole append, the end of a large one, or
// coalesced appends.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/commit/coalesced_appends.h"
#include "engine/commit/write_deps.h"

namespace cairn::engine {

// Conditions on the branch under which an append is applied.
struct Expected {
  std::optional<uint64_t> length;
  std::optional<uint64_t> version;  // Head::version; drafts.
  bool coalesced = false;           // Its room was taken when it was accepted.
};
Status CheckExpected(const Head& head, const Expected& expected);

// The part of a large append that is in the log before the record that makes it count.
struct Written {
  std::vector<Part> parts;
  uint64_t unit = 0;
  uint64_t kv_bytes = 0;  // Raw.
};

class AppendResolver final : public Resolver {
 public:
  // `written`: null when the record holds everything. Keeps references to its arguments. `payload`
  // is that of the record.
  AppendResolver(const WriteDeps& deps, CoalescedAppends* coalesced, BranchId id,
                 const Delta& delta, const Expected& expected, DeltaPayload* payload,
                 const Written* written);

  Attempt Prepare(Lock* lock) override;
  std::optional<BranchId> free_branch() const override {
    return written_ == nullptr ? std::optional(id_) : std::nullopt;
  }
  Status Resolve(CommitOps* ops) override;
  Status CheckQuotas() const override;
  void Publish(wal::Log* log) override;
  void OnRefused(const Status& status) override;

  // REQUIRES: it is committed.
  Applied applied() const {
    return {.sequence = sequence(), .length = committed().front().length, .kv_shed = false};
  }

 private:
  bool is_whole() const { return written_ == nullptr && !expected_.coalesced; }
  Result<Op> ResolveWritten(const Tree& tree);

  const WriteDeps& deps_;
  CoalescedAppends* const coalesced_;
  const BranchId id_;
  const Delta& delta_;
  const Expected& expected_;
  DeltaPayload* const payload_;
  const Written* const written_;
  const Head* head_ = nullptr;    // While the lock is held.
  std::vector<uint64_t> hashes_;  // The strips' hashes, once they are filled.
};

}  // namespace cairn::engine
