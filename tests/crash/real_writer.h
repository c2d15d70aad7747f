// SPDX-License-Identifier: Apache-2.0
//
// The load while something is crashed on a real disk: a writer that appends for ever and reports
// what was acknowledged, and the check that it survived. Tokens follow from branch and position, KV
// from the tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "cairn/options.h"
#include "tests/crash/history.h"

namespace cairn::crash {

struct WriterOptions {
  Backend backend = Backend::kAuto;
  // The level taken for an acknowledgement, for appends that ask for any level.
  Durability claimed = Durability::kPower;
  // Files move faster than by default, for a follower.
  bool moves_files = false;
};
Options StoreOptionsOf(const WriterOptions& options);

// Acknowledged: the branch has this many tokens. Before it is rewound: it has no fewer from now on.
struct Report {
  uint64_t branch = 0;
  uint64_t length = 0;
  bool rewinds = false;
};
// By branch, the length that was reported last.
using Reports = std::map<uint64_t, uint64_t>;

// Opens or makes the store and appends to its branches until something fails, or `report` returns
// false: what ended it; Ok for the latter.
Status WriteUntilTheEnd(const std::string& path, const WriterOptions& options, uint64_t seed,
                        const std::function<bool(const Report&)>& report);

// A child process that writes. `live` runs when it has acknowledged something, `crash` after that;
// then the child is killed, if it has not ended before. Its acknowledgements go to `acknowledged`,
// on top of earlier ones for the same store. If a `crash` is given, acknowledgements reported after
// it began are not binding.
enum class WriterEnd : uint8_t {
  kKilled,   // By SIGKILL: nobody but us sends that.
  kRefused,  // Something failed.
  kCrashed,  // By another signal: that is a violation wherever it happens.
};
struct CrashedWriter {
  uint64_t reports = 0;
  WriterEnd end = WriterEnd::kKilled;
  std::string lost;  // It found less of a branch than was acknowledged before.
};
CrashedWriter CrashAWriter(const std::string& path, const WriterOptions& options, uint64_t seed,
                           const std::function<void()>& live, const std::function<void()>& crash,
                           Reports* acknowledged);
WriterEnd EndOf(int wait_status);

// The fault of the state that was read, if any: other contents, or less than was acknowledged.
std::string CheckTokens(const StoreState& state);
std::string CheckState(const StoreState& state, const Reports& acknowledged);
// Opens the store and reads all of it.
std::string CheckStore(const std::string& path, const WriterOptions& options,
                       const Reports& acknowledged);

}  // namespace cairn::crash
