// SPDX-License-Identifier: Apache-2.0
//
// Property: sampler state, metadata and content spans come back as they were set, at every position
// they were set at, along every path; atomic spans admit no cut inside.
// Method: states of every generator kind at several positions, forks and rewinds around them.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class StateTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    chat_ = Create(Register(TokenModel()), "chat");
  }
  void Append(uint64_t count, const SamplerState* sampler, const AppMetadata* metadata = nullptr,
              std::span<const ContentSpan> spans = {}) {
    const std::vector<TokenId> tokens = Tokens(count);
    Delta delta = MakeDelta(tokens);
    delta.sampler = sampler;
    delta.metadata = metadata;
    delta.spans = spans;
    ASSERT_OK(chat_.AppendSync(delta));
  }
  Branch chat_;
};

INSTANTIATE_TEST_SUITE_P(Worlds, StateTest, ::testing::Values("memory", "threads", "simulated"),
                         NameOf);

SamplerState Philox(uint64_t seed) {
  SamplerState state;
  state.generator = GeneratorKind::kPhilox;
  state.philox_seed = seed;
  state.philox_offset = ~seed;
  return state;
}

std::vector<SamplerState> EveryKind() {
  SamplerState mersenne;
  mersenne.generator = GeneratorKind::kMt19937;
  mersenne.blob.assign(2504, std::byte{0x5A});
  mersenne.temperature = 0.7;
  mersenne.top_p = 0.95;
  mersenne.min_p = 0.05;
  mersenne.repetition_penalty = 1.1;
  mersenne.top_k = 40;
  SamplerState named;
  named.generator = GeneratorKind::kNamed;
  named.blob_name = "some-engine";
  named.blob_version = 3;
  named.blob = {std::byte{1}, std::byte{0}, std::byte{255}};
  named.last_logits = {0.0F, -0.0F, 1e30F, -1e-30F};
  return {SamplerState(), Philox(0x0123456789abcdef), mersenne, named};
}

TEST_P(StateTest, EveryGeneratorComesBackAtItsPosition) {
  const std::vector<SamplerState> states = EveryKind();
  for (const SamplerState& state : states) {
    Append(2, &state);
    Append(1, nullptr);
  }
  for (const bool cold : {false, true}) {
    if (cold) {
      Reopen();
      chat_ = Find("chat");
    }
    EXPECT_FAILS(chat_.SamplerAt(1), StatusCode::kNotFound, "no sampler state");
    for (uint64_t position = 2; position <= 12; ++position) {
      ASSERT_OK_ASSIGN(const Branch::StateAt at, chat_.SamplerAt(position));
      const uint64_t index = (position - 2) / 3;
      EXPECT_EQ(2 + 3 * index, at.position);
      EXPECT_EQ(states[index], at.sampler) << position;
      EXPECT_FALSE(at.metadata.has_value());
    }
    EXPECT_FAILS(chat_.MetadataAt(12), StatusCode::kNotFound, "no metadata");
  }
}

TEST_P(StateTest, MetadataAndSamplerAreApart) {
  const AppMetadata first{.content_type = "application/msgpack", .bytes = {std::byte{0x80}}};
  const AppMetadata empty;
  AppMetadata large{.content_type = "text/plain", .bytes = {}};
  large.bytes.assign(100'000, std::byte{'x'});
  const SamplerState sampler = Philox(1);
  Append(1, nullptr, &first);
  Append(1, &sampler, &empty);
  Append(1, nullptr, &large);
  for (const bool cold : {false, true}) {
    if (cold) {
      Reopen();
      chat_ = Find("chat");
    }
    EXPECT_EQ(first, chat_.MetadataAt(1)->metadata);
    EXPECT_EQ(empty, chat_.MetadataAt(2)->metadata);
    EXPECT_EQ(large, chat_.MetadataAt(3)->metadata);
    EXPECT_EQ(large, chat_.MetadataAt(1000)->metadata) << "the newest at or before";
    EXPECT_EQ(2u, chat_.SamplerAt(3)->position);
    EXPECT_FAILS(chat_.SamplerAt(1), StatusCode::kNotFound);
    EXPECT_FAILS(chat_.MetadataAt(0), StatusCode::kNotFound);
  }
}

TEST_P(StateTest, StatesFollowThePathThroughForksAndRewinds) {
  const SamplerState a = Philox(1), b = Philox(2), c = Philox(3), d = Philox(4);
  Append(3, &a);
  Append(3, &b);
  ASSERT_OK_ASSIGN(Branch twin, chat_.ForkAt(5, {.name = "twin"}));
  Append(3, &c);
  const std::vector<TokenId> tokens = Tokens(4);
  Delta delta = MakeDelta(tokens);
  delta.sampler = &d;
  ASSERT_OK(twin.AppendSync(delta));
  for (const bool cold : {false, true}) {
    if (cold) {
      Reopen();
      chat_ = Find("chat");
      twin = Find("twin");
    }
    EXPECT_EQ(c, chat_.SamplerAt(9)->sampler);
    EXPECT_EQ(b, chat_.SamplerAt(8)->sampler);
    EXPECT_EQ(a, twin.SamplerAt(8)->sampler) << "the twin left before the second was set";
    EXPECT_EQ(d, twin.SamplerAt(9)->sampler);
  }
  ASSERT_OK(chat_.Rewind(6));
  EXPECT_EQ(b, chat_.SamplerAt(100)->sampler);
  ASSERT_OK(chat_.Rewind(5));
  EXPECT_EQ(a, chat_.SamplerAt(100)->sampler);
  Append(1, &d);
  EXPECT_EQ(d, chat_.SamplerAt(100)->sampler);
  EXPECT_EQ(6u, chat_.SamplerAt(100)->position);
}

TEST_P(StateTest, SpansComeBackAndAtomicOnesAreNotCut) {
  const std::vector<ContentSpan> spans = {{.begin = 1, .end = 4, .hash = {1, 2}, .atomic = true},
                                          {.begin = 4, .end = 8, .hash = {3, 4}, .atomic = false},
                                          {.begin = 9, .end = 10, .hash = {5, 6}, .atomic = true}};
  Append(10, nullptr, nullptr, spans);
  for (const bool cold : {false, true}) {
    if (cold) {
      Reopen();
      chat_ = Find("chat");
    }
    EXPECT_EQ(spans, *chat_.Spans(0, 10));
    EXPECT_EQ(std::vector<ContentSpan>{spans[0]}, *chat_.Spans(2, 4));
    EXPECT_EQ(std::vector<ContentSpan>{spans[1]}, *chat_.Spans(7, 9));
    EXPECT_TRUE(chat_.Spans(8, 9)->empty());
    EXPECT_TRUE(chat_.Spans(0, 1)->empty());
    for (uint64_t position = 0; position <= 10; ++position) {
      const bool inside = position == 2 || position == 3;
      auto fork = chat_.ForkAt(position, {});
      if (inside) {
        EXPECT_FAILS(fork, StatusCode::kInvalidArgument, "atomic content span [1, 4)");
        EXPECT_FAILS(chat_.Rewind(position), StatusCode::kInvalidArgument, "atomic");
        continue;
      }
      ASSERT_OK(fork);
      EXPECT_EQ(position, *fork->length());
      ASSERT_OK_ASSIGN(const std::vector<ContentSpan> seen, fork->Spans(0, UINT64_MAX));
      EXPECT_EQ((position > 1) + (position > 4) + (position > 9), static_cast<int>(seen.size()));
      ASSERT_OK(fork->Drop());
    }
  }
  ASSERT_OK(chat_.Rewind(6));
  EXPECT_EQ(2u, chat_.Spans(0, UINT64_MAX)->size()) << "a span that is not atomic may be cut";
}

TEST_P(StateTest, ASpanEndsWhereAForkOrARewindCutsIt) {
  const std::vector<ContentSpan> spans = {{.begin = 2, .end = 8, .hash = {1, 2}, .atomic = false}};
  const std::vector<ContentSpan> cut = {{.begin = 2, .end = 5, .hash = {1, 2}, .atomic = false}};
  Append(10, nullptr, nullptr, spans);
  ASSERT_OK_ASSIGN(Branch fork, chat_.ForkAt(5, {.name = "fork"}));
  ASSERT_OK(fork.AppendSync(MakeDelta(Tokens(6))));
  const auto check = [&](const Branch& branch, const std::vector<ContentSpan>& expected) {
    EXPECT_EQ(expected, *branch.Spans(0, UINT64_MAX));
    EXPECT_EQ(expected, *branch.Spans(4, UINT64_MAX));
    EXPECT_EQ(expected.front().end == 5, branch.Spans(5, 6)->empty());
  };
  check(chat_, spans);
  check(fork, cut);
  ASSERT_OK(chat_.Rewind(5));
  ASSERT_OK(chat_.AppendSync(MakeDelta(Tokens(6))));
  check(chat_, cut);
  ASSERT_OK(chat_.Drop());
  ASSERT_OK(store_.Compact());  // Joins what both had with the fork.
  EXPECT_EQ(1u, fork.Path()->size());
  check(fork, cut);
  Reopen();
  check(Find("fork"), cut);
}

TEST_P(StateTest, WrongSpansAreRefused) {
  Append(5, nullptr);
  const std::vector<TokenId> tokens = Tokens(5);
  const auto refused = [&](std::vector<ContentSpan> spans) {
    Delta delta = MakeDelta(tokens);
    delta.spans = spans;
    EXPECT_FAILS(chat_.AppendSync(delta), StatusCode::kInvalidArgument, "content span");
  };
  refused({{.begin = 4, .end = 6}});
  refused({{.begin = 6, .end = 11}});
  refused({{.begin = 6, .end = 6}});
  refused({{.begin = 7, .end = 6}});
  refused({{.begin = 7, .end = 9}, {.begin = 8, .end = 10}});
  refused({{.begin = 8, .end = 9}, {.begin = 6, .end = 7}});
  EXPECT_EQ(5u, *chat_.length());
}

}  // namespace
}  // namespace cairn::testing
