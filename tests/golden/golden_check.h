// SPDX-License-Identifier: Apache-2.0
//
// Compares all that a golden store shows with its book: what is missing or differs fails the test.
// `lossy_bytes` is how much of the KV came out of tables that keep it as 8-bit integers.
#pragma once

#include "cairn/store.h"
#include "tests/golden/golden_story.h"

namespace cairn::golden {

void ExpectAll(const Store& store, const Book& book, uint64_t* lossy_bytes);

}  // namespace cairn::golden
