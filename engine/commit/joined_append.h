// SPDX-License-Identifier: Apache-2.0
//
// One-token appends to a branch that wait to be joined; see joined_append.cc.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/options.h"
#include "engine/commit/kv_layout.h"
#include "engine/commit/staging.h"
#include "engine/commit/ticket.h"

namespace cairn::engine {

struct Joined {
  std::shared_ptr<const ModelSpec> model;
  std::unique_ptr<KvStaging> staging;
  uint64_t length = 0;  // Of the branch when the first came.
  std::vector<TokenId> tokens;
  std::optional<bool> exact;        // Of the KV that it has so far; without: there is none.
  uint64_t bytes = 0;               // Raw, of KV and tokens; taken of the quota...
  std::string ns;                   // ...of this namespace.
  std::vector<uint64_t> kv_counts;  // By group.
  std::vector<DeltaState> states;
  std::vector<std::pair<Durability, std::shared_ptr<TicketState>>> tickets;
};

}  // namespace cairn::engine
