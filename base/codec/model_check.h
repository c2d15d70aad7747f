// SPDX-License-Identifier: Apache-2.0
//
// Checks of models beside ModelSpec::Validate, which is for what callers register.
#pragma once

#include <string>

#include "cairn/model.h"

namespace cairn {

// What every part of the store relies on, and what every stored model was checked for. A model that
// was registered before there was a limit may be beyond it, and is opened all the same.
Status CheckStoredModel(const ModelSpec& spec);

// Whether the heads and the bytes of one position of a group are within what tables are made for.
// kInvalidArgument naming the field below `where`. No content was ever appended beyond.
Status CheckGroupSize(const LayerGroup& group, const std::string& where);

}  // namespace cairn
