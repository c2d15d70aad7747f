// SPDX-License-Identifier: Apache-2.0
//
// The demonstration: generate, be killed, recover, continue, fork, reopen; and prove after each
// step that nothing differs from uninterrupted runs in memory.
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
  std::string dir;  // The store's; empty or not there yet.
  uint64_t seed = 1;
  int tokens = 400;
  int kills = 3;
  std::string prompt = "And it came to pass";
  std::string checkpoint = llama::DefaultCheckpointPath();
  std::string tokenizer = llama::DefaultTokenizerPath();
  Backend backend = Backend::kAuto;
};

// Reports its progress and proofs, and at the end the tree. The report says what was proved; the
// status is not Ok if the demonstration could not be completed. The calling process must have no
// other thread (it forks). Throws std::bad_alloc.
Status RunDemo(const Settings& settings, Console* console, Report* report);

}  // namespace cairn::demo
