// SPDX-License-Identifier: Apache-2.0
//
// Assertions about Status and Result.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/core/check.h"
#include "cairn/status.h"

namespace cairn::testing {

inline Status StatusOf(const Status& status) { return status; }
template <typename T>
Status StatusOf(const Result<T>& result) {
  return result.status();
}

inline ::testing::AssertionResult IsOk(const Status& status) {
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status.ToString();
}

// The code, and a message that holds `part`.
inline ::testing::AssertionResult Fails(const Status& status, StatusCode code,
                                        const std::string& part = "") {
  if (status.code() == code && status.message().find(part) != std::string_view::npos) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "expected " << StatusCodeName(code) << " with \"" << part
                                       << "\", not " << status.ToString();
}

}  // namespace cairn::testing

#define EXPECT_OK(expression) \
  EXPECT_TRUE(::cairn::testing::IsOk(::cairn::testing::StatusOf(expression)))
#define ASSERT_OK(expression) \
  ASSERT_TRUE(::cairn::testing::IsOk(::cairn::testing::StatusOf(expression)))
#define EXPECT_FAILS(expression, ...) \
  EXPECT_TRUE(::cairn::testing::Fails(::cairn::testing::StatusOf(expression), __VA_ARGS__))
#define ASSERT_FAILS(expression, ...) \
  ASSERT_TRUE(::cairn::testing::Fails(::cairn::testing::StatusOf(expression), __VA_ARGS__))
// ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
#define ASSERT_OK_ASSIGN(declaration, expression) \
  ASSERT_OK_ASSIGN_IMPL(CAIRN_STATUS_CONCAT(cairn_assigned_, __LINE__), declaration, expression)
#define ASSERT_OK_ASSIGN_IMPL(result, declaration, expression)             \
  auto result = (expression);                                              \
  ASSERT_TRUE(::cairn::testing::IsOk(::cairn::testing::StatusOf(result))); \
  declaration = std::move(*result)
