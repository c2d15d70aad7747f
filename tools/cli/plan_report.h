// SPDX-License-Identifier: Apache-2.0
//
// What commands print of a plan (cairn/blend.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cairn/blend.h"
#include "cairn/store.h"
#include "tools/cli/output.h"

namespace cairn::cli {

// Options given as NAME=VALUE.
Result<BlendOptions> ReadBlendOptions(const std::vector<std::string>& given);
inline constexpr const char* kBlendOptionHelp =
    "An option of the plan, NAME=VALUE, by any of its names (docs/blend.md); may be repeated";

// A bar of the prompt, its segments with the branches that have them, and totals; or all of it as
// JSON, with `extra` before it. `spaces`: the namespaces of branches.
Status ReportPlan(const Store& store, const BlendPlan& plan,
                  const std::vector<std::string_view>& spaces, bool json, const Json& extra = {});

}  // namespace cairn::cli
