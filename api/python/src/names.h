// SPDX-License-Identifier: Apache-2.0
//
// Enums are words in Python: durability="power". The error for an unknown word lists the valid
// ones.
#pragma once

#include <string_view>

#include "cairn/branch.h"
#include "cairn/kv_buffer.h"
#include "cairn/objects.h"
#include "cairn/options.h"
#include "cairn/store.h"

namespace cairn::python {

// The value of a word; errors name `field`. Throws StatusError.
template <typename E>
E Parse(std::string_view word, std::string_view field);
// The word of a value.
template <typename E>
const char* Word(E value);

}  // namespace cairn::python
