// SPDX-License-Identifier: Apache-2.0
//
// The bug: statuses had the names of branches, namespaces, models, groups and planes as they were
// given. A program that logs them wrote what a stranger put into a name: lines of its own, quotes
// that end early, commands to a terminal, bytes that are no UTF-8.
// Method: calls that are refused, with such names.
#include "base/core/text.h"
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

const std::string kHostile = "x\" ok\n2026 fatal: \x1b[2J\xff";
const std::string kShown = "\"x\\x22 ok\\x0a2026 fatal: \\x1b[2J\\xff\"";

// Says the name, and is one line of clean text.
void ExpectShown(const Status& status, StatusCode code) {
  EXPECT_EQ(code, status.code());
  const std::string text = status.ToString();
  EXPECT_NE(text.find(kShown), std::string::npos) << text;
  EXPECT_EQ(Printable(text), text);
}

TEST(ANameForgedALineOfTheLog, NoStatusHasItAsItIs) {
  ASSERT_OK_ASSIGN(Store store, Store::Open(":memory:", TinyOptions()));
  ModelSpec spec = TinyModel(kHostile);
  spec.groups[0].name = kHostile;
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = kHostile, .ns = kHostile}));

  ExpectShown(store.FindBranch(kHostile).status(), StatusCode::kNotFound);
  ExpectShown(store.FindBranch("x", kHostile).status(), StatusCode::kNotFound);
  ExpectShown(store.CreateBranch(model, {.name = kHostile, .ns = kHostile}).status(),
              StatusCode::kAlreadyExists);
  const std::vector<TokenId> tokens = Tokens(3);

  ModelSpec other = spec;
  other.groups[0].layers = 3;
  ExpectShown(store.RegisterModel(other).status(), StatusCode::kModelMismatch);
  ModelSpec twice = spec;
  twice.identity.name = "twice";
  twice.groups.push_back(twice.groups[0]);
  ExpectShown(store.RegisterModel(twice).status(), StatusCode::kInvalidArgument);

  ASSERT_OK(chat.AppendSync({.tokens = tokens}));
  KvSet kv(spec, Layout::kContiguous, 0, 3);
  RestoreRequest request;
  request.into = kv.View(0, 3);
  request.require_kv = true;
  ExpectShown(chat.Restore(request).status(), StatusCode::kEvicted);

  NamespacePolicy policy;
  policy.max_bytes = 1;
  ASSERT_OK(store.SetNamespace(kHostile, policy));
  ExpectShown(chat.AppendSync({.tokens = tokens}).status(), StatusCode::kNoSpace);
}

TEST(ANameForgedALineOfTheLog, WhatIsEscaped) {
  EXPECT_EQ(Escaped("chat-42 \xc3\xa9\xe8\xaa\x9e\xf0\x9f\x98\x80"),
            "chat-42 \xc3\xa9\xe8\xaa\x9e\xf0\x9f\x98\x80");
  EXPECT_EQ(Escaped("\"\\"), "\\x22\\x5c");
  EXPECT_EQ(Printable("\"\\"), "\"\\");
  EXPECT_EQ(Printable("\xc2\x9b\xc2\xa0"), "\\xc2\\x9b\xc2\xa0") << "a control of Latin-1, a space";
  EXPECT_EQ(Printable("\xe2\x80\xa8\xe2\x80\xae"), "\\xe2\\x80\\xa8\\xe2\\x80\\xae")
      << "a line separator, and what writes backwards";
  EXPECT_EQ(Printable("\xc0\xaf\xe0\x80\xaf\xed\xa0\x80\xf4\x90\x80\x80\xf8\x88"),
            "\\xc0\\xaf\\xe0\\x80\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80\\xf8\\x88")
      << "too long forms, a surrogate, beyond Unicode";
  EXPECT_EQ(Printable("\xe8\xaa"), "\\xe8\\xaa") << "cut";
  EXPECT_EQ(Printable(std::string_view("\0\x7f", 2)), "\\x00\\x7f");
}

}  // namespace
}  // namespace cairn::testing
