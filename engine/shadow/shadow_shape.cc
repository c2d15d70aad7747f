// SPDX-License-Identifier: Apache-2.0
#include "engine/shadow/shadow_shape.h"

#include <string>

#include "base/codec/hash.h"
#include "engine/shadow/constants.h"
#include "engine/shadow/shadow_table.h"

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
  if (spec.keys == ShadowKeys::kLowRank) {
    return Status(StatusCode::kInvalidArgument,
                  "shadow: keys are low_rank, which no table has yet");
  }
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
  return shape;
}

uint32_t ShadowShape::kind() const {
  const FieldWriter spec_fields = EncodeShadowSpec(spec, group);
  return kShadowKind | static_cast<uint32_t>(Hash(spec_fields.bytes()) & kShadowKindMask);
}

}  // namespace cairn::engine
