// SPDX-License-Identifier: Apache-2.0
//
// Descriptions of models, spans and branches as JSON: field by field, by the names that they have
// in C++. A field that is absent has its default. docs/export.md lists them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cairn/branch_types.h"
#include "cairn/model.h"
#include "engine/exchange/json.h"

namespace cairn::engine {

Json ModelToJson(const ModelSpec& spec);
// kCorruption naming the field. What Validate refuses is kInvalidArgument.
Result<ModelSpec> ModelFromJson(const Json& json, const std::string& name);

Json SpansToJson(std::span<const ContentSpan> spans);
// Those that lie in [begin, end), in order, none within another.
Result<std::vector<ContentSpan>> SpansFromJson(const Json& json, uint64_t begin, uint64_t end,
                                               const std::string& name);

Json KeepToJson(const Keep& keep);
Keep KeepFromJson(const Json& json, const std::string& name, Status* wrong);

}  // namespace cairn::engine
