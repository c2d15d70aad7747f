// SPDX-License-Identifier: Apache-2.0
//
// The demonstration: generate, be killed, recover, go on, fork, reopen; and prove after each that
// nothing differs from runs that happened in memory alone.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/options.h"
#include "tools/demo/console.h"
#include "tools/demo/report.h"
#include "tools/llama/model_files.h"

namespace cairn::demo {

inline constexpr int kForks = 8;
inline constexpr int kForkTokens = 24;           // That each fork goes on for.
inline constexpr int kTokensMin = 32;            // Fewer leave no room for kills and forks.
inline constexpr int kTokensLeftAfterKills = 8;  // So that there is something to continue.
inline constexpr int kAcknowledgementsMin = 3;   // Before a kill: the branch exists and has grown.
constexpr int KillsMax(int tokens) {
  return (tokens - kTokensLeftAfterKills) / kAcknowledgementsMin;
}

struct Settings {
  std::string dir;  // Of the store; empty or not there yet.
  uint64_t seed = 1;
  int tokens = 400;
  int kills = 3;
  std::string prompt = "And it came to pass";
  std::string checkpoint = llama::DefaultCheckpointPath();
  std::string tokenizer = llama::DefaultTokenizerPath();
  Backend backend = Backend::kAuto;
};

// Says what happens and what is proved as it goes, the tree at the end. What was proved or not is
// in the report; the status is not Ok when the demonstration could not be carried through.
// The calling process must have no other thread (it forks). Throws std::bad_alloc.
Status RunDemo(const Settings& settings, Console* console, Report* report);

}  // namespace cairn::demo
