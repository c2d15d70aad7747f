// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/kill_loop.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <vector>

#include "base/core/check.h"
#include "tests/crash/history.h"

namespace cairn::crash {

namespace {

// What the child reports for each acknowledged append: the branch had so many tokens.
struct Report {
  uint64_t branch;
  uint64_t length;
};

constexpr uint64_t kBranches = 3;

std::string BranchName(uint64_t branch) { return "k" + std::to_string(branch); }

// Tokens follow from branch and position, so that the reader knows them.
TokenId TokenAt(uint64_t branch, uint64_t position) {
  return static_cast<TokenId>((branch * 7919 + position * 104729) % 50021);
}

std::vector<TokenId> TokensOf(uint64_t branch, uint64_t begin, uint64_t end) {
  std::vector<TokenId> tokens;
  for (uint64_t position = begin; position < end; ++position) {
    tokens.push_back(TokenAt(branch, position));
  }
  return tokens;
}

Options StoreOptions(const KillOptions& kill) {
  Options options;
  options.create_if_missing = true;
  if (kill.follow) {
    options.log_bytes_max = 4 << 20;
    options.replay_records_max = 64;
  }
  options.segment_bytes = 1 << 20;
  options.max_memory_bytes = 32 << 20;
  options.hot_tail_bytes = 1 << 20;
  options.backend = kill.backend;
  return options;
}

// Never returns. Appends for ever; every acknowledged append is reported.
[[noreturn]] void Child(const std::string& path, const KillOptions& options, uint64_t seed,
                        int reports) {
  std::mt19937_64 random(seed);
  auto store = Store::Open(path, StoreOptions(options));
  if (!store.ok()) _exit(3);
  const auto model = store->RegisterModel(TinyModel());
  if (!model.ok()) _exit(4);
  while (true) {
    const uint64_t id = random() % kBranches;
    auto branch = store->FindBranch(BranchName(id));
    if (!branch.ok()) branch = store->CreateBranch(*model, {.name = BranchName(id), .ns = ""});
    if (!branch.ok()) _exit(5);
    const auto length = branch->length();
    if (!length.ok()) _exit(6);
    const uint64_t end = *length + 1 + random() % 40;
    const std::vector<TokenId> tokens = TokensOf(id, *length, end);
    KvMemory kv(TinyModel(), *length, end - *length);
    kv.Fill(TokensOf(id, 0, end));
    // Two levels take turns; only what is at least `claimed` is reported.
    const Durability level = random() % 2 == 0 ? options.claimed : Durability::kPower;
    const auto appended = branch->AppendSync({.tokens = tokens, .kv = kv.view()},
                                             {.durability = level, .expected_length = *length});
    if (!appended.ok()) _exit(7);
    const Report report{id, end};
    if (write(reports, &report, sizeof report) != sizeof report) _exit(8);
    if (random() % 16 == 0 && end > 4 && !branch->Rewind(end - 2, options.claimed).ok()) _exit(9);
    if (random() % 64 == 0 && !store->Flush().ok()) _exit(10);
  }
}

std::string CheckTokens(const StoreState& state) {
  for (const auto& [name, branch] : state) {
    const uint64_t id = static_cast<uint64_t>(name.second[1] - '0');
    if (branch.tokens != TokensOf(id, 0, branch.tokens.size()))
      return name.second + " has other tokens";
  }
  return "";
}

std::string CheckState(const StoreState& state, const std::map<uint64_t, uint64_t>& acknowledged) {
  for (const auto& [id, length] : acknowledged) {
    const auto found = state.find({"", BranchName(id)});
    const uint64_t real = found == state.end() ? 0 : found->second.tokens.size();
    // A rewind by two that was not reported may have followed.
    if (real + 2 < length) {
      return BranchName(id) + " has " + std::to_string(real) + " tokens, " +
             std::to_string(length) + " were acknowledged";
    }
  }
  return CheckTokens(state);
}

std::string CheckStore(const std::string& path, const KillOptions& options,
                       const std::map<uint64_t, uint64_t>& acknowledged) {
  auto store = Store::Open(path, StoreOptions(options));
  if (!store.ok()) return "open: " + store.status().ToString();
  const auto state = ReadStore(*store);  // Checks KV against tokens.
  if (!state.ok()) return "read: " + state.status().ToString();
  return CheckState(*state, acknowledged);
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
  // When the writer is dead: what it acknowledged is there.
  std::string LookAtLast(const std::map<uint64_t, uint64_t>& acknowledged) {
    if (const Status shown = Refresh(); !shown.ok()) return "follow the dead: " + shown.ToString();
    const auto state = ReadStore(store_);
    if (!state.ok()) return "read what it left: " + state.status().ToString();
    return CheckState(*state, acknowledged);
  }

 private:
  Status Refresh() {
    if (store_.core() != nullptr) return store_.Refresh().status();
    Options options = StoreOptions(options_);
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
  char pattern[] = "/tmp/cairn-kill-XXXXXX";
  if (mkdtemp(pattern) == nullptr) return {.violation = "no temporary directory"};
  const std::string path = std::string(pattern) + "/store";
  for (uint32_t round = 0; round < options.kills && result.violation.empty(); ++round) {
    int reports[2];
    if (pipe2(reports, O_CLOEXEC) != 0) return {.violation = "no pipe"};
    const uint64_t child_seed = random();
    const pid_t child = fork();
    if (child == 0) Child(path, options, child_seed, reports[1]);
    close(reports[1]);
    // The first report shows that it runs; then it has a random while to live.
    pollfd ready{.fd = reports[0], .events = POLLIN, .revents = 0};
    poll(&ready, 1, 20000);
    Follower follower(path, options);
    if (options.follow) {
      const auto until =
          std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 300000);
      while (result.violation.empty() && std::chrono::steady_clock::now() < until) {
        result.violation = follower.Look(&result.followed);
      }
    } else {
      usleep(static_cast<useconds_t>(random() % 30000));
    }
    kill(child, SIGKILL);
    int ended = 0;
    waitpid(child, &ended, 0);
    if (!WIFSIGNALED(ended)) {
      result.violation = "the child ended by itself with " + std::to_string(WEXITSTATUS(ended));
    }
    std::map<uint64_t, uint64_t> acknowledged;
    Report report{};
    while (read(reports[0], &report, sizeof report) == sizeof report) {
      acknowledged[report.branch] = report.length;
      ++result.acknowledged;
    }
    close(reports[0]);
    ++result.kills;
    if (result.violation.empty() && options.follow) {
      result.violation = follower.LookAtLast(acknowledged);
    }
    if (result.violation.empty()) result.violation = CheckStore(path, options, acknowledged);
    if (!result.violation.empty()) {
      result.violation = "seed " + std::to_string(options.seed) + ", kill " +
                         std::to_string(round) + ": " + result.violation;
    }
    // A young store now and then, so that its creation is cut as well.
    if (round % 20 == 19) std::filesystem::remove_all(path);
  }
  std::filesystem::remove_all(pattern);
  return result;
}

}  // namespace cairn::crash
