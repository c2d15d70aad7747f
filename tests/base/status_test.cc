// SPDX-License-Identifier: Apache-2.0
//
// Property: reading the value of a failure reports what failed and where it was read; the macros
// hand a failure on and a value out.
#include "cairn/status.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "cairn/version.h"

namespace cairn {
namespace {

Result<std::unique_ptr<int>> Make(bool good) {
  if (!good) return Status(StatusCode::kNotFound, "no number");
  return std::make_unique<int>(7);
}

Result<int> Twice(bool good) {
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<int> one, Make(good));
  CAIRN_RETURN_IF_ERROR(Make(good).status());
  return 2 * *one;
}

TEST(Result, TheMacrosHandOn) {
  EXPECT_EQ(14, *Twice(true));
  EXPECT_EQ(StatusCode::kNotFound, Twice(false).status().code());
}

TEST(ResultDeathTest, ValueTellsTheLineThatReadIt) {
  const std::string here = "status_test.cc:" + std::to_string(__LINE__ + 1);
  EXPECT_DEATH((void)Twice(false).value(), here + ": read the value .*NotFound: no number");
  Result<int> kept = Twice(false);
  const std::string there = "status_test.cc:" + std::to_string(__LINE__ + 1);
  EXPECT_DEATH(kept.value() = 3, there);
}

// The command that it prints names this file.
TEST(ResultDeathTest, AStarTellsTheAddressThatReadIt) {
  Result<std::string> none = Status(StatusCode::kNotFound, "no name");
  EXPECT_DEATH((void)none->size(), "NotFound: no name\n.*addr2line -Cfie .*cairn_base_test 0x");
  EXPECT_DEATH((void)*none, "addr2line -Cfie .*cairn_base_test 0x");
}

TEST(Version, IsWhatTheHeaderSays) {
  char text[32];
  std::snprintf(text, sizeof text, "%d.%d.%d", CAIRN_VERSION_MAJOR, CAIRN_VERSION_MINOR,
                CAIRN_VERSION_PATCH);
  EXPECT_STREQ(text, CAIRN_VERSION_STRING);
  EXPECT_STREQ(text, Version());
  EXPECT_LT(CAIRN_VERSION, CAIRN_MAKE_VERSION(CAIRN_VERSION_MAJOR, CAIRN_VERSION_MINOR + 1, 0));
}

}  // namespace
}  // namespace cairn
