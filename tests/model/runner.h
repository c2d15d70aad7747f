// SPDX-License-Identifier: Apache-2.0
//
// Runs a script against a store and against the reference model, and compares all that the store
// shows: lengths, names, ids, KV bytes, states, spans, listings, the code of every error.
//
// Decisions of options and the background must be invisible to a script: so the same script gives
// the same digest of everything read, whatever the options. There are three exceptions. Which KV a
// cap of a namespace took away: it must be KV that may be evicted, and the rest is compared. How
// many bytes are stored. And how much lagging KV a fork or rewind keeps, once nodes were joined:
// the runner then fills in the missing KV.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cairn/store.h"
#include "tests/model/script.h"

namespace cairn::testing {

struct OptionSet {
  std::string name;
  std::string world;  // As TestWorld::Names().
  Options options;
  Durability at_least = Durability::kMemory;  // The level of every change.
};
// The first is the plain one, on the simulated machine.
const std::vector<OptionSet>& OptionSets();

struct RunResult {
  std::string
      failure;  // Empty: all was as it had to be. Else what was not, and at which operation.
  uint64_t digest = 0;
  uint64_t operations = 0;  // That did something: others met an empty slot.
  // What the stores counted, so that a test sees that its scripts reach them.
  uint64_t joined = 0, evicted_bytes = 0, seals = 0, refused = 0;
  uint64_t tables_rewritten = 0, segments_retired = 0, loads = 0;
  uint64_t approximate_bytes = 0;  // That were read.
  uint64_t found = 0;              // Prefixes.
  uint64_t chunks_found = 0;       // Matches of chunks, each of them checked.
  uint64_t planned = 0;            // Tokens that plans load, each of them compared.
};
RunResult RunScript(const Script& script, const OptionSet& options, uint64_t seed = 1);

// The result of `run`, in a child process, where a failed check, or a hang, is a failure like any
// other. REQUIRES: no threads in this process.
std::string FailureInChild(const std::function<std::string()>& run);
std::string FailureOf(const Script& script, const OptionSet& options, uint64_t seed = 1);

}  // namespace cairn::testing
