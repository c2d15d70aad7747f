// SPDX-License-Identifier: Apache-2.0
//
// Property: what a caller says of KV (Delta::exact) stays with every position of it, in the log, in
// the index, in tables, in forks and through whatever cuts, seals, evicts or rewrites it; a restore
// reports how many of its bytes are approximate; and nothing is ever said of token ids. Method:
// appends of every kind that alternate, position by position in a book, and restores of many
// ranges, hot, cold and sealed.
#include <algorithm>

#include "base/codec/fields.h"
#include "engine/tree/memory/op.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class ProvenanceTest : public WorldTest {
 protected:
  // KV and tokens of the next positions, by whatever `append` does with them.
  template <typename AppendWith>
  void Grow(uint64_t count, bool is_exact, const AppendWith& append) {
    const uint64_t begin = exact_.size();
    KvSet kv(model_, Layout::kContiguous, begin, count);
    kv.Write(kSeed, begin, begin + count);
    const std::vector<TokenId> tokens = Tokens(count, kSeed + begin);
    Delta delta = MakeDelta(tokens, kv.View(begin, count));
    delta.exact = is_exact;
    ASSERT_OK(append(delta));
    exact_.resize(begin + count, is_exact);
  }
  void Grow(Branch& branch, uint64_t count, bool is_exact) {
    Grow(count, is_exact, [&](const Delta& delta) { return branch.AppendSync(delta); });
  }

  void ExpectRange(const Branch& branch, uint64_t begin, uint64_t end) {
    SCOPED_TRACE("[" + std::to_string(begin) + ", " + std::to_string(end) + ")");
    KvSet got(model_, Layout::kNhd, begin, end - begin);
    RestoreRequest request;
    request.begin = begin;
    request.end = end;
    request.into = got.View(begin, end - begin);
    ASSERT_OK_ASSIGN(const RestoreResult restored, branch.Restore(request));
    const auto approximate =
        static_cast<uint64_t>(std::count(exact_.begin() + static_cast<ptrdiff_t>(begin),
                                         exact_.begin() + static_cast<ptrdiff_t>(end), false));
    EXPECT_EQ(approximate * model_.token_bytes(), restored.approximate_bytes);
    EXPECT_EQ((end - begin) * model_.token_bytes(), restored.bytes);
  }
  void ExpectAll(const Branch& branch) {
    const uint64_t length = exact_.size();
    EXPECT_TRUE(HasKv(branch, model_, 0, length));
    for (uint64_t begin = 0; begin < length; begin += 1 + length / 7) {
      for (uint64_t end = begin + 1; end <= length; end += 1 + length / 5) {
        ASSERT_NO_FATAL_FAILURE(ExpectRange(branch, begin, end));
      }
      ASSERT_NO_FATAL_FAILURE(ExpectRange(branch, begin, length));
    }
  }
  // As it is, read from the log, sealed, and again from what the index says.
  void ExpectEverywhere(const std::string& name, std::optional<Options> options = {}) {
    for (const char* where : {"as it is", "opened", "sealed", "opened again"}) {
      SCOPED_TRACE(where);
      if (std::string(where).starts_with("opened")) {
        Reopen(options);
      } else if (std::string(where) == "sealed") {
        ASSERT_OK(store_.Compact());
      }
      ASSERT_NO_FATAL_FAILURE(ExpectAll(Find(name)));
    }
    ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty()) << report.damages[0].what;
  }

  const ModelSpec model_ = TinyModel();
  std::vector<bool> exact_;  // By position of the branch.
};

INSTANTIATE_TEST_SUITE_P(Worlds, ProvenanceTest,
                         ::testing::Values("memory", "threads", "simulated"), NameOf);

TEST_P(ProvenanceTest, StaysWithEachPosition) {
  Branch chat = Create(Register(model_), "chat");
  for (const auto& [count, is_exact] : std::vector<std::pair<uint64_t, bool>>{
           {10, true}, {7, false}, {1, false}, {3, true}, {40, false}, {90, true}, {1, false}}) {
    ASSERT_NO_FATAL_FAILURE(Grow(chat, count, is_exact));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectEverywhere("chat"));
}

// Cut within an approximate append, which is sealed; then others go on, the branch and a fork.
TEST_P(ProvenanceTest, CutAndContinuedOtherwise) {
  Branch chat = Create(Register(model_), "chat");
  Grow(chat, 20, true);
  Grow(chat, 20, false);
  ASSERT_OK(store_.Compact());
  ASSERT_OK(chat.ForkAt(35, {.name = "fork"}));
  ASSERT_OK(chat.Rewind(30));
  exact_.resize(30);
  Grow(chat, 15, true);
  ASSERT_NO_FATAL_FAILURE(ExpectAll(chat));
  exact_.assign(35, false);
  std::fill(exact_.begin(), exact_.begin() + 20, true);
  Branch fork = Find("fork");
  Grow(fork, 5, true);
  Grow(fork, 5, false);
  ASSERT_NO_FATAL_FAILURE(ExpectEverywhere("fork"));
  // The rest of the chain becomes one node.
  ASSERT_OK(Find("chat").Drop());
  ASSERT_OK(store_.Compact());
  ASSERT_NO_FATAL_FAILURE(ExpectEverywhere("fork"));
}

TEST_P(ProvenanceTest, OfEveryKindOfAppend) {
  Branch chat = Create(Register(model_), "chat");
  bool is_exact = true;
  const auto next = [&] { return is_exact = !is_exact; };
  for (int round = 0; round < 2; ++round) {
    Grow(3, next(),
         [&](const Delta& delta) { return WhileBusy(store_, [&] { return chat.Append(delta); }); });
    Grow(4, next(), [&](const Delta& delta) {
      WriteBatch batch;
      batch.Append(chat, delta);
      return store_.Write(batch);
    });
    Grow(5, next(), [&](const Delta& delta) -> Status {
      CAIRN_ASSIGN_OR_RETURN(Draft draft, chat.BeginAppend(delta.tokens.size()));
      GroupView view = delta.kv->groups[0];
      for (uint32_t layer = 0; layer < 2; ++layer) {
        std::vector<PlaneView> planes(view.planes.begin(), view.planes.end());
        for (PlaneView& plane : planes) plane.layer_bases = plane.layer_bases.subspan(layer, 1);
        GroupView one = view;
        one.planes = planes;
        CAIRN_RETURN_IF_ERROR(draft.Put(layer, one));
      }
      Delta taken = MakeDelta(delta.tokens);
      taken.exact = delta.exact;
      CAIRN_ASSIGN_OR_RETURN(Ticket ticket, draft.Commit(taken, {}));
      return ticket.Wait();
    });
    // KV that comes later than its tokens.
    Grow(6, next(), [&](const Delta& delta) -> Status {
      CAIRN_RETURN_IF_ERROR(chat.AppendSync(MakeDelta(delta.tokens)).status());
      return chat.Fill(*delta.kv, {.exact = delta.exact});
    });
  }
  ASSERT_NO_FATAL_FAILURE(ExpectEverywhere("chat"));
}

// In parts.
TEST_P(ProvenanceTest, OfLargeAppends) {
  Branch chat = Create(Register(model_), "chat");
  Grow(chat, 2, true);
  Grow(chat, 5000, false);
  Grow(chat, 300, true);
  ASSERT_NO_FATAL_FAILURE(ExpectEverywhere("chat"));
}

// Tokens that are coalesced to one record are all exact, or none of them is.
TEST_P(ProvenanceTest, OfAppendsThatAreCoalesced) {
  Options options = world_->options();
  options.delta_batch_tokens = 4;
  Reopen(options);
  Branch chat = Create(Register(model_), "chat");
  for (uint64_t i = 0; i < 23; ++i) {
    Grow(1, i % 5 != 3 && i < 18,
         [&](const Delta& delta) { return WhileBusy(store_, [&] { return chat.Append(delta); }); });
  }
  ASSERT_NO_FATAL_FAILURE(ExpectEverywhere("chat", options));
}

// Evicted KV is neither; filled KV is what its caller says.
TEST_P(ProvenanceTest, WhatWasEvictedIsFilledAnew) {
  const ModelId id = Register(model_);
  ASSERT_OK(store_.SetNamespace("small", {.max_bytes = 30'000, .evict = Evict::kKv}));
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(id, {.name = "chat", .ns = "small"}));
  Grow(chat, 100, false);
  Grow(chat, 100, true);
  ASSERT_OK(store_.Compact());
  ASSERT_OK_ASSIGN(Branch other, store_.CreateBranch(id, {.name = "other", .ns = "small"}));
  std::vector<KvHole> holes;
  for (uint64_t length = 0; holes.empty() && length < 2000; length += 50) {
    ASSERT_OK(AppendSome(other, model_, length, 50));
    ASSERT_OK_ASSIGN(holes, chat.EvictedKv());
  }
  ASSERT_FALSE(holes.empty());
  ASSERT_OK(other.Drop());
  ASSERT_OK(store_.Compact());
  KvSet kv(model_, Layout::kContiguous, 0, 200);
  kv.Write(kSeed, 0, 200);
  // As a whole, with the other word.
  ASSERT_OK(chat.Fill(*kv.View(0, 200), {.exact = true}));
  for (const KvHole& hole : holes) {
    std::fill(exact_.begin() + static_cast<ptrdiff_t>(hole.begin),
              exact_.begin() + static_cast<ptrdiff_t>(hole.end), true);
  }
  ASSERT_NO_FATAL_FAILURE(ExpectAll(chat));
  ASSERT_OK(store_.Compact());
  ASSERT_NO_FATAL_FAILURE(ExpectAll(chat));
}

// As a library that knows nothing of it reads it: an op without the field is exact, and one with it
// is refused there.
TEST(ProvenanceFormat, OnlyWhatIsApproximateSaysSo) {
  const auto field_of = [](const engine::Op& op) {
    FieldWriter fields;
    engine::EncodeOp(op, &fields);
    const auto reader = FieldReader::Parse(fields.bytes());
    EXPECT_OK(reader);
    std::optional<bool> critical;
    for (const Field& field : reader->fields()) {
      if (field.id == 10) critical = field.critical;
    }
    const auto decoded = engine::DecodeOp(fields.bytes());
    EXPECT_OK(decoded);
    EXPECT_EQ(op.exact, decoded->exact);
    return critical;
  };
  engine::Op op;
  op.kind = engine::OpKind::kAppend;
  EXPECT_EQ(std::nullopt, field_of(op));
  op.exact = false;
  EXPECT_EQ(true, field_of(op));
}

}  // namespace
}  // namespace cairn::testing
