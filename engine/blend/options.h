// SPDX-License-Identifier: Apache-2.0
//
// What BlendOptions may say.
#pragma once

#include "cairn/blend.h"
#include "cairn/model.h"
#include "cairn/status.h"

namespace cairn::engine {

// kInvalidArgument by the field, for a prompt of this many tokens.
Status CheckBlendOptions(const BlendOptions& options, uint64_t tokens);

// kInvalidArgument: the model has a group of states, which belong to all tokens before them and not
// to a run of them. kModelMismatch: rope_theta or head_dim.
Status CheckBlendModel(const BlendOptions& options, const ModelSpec& model);

// Keys of this model can be brought to other positions: kInvalidArgument by group, plane and field.
Status CheckTurnable(const ModelSpec& model);
// Its tokens have several positions: where content spans stand, these are not what a shift says.
bool HasSeveralPositions(const ModelSpec& model);

}  // namespace cairn::engine
