// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/hostile_files.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "tests/support/last_words.h"

namespace cairn::crash {
namespace {

TEST(Hostile, Explore) {
  const auto base = HostileBase();
  std::vector<HostileCase> cases;
  const std::string only = std::getenv("ONLY") != nullptr ? std::getenv("ONLY") : "";
  const size_t stride = std::getenv("STRIDE") != nullptr ? std::stoul(std::getenv("STRIDE")) : 1;
  for (const auto& some : {HostileManifests(*base), HostileSmallFiles(*base),
                           HostileSnapshots(*base), HostileIndexRecords(*base)}) {
    std::printf("%zu cases, from %s\n", some.size(), some.front().name.c_str());
    for (const HostileCase& one : some) {
      if (one.name.find(only) != std::string::npos) cases.push_back(one);
    }
  }
  size_t bad = 0;
  for (size_t i = 0; i < cases.size(); i += stride) {
    for (const HostileMode mode :
         {HostileMode::kWrite, HostileMode::kRead, HostileMode::kSalvage}) {
      const std::string name = cases[i].name + ", mode " + std::to_string(static_cast<int>(mode));
      fflush(nullptr);
      const pid_t child = fork();
      if (child == 0) {
        alarm(100);
        const auto begin = std::chrono::steady_clock::now();
        const std::string found = RunHostile(*base, cases[i], mode);
        const double s =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (!found.empty()) std::printf("VIOLATION %s: %s\n", name.c_str(), found.c_str());
        if (s > 5) std::printf("SLOW %s: %.1f s\n", name.c_str(), s);
        fflush(nullptr);
        _exit(found.empty() ? 0 : 1);
      }
      int status = 0;
      waitpid(child, &status, 0);
      if (WIFSIGNALED(status)) {
        std::printf("DIED %d %s\n", WTERMSIG(status), name.c_str());
        ++bad;
      }
    }
  }
  std::printf("%zu died\n", bad);
}

}  // namespace
}  // namespace cairn::crash
