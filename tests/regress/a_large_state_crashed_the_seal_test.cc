// SPDX-License-Identifier: Apache-2.0
//
// The bug: a sampler state or metadata above 16 MiB was appended, and a check ended the process
// when it was sealed; and again after every opening. Method: the largest that may be appended;
// seal, verify, copy and open again. One more byte is refused before anything is written.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

Status Append(Branch& chat, const SamplerState& sampler, const AppMetadata& metadata) {
  const std::vector<TokenId> tokens = Tokens(1);
  Delta delta = MakeDelta(tokens);
  delta.sampler = &sampler;
  delta.metadata = &metadata;
  return chat.AppendSync(delta).status();
}

void ExpectStates(const Store& store, const SamplerState& sampler, const AppMetadata& metadata) {
  ASSERT_OK_ASSIGN(const Branch chat, store.FindBranch("chat"));
  ASSERT_OK_ASSIGN(const auto at, chat.SamplerAt(1));
  EXPECT_TRUE(at.sampler == sampler);
  ASSERT_OK_ASSIGN(const auto metadata_at, chat.MetadataAt(1));
  EXPECT_TRUE(metadata_at.metadata == metadata);
}

TEST(ALargeStateCrashedTheSeal, TheLargestIsSealed) {
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.segment_bytes = 64u << 20;
  options.hot_tail_bytes = 128u << 20;
  options.max_memory_bytes = 1u << 30;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
  SamplerState sampler;  // Two of the largest parts: three frames of a table.
  sampler.generator = GeneratorKind::kNamed;
  sampler.blob_name = std::string(kMaxStateTextBytes, 'n');
  sampler.blob.assign(kMaxStateBytes, std::byte{3});
  sampler.blob.back() = std::byte{4};
  sampler.last_logits.assign(kMaxLastLogits, 0.5F);
  AppMetadata metadata{.content_type = std::string(kMaxStateTextBytes, 't'), .bytes = {}};
  metadata.bytes.assign(kMaxStateBytes, std::byte{5});

  const uint64_t records = store.Metrics().log_records;
  AppMetadata more = metadata;
  more.bytes.push_back({});
  EXPECT_FAILS(Append(chat, sampler, more), StatusCode::kInvalidArgument, "metadata.bytes");
  more = {.content_type = metadata.content_type + 't', .bytes = {}};
  EXPECT_FAILS(Append(chat, sampler, more), StatusCode::kInvalidArgument, "metadata.content_type");
  EXPECT_EQ(records, store.Metrics().log_records);

  ASSERT_OK(Append(chat, sampler, metadata));
  ASSERT_OK(store.Compact());
  ExpectStates(store, sampler, metadata);
  ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(report.damages.empty()) << report.damages[0].what;
  EXPECT_LE(3u + 2u, report.frames);
  ASSERT_OK(store.Close());
  ASSERT_OK_ASSIGN(Store again, world->Open(options));
  ExpectStates(again, sampler, metadata);
}

// With small segments a record holds less.
TEST(ALargeStateCrashedTheSeal, WhatNoRecordHoldsIsRefused) {
  const auto world = TestWorld::Make("memory");
  ASSERT_OK_ASSIGN(Store store, world->Open());
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
  AppMetadata metadata{.content_type = "", .bytes = std::vector<std::byte>(200'000)};
  const uint64_t records = store.Metrics().log_records;
  EXPECT_FAILS(Append(chat, {}, metadata), StatusCode::kInvalidArgument,
               "sampler, metadata and spans");
  EXPECT_EQ(records, store.Metrics().log_records);
  metadata.bytes.resize(50'000);
  EXPECT_OK(Append(chat, {}, metadata));
}

}  // namespace
}  // namespace cairn::testing
