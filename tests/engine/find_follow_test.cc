// SPDX-License-Identifier: Apache-2.0
//
// Property: a store that is read only finds what it shows, and nothing else: what its writer has
// indexed by manifest and what the log has behind that, as of the last Refresh; a hit of before
// is looked at again.
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

class FindFollowTest : public FindTest {
 protected:
  Store Follow() {
    Options options = FindingOptions();
    options.create_if_missing = false;
    options.read_only = true;
    auto opened = world_->Open(options);
    EXPECT_OK(opened);
    return opened.ok() ? std::move(*opened) : Store();
  }
  PrefixHit AskOf(const Store& store, std::span<const TokenId> ids) {
    const auto hit = store.FindPrefix(Query(ids));
    EXPECT_OK(hit);
    return hit.ok() ? *hit : PrefixHit();
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, FindFollowTest, ::testing::Values("memory", "simulated"), NameOf);

TEST_P(FindFollowTest, WhatItShows) {
  const std::vector<TokenId> first = Tokens(300, 5), second = Tokens(300, 6),
                             third = Tokens(200, 7);
  Make("first", first);
  ASSERT_OK(store_.Compact());  // In tables, with the hints.
  Make("second", second);
  ASSERT_OK(store_.Flush());
  Store follower = Follow();
  for (const auto& ids : {first, second}) {
    const PrefixHit hit = AskOf(follower, ids);
    EXPECT_EQ(300u, hit.matched);
    EXPECT_EQ(300u, hit.restorable);
    EXPECT_TRUE(hit.complete);
    EXPECT_TRUE(hit.confirmed);
    EXPECT_EQ(LeaseId{}, hit.lease);
  }
  Make("third", third);
  ASSERT_OK(store_.Flush());
  EXPECT_FALSE(AskOf(follower, third).found()) << "it is not shown yet";
  ASSERT_OK(follower.Refresh());
  EXPECT_EQ(200u, AskOf(follower, third).matched);
  // Manifests of the writer are replaced under it.
  for (uint64_t i = 0; i < 6; ++i) {
    Make("more-" + std::to_string(i), Tokens(150, 20 + i));
    ASSERT_OK(store_.Compact());
    if (i % 2 != 0) continue;
    ASSERT_OK(follower.Refresh());
  }
  ASSERT_OK(follower.Refresh());
  for (uint64_t i = 0; i < 6; ++i) {
    const PrefixHit hit = AskOf(follower, Tokens(150, 20 + i));
    EXPECT_EQ(150u, hit.matched);
    EXPECT_TRUE(hit.complete);
  }
  EXPECT_EQ(300u, AskOf(follower, first).matched);
}

// What was indexed under less words stays, and a reader learns the words with the next Refresh.
TEST_P(FindFollowTest, ACompletedModelKeepsItsPrefixes) {
  const std::vector<TokenId> before = Tokens(300, 5), after = Tokens(200, 6);
  Make("before", before);
  ASSERT_OK(store_.Compact());
  Store follower = Follow();
  ModelSpec more = spec_;
  ASSERT_TRUE(more.groups[0].inv_freq.empty());
  more.groups[0].inv_freq = {1.0F, 0.5F};
  more.groups[0].mscale = 1.5F;
  EXPECT_EQ(model_, Register(more));
  Make("after", after);
  ASSERT_OK(store_.Flush());
  ASSERT_OK_ASSIGN(const ModelInfo old, follower.GetModel(model_));
  EXPECT_TRUE(old.spec == spec_);
  ASSERT_OK(follower.Refresh());
  ASSERT_OK_ASSIGN(const ModelInfo info, follower.GetModel(model_));
  EXPECT_TRUE(info.spec == more);
  EXPECT_EQ(300u, AskOf(follower, before).matched);
  EXPECT_EQ(200u, AskOf(follower, after).matched);
  EXPECT_EQ(300u, Ask(before).restorable);
  SealAndReopen();  // Registers the model with less words again.
  EXPECT_EQ(300u, Ask(before).restorable);
  EXPECT_EQ(200u, Ask(after).restorable);
}

// Beside a writer that was still making its index a follower said that it indexes nothing.
TEST_P(FindFollowTest, AnIndexThatIsStillMadeIsNotComplete) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  ASSERT_OK(store_.Close());
  Options options = FindingOptions();
  options.index = Index::kNone;
  ASSERT_OK_ASSIGN(store_, world_->Open(options));
  Make("chat", ids);
  ASSERT_OK(store_.Compact());  // A manifest without hints.
  EXPECT_FAILS(Follow().FindPrefix(Query(ids)), StatusCode::kInvalidState, "indexes nothing");
  ASSERT_OK(store_.Close());
  EXPECT_FAILS(Follow().FindPrefix(Query(ids)), StatusCode::kInvalidState, "indexes nothing");
  options.index = FindingOptions().index;
  ASSERT_OK_ASSIGN(store_, world_->Open(options));
  Store follower = Follow();
  for (const bool memory_only : {true, false}) {
    PrefixQuery query = Query(ids);
    query.memory_only = memory_only;
    const auto hit = follower.FindPrefix(query);
    if (hit.status().code() == StatusCode::kBusy) continue;  // It is made already.
    ASSERT_OK(hit);
    EXPECT_EQ(hit->complete, hit->found());
  }
  PrefixHit hit;
  for (int i = 0; i < 1000 && !hit.found(); ++i) {
    ASSERT_OK(store_.Compact());
    ASSERT_OK(follower.Refresh());
    hit = AskOf(follower, ids);
    EXPECT_EQ(hit.complete, hit.found());
  }
  EXPECT_EQ(300u, hit.matched);
}

TEST_P(FindFollowTest, AHitIsOfWhatWasShown) {
  const std::vector<TokenId> ids = Tokens(300, 5), other = Like(ids, 100, 200, 6);
  Branch chat = Make("chat", ids);
  ASSERT_OK(store_.Flush());
  Store follower = Follow();
  PrefixQuery query = Query(ids);
  query.lease_ns = kMinute;
  ASSERT_OK_ASSIGN(const PrefixHit hit, follower.FindPrefix(query));
  ASSERT_EQ(300u, hit.matched);
  EXPECT_EQ(LeaseId{}, hit.lease) << "leases are the writer's";
  std::vector<TokenId> got(300);
  RestoreRequest request;
  request.tokens = got;
  ASSERT_OK(follower.Restore(hit, request));
  EXPECT_EQ(ids, got);
  EXPECT_FALSE(follower.Fork(hit, 300).ok());
  ASSERT_OK(chat.Rewind(100));
  ASSERT_OK(Append(chat, std::span(other).subspan(100)));
  ASSERT_OK(store_.Flush());
  ASSERT_OK(follower.Refresh());
  EXPECT_FAILS(follower.Restore(hit, request), StatusCode::kConflict, "other tokens");
  EXPECT_EQ(300u, AskOf(follower, other).matched);
  EXPECT_EQ(100u, AskOf(follower, ids).matched);
}

// The writer has given files back when a hit that was reported as confirmed is restored: the files
// then have other tokens. Method: no file of the hit was opened before, which one that was
// confirmed has seen to.
TEST_P(FindFollowTest, WhatIsRestoredIsOfTheHit) {
  const std::vector<TokenId> ids = Tokens(320, 5), other = Like(ids, 100, 220, 6);
  Make("first", Tokens(300, 7));
  ASSERT_OK(store_.Compact());
  Branch chat = Make("chat", ids);
  ASSERT_OK(store_.Compact());
  Store follower = Follow();
  PrefixQuery query = Query(ids);
  query.confirm = false;
  ASSERT_OK_ASSIGN(PrefixHit hit, follower.FindPrefix(query));
  ASSERT_EQ(320u, hit.matched);
  const PrefixHit first = AskOf(follower, Tokens(300, 7));
  ASSERT_TRUE(first.confirmed);
  hit.confirmed = true;
  hit.seen.opening = first.seen.opening;
  hit.seen.generation = first.seen.generation;
  hit.seen.changes = first.seen.changes;
  ASSERT_OK(chat.Rewind(100));
  ASSERT_OK(Append(chat, std::span(other).subspan(100)));
  ASSERT_OK(store_.Compact());
  std::vector<TokenId> got(320);
  RestoreRequest request;
  request.tokens = got;
  EXPECT_FAILS(follower.Restore(hit, request), StatusCode::kConflict, "other tokens");
  EXPECT_EQ(320u, AskOf(follower, other).matched) << "it has followed";
}

// The shown state changes while the ids of a hit are read: the ids read before are not reported for
// the state shown then. Method: each read of a search in turn is slow, and a Refresh comes beside
// it.
TEST(FindFollowSimulatedTest, ARefreshBesideASearch) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = FindingOptions();
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store writer, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId model, writer.RegisterModel(TinyModel()));
  options.create_if_missing = false;
  options.read_only = true;
  bool met = true;
  uint64_t at = 0;
  for (; met; ++at) {
    const std::vector<TokenId> ids = Tokens(300, 100 + at), other = Like(ids, 100, 200, 6);
    ASSERT_OK_ASSIGN(Branch chat, writer.CreateBranch(model));
    ASSERT_OK(chat.AppendSync(MakeDelta(ids)));
    ASSERT_OK(writer.Flush());
    ASSERT_OK_ASSIGN(Store follower, Store::Open("/store", options));
    ASSERT_OK(chat.Rewind(100));
    ASSERT_OK(chat.AppendSync(MakeDelta(std::span(other).subspan(100))));
    ASSERT_OK(writer.Flush());

    Status refreshed(StatusCode::kBusy, "it did not end");
    std::unique_ptr<io::Thread> thread;
    met = false;
    machine.disk->AddFault({.when =
                                [&, left = at](const io::SimOperation& operation) mutable {
                                  if (operation.op != io::SimOp::kRead || left-- != 0) return false;
                                  met = true;
                                  return true;
                                },
                            .delay_ns = 1'000'000'000});
    thread = machine.scheduler->StartThread("refreshes", [&] {
      for (int i = 0; i < 1000 && !met; ++i) machine.scheduler->Sleep(1'000'000);
      if (met) refreshed = follower.Refresh().status();
    });
    const PrefixHit hit = AskOf(follower, model, ids);
    machine.disk->ClearFaults();
    ASSERT_EQ(met ? 100u : 300u, hit.matched) << "read " << at;
    thread.reset();  // Joins.
    if (met) {
      ASSERT_OK(refreshed);
    }
    std::vector<TokenId> got(hit.matched);
    RestoreRequest request;
    request.tokens = got;
    ASSERT_OK(follower.Restore(hit, request)) << "read " << at;
    ASSERT_TRUE(std::equal(got.begin(), got.end(), ids.begin())) << "read " << at;
    ASSERT_OK(chat.Drop());
  }
  EXPECT_GT(at, 1u);
}

// It sees that when it catches up with what it was shown.
TEST_P(FindFollowTest, AWriterThatStopsIndexing) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  ASSERT_OK(store_.Compact());
  for (uint64_t i = 0; i < 3; ++i) Make("chat-" + std::to_string(i), Tokens(300, 5 + i));
  ASSERT_OK(store_.Flush());
  Store follower = Follow();
  PrefixQuery query = Query(ids);
  query.memory_only = true;  // It catches up with nothing.
  EXPECT_NE(StatusCode::kInvalidState, follower.FindPrefix(query).status().code());
  Options none = TinyOptions();
  none.index = Index::kNone;
  WorldTest::Reopen(none);
  for (uint64_t i = 0; i < 20; ++i) {
    Make("more-" + std::to_string(i), Tokens(1500, 20 + i));
    ASSERT_OK(store_.Compact());
  }
  EXPECT_FAILS(follower.FindPrefix(Query(ids)), StatusCode::kInvalidState, "writer");
}

TEST_P(FindFollowTest, OfAWriterThatIndexesNothing) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Options none = TinyOptions();
  none.index = Index::kNone;
  WorldTest::Reopen(none);
  Make("chat", ids);
  ASSERT_OK(store_.Compact());
  Options options = FindingOptions();
  options.create_if_missing = false;
  options.read_only = true;
  ASSERT_OK_ASSIGN(const Store follower, world_->Open(options));
  EXPECT_FAILS(follower.FindPrefix(Query(ids)), StatusCode::kInvalidState, "writer");
}

}  // namespace
}  // namespace cairn::testing
