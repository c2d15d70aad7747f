// SPDX-License-Identifier: Apache-2.0
//
// Histories of a store for the tests that try everything at each of its disk operations.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cairn/options.h"
#include "sim/world.h"
#include "tests/crash/script_run.h"

namespace cairn::crash {

// The state when a script begins: no store; one that has the models of all scripts and no branch;
// or one that lost its power while it was written to.
enum class Start { kNothing, kMade, kCrashed };

struct Script {
  const char* name;
  std::function<void(Options&)> configure;
  std::function<void(ScriptRun&)> body;
  Start start = Start::kMade;
};

std::vector<Script> Scripts();
std::vector<std::string> ScriptNames();
// What the stores of all scripts have, before Script::configure.
Options SmallOptions();

class Starts {
 public:
  Starts();
  // The machine on which the script runs, the same each time.
  io::SimWorld MachineFor(const Script& script) const;
  // Possible states of its store.
  std::vector<StoreState> StatesFor(const Script& script) const;

 private:
  std::unique_ptr<io::SimDisk> made_, crashed_;
  std::vector<StoreState> crashed_states_;
};

// Buffers that come back from the kernel would be most of the time of thousands of short runs.
void KeepFreedMemory();

}  // namespace cairn::crash
