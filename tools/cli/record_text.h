// SPDX-License-Identifier: Apache-2.0
//
// Log records as the engine means them: kinds and ops decoded, strips named.
#pragma once

#include <string>

#include "engine/tree/memory/op.h"
#include "tools/cli/output.h"
#include "wal/record.h"

namespace cairn::cli {

struct RecordOptions {
  bool verify = false;  // Check every strip against its hash.
  bool tokens = false;  // Show token ids, once their strip is verified.
};

struct RecordText {
  Json json;                        // One object.
  std::string line;                 // The same in short.
  std::vector<std::string> damage;  // Damage to strips, if verified, and to fields.
};

// `view` as wal::SegmentReader gives it: the whole record lies behind its fields.
RecordText DescribeRecord(const wal::RecordView& view, const StoreId& store,
                          const RecordOptions& options);

// "append branch 2 node 3 (new, root): tokens 0..5"
std::string OpText(const engine::Op& op);

}  // namespace cairn::cli
