// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/shadow/shadow_shape.h"

#include <algorithm>
#include <string>

#include "base/codec/hash.h"
#include "base/core/text.h"
#include "engine/sessions/shadow/constants.h"
#include "engine/sessions/shadow/key_rows.h"
#include "engine/sessions/shadow/shadow_table.h"

namespace cairn::engine {

Result<ShadowShape> ShadowShape::Of(const ModelSpec& model, uint32_t group, const ShadowSpec& spec,
                                    uint64_t tokens) {
  if (group >= model.groups.size()) {
    return Status(StatusCode::kInvalidArgument, "shadow: group is " + std::to_string(group) +
                                                    "; the model has " +
                                                    std::to_string(model.groups.size()));
  }
  const LayerGroup& of = model.groups[group];
  CAIRN_RETURN_IF_ERROR(shadow::ValidateShadowSpec(spec, of));
  if (spec.keys == ShadowKeys::kLowRank) CAIRN_RETURN_IF_ERROR(KeyRows::Of(of).status());
  ShadowShape shape;
  CAIRN_ASSIGN_OR_RETURN(shape.plan, shadow::PlanShadow(spec, tokens));
  shape.spec = spec;
  shape.tokens = tokens;
  shape.group = group;
  shape.layers = of.layers;
  shape.heads = of.planes[0].heads;
  shape.key_bytes = of.planes[0].row_bytes;
  shape.value_bytes = of.planes[1].row_bytes;
  shape.channels = shape.key_bytes / 2;
  shape.fp16 = of.planes[0].dtype == Dtype::kF16;
  shape.of = std::make_shared<const LayerGroup>(of);
  const size_t part = ShadowPartLayout(shape, 0, kShadowPartTokens).bytes();
  const uint64_t always = uint64_t{kShadowAlwaysChunks} *
                          (sizeof(uint32_t) + uint64_t{spec.chunk_tokens} *
                                                  (uint64_t{shape.key_bytes} + shape.value_bytes));
  if (std::max<uint64_t>(part, always) > sstable::kMaxStoredBytes) {
    return Status(StatusCode::kInvalidArgument,
                  "shadow: group " + Quoted(of.name) + ": rows of " +
                      std::to_string(std::max(shape.key_bytes, shape.value_bytes)) +
                      " bytes are too wide for a table");
  }
  return shape;
}

uint32_t ShadowShape::kind() const {
  const FieldWriter spec_fields = EncodeShadowSpec(spec, group);
  return kShadowKind | static_cast<uint32_t>(Hash(spec_fields.bytes()) & kShadowKindMask);
}

}  // namespace cairn::engine
