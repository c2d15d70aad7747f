// SPDX-License-Identifier: Apache-2.0
//
// Which content is evicted when a namespace or the store is full, in which order, which stays, and
// how it comes back.
#include <atomic>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kEach = 8;  // Positions that a test appends at once: 64 KiB of KV.
constexpr uint64_t kEachBytes = kEach * (8192 + sizeof(TokenId));

class EvictTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    model_id_ = Register(model_);
  }

  // Room for `times` appends of kEach, and not for one more.
  void SetRoom(uint64_t times, Evict evict) {
    ASSERT_OK(store_.SetNamespace(
        "t", {.max_bytes = times * kEachBytes + kEachBytes / 2, .evict = evict}));
  }

  // Room for less than all that a test then appends.
  Options ReopenWithCap() {
    Options options = world_->options();
    options.max_bytes = 8 << 20;
    options.evict = Evict::kKv;
    Reopen(options);
    return options;
  }

  Branch Make(const std::string& name, Keep keep = {}) {
    auto branch = store_.CreateBranch(model_id_, {.name = name, .ns = "t", .keep = keep});
    EXPECT_OK(branch);
    return branch.ok() ? *branch : Branch();
  }
  // A branch of kEach positions.
  Branch MakeFull(const std::string& name, Keep keep = {}) {
    Branch branch = Make(name, keep);
    EXPECT_OK(AppendSome(branch, model_, 0, kEach));
    return branch;
  }
  Branch Again(const std::string& name) {
    auto branch = store_.FindBranch(name, "t");
    EXPECT_OK(branch);
    return branch.ok() ? *branch : Branch();
  }
  bool Lacks(const Branch& branch, uint64_t begin, uint64_t end) {
    const auto holes = branch.EvictedKv();
    EXPECT_OK(holes);
    return *holes == std::vector<KvHole>{{0, begin, end}};
  }
  bool IsWhole(const Branch& branch) {
    const auto holes = branch.EvictedKv();
    EXPECT_OK(holes);
    return holes->empty();
  }
  uint64_t Held() {
    const auto namespaces = store_.Namespaces();
    EXPECT_OK(namespaces);
    for (const NamespaceInfo& one : *namespaces) {
      if (one.name == "t") return one.bytes;
    }
    return 0;
  }

  const ModelSpec model_ = WideModel();
  ModelId model_id_{};
};

TEST_P(EvictTest, TheKvThatWasNotUsedForLongestGoesAndItsTokensStay) {
  SetRoom(3, Evict::kKv);
  Branch first = MakeFull("first"), second = MakeFull("second"), third = MakeFull("third");
  EXPECT_TRUE(HasKv(first, model_, 0, kEach));  // Used again.
  MakeFull("fourth");
  EXPECT_TRUE(Lacks(second, 0, kEach));
  EXPECT_TRUE(IsWhole(first) && IsWhole(third));
  RestoreRequest request;
  KvSet kv(model_, Layout::kContiguous, 0, kEach);
  request.into = kv.View(0, kEach);
  EXPECT_FAILS(second.Restore(request), StatusCode::kEvicted,
               "positions [0, 8); restorable up to position 0");
  EXPECT_EQ(Tokens(kEach, kSeed), *second.ReadTokens(0, kEach));
  EXPECT_EQ((std::vector<uint64_t>{kEach}), second.Info()->kv_lengths);
  EXPECT_LE(Held(), 3 * kEachBytes + kEachBytes / 2);
  EXPECT_EQ(kEach * 8192, store_.Metrics().missing_kv_bytes);
  Reopen();
  EXPECT_TRUE(Lacks(Again("second"), 0, kEach));
  EXPECT_TRUE(HasKv(Again("first"), model_, 0, kEach));
  ASSERT_OK(store_.Compact());
  Reopen();
  EXPECT_TRUE(Lacks(Again("second"), 0, kEach));
  EXPECT_TRUE(HasKv(Again("first"), model_, 0, kEach));
  EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
}

// Each of them is in memory only as long as its branch is.
TEST_P(EvictTest, NamespacesThatMemoryHasForgottenAreEvictedFrom) {
  Options options = world_->options();
  options.max_bytes = 8 << 20;
  options.evict = Evict::kKv;
  options.tree_memory_bytes = 0;
  options.replay_records_max = 20;
  Reopen(options);
  constexpr int kNamespaces = 64;
  constexpr uint64_t kTokens = 32;  // 256 KiB: twice the room.
  for (int i = 0; i < kNamespaces; ++i) {
    ASSERT_OK_ASSIGN(Branch branch,
                     store_.CreateBranch(model_id_, {.name = "x", .ns = std::to_string(i)}));
    ASSERT_OK(AppendSome(branch, model_, 0, kTokens)) << i;
  }
  EXPECT_TRUE(Lacks(*store_.FindBranch("x", "0"), 0, kTokens));
  EXPECT_TRUE(HasKv(*store_.FindBranch("x", "63"), model_, 0, kTokens));
  EXPECT_EQ(size_t{kNamespaces}, store_.Namespaces()->size());
}

TEST_P(EvictTest, WithoutLeaveAnAppendBeyondTheCapIsRefused) {
  SetRoom(1, Evict::kNever);
  Branch first = MakeFull("first");
  Branch second = Make("second");
  EXPECT_FAILS(AppendSome(second, model_, 0, kEach), StatusCode::kNoSpace, "namespace \"t\"");
  EXPECT_EQ(0u, *second.length());
  EXPECT_TRUE(HasKv(first, model_, 0, kEach));
  const uint64_t held = Held();
  EXPECT_EQ(kEachBytes, held);
  ASSERT_OK(first.Drop());
  EXPECT_OK(AppendSome(second, model_, 0, kEach));
  // More than the cap can never be had, whatever goes.
  SetRoom(1, Evict::kKv);
  EXPECT_FAILS(AppendSome(second, model_, kEach, 4 * kEach), StatusCode::kNoSpace, "namespace");
}

TEST_P(EvictTest, AnAsynchronousAppendIsBusyWhileRoomIsMade) {
  SetRoom(1, Evict::kKv);
  MakeFull("first");
  Branch second = Make("second");
  KvSet kv(model_, Layout::kContiguous, 0, kEach);
  kv.Write(kSeed, 0, kEach);
  const std::vector<TokenId> tokens = Tokens(kEach, kSeed);
  int refused = 0;
  while (true) {
    auto ticket = second.Append(MakeDelta(tokens, kv.View(0, kEach)));
    if (ticket.ok()) {
      EXPECT_OK(ticket->Wait());
      break;
    }
    ASSERT_EQ(StatusCode::kBusy, ticket.status().code()) << ticket.status().ToString();
    ++refused;
    world_->world().scheduler->Sleep(1'000'000);
  }
  EXPECT_GT(refused, 0);
  EXPECT_TRUE(HasKv(second, model_, 0, kEach));
  EXPECT_TRUE(Lacks(Again("first"), 0, kEach));
}

// The append was refused twice and asked for room twice; then it came through. A pass serves asks
// only after checking that.
TEST_P(EvictTest, AnAppendThatCameThroughIsNotEvictedForHavingAsked) {
  SetRoom(1, Evict::kKv);
  Branch first = MakeFull("first");
  Branch second = Make("second");
  ASSERT_OK(store_.PauseBackground());
  KvSet kv(model_, Layout::kContiguous, 0, kEach);
  kv.Write(kSeed, 0, kEach);
  const std::vector<TokenId> tokens = Tokens(kEach, kSeed);
  const Delta delta = MakeDelta(tokens, kv.View(0, kEach));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(StatusCode::kBusy, second.Append(delta).status().code());
  ASSERT_OK(first.Drop());
  ASSERT_OK_ASSIGN(Ticket ticket, second.Append(delta));
  EXPECT_OK(ticket.Wait());
  ASSERT_OK(store_.ResumeBackground());
  ASSERT_OK(store_.Compact());  // A pass that begins after all that was asked for.
  EXPECT_TRUE(IsWhole(second));
  EXPECT_EQ(0u, store_.Metrics().evicted_bytes);
}

// Where the store is full, and not only a namespace.
TEST_P(EvictTest, ABatchIsBusyWhileRoomIsMade) {
  Options options = world_->options();
  options.max_bytes = 4 << 20;
  options.evict = Evict::kKv;
  Reopen(options);
  ASSERT_OK(store_.PauseBackground());
  Branch chat = Make("chat");
  KvSet kv(model_, Layout::kContiguous, 0, kEach);
  kv.Write(kSeed, 0, kEach);
  const std::vector<TokenId> tokens = Tokens(kEach, kSeed);
  const auto write = [&](const Branch& to) {
    WriteBatch batch;
    batch.Append(to, MakeDelta(tokens, kv.View(0, kEach)));
    return store_.Write(batch).status();
  };
  const auto is_full = [](const Status& status) {
    return status.message().find("max_bytes") != std::string_view::npos;
  };
  Status status;
  for (int i = 0; i < 200 && !is_full(status); ++i) {
    const Branch branch = Make(std::to_string(i));
    status = write(branch);
    while (status.code() == StatusCode::kBusy && !is_full(status)) {
      world_->world().scheduler->Sleep(1'000'000);
      status = write(branch);
    }
  }
  EXPECT_FAILS(status, StatusCode::kBusy, "room is being made");
  ASSERT_OK(store_.ResumeBackground());
  for (int i = 0; i < 500 && status.code() == StatusCode::kBusy; ++i) {
    world_->world().scheduler->Sleep(10'000'000);
    status = write(chat);
  }
  EXPECT_OK(status);
}

TEST_P(EvictTest, WhatAnotherBranchNeedsStays) {
  ASSERT_OK(store_.SetNamespace("t", {.max_bytes = 290'000, .evict = Evict::kKv}));
  Branch base = MakeFull("base");
  ASSERT_OK_ASSIGN(Branch left, base.ForkAt(6, {.name = "left", .ns = "t"}));
  ASSERT_OK(AppendSome(left, model_, 6, kEach));
  ASSERT_OK_ASSIGN(Branch right, left.ForkAt(10, {.name = "right", .ns = "t"}));
  ASSERT_OK(AppendSome(right, model_, 10, kEach));
  // First the tail of base that no fork has, then what left has and right does not.
  Branch more = MakeFull("more");
  while (Held() > 290'000 / 4 * 3) world_->world().scheduler->Sleep(1'000'000);
  EXPECT_TRUE(Lacks(base, 6, 8));
  EXPECT_TRUE(Lacks(left, 10, 14));
  EXPECT_TRUE(HasKv(right, model_, 0, 18));
  EXPECT_TRUE(HasKv(left, model_, 0, 10));
  // Last of all what they share, when nobody has his own any more.
  ASSERT_OK(AppendSome(more, model_, kEach, 2 * kEach));
  EXPECT_TRUE(Lacks(right, 0, 18));
  EXPECT_TRUE(Lacks(base, 0, 8));
  EXPECT_TRUE(Lacks(left, 0, 14));
  EXPECT_TRUE(HasKv(more, model_, 0, 3 * kEach));
  Reopen();
  EXPECT_TRUE(Lacks(Again("right"), 0, 18));
  EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
}

TEST_P(EvictTest, WhatIsGoneComesBackByFill) {
  SetRoom(2, Evict::kKv);
  Branch base = MakeFull("base");
  ASSERT_OK_ASSIGN(Branch fork, base.ForkAt(5, {.name = "fork", .ns = "t"}));
  ASSERT_OK(AppendSome(fork, model_, 5, kEach));
  ASSERT_OK(store_.Compact());
  Branch more = MakeFull("more");
  ASSERT_OK(AppendSome(more, model_, kEach, kEach));
  ASSERT_TRUE(Lacks(fork, 0, 13));
  ASSERT_OK(more.Drop());
  // In the middle first, then all of it: existing KV is left alone.
  KvSet kv(model_, Layout::kNhd, 0, 13);
  kv.Write(kSeed, 0, 13);
  ASSERT_OK(fork.Fill(*kv.View(3, 4)));
  EXPECT_EQ((std::vector<KvHole>{{0, 0, 3}, {0, 7, 13}}), *fork.EvictedKv());
  EXPECT_EQ((std::vector<KvHole>{{0, 0, 3}, {0, 5, 8}}), *base.EvictedKv());
  EXPECT_TRUE(HasKv(fork, model_, 3, 7));
  EXPECT_FAILS(fork.Fill(*kv.View(0, 13), {.expected_length = 12}), StatusCode::kConflict);
  Reopen();
  fork = Again("fork");
  EXPECT_TRUE(HasKv(fork, model_, 3, 7));
  KvSet other(model_, Layout::kNhd, 0, 13);
  other.Write(kSeed, 0, 13);
  other.Write(kSeed + 1, 3, 7);  // Not taken.
  ASSERT_OK(fork.Fill(*other.View(0, 13)));
  EXPECT_TRUE(HasKv(fork, model_, 0, 13));
  EXPECT_TRUE(HasKv(Again("base"), model_, 0, 5));
  ASSERT_OK(store_.Compact());
  Reopen();
  EXPECT_TRUE(HasKv(Again("fork"), model_, 0, 13));
  EXPECT_EQ((std::vector<KvHole>{{0, 5, 8}}), *Again("base").EvictedKv());
  EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
}

TEST_P(EvictTest, FillGoesOnBeyondWhatWasEvicted) {
  SetRoom(2, Evict::kKv);
  Branch branch = MakeFull("branch");
  Branch more = MakeFull("more");
  ASSERT_OK(AppendSome(more, model_, kEach, kEach));
  ASSERT_TRUE(Lacks(branch, 0, kEach));
  ASSERT_OK(more.Drop());
  ASSERT_OK(branch.AppendSync(MakeDelta(Tokens(4, 99))));  // KV lags.
  KvSet kv(model_, Layout::kHnd, 0, kEach + 4);
  kv.Write(kSeed, 0, kEach + 4);
  ASSERT_OK(branch.Fill(*kv.View(0, kEach + 4)));
  EXPECT_TRUE(HasKv(branch, model_, 0, kEach + 4));
  EXPECT_FAILS(branch.Fill(*kv.View(0, kEach + 4), {.expected_length = 3}), StatusCode::kConflict);
}

TEST_P(EvictTest, PinnedStaysAndLowPriorityGoesFirst) {
  SetRoom(3, Evict::kBranches);
  Branch pinned = MakeFull("pinned", {.pinned = true});
  Branch dear = MakeFull("dear", {.priority = 9});
  Branch cheap = MakeFull("cheap");
  EXPECT_EQ((Keep{.priority = 9}), dear.Info()->keep);
  MakeFull("fourth");
  EXPECT_TRUE(IsWhole(pinned) && IsWhole(dear));
  EXPECT_TRUE(Lacks(cheap, 0, kEach));
  ASSERT_OK(dear.SetKeep({}));
  ASSERT_OK(pinned.SetKeep({.pinned = true, .priority = 3}));
  Reopen();
  EXPECT_EQ((Keep{.pinned = true, .priority = 3}), Again("pinned").Info()->keep);
  MakeFull("fifth");
  MakeFull("sixth");
  EXPECT_TRUE(IsWhole(Again("pinned")));
  EXPECT_TRUE(HasKv(Again("pinned"), model_, 0, kEach));
  EXPECT_TRUE(Lacks(Again("dear"), 0, kEach));
}

TEST_P(EvictTest, WholeBranchesGoWhenNoKvIsLeft) {
  ASSERT_OK(store_.SetNamespace("t", {.max_bytes = 16 << 10, .evict = Evict::kBranches}));
  for (int i = 0; i < 40; ++i) {
    Branch branch = Make("b" + std::to_string(i));
    ASSERT_OK(branch.AppendSync(MakeDelta(Tokens(512, 1))));  // 2 KiB of tokens alone.
  }
  EXPECT_LE(Held(), 16u << 10);
  EXPECT_FAILS(store_.FindBranch("b0", "t"), StatusCode::kNotFound);
  EXPECT_EQ(512u, *Again("b39").length());
  EXPECT_GE(store_.Metrics().evicted_branches, 32u);
  // With KV alone to go there is nothing left.
  ASSERT_OK(store_.SetNamespace("t", {.max_bytes = 16 << 10, .evict = Evict::kKv}));
  Branch last = Make("last");
  EXPECT_FAILS(last.AppendSync(MakeDelta(Tokens(3500, 1))), StatusCode::kNoSpace, "namespace");
}

TEST_P(EvictTest, AForkOrAnAppendBringsABranchBackToTheLiving) {
  SetRoom(2, Evict::kKv);
  Branch base = MakeFull("base");
  Branch other = MakeFull("other");
  ASSERT_OK(AppendSome(other, model_, kEach, kEach));
  ASSERT_TRUE(Lacks(base, 0, kEach));
  ASSERT_OK(other.Drop());
  ASSERT_OK(AppendSome(base, model_, kEach, 4));  // KV behind the hole.
  EXPECT_TRUE(Lacks(base, 0, kEach));
  EXPECT_TRUE(HasKv(base, model_, kEach, kEach + 4));
  ASSERT_OK_ASSIGN(Branch twin, base.ForkAt(kEach + 2, {.name = "twin", .ns = "t"}));
  EXPECT_TRUE(HasKv(twin, model_, kEach, kEach + 2));
  ASSERT_OK(store_.Compact());
  Reopen();
  EXPECT_TRUE(HasKv(Again("twin"), model_, kEach, kEach + 2));
  EXPECT_TRUE(Lacks(Again("twin"), 0, kEach));
  EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
}

TEST_P(EvictTest, ARewindCutsWhatWasEvicted) {
  SetRoom(1, Evict::kKv);
  Branch base = MakeFull("base");
  Branch other = MakeFull("other");
  ASSERT_TRUE(Lacks(base, 0, kEach));
  ASSERT_OK(base.Rewind(5));
  EXPECT_TRUE(Lacks(base, 0, 5));
  EXPECT_EQ(5u * 8192, store_.Metrics().missing_kv_bytes);
  ASSERT_OK(other.Drop());
  ASSERT_OK(AppendSome(base, model_, 5, 3));
  EXPECT_TRUE(HasKv(base, model_, 5, 8));
  ASSERT_OK(base.Drop());
  EXPECT_EQ(0u, store_.Metrics().missing_kv_bytes);
}

TEST_P(EvictTest, PersistPoliciesDecideWhichKvIsKept) {
  const std::vector<TokenId> tokens = Tokens(4);
  KvSet kv(model_, Layout::kContiguous, 0, 64);
  kv.Write(kSeed, 0, 64);
  const auto shed = [&](Branch& branch, uint64_t begin, uint64_t count, bool ends_turn = false) {
    auto ticket = branch.Append(MakeDelta(tokens, kv.View(begin, count)), {.ends_turn = ends_turn});
    EXPECT_OK(ticket);
    EXPECT_OK(ticket->Wait());
    return ticket->kv_shed();
  };
  ASSERT_OK(store_.SetNamespace("t", {.persist = Persist::kTokensOnly}));
  Branch branch = Make("a");
  EXPECT_TRUE(shed(branch, 0, 4));
  EXPECT_EQ((std::vector<uint64_t>{0}), branch.Info()->kv_lengths);
  ASSERT_OK(branch.Fill(*kv.View(0, 4)));
  EXPECT_TRUE(HasKv(branch, model_, 0, 4));

  ASSERT_OK(store_.SetNamespace("t", {.persist = Persist::kTurnEnd}));
  EXPECT_TRUE(shed(branch, 4, 4));
  EXPECT_TRUE(shed(branch, 8, 4));
  EXPECT_FALSE(shed(branch, 4, 12, /*ends_turn=*/true));
  EXPECT_TRUE(HasKv(branch, model_, 0, 16));

  ASSERT_OK(store_.SetNamespace("t", {.persist = Persist::kReused}));
  Branch fresh = Make("fresh");
  EXPECT_TRUE(shed(fresh, 0, 4));
  ASSERT_OK(fresh.ReadTokens(0, 4));  // Read again: so it is worth it.
  EXPECT_FALSE(shed(fresh, 0, 8));
  EXPECT_TRUE(HasKv(fresh, model_, 0, 8));
  WriteBatch batch;
  batch.Append(Make("batched"), MakeDelta(tokens, kv.View(0, 4)));
  ASSERT_OK(store_.Write(batch)->ticket.Wait());
  EXPECT_EQ((std::vector<uint64_t>{0}), Again("batched").Info()->kv_lengths);
  ASSERT_OK_ASSIGN(Branch fork, branch.ForkAt(16, {.name = "fork", .ns = "t"}));
  EXPECT_FALSE(shed(fork, 16, 4));

  EXPECT_FAILS(store_.SetNamespace(std::string(257, 'n'), {}), StatusCode::kInvalidArgument);
  EXPECT_FAILS(store_.SetNamespace("t", {.persist = static_cast<Persist>(9)}),
               StatusCode::kInvalidArgument, "persist");
}

TEST_P(EvictTest, WhatANamespaceHoldsIsCountedAnewByNobody) {
  Branch branch = MakeFull("branch");
  EXPECT_EQ(kEachBytes, Held());
  ASSERT_OK_ASSIGN(Branch fork, branch.ForkAt(4, {.name = "fork", .ns = "t"}));
  EXPECT_EQ(kEachBytes, Held());
  ASSERT_OK(store_.Compact());
  const uint64_t sealed = Held();
  EXPECT_NE(kEachBytes, sealed);
  EXPECT_GT(sealed, 0u);
  Reopen();
  EXPECT_EQ(sealed, Held());
  ASSERT_OK(Again("branch").Drop());
  ASSERT_OK(Again("fork").Drop());
  EXPECT_EQ(0u, Held());
  EXPECT_EQ((std::vector<std::string>{}), NamesOf(store_));
}

TEST_P(EvictTest, BranchesAreMadeAtTheCap) {
  ReopenWithCap();
  Branch chat = Make("chat");
  KvSet kv(model_, Layout::kNhd, 0, kEach);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    const std::vector<TokenId> tokens = Tokens(kEach, kSeed);
    Branch other = Make(std::to_string(i));
    const auto ticket = other.Append(MakeDelta(tokens, kv.View(0, kEach)));
    if (ticket.ok()) continue;
    ASSERT_EQ(StatusCode::kBusy, ticket.status().code()) << ticket.status().ToString();
    ++refused;
    ASSERT_OK(store_.CreateBranch(model_id_, {.name = "new" + std::to_string(i), .ns = "t"}));
    ASSERT_OK(chat.ForkAt(0, {.name = "fork" + std::to_string(i), .ns = "t"}));
    ASSERT_OK(other.Rename("renamed" + std::to_string(i)));
  }
  EXPECT_GT(refused, 0);
}

TEST_P(EvictTest, AStoreAtItsCapGoesOnForEver) {
  const Options options = ReopenWithCap();
  constexpr int kBranches = 400;  // 25 MiB of KV.
  for (int i = 0; i < kBranches; ++i) {
    MakeFull(std::to_string(i));
    ASSERT_LE(store_.Metrics().physical_bytes, options.max_bytes) << i;
    if (HasFailure()) return;
  }
  EXPECT_TRUE(HasKv(Again(std::to_string(kBranches - 1)), model_, 0, kEach));
  EXPECT_TRUE(HasKv(Again(std::to_string(kBranches - 8)), model_, 0, kEach));
  EXPECT_TRUE(Lacks(Again("0"), 0, kEach));
  EXPECT_EQ(Tokens(kEach, kSeed), *Again("0").ReadTokens(0, kEach));
  EXPECT_GT(store_.Metrics().evicted_bytes, 8u << 20);
  Reopen(options);
  EXPECT_EQ(uint64_t{kBranches}, store_.Metrics().branches);
  EXPECT_TRUE(HasKv(Again(std::to_string(kBranches - 1)), model_, 0, kEach));
  EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
}

// Continuous verification kept the oldest segment of the log from being given back: changes were
// refused, and branches evicted for nothing.
TEST_P(EvictTest, VerifyingAllTheTimeKeepsNoSpace) {
  ReopenWithCap();
  std::atomic<bool> stop = false;
  std::atomic<int> verified = 0;
  auto verify = world_->world().scheduler->StartThread("verify", [&] {
    while (!stop) {
      const auto report = store_.Verify(VerifyLevel::kHeaders);
      EXPECT_OK(report);
      EXPECT_TRUE(report.ok() && report->damages.empty());
      ++verified;
    }
  });
  Branch chat = MakeFull("chat");
  constexpr int kBranches = 200;
  for (int i = 0; i < kBranches && !HasFailure(); ++i) {
    MakeFull(std::to_string(i));
    EXPECT_OK(chat.Rewind(kEach / 2)) << i;
    EXPECT_OK(AppendSome(chat, model_, kEach / 2, kEach / 2)) << i;
  }
  stop = true;
  verify.reset();  // Waits for it.
  EXPECT_GT(verified.load(), 3);
  EXPECT_GT(store_.Metrics().retired_segments, 8u);
}

INSTANTIATE_TEST_SUITE_P(Worlds, EvictTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

class ExpiryTest : public EvictTest {
 protected:
  void Sleep(uint64_t seconds) { world_->world().scheduler->Sleep(seconds * 1'000'000'000); }
};

TEST_P(ExpiryTest, ABranchThatWasNotUsedForItsTimeIsDropped) {
  constexpr uint64_t kHourNs = 3'600'000'000'000;
  ASSERT_OK(store_.SetNamespace("t", {.ttl_ns = kHourNs}));
  Branch by_namespace = MakeFull("by namespace");
  Branch longer = MakeFull("longer", {.ttl_ns = 2 * kHourNs});
  Branch pinned = MakeFull("pinned", {.pinned = true, .ttl_ns = kHourNs});
  Branch used = MakeFull("used");
  Sleep(3000);
  EXPECT_TRUE(HasKv(used, model_, 0, kEach));
  Sleep(700);
  EXPECT_FAILS(by_namespace.Info(), StatusCode::kNotFound);
  EXPECT_OK(longer.Info());
  EXPECT_OK(used.Info());
  Sleep(3000);
  EXPECT_FAILS(used.Info(), StatusCode::kNotFound);
  Reopen();
  EXPECT_EQ(2u * kHourNs, Again("longer").Info()->keep.ttl_ns);
  Sleep(700);
  EXPECT_OK(Again("longer").Info()) << "an opening is a use";
  Sleep(7200);
  EXPECT_FAILS(store_.FindBranch("longer", "t"), StatusCode::kNotFound);
  EXPECT_OK(Again("pinned").Info());
  EXPECT_EQ(1u, store_.Metrics().expired_branches);
  // A branch whose time passes while the store is closed has it once more when it is open again.
  ASSERT_OK(Again("pinned").SetKeep({.ttl_ns = kHourNs}));
  ASSERT_OK(store_.Close());
  Sleep(7200);
  Reopen();
  Sleep(3590);
  EXPECT_OK(store_.FindBranch("pinned", "t"));
  Sleep(15);
  EXPECT_FAILS(store_.FindBranch("pinned", "t"), StatusCode::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Worlds, ExpiryTest, ::testing::Values("simulated"), NameOf);

}  // namespace
}  // namespace cairn::testing
