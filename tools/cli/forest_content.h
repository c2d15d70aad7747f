// SPDX-License-Identifier: Apache-2.0
//
// What lies on the nodes of a forest: where its KV is, the bytes that it takes, states and spans.
// And whose bytes these are: a branch's own, which go when it is dropped, or shared with others.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/cli/forest.h"

namespace cairn::cli {

// Where the KV of a position lies. Layer groups may differ: the first of these that one of them has
// is the position's. Of a model without KV it is where the token ids lie.
enum class Where : uint8_t {
  kEvicted,      // It is gone; the tokens are not.
  kApproximate,  // Delta::exact was off.
  kLog,          // A segment of the log.
  kTable,        // A snapshot table.
  kNone,         // No group ever had it here.
};
inline constexpr size_t kWheres = 5;
const char* WhereName(Where where);     // "evicted", "approximate", "log", "table", "none"
const char* WhereInWords(Where where);  // The same for people: "without KV" for the last.

// Positions of a node that lie together.
struct Piece {
  uint64_t begin = 0, end = 0;
  Where where = Where::kNone;
  // What the store counts for them, token ids included: stored bytes of tables, raw bytes of what
  // is still in the log.
  uint64_t log_bytes = 0, table_bytes = 0;
  uint64_t bytes() const { return log_bytes + table_bytes; }
};

// How many states of a kind a node has, and the position of the last one.
struct StateCount {
  uint64_t count = 0, last = 0;
};

struct NodeContent {
  std::string ns;  // The namespace that its bytes count in.
  std::vector<Piece> pieces;
  StateCount samplers, metadata;
  std::vector<ContentSpan> spans;

  // Bytes of its positions below `end`. Those of a piece are spread evenly over it.
  uint64_t BytesBelow(uint64_t end) const;
};

// kNotFound: nothing needs the node any more. Reads the index, no content.
Result<NodeContent> ReadNode(const Store& store, NodeId node);

// By node.
using ForestContent = std::unordered_map<uint64_t, NodeContent>;
// A node that went meanwhile is left out.
Result<ForestContent> ReadContent(const Store& store, const Forest& forest);

// Bytes on the path of a branch: those that no other branch of the forest reaches, and the rest.
struct BranchBytes {
  uint64_t own = 0, shared = 0;
};
// By branch. Branches without tokens have none.
std::unordered_map<uint64_t, BranchBytes> CountBytes(const Forest& forest,
                                                     const ForestContent& content);
// The same of all branches of a namespace together, and of those of others.
std::map<std::string, BranchBytes> CountNamespaceBytes(const Forest& forest,
                                                       const ForestContent& content);
// Bytes that branches of the forest reach, each once.
uint64_t CountAllBytes(const Forest& forest, const ForestContent& content);

}  // namespace cairn::cli
