// SPDX-License-Identifier: Apache-2.0
//
// Property: a branch of a hybrid model is restored at one position for all groups, at which each
// has what its retention rule needs, or not at all; wherever the KV lies, and however it came.
// Method: what was given is kept row by row, and every position of the branch is tried: the rules
// are taken literally (NeedsRow), all present rows are compared bit for bit, and memory of absent
// ones must stay as it was.
#include <algorithm>
#include <map>
#include <set>

#include "engine/tree/memory/retention.h"
#include "sim/world.h"
#include "tests/engine/engine_test.h"
#include "tests/model/reference_model.h"

namespace cairn::testing {
namespace {

// Groups of EveryRuleModel.
enum Group : uint32_t { kFull, kWindowed, kChunks, kState, kEncoder, kGuesses, kGroups };

struct Rows {
  uint64_t begin = 0, count = 0;
};
using RowsByGroup = std::map<uint32_t, Rows>;

// A branch, and what was given to it.
class Chat {
 public:
  Chat(const ModelSpec& spec, Branch made) : branch(std::move(made)), spec_(spec) {
    given.kv_lengths.resize(spec.groups.size());
  }

  Status Append(uint64_t tokens, const RowsByGroup& rows) {
    const uint64_t end = given.length() + tokens;
    KvSet kv(spec_, Layout::kNhd, 0, end + 4);
    const KvView view{Views(&kv, rows)};
    const std::vector<TokenId> ids = Tokens(tokens, given.length());
    const Status status = branch.AppendSync(MakeDelta(ids, &view)).status();
    if (status.ok()) Record(tokens, rows);
    return status;
  }

  Status Fill(const RowsByGroup& rows) {
    KvSet kv(spec_, Layout::kHnd, 0, given.length());
    const Status status = branch.Fill({.groups = Views(&kv, rows)});
    if (status.ok()) Record(0, rows);
    return status;
  }

  void Record(uint64_t tokens, const RowsByGroup& rows) {
    given.positions.resize(given.positions.size() + tokens);
    for (const auto& [group, range] : rows) {
      for (uint64_t i = 0; i < range.count; ++i) {
        given.positions[range.begin + i].kv[group] = kSeed;
      }
      given.kv_lengths[group] = std::max(given.kv_lengths[group], range.begin + range.count);
    }
  }

  std::span<const GroupView> Views(KvSet* kv, const RowsByGroup& rows) {
    kv->Write(kSeed, 0, kv->pool(0).count());
    views_.clear();
    for (const auto& [group, range] : rows) {
      views_.push_back(kv->pool(group).View(range.begin, range.count));
    }
    return views_;
  }

  // Every position in turn, with room for everything.
  void Check() {
    ASSERT_OK_ASSIGN(const BranchInfo info, branch.Info());
    ASSERT_EQ(given.length(), info.length);
    ASSERT_EQ(given.kv_lengths, info.kv_lengths);
    for (uint64_t end = 0; end <= given.length(); ++end) {
      SCOPED_TRACE("end " + std::to_string(end));
      const uint64_t length = given.CommonLength(spec_, end);
      const uint64_t restorable = given.RestorableLength(spec_, end);
      ASSERT_OK_ASSIGN(const uint64_t said, branch.RestorableLength(end));
      ASSERT_EQ(restorable, said);
      std::set<std::pair<uint32_t, uint64_t>> missing;
      ASSERT_OK_ASSIGN(const std::vector<KvHole> holes, branch.EvictedKv(0, end));
      for (const KvHole& hole : holes) {
        for (uint64_t at = hole.begin; at < hole.end; ++at) missing.insert({hole.group, at});
      }
      KvSet got(spec_, Layout::kHnd, 0, end), want(spec_, Layout::kHnd, 0, end);
      std::set<std::pair<uint32_t, uint64_t>> expected;
      bool whole = true;
      for (uint32_t group = 0; group < spec_.groups.size(); ++group) {
        const LayerGroup& rule = spec_.groups[group];
        for (uint64_t row = 0; row < std::min(end, given.kv_lengths[group]); ++row) {
          const bool is_needed = NeedsRow(rule, Reached(group, length), row);
          if (given.positions[row].kv[group].has_value()) {
            if (row < length) want.pool(group).Write(kSeed, row, row + 1);
          } else if (is_needed || rule.retention.kind == Retention::kAll) {
            expected.insert({group, row});
            whole &= !is_needed;
          }
        }
      }
      ASSERT_EQ(expected, missing);
      RestoreRequest request;
      request.end = end;
      request.into = got.View(0, end);
      const auto result = branch.Restore(request);
      if (!whole) {
        ASSERT_FAILS(result, StatusCode::kEvicted,
                     "restorable up to position " + std::to_string(restorable));
        continue;
      }
      ASSERT_OK(result);
      for (uint32_t group = 0; group < spec_.groups.size(); ++group) {
        ASSERT_EQ(Reached(group, length), result->kv_ends[group]) << group;
      }
      ASSERT_TRUE(got == want);
    }
  }

  // What an optional group has; for other groups `length`.
  uint64_t Reached(uint32_t group, uint64_t length) const {
    return spec_.groups[group].optional ? std::min(length, given.kv_lengths[group]) : length;
  }

  Branch branch;
  ModelBranch given;

 private:
  const ModelSpec spec_;
  std::vector<GroupView> views_;
};

// KV of the groups that keep positions, all of them.
RowsByGroup AllRows(uint64_t begin, uint64_t count) {
  return {{kFull, {begin, count}}, {kWindowed, {begin, count}}, {kChunks, {begin, count}}};
}
RowsByGroup With(RowsByGroup rows, uint32_t group, Rows range) {
  rows[group] = range;
  return rows;
}

class HybridTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (!IsSkipped()) id_ = Register(model_);
  }
  Chat Make(const std::string& name) { return Chat(model_, Create(id_, name)); }
  // A prefill of 40 of which the rules' needs were given, and decoding with a state now and then.
  void Talk(Chat* chat) {
    ASSERT_OK(chat->Append(3, With(AllRows(0, 3), kEncoder, {0, 1})));
    ASSERT_OK(chat->Append(37, {{kFull, {3, 37}}, {kWindowed, {34, 6}}, {kState, {39, 1}}}));
    for (uint64_t at = 40; at < 60; ++at) {
      RowsByGroup rows = {{kFull, {at, 1}}, {kWindowed, {at, 1}}, {kChunks, {at, 1}}};
      if (at % 8 == 0) rows[kState] = {at, 1};
      if (at == 50) rows[kGuesses] = {0, 20};
      ASSERT_OK(chat->Append(1, rows));
    }
    EXPECT_EQ(57u, *chat->branch.RestorableLength());
    EXPECT_EQ(49u, *chat->branch.RestorableLength(56));
    EXPECT_EQ(40u, *chat->branch.RestorableLength(40));
  }
  // Cuts it within a gap, makes another one, and fills some of both.
  void CutAndFill(Chat* chat) {
    ASSERT_OK(chat->branch.Rewind(52));
    chat->given.Cut(52);
    ASSERT_NO_FATAL_FAILURE(chat->Check());
    ASSERT_OK(chat->Append(8, {{kFull, {52, 8}}, {kState, {59, 1}}, {kWindowed, {56, 4}}}));
    ASSERT_NO_FATAL_FAILURE(chat->Check());
    ASSERT_OK(chat->Fill({{kState, {50, 5}}}));
    ASSERT_NO_FATAL_FAILURE(chat->Check());
  }
  void Again(Chat* chat, const std::string& name) { chat->branch = Find(name); }

  const ModelSpec model_ = EveryRuleModel();
  ModelId id_{};
};

INSTANTIATE_TEST_SUITE_P(Worlds, HybridTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

TEST_P(HybridTest, EveryPositionInTheLogAndSealedAndOpenedAgain) {
  Chat chat = Make("chat");
  ASSERT_NO_FATAL_FAILURE(Talk(&chat));
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  Reopen();
  Again(&chat, "chat");
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  ASSERT_OK(store_.Compact());
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  ASSERT_OK(chat.Append(10, {{kFull, {60, 10}}, {kState, {62, 8}}}));
  ASSERT_OK(store_.Compact());
  Reopen();
  Again(&chat, "chat");
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
}

TEST_P(HybridTest, GapsHoldNoBytes) {
  Chat chat = Make("chat");
  ASSERT_OK(chat.Append(1000, {{kState, {999, 1}}}));
  const std::vector<NamespaceInfo> held = *store_.Namespaces();
  ASSERT_EQ(1u, held.size());
  EXPECT_EQ(1000 * sizeof(TokenId) + model_.groups[kState].token_bytes(), held[0].bytes);
  EXPECT_EQ(0u, store_.Metrics().missing_kv_bytes);
}

// A chunk may not have begun, and a state for the request says nothing about its end.
TEST_P(HybridTest, WhatIsReachedWithoutBeingGiven) {
  Chat chat = Make("chat");
  ASSERT_OK(chat.Append(24, {{kFull, {0, 24}}, {kWindowed, {0, 24}}, {kState, {23, 1}}}));
  EXPECT_EQ(0u, *chat.branch.RestorableLength()) << "the encoder's state is missing";
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  ASSERT_OK(chat.Fill({{kEncoder, {0, 1}}}));
  EXPECT_EQ(24u, *chat.branch.RestorableLength()) << "nothing of the chunk from 24 on";
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  ASSERT_OK(chat.Append(2, {{kFull, {24, 2}}, {kWindowed, {24, 2}}, {kState, {24, 2}}}));
  EXPECT_EQ(24u, *chat.branch.RestorableLength());
  ASSERT_OK(chat.Fill({{kChunks, {24, 1}}}));
  EXPECT_EQ(25u, *chat.branch.RestorableLength());
  ASSERT_NO_FATAL_FAILURE(chat.Check());
}

TEST_P(HybridTest, ForksAndRewindsGoBackToTheLastState) {
  Chat chat = Make("chat");
  ASSERT_NO_FATAL_FAILURE(Talk(&chat));
  for (const uint64_t at : {59, 57, 56, 49, 48, 41, 40, 39, 20, 2}) {
    SCOPED_TRACE(at);
    ASSERT_OK_ASSIGN(Branch fork, chat.branch.ForkAt(at, {}));
    Chat other(model_, fork);
    other.given = chat.given;
    other.given.Cut(at);
    EXPECT_EQ(at >= 57   ? 57u
              : at >= 49 ? 49u
              : at >= 41 ? 41u
              : at >= 40 ? 40u
                         : 0u,
              *fork.RestorableLength());
    ASSERT_NO_FATAL_FAILURE(other.Check());
    ASSERT_OK(fork.Drop());
  }
  // A state for the fork's end, in a gap of what it shares: its branch gets it as well.
  ASSERT_OK_ASSIGN(Branch fork, chat.branch.ForkAt(54, {.name = "fork"}));
  Chat other(model_, fork);
  other.given = chat.given;
  other.given.Cut(54);
  ASSERT_OK(other.Fill({{kState, {53, 1}}}));
  EXPECT_EQ(54u, *fork.RestorableLength());
  EXPECT_EQ(54u, *chat.branch.RestorableLength(56));
  chat.given.positions[53].kv[kState] = kSeed;
  ASSERT_NO_FATAL_FAILURE(other.Check());
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  // It goes on, with gaps on a node of its own, and forks below and above them.
  ASSERT_OK(other.Append(10, {{kFull, {54, 10}}, {kWindowed, {58, 6}}, {kState, {63, 1}}}));
  ASSERT_NO_FATAL_FAILURE(other.Check());
  ASSERT_OK_ASSIGN(Branch last, other.branch.ForkAt(61, {.name = "last"}));
  Chat third(model_, last);
  third.given = other.given;
  third.given.Cut(61);
  ASSERT_NO_FATAL_FAILURE(third.Check());
  // Into a gap of a node that is needed beyond: the next gap is on another node.
  ASSERT_NO_FATAL_FAILURE(CutAndFill(&chat));
  for (Chat* const sharing : {&other, &third}) {
    for (const uint64_t row : {50, 51}) sharing->given.positions[row].kv[kState] = kSeed;
  }
  ASSERT_OK(store_.Compact());
  Reopen();
  Again(&chat, "chat");
  Again(&other, "fork");
  Again(&third, "last");
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  ASSERT_NO_FATAL_FAILURE(other.Check());
  ASSERT_NO_FATAL_FAILURE(third.Check());
  EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
}

// Another gap comes right behind what is left of the one that was cut.
TEST_P(HybridTest, CutInPlaceWithinAGap) {
  Chat chat = Make("chat");
  ASSERT_NO_FATAL_FAILURE(Talk(&chat));
  ASSERT_NO_FATAL_FAILURE(CutAndFill(&chat));
  ASSERT_EQ(1u, chat.branch.Path()->size());
  ASSERT_OK(store_.Compact());
  Reopen();
  Again(&chat, "chat");
  ASSERT_NO_FATAL_FAILURE(chat.Check());
}

// In parts, borrowed, in a batch, coalesced, as a draft: gaps and states come with all.
TEST_P(HybridTest, EveryWayIn) {
  Options options = world_->options();
  const auto talk = [&](const std::string& name, const Options& with, uint64_t tokens) {
    Reopen(with);
    Chat chat = Make(name);
    ASSERT_OK(chat.Append(2, With(AllRows(0, 2), kEncoder, {0, 1})));
    ASSERT_OK(chat.Append(
        tokens, {{kFull, {2, tokens}}, {kWindowed, {tokens - 4, 6}}, {kState, {tokens + 1, 1}}}));
    ASSERT_EQ(tokens % 8 == 6 ? tokens + 2 : 0, *chat.branch.RestorableLength());
    for (int opened = 0; opened < 2; ++opened) {
      const uint64_t end = chat.given.length();
      KvSet got(model_, Layout::kNhd, 0, end), want(model_, Layout::kNhd, 0, end);
      want.pool(kFull).Write(kSeed, 0, end);
      want.pool(kWindowed).Write(kSeed, 0, 2);
      want.pool(kWindowed).Write(kSeed, end - 6, end);
      want.pool(kChunks).Write(kSeed, 0, 2);
      want.pool(kState).Write(kSeed, end - 1, end);
      want.pool(kEncoder).Write(kSeed, 0, 1);
      RestoreRequest request;
      request.into = got.View(0, end);
      ASSERT_OK(chat.branch.Restore(request));
      ASSERT_TRUE(got == want);
      Reopen(with);
      Again(&chat, name);
    }
  };
  {
    SCOPED_TRACE("parts");
    talk("parts", options, 3998);  // Half a segment is 128 KiB.
    ASSERT_OK(store_.Compact());
  }
  options.delta_batch_tokens = 8;
  options.submit_copy_max_bytes = 4096;
  Reopen(options);
  Chat chat = Make("chat");
  KvSet kv(model_, Layout::kContiguous, 0, 200);
  const std::vector<TokenId> ids = Tokens(200);
  const auto append = [&](uint64_t tokens, const RowsByGroup& rows) {
    const KvView view{chat.Views(&kv, rows)};
    auto ticket = WhileBusy(
        store_, [&] { return chat.branch.Append(MakeDelta(std::span(ids).first(tokens), &view)); });
    ASSERT_OK(ticket);
    ASSERT_OK(ticket->Wait());
    chat.Record(tokens, rows);
  };
  const auto coalesce = [&](uint64_t at, const RowsByGroup& rows) {
    const KvView view{chat.Views(&kv, rows)};
    ASSERT_OK(WhileBusy(store_, [&] {
      return chat.branch.Append(MakeDelta(std::span(ids).subspan(at, 1), &view));
    }));
    chat.Record(1, rows);
  };
  append(100, {{kFull, {0, 100}}, {kWindowed, {94, 6}}, {kState, {99, 1}}, {kEncoder, {0, 1}}});
  ASSERT_NO_FATAL_FAILURE(chat.Check()) << "borrowed";
  for (uint64_t at = 100; at < 110; ++at) {
    RowsByGroup rows = AllRows(at, 1);
    if (at == 105) rows.erase(kWindowed);  // So the next one leaves a gap.
    if (at == 103 || at == 107) rows[kState] = {at, 1};
    ASSERT_NO_FATAL_FAILURE(coalesce(at, rows));
  }
  ASSERT_NO_FATAL_FAILURE(chat.Check()) << "coalesced";
  // Two deltas with gaps in one record, and one that is cut off again within it.
  WriteBatch batch;
  Chat cut = Make("cut");
  KvSet cut_kv(model_, Layout::kContiguous, 0, 200);
  cut_kv.Write(kSeed, 0, 200);
  const std::vector<GroupView> first = {kv.pool(kState).View(111, 1), kv.pool(kFull).View(110, 3)};
  const std::vector<GroupView> second = {kv.pool(kState).View(114, 1), kv.pool(kFull).View(113, 3)};
  const std::vector<GroupView> third = {cut_kv.pool(kState).View(2, 1),
                                        cut_kv.pool(kWindowed).View(1, 3)};
  const KvView first_kv{first}, second_kv{second}, third_kv{third};
  batch.Append(chat.branch, MakeDelta(std::span(ids).first(3), &first_kv));
  batch.Append(chat.branch, MakeDelta(std::span(ids).first(3), &second_kv));
  batch.Append(cut.branch, MakeDelta(std::span(ids).first(4), &third_kv));
  batch.Rewind(cut.branch, 2);
  ASSERT_OK(WhileBusy(store_, [&] { return store_.Write(batch); }));
  chat.Record(3, {{kState, {111, 1}}, {kFull, {110, 3}}});
  chat.Record(3, {{kState, {114, 1}}, {kFull, {113, 3}}});
  cut.Record(4, {{kState, {2, 1}}, {kWindowed, {1, 3}}});
  cut.given.Cut(2);
  ASSERT_NO_FATAL_FAILURE(chat.Check()) << "batch";
  ASSERT_NO_FATAL_FAILURE(cut.Check()) << "batch";
  // A draft stages positions; states come with Commit.
  ASSERT_OK_ASSIGN(Draft draft, chat.branch.BeginAppend(4));
  kv.Write(kSeed, 0, 200);
  for (uint32_t layer = 0; layer < 2; ++layer) {
    ASSERT_OK(draft.Put(layer, kv.pool(kFull).View(116, 4, layer, 1)));
    EXPECT_FAILS(draft.Put(layer, kv.pool(kState).View(116, 4, layer, 1)),
                 StatusCode::kInvalidArgument, "states, which are given to Commit");
  }
  const std::vector<GroupView> not_states = {kv.pool(kWindowed).View(116, 4)};
  const KvView not_states_kv{not_states};
  EXPECT_FAILS(draft.Commit(MakeDelta(std::span(ids).first(4), &not_states_kv), {}),
               StatusCode::kInvalidArgument, "what was Put");
  const std::vector<GroupView> states = {kv.pool(kState).View(119, 1)};
  const KvView states_kv{states};
  ASSERT_OK_ASSIGN(Ticket drafted,
                   draft.Commit(MakeDelta(std::span(ids).first(4), &states_kv), {}));
  ASSERT_OK(drafted.Wait());
  chat.Record(4, {{kFull, {116, 4}}, {kState, {119, 1}}});
  ASSERT_NO_FATAL_FAILURE(chat.Check()) << "draft";
  Reopen(options);
  Again(&chat, "chat");
  Again(&cut, "cut");
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  ASSERT_NO_FATAL_FAILURE(cut.Check());
}

// KV that is shed leaves a gap where that is allowed, and the window is whole again in time.
TEST_P(HybridTest, WhatPersistLeavesOut) {
  ModelSpec model = TokenModel("window");
  model.groups.push_back(LayerGroup::SlidingWindow(1, 1, 4, Dtype::kBf16, 3, 1));
  const ModelId id = Register(model);
  Chat chat(model, Create(id, "chat"));
  ASSERT_OK(chat.Append(4, {{0, {0, 4}}}));
  ASSERT_OK(store_.SetNamespace("", {.persist = Persist::kTokensOnly}));
  ASSERT_OK(chat.Append(3, {{0, {4, 3}}}));
  chat.given.CutKv(0, 4);
  ASSERT_OK(store_.SetNamespace("", {}));
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  ASSERT_OK(chat.Append(4, {{0, {7, 4}}}));
  EXPECT_EQ(11u, *chat.branch.RestorableLength());
  EXPECT_EQ(4u, *chat.branch.RestorableLength(9));
  ASSERT_NO_FATAL_FAILURE(chat.Check());
}

TEST_P(HybridTest, WhatIsWrongIsRefused) {
  Chat chat = Make("chat");
  ASSERT_OK(chat.Append(8, {{kFull, {0, 8}}, {kState, {3, 1}}}));
  const auto refused = [&](const RowsByGroup& rows, const std::string& why) {
    EXPECT_FAILS(chat.Append(2, rows), StatusCode::kInvalidArgument, why);
  };
  refused({{kFull, {9, 1}}}, "kv of group 0 begins at position 9; branch \"chat\" has KV up to 8");
  refused({{kGuesses, {1, 1}}}, "begins at position 1");
  refused({{kState, {3, 1}}}, "begins at position 3");
  refused({{kState, {10, 1}}}, "beyond the 10 tokens");
  refused({{kEncoder, {1, 1}}}, "is one state, in the row of position 0; positions [1, 2)");
  refused({{kEncoder, {0, 2}}}, "is one state");
  EXPECT_FAILS(chat.Fill({{kEncoder, {4, 1}}}), StatusCode::kInvalidArgument, "is one state");
  EXPECT_FAILS(chat.Fill({{kState, {7, 1}}, {kGuesses, {2, 1}}}), StatusCode::kInvalidArgument,
               "kv of group 5 begins at position 2");
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  ASSERT_OK(chat.Fill({{kEncoder, {0, 1}}, {kState, {6, 1}}}));
  refused({{kEncoder, {0, 1}}}, "begins at position 0");
  WriteBatch batch;
  KvSet kv(model_, Layout::kContiguous, 0, 10);
  const std::vector<GroupView> views = {kv.pool(kEncoder).View(5, 1)};
  const KvView view{views};
  const std::vector<TokenId> ids = Tokens(1);
  batch.Append(chat.branch, MakeDelta(ids, &view));
  EXPECT_FAILS(store_.Write(batch), StatusCode::kInvalidArgument, "is one state");
  ASSERT_NO_FATAL_FAILURE(chat.Check());
}

// A state in the wrong row would be served silently; room for none is the caller's choice.
TEST_P(HybridTest, RoomForTheStateIsAskedFor) {
  ModelSpec model = TinyModel("recurrent");
  model.groups.push_back(LayerGroup::Recurrent(2, 40));
  Chat chat(model, Create(Register(model), "chat"));
  ASSERT_OK(chat.Append(20, {{0, {0, 20}}, {1, {15, 1}}}));
  KvSet kv(model, Layout::kContiguous, 0, 20), want(model, Layout::kContiguous, 0, 20);
  const auto restore = [&](uint64_t begin, uint64_t end, std::vector<GroupView> views) {
    const KvView into{views};
    return chat.branch.Restore({.begin = begin, .end = end, .into = &into});
  };
  KvPool& full = kv.pool(0);
  KvPool& state = kv.pool(1);
  EXPECT_FAILS(restore(0, 20, {full.View(0, 20), state.View(19, 1)}), StatusCode::kInvalidArgument,
               "group \"recurrent\": the branch is restored at position 16, the view has no room "
               "for its state there, row 15");
  EXPECT_FAILS(restore(10, 20, {state.View(10, 5)}), StatusCode::kInvalidArgument, "position 16");
  EXPECT_FAILS(restore(0, 14, {state.View(0, 14)}), StatusCode::kEvicted,
               "KV that was evicted, or never given: group \"recurrent\" positions [13, 14); "
               "restorable up to position 0");
  EXPECT_TRUE(kv == want);
  ASSERT_OK_ASSIGN(const auto both, restore(0, 20, {full.View(0, 16), state.View(15, 1)}));
  EXPECT_EQ((std::vector<uint64_t>{16, 16}), both.kv_ends);
  want.pool(0).Write(kSeed, 0, 16);
  want.pool(1).Write(kSeed, 15, 16);
  EXPECT_TRUE(kv == want);
  // Positions below `begin` are assumed to exist.
  ASSERT_OK_ASSIGN(const auto later, restore(17, 20, {state.View(17, 3)}));
  EXPECT_EQ((std::vector<uint64_t>{16}), later.kv_ends);
  EXPECT_FAILS(restore(5, 14, {state.View(5, 9)}), StatusCode::kEvicted,
               "restorable up to position 5");
  // Without the group: position by position, as far as all groups are.
  ASSERT_OK_ASSIGN(const auto alone, restore(0, 14, {full.View(0, 14)}));
  EXPECT_EQ((std::vector<uint64_t>{14}), alone.kv_ends);
  ASSERT_OK(chat.branch.Prefetch());
}

TEST_P(HybridTest, EvictedAndFilledAgain) {
  constexpr uint64_t kRoom = 24 << 10;
  ASSERT_OK(store_.SetNamespace("t", {.max_bytes = kRoom, .evict = Evict::kKv}));
  ASSERT_OK_ASSIGN(Branch made, store_.CreateBranch(id_, {.name = "chat", .ns = "t"}));
  Chat chat(model_, made);
  ASSERT_NO_FATAL_FAILURE(Talk(&chat));
  if (GetParam() == "memory") {
    ASSERT_OK(store_.Compact());
  }
  ASSERT_OK_ASSIGN(Branch others, store_.CreateBranch(id_, {.name = "more", .ns = "t"}));
  Chat more(model_, others);
  uint64_t held_bytes = 0;
  for (uint32_t group = 0; group < kGroups; ++group) {
    for (const ModelPosition& position : chat.given.positions) {
      held_bytes += position.kv[group].has_value() ? model_.groups[group].token_bytes() : 0;
    }
  }
  while (store_.Metrics().missing_kv_bytes == 0) {
    const uint64_t at = more.given.length();
    ASSERT_OK(more.Append(8, {{kFull, {at, 8}}}));
  }
  EXPECT_EQ(held_bytes, store_.Metrics().missing_kv_bytes) << "gaps were nobody's bytes";
  EXPECT_EQ(0u, *chat.branch.RestorableLength());
  for (ModelPosition& position : chat.given.positions) {
    position.kv = {};
  }
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  ASSERT_OK(more.branch.Drop());
  Reopen();
  ASSERT_OK_ASSIGN(chat.branch, store_.FindBranch("chat", "t"));
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  // Positions that a restore at 57 misses, according to EvictedKv; then all that existed.
  ASSERT_OK_ASSIGN(const std::vector<KvHole> holes, chat.branch.EvictedKv(0, 57));
  for (const KvHole& hole : holes) {
    ASSERT_OK(chat.Fill({{hole.group, {hole.begin, hole.end - hole.begin}}}));
  }
  EXPECT_EQ(57u, *chat.branch.RestorableLength());
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  ASSERT_OK(chat.Fill({{kFull, {0, 60}}, {kWindowed, {0, 60}}, {kChunks, {0, 60}}}));
  for (const uint64_t at : {39, 40, 48}) ASSERT_OK(chat.Fill({{kState, {at, 1}}}));
  ASSERT_OK(chat.Fill({{kGuesses, {0, 20}}}));
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  EXPECT_EQ(0u, store_.Metrics().missing_kv_bytes);
  ASSERT_OK(store_.Compact());
  Reopen();
  ASSERT_OK_ASSIGN(chat.branch, store_.FindBranch("chat", "t"));
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
}

TEST(HybridCrash, ReplayLeavesTheSameGaps) {
  const ModelSpec model = EveryRuleModel();
  io::SimWorld sim = io::MakeSimWorld(3);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(sim.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch made, store.CreateBranch(id, {.name = "chat"}));
  Chat chat(model, made);
  ASSERT_OK(chat.Append(20, {{kFull, {0, 20}}, {kWindowed, {14, 6}}, {kState, {19, 1}}}));
  ASSERT_OK(chat.Append(20, {{kFull, {20, 20}}, {kWindowed, {34, 6}}, {kState, {30, 10}}}));
  ASSERT_OK(chat.Fill({{kState, {25, 1}}, {kEncoder, {0, 1}}, {kWindowed, {0, 2}}}));
  ASSERT_OK_ASSIGN(Branch fork, chat.branch.ForkAt(26, {.name = "fork"}));
  Chat other(model, fork);
  other.given = chat.given;
  other.given.Cut(26);
  ASSERT_OK(other.Append(6, {{kFull, {26, 6}}, {kState, {31, 1}}}));
  ASSERT_OK(store.Flush());
  io::SimWorld crashed = io::CrashWorld(*sim.disk, io::CrashChoice::LoseAll());
  ASSERT_OK(store.Close());
  options.world = std::make_shared<io::World>(crashed.world());
  ASSERT_OK_ASSIGN(store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(chat.branch, store.FindBranch("chat"));
  ASSERT_OK_ASSIGN(other.branch, store.FindBranch("fork"));
  ASSERT_NO_FATAL_FAILURE(chat.Check());
  ASSERT_NO_FATAL_FAILURE(other.Check());
  ASSERT_OK(store.Close());
}

// The pure function against the rules, row by row.
TEST(Retention, NeededIsWhatTheRulesSay) {
  for (const LayerGroup& group : EveryRuleModel().groups) {
    for (uint64_t length = 0; length < 40; ++length) {
      const engine::NeededPositions needed = engine::Needed(group, length);
      for (uint64_t row = 0; row < 50; ++row) {
        EXPECT_EQ(NeedsRow(group, length, row),
                  row < needed.sinks_end || (row >= needed.begin && row < needed.end))
            << group.name << " at " << length << ", row " << row;
      }
      ASSERT_LE(needed.sinks_end, needed.begin);
    }
  }
}

}  // namespace
}  // namespace cairn::testing
