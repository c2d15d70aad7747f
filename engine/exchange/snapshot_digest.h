// SPDX-License-Identifier: Apache-2.0
//
// The id of a snapshot: it follows from the model's names, the tokens up to a position and the
// content spans among them. So a file can name what it goes on from, and a branch shows whether it
// is that.
#pragma once

#include <span>
#include <string>

#include "cairn/branch_types.h"
#include "engine/exchange/hex.h"

namespace cairn::engine {

class SnapshotDigest {
 public:
  explicit SnapshotDigest(const ModelSpec& model);
  // The next tokens.
  void Add(std::span<const TokenId> tokens) { digest_.Add(std::as_bytes(tokens)); }
  // `spans`: those before the position that was reached, cut there.
  std::string Id(std::span<const ContentSpan> spans) const;

 private:
  BlockDigest digest_;
};

}  // namespace cairn::engine
