// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/kill_loop.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>

#include "base/core/check.h"
#include "tests/crash/real_writer.h"
#include "tests/support/test_store.h"

namespace cairn::crash {

namespace {

WriterOptions WriterOf(const KillOptions& options) {
  return {.backend = options.backend, .claimed = options.claimed, .moves_files = options.follow};
}

// A reader beside the child, which rewinds branches and gives files back all the time.
class Follower {
 public:
  Follower(const std::string& path, const KillOptions& options) : path_(path), options_(options) {}

  // Reads all there is, once; what is wrong with it, if anything.
  std::string Look(uint64_t* right) {
    const Status shown = Refresh();
    if (Moved(shown)) return "";
    if (!shown.ok()) return "follow: " + shown.ToString();
    const auto state = ReadStore(store_);
    if (Moved(state.status())) return "";
    if (!state.ok()) return "read beside the writer: " + state.status().ToString();
    ++*right;
    return CheckTokens(*state);
  }
  // When the writer is dead: what it acknowledged survives.
  std::string LookAtLast(const Reports& acknowledged) {
    if (const Status shown = Refresh(); !shown.ok()) return "follow the dead: " + shown.ToString();
    const auto state = ReadStore(store_);
    if (!state.ok()) return "read what it left: " + state.status().ToString();
    return CheckState(*state, acknowledged);
  }

 private:
  Status Refresh() {
    if (store_.core() != nullptr) return store_.Refresh().status();
    Options options = StoreOptionsOf(WriterOf(options_));
    options.create_if_missing = false;
    options.read_only = true;
    CAIRN_ASSIGN_OR_RETURN(store_, Store::Open(path_, options));
    return Status::Ok();
  }
  // A branch may have been rewound between two looks at it.
  static bool Moved(const Status& status) {
    return status.code() == StatusCode::kStale || status.code() == StatusCode::kInvalidArgument;
  }

  const std::string path_;
  const KillOptions options_;
  Store store_;
};

}  // namespace

KillResult RunKillLoop(const KillOptions& options) {
  KillResult result;
  std::mt19937_64 random(options.seed);
  const testing::TempDirectory directory;
  const std::string path = directory.path() + "/store";
  Reports acknowledged;  // By all children that wrote to the store.
  for (uint32_t round = 0; round < options.kills && result.violation.empty(); ++round) {
    const uint64_t child_seed = random();
    Follower follower(path, options);
    const auto live = [&] {
      // It has a random while to live.
      if (!options.follow) {
        usleep(static_cast<useconds_t>(random() % 30000));
        return;
      }
      const auto until =
          std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 300000);
      while (result.violation.empty() && std::chrono::steady_clock::now() < until) {
        result.violation = follower.Look(&result.followed);
      }
    };
    const CrashedWriter child =
        CrashAWriter(path, WriterOf(options), child_seed, live, nullptr, &acknowledged);
    if (child.end == WriterEnd::kRefused) result.violation = "the child ended by itself";
    if (child.end == WriterEnd::kCrashed) result.violation = "the child crashed";
    if (!child.lost.empty()) result.violation = child.lost;
    result.acknowledged += child.reports;
    ++result.kills;
    if (result.violation.empty() && options.follow) {
      result.violation = follower.LookAtLast(acknowledged);
    }
    if (result.violation.empty()) {
      result.violation = CheckStore(path, WriterOf(options), acknowledged);
    }
    if (!result.violation.empty()) {
      result.violation = "seed " + std::to_string(options.seed) + ", kill " +
                         std::to_string(round) + ": " + result.violation;
    }
    // A young store now and then, so that its creation is cut as well.
    const bool anew = round % 20 == 19;
    if (anew) acknowledged.clear();
    if (anew || options.forgets) std::filesystem::remove_all(path);
  }
  return result;
}

}  // namespace cairn::crash
