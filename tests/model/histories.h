// SPDX-License-Identifier: Apache-2.0
//
// Many generated histories, and what happens when one of them fails: it is shrunk and printed.
#pragma once

#include <cstdint>
#include <string>

#include "tests/model/runner.h"

namespace cairn::testing {

struct HistoriesResult {
  uint64_t operations = 0;
  RunResult sums;  // Adds up all runs; `failure` and `digest` say nothing.
};

// Histories of every profile in turn, from CAIRN_TEST_SEED if that is set, else from `seed`, each
// under one of the option sets in turn, until this many operations are done. EXPECTs that none
// fails; what does is printed as a minimal script. With CAIRN_TEST_SEED every history runs in a
// process of its own, so that one that crashes is shrunk as well.
HistoriesResult RunHistories(uint64_t seed, uint64_t operations_wanted, size_t length);

// EXPECTs that there was something of all that the stores do by themselves.
void ExpectThatMostHappened(const HistoriesResult& all);

// One history under every option set: one digest. EXPECTs the same.
HistoriesResult RunEverywhere(uint64_t seed, const Profile& profile, size_t length);

}  // namespace cairn::testing
