// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/real_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/core/check.h"

namespace cairn::crash {
namespace {

constexpr uint64_t kBranches = 3;

std::string BranchName(uint64_t branch) { return "k" + std::to_string(branch); }

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

Result<Branch> FindOrMake(Store& store, ModelId model, uint64_t id) {
  auto branch = store.FindBranch(BranchName(id));
  if (branch.status().code() != StatusCode::kNotFound) return branch;
  return store.CreateBranch(model, {.name = BranchName(id)});
}

Status Append(Branch& branch, uint64_t id, uint64_t begin, uint64_t end, Durability durability) {
  const std::vector<TokenId> tokens = TokensOf(id, begin, end);
  KvMemory kv(TinyModel(), begin, end - begin);
  kv.Fill(TokensOf(id, 0, end));
  return branch
      .AppendSync({.tokens = tokens, .kv = kv.view()},
                  {.durability = durability, .expected_length = begin})
      .status();
}

// All that the pipe holds.
void TakeReports(int pipe, CrashedWriter* result, Reports* acknowledged) {
  Report report{};
  while (read(pipe, &report, sizeof report) == sizeof report) {
    uint64_t& length = (*acknowledged)[report.branch];
    if (report.length < length && !report.rewinds) {
      result->lost = BranchName(report.branch) + " had less than the " + std::to_string(length) +
                     " tokens that were acknowledged";
    }
    length = report.length;
    ++result->reports;
  }
}

// A rewind that was announced may have become durable; an append need not have.
void TakeLateReports(int pipe, Reports* acknowledged) {
  Report report{};
  while (read(pipe, &report, sizeof report) == sizeof report) {
    const auto found = acknowledged->find(report.branch);
    if (found == acknowledged->end()) continue;
    if (report.rewinds) found->second = std::min(found->second, report.length);
  }
}

}  // namespace

Options StoreOptionsOf(const WriterOptions& writer) {
  Options options;
  options.create_if_missing = true;
  if (writer.moves_files) {
    options.log_bytes_max = 4 << 20;
    options.replay_records_max = 64;
  }
  options.segment_bytes = 1 << 20;
  options.max_memory_bytes = 32 << 20;
  options.hot_tail_bytes = 1 << 20;
  options.backend = writer.backend;
  return options;
}

Status WriteUntilTheEnd(const std::string& path, const WriterOptions& options, uint64_t seed,
                        const std::function<bool(const Report&)>& report) {
  std::mt19937_64 random(seed);
  CAIRN_ASSIGN_OR_RETURN(Store store, Store::Open(path, StoreOptionsOf(options)));
  CAIRN_ASSIGN_OR_RETURN(const ModelId model, store.RegisterModel(TinyModel()));
  while (true) {
    const uint64_t id = random() % kBranches;
    CAIRN_ASSIGN_OR_RETURN(Branch branch, FindOrMake(store, model, id));
    CAIRN_ASSIGN_OR_RETURN(const uint64_t length, branch.length());
    const uint64_t end = length + 1 + random() % 40;
    const auto level = static_cast<Durability>(random() % 3);
    CAIRN_RETURN_IF_ERROR(Append(branch, id, length, end, level));
    if (level < options.claimed) continue;
    if (!report({id, end})) return Status::Ok();
    if (random() % 16 == 0 && end > 4) {
      if (!report({id, end - 2, true})) return Status::Ok();
      CAIRN_RETURN_IF_ERROR(branch.Rewind(end - 2, options.claimed));
    }
    if (random() % 64 == 0) CAIRN_RETURN_IF_ERROR(store.Flush());
  }
}

CrashedWriter CrashAWriter(const std::string& path, const WriterOptions& options, uint64_t seed,
                           const std::function<void()>& live, const std::function<void()>& crash,
                           Reports* acknowledged) {
  CrashedWriter result;
  int reports[2];
  CAIRN_CHECK(pipe2(reports, O_CLOEXEC) == 0);
  const pid_t child = fork();
  if (child == 0) {
    (void)WriteUntilTheEnd(path, options, seed, [&](const Report& report) {
      return write(reports[1], &report, sizeof report) == sizeof report;
    });
    _exit(3);
  }
  close(reports[1]);
  pollfd ready{.fd = reports[0], .events = POLLIN, .revents = 0};
  poll(&ready, 1, 20000);
  live();
  if (crash) {
    CAIRN_CHECK(fcntl(reports[0], F_SETFL, O_NONBLOCK) == 0);
    TakeReports(reports[0], &result, acknowledged);
    crash();
  }
  kill(child, SIGKILL);
  int ended = 0;
  waitpid(child, &ended, 0);
  result.end = EndOf(ended);
  if (crash) {
    TakeLateReports(reports[0], acknowledged);
  } else {
    TakeReports(reports[0], &result, acknowledged);
  }
  close(reports[0]);
  return result;
}

WriterEnd EndOf(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return WriterEnd::kRefused;
  return WTERMSIG(wait_status) == SIGKILL ? WriterEnd::kKilled : WriterEnd::kCrashed;
}

std::string CheckTokens(const StoreState& state) {
  for (const auto& [name, branch] : state) {
    const uint64_t id = static_cast<uint64_t>(name.second[1] - '0');
    if (branch.tokens != TokensOf(id, 0, branch.tokens.size())) {
      return name.second + " has other tokens";
    }
    if (branch.kv_lengths[0] != branch.tokens.size()) return name.second + " has less KV";
  }
  return "";
}

std::string CheckState(const StoreState& state, const Reports& acknowledged) {
  for (const auto& [id, length] : acknowledged) {
    const auto found = state.find({"", BranchName(id)});
    const uint64_t real = found == state.end() ? 0 : found->second.tokens.size();
    if (real < length) {
      return BranchName(id) + " has " + std::to_string(real) + " tokens, " +
             std::to_string(length) + " were acknowledged";
    }
  }
  return CheckTokens(state);
}

std::string CheckStore(const std::string& path, const WriterOptions& options,
                       const Reports& acknowledged) {
  auto store = Store::Open(path, StoreOptionsOf(options));
  if (!store.ok()) return "open: " + store.status().ToString();
  const auto state = ReadStore(*store);  // Checks KV against tokens.
  if (!state.ok()) return "read: " + state.status().ToString();
  return CheckState(*state, acknowledged);
}

}  // namespace cairn::crash
