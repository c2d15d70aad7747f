// SPDX-License-Identifier: Apache-2.0
//
// States and other things of a branch as records (pack.h).
#pragma once

#include "cairn/branch.h"
#include "engine/exchange/pack.h"

namespace cairn::engine {

// The states that belong after `position` tokens: {"position", "sampler.<field>",
// "metadata.<field>"}.
PackRecord StateToRecord(const Branch::StateAt& state);
// kCorruption naming the field.
Result<Branch::StateAt> StateFromRecord(const PackRecord& record);

}  // namespace cairn::engine
