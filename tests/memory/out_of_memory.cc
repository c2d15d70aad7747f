// SPDX-License-Identifier: Apache-2.0
#include "tests/memory/out_of_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/core/check.h"
#include "sim/world.h"
#include "tests/memory/failing_new.h"
#include "tests/memory/out_of_memory_session.h"

namespace cairn::memory {

namespace {

// A store with tables, an index, and records that are in the log alone.
struct Start {
  std::shared_ptr<io::SimDisk> disk = std::make_shared<io::SimDisk>();
  Contents contents;

  Start() {
    Session session(disk);
    session.Begin({});
    for (const char* name : {"chat", "other"}) {
      CAIRN_CHECK(session.store().CreateBranch(session.model_id(), {.name = name}).ok());
      session.Append(name, 50, Durability::kPower);
    }
    CAIRN_CHECK(session.store().Compact().ok());
    session.Append("chat", 5, Durability::kPower);
    contents = session.contents();
    CAIRN_CHECK(session.store().Close().ok());
  }
};

Outcome RunOnce(const Start& start, const Script& script, const FailPlan& plan) {
  std::shared_ptr<io::SimDisk> disk = start.disk->CrashClone(io::CrashChoice::KeepAll());
  Session session(std::move(disk), script.tune);
  if (script.opened) session.Begin(start.contents);
  if (!script.opened) session.Expect(start.contents);
  return session.Run(script.run, plan);
}

// In a process of its own, so that a crash or a wait without end is seen and survived.
Outcome RunForked(const Start& start, const Script& script, const FailPlan& plan) {
  constexpr unsigned kSecondsMax = 20;
  int ends[2];
  CAIRN_CHECK(pipe2(ends, O_CLOEXEC) == 0);
  const pid_t child = fork();
  CAIRN_CHECK(child >= 0);
  if (child == 0) {
    struct sigaction die {};
    die.sa_handler = [](int signal) {
      PrintFirstFailure();
      PrintStack();
      raise(signal);
    };
    die.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    for (const int signal : {SIGABRT, SIGSEGV, SIGALRM}) sigaction(signal, &die, nullptr);
    const rlimit none{};
    setrlimit(RLIMIT_CORE, &none);
    alarm(kSecondsMax);
    const Outcome outcome = RunOnce(start, script, plan);
    if (!outcome.violation.empty()) PrintFirstFailure();
    const std::string text = std::to_string(outcome.allocations) + " " +
                             std::to_string(outcome.failed) + " " +
                             std::to_string(outcome.calls_failed) + " " +
                             std::to_string(outcome.poisoned) + " " + outcome.violation;
    const bool written =
        write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  CAIRN_CHECK(waitpid(child, &status, 0) == child);
  Outcome outcome;
  if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0) {
    outcome.failed = 1;
    outcome.violation = WIFSIGNALED(status)
                            ? std::string("the process died: ") + strsignal(WTERMSIG(status))
                            : "the process ended";
    return outcome;
  }
  unsigned long long allocations = 0, failed = 0, calls = 0, poisoned = 0;
  int at = 0;
  CAIRN_CHECK(std::sscanf(text.c_str(), "%llu %llu %llu %llu %n", &allocations, &failed, &calls,
                          &poisoned, &at) == 4);
  return {allocations, failed, calls, poisoned != 0, text.substr(static_cast<size_t>(at))};
}

}  // namespace

std::string OutOfMemoryResult::ToString() const {
  return std::to_string(runs) + " runs (" + std::to_string(allocations) + " allocations), " +
         std::to_string(calls_failed) + " calls failed, " + std::to_string(poisoned) +
         " stores were poisoned";
}

std::vector<std::string> OutOfMemoryScripts() {
  std::vector<std::string> names;
  for (const Script& script : Scripts()) names.push_back(script.name);
  return names;
}

OutOfMemoryResult RunOutOfMemory(const OutOfMemoryOptions& options) {
  OutOfMemoryResult result;
  const Start start;
  for (const Script& script : Scripts()) {
    if (script.name != options.script) continue;
    for (uint64_t at = 1;; at += options.stride) {
      const Outcome outcome =
          RunForked(start, script, {.at = at, .persistent = options.persistent});
      if (!outcome.violation.empty()) {
        result.violation = "allocation " + std::to_string(at) + ": " + outcome.violation;
        break;
      }
      result.allocations = std::max(result.allocations, outcome.allocations);
      if (outcome.failed == 0) break;
      ++result.runs;
      result.calls_failed += outcome.calls_failed;
      result.poisoned += outcome.poisoned;
    }
  }
  return result;
}

}  // namespace cairn::memory
