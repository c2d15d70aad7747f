// SPDX-License-Identifier: Apache-2.0
//
// A process that may open few more files than it has.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>

namespace cairn::testing {

class FewDescriptors {
 public:
  explicit FewDescriptors(uint64_t more) {
    EXPECT_EQ(0, getrlimit(RLIMIT_NOFILE, &before_));
    rlimit few = before_;
    few.rlim_cur = 0;
    for (; more > 0; ++few.rlim_cur) {
      more -= fcntl(static_cast<int>(few.rlim_cur), F_GETFD) == -1 ? 1 : 0;
    }
    EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &few));
  }
  ~FewDescriptors() { EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &before_)); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace cairn::testing
