// SPDX-License-Identifier: Apache-2.0
//
// What a store goes through in the tests that try everything at each of its disk operations.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/io/sim_disk.h"
#include "cairn/options.h"
#include "tests/crash/script_run.h"

namespace cairn::crash {

struct Script {
  const char* name;
  std::function<void(Options&)> configure;
  std::function<void(ScriptRun&)> body;
  bool makes_store = false;
};

std::vector<Script> Scripts();
// Of the stores of all scripts, before Script::configure.
Options SmallOptions();
// A disk with a store that has the models of all scripts and no branch.
std::unique_ptr<io::SimDisk> MakeStoreForScripts();
// The machine on which a script runs; `made` is of MakeStoreForScripts.
io::SimWorld MachineFor(const Script& script, const io::SimDisk& made);
// Buffers that come back from the kernel would be most of the time of thousands of short runs.
void KeepFreedMemory();

}  // namespace cairn::crash
