// SPDX-License-Identifier: Apache-2.0
//
// Store::Compose puts a prompt together from named branches, and plans it with them as sources:
//
//   auto composed = store.Compose({.model = model, .ns = "documents",
//                                  .documents = {{.name = "contract/v3"}, {.name = "law"}},
//                                  .separator = separator, .question = question});
//   // composed->tokens is the prompt, composed->plan says what of it is loaded (cairn/blend.h).
//
// A document is a branch whose KV was computed once, alone or behind a header. Its version is part
// of its name. The call, with what it costs and how it fails, is in cairn/store.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/blend.h"
#include "cairn/branch_types.h"
#include "cairn/model.h"

namespace [[gnu::visibility("default")]] cairn {

// Documents of one composition at most.
inline constexpr size_t kMaxComposed = 65'536;

struct ComposeDocument {
  // The name of a branch in the request's namespace.
  std::string name{};
  // All branches whose names begin so, in order of name, instead: at least one.
  bool is_beginning = false;
  // Its tokens [begin, end). `begin` leaves out a header that it was computed behind. UINT64_MAX:
  // the branch's length.
  uint64_t begin = 0, end = UINT64_MAX;
};

// What it points to is borrowed for the call.
struct ComposeRequest {
  ModelId model{};
  std::string_view ns{};
  std::vector<ComposeDocument> documents{};
  std::span<const TokenId> separator{};  // Between two documents, and before the question.
  std::span<const TokenId> question{};   // Behind all of them.
  uint64_t lease_ns = 0;                 // As PrefixQuery::lease_ns.
};

// Where a document stands in the prompt.
struct ComposedDocument {
  std::string name{};
  BranchId branch{};
  uint64_t begin = 0, end = 0;
};

struct Composed {
  std::vector<TokenId> tokens{};
  std::vector<ContentSpan> spans{};  // The documents' content, where it stands now.
  std::vector<ComposedDocument> documents{};
  BlendPlan plan{};
};

}  // namespace cairn
