// SPDX-License-Identifier: Apache-2.0
//
// A query for prefixes, as C++ takes it.
#pragma once

#include <string_view>
#include <vector>

#include "api/c/convert.h"
#include "cairn/find.h"

namespace cairn::capi {

// Owns the arrays that `query` points into, but for those that the caller gave as they are.
struct QueryArrays {
  QueryArrays() = default;
  QueryArrays(const QueryArrays&) = delete;
  QueryArrays& operator=(const QueryArrays&) = delete;

  Status Fill(const cairn_prefix_query* given);

  PrefixQuery query;

 private:
  std::vector<ContentSpan> spans_;
  std::vector<std::string_view> also_;
};

}  // namespace cairn::capi
