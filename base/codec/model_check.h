// SPDX-License-Identifier: Apache-2.0
//
// Checks of models besides ModelSpec::Validate, which is for models that callers register.
#pragma once

#include <string>

#include "cairn/model.h"

namespace cairn {

// Conditions that every part of the store relies on, and that every stored model was checked for. A
// model that was registered before a limit existed may exceed it, and can be opened all the same.
Status CheckStoredModel(const ModelSpec& spec);

// Whether the heads and the bytes of one position of a group are within the limits of tables.
// kInvalidArgument naming the field below `where`. No content was ever appended beyond them.
Status CheckGroupSize(const LayerGroup& group, const std::string& where);

// Whether inv_freq and mscale of a group are numbers that can be registered: finite, and not more
// than kMaxInvFreq. kInvalidArgument naming the field below `where`.
Status CheckAngles(const LayerGroup& group, const std::string& where);

}  // namespace cairn
