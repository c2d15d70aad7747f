// SPDX-License-Identifier: Apache-2.0
//
// Appends what a file has of a branch, but for its KV: ids, spans and states. Each append has whole
// spans, and ends where there is a state.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cairn/branch.h"
#include "engine/store/store_core.h"

namespace cairn::engine {

class [[gnu::visibility("hidden")]] BranchWriter {
 public:
  struct Source {
    std::function<Status(uint64_t begin, std::span<TokenId> into)> tokens;
    std::span<const ContentSpan> spans{};  // In order.
    // In order of position; nothing at the end.
    std::function<Result<std::optional<Branch::StateAt>>()> next_state;
  };
  BranchWriter(StoreCore* core, BranchId id) : core_(core), id_(id) {}

  // Brings positions [begin, end), of which the branch has those below `from` already, and states
  // from there on. kConflict: another call changed the branch. kCorruption: states that are not in
  // order, lie beyond the tokens or within a span.
  Status Write(const Source& source, uint64_t begin, uint64_t from, uint64_t end);
  // How long it has made the branch; nothing: it has appended nothing yet.
  std::optional<uint64_t> length() const { return length_; }

 private:
  Status NextState(const Source& source, uint64_t begin, uint64_t end);
  Result<uint64_t> Cut(const Source& source, uint64_t at, uint64_t end) const;
  Status Append(uint64_t at, std::span<const TokenId> tokens, std::span<const ContentSpan> spans,
                const Branch::StateAt* state);

  StoreCore* const core_;
  const BranchId id_;
  std::optional<uint64_t> length_;
  std::optional<Branch::StateAt> state_;  // The next one.
  bool any_state_ = false;
  uint64_t last_state_ = 0;
  size_t span_ = 0;  // The first one that is not there yet.
};

}  // namespace cairn::engine
