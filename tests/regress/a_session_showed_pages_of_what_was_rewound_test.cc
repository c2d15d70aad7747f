// SPDX-License-Identifier: Apache-2.0
//
// Property: what a sparse session shows is what its branch has, whatever other sessions had read
// before, and whatever happens to the nodes above it.
#include "tests/engine/sparse_test.h"

namespace cairn::testing {
namespace {

// A page is named by a node and a position. Without a lease a rewind cuts the node where it is, and
// what is appended lies on the same node, at the same positions.
TEST_F(SparseTest, APageOfWhatWasRewoundIsNotThatOfWhatCameInstead) {
  Fill(model_, 400, 400);
  Make();
  const std::vector<uint32_t> pieces = {7, 60, 3, 99};
  const SparseWanted wanted = WantedOf(0, pieces, 2);
  {
    ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
    ASSERT_OK_ASSIGN(const SparseView view, session.Fetch(wanted));
    Compare(view, wanted);
  }
  ASSERT_OK(chat_.Rewind(100));
  ASSERT_OK(AppendSome(chat_, model_, 100, 300, kSeed + 1));
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
  ASSERT_OK_ASSIGN(const SparseView view, session.Fetch(wanted));
  Compare(view, wanted, {{0, kSeed}, {100, kSeed + 1}});
}

// As above, beyond what a session that lives has on lease; it grows into it.
TEST_F(SparseTest, ASessionGrowsIntoWhatWasRewoundBehindIt) {
  Fill(model_, 400, 400);
  Make();
  SparseOptions options = Small();
  options.tokens_max = 600;
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, options));
  ASSERT_OK(AppendSome(chat_, model_, 400, 200));
  const std::vector<uint32_t> pieces = {110, 149, 130, 101};
  const SparseWanted wanted = WantedOf(0, pieces, 2);
  {
    ASSERT_OK_ASSIGN(SparseSession longer, arena_.Open(chat_, options));
    ASSERT_OK_ASSIGN(const SparseView view, longer.Fetch(wanted));
    Compare(view, wanted);
  }
  ASSERT_OK(chat_.Rewind(400));
  ASSERT_OK(AppendSome(chat_, model_, 400, 200, kSeed + 1));
  ASSERT_OK(session.Extend());
  ASSERT_OK_ASSIGN(const SparseView view, session.Fetch(wanted));
  Compare(view, wanted, {{0, kSeed}, {400, kSeed + 1}});
}

// The fork is gone, and what the session has of it is not; the node above it may be rewound, since
// nobody else needs it.
TEST_F(SparseTest, APageThatASessionOfADroppedForkHasIsNotThatOfWhatCameInstead) {
  Fill(model_, 400, 400);
  Make();
  ASSERT_OK_ASSIGN(Branch fork, chat_.ForkAt(400, {}));
  ASSERT_OK(AppendSome(fork, model_, 400, 200));
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(fork, Small()));
  const std::vector<uint32_t> pieces = {7, 60, 3, 99};
  const SparseWanted wanted = WantedOf(0, pieces, 2);
  ASSERT_OK_ASSIGN(SparseView view, session.Fetch(wanted));
  Compare(view, wanted);
  ASSERT_OK(fork.Drop());
  ASSERT_OK(chat_.Rewind(100));
  ASSERT_OK(AppendSome(chat_, model_, 100, 300, kSeed + 1));
  ASSERT_OK_ASSIGN(SparseSession other, arena_.Open(chat_, Small()));
  ASSERT_OK_ASSIGN(view, other.Fetch(wanted));
  Compare(view, wanted, {{0, kSeed}, {100, kSeed + 1}});
}

// The node that a page is named by becomes part of the one below it.
TEST_F(SparseTest, AJoinAboveASessionLeavesItAsItIs) {
  Fill(model_, 400, 400);
  Make();
  ASSERT_OK_ASSIGN(Branch fork, chat_.ForkAt(400, {}));
  ASSERT_OK(AppendSome(fork, model_, 400, 200, kSeed + 1));
  SparseOptions options = Small();
  options.tokens_max = 800;
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(fork, options));
  SeededRandom random(3);
  const auto fetch = [&](SparseSession& of, const Content& content) {
    for (uint32_t i = 0; i < 6; ++i) {
      const std::vector<uint32_t> pieces = Draw(&random, of.pieces(), 12);
      const SparseWanted wanted = WantedOf(i % 3, pieces, 12);
      ASSERT_OK_ASSIGN(const SparseView view, of.Fetch(wanted));
      Compare(view, wanted, content);
    }
  };
  fetch(session, {{0, kSeed}, {400, kSeed + 1}});
  ASSERT_OK(chat_.Drop());
  ASSERT_OK(store_.Compact());
  fetch(session, {{0, kSeed}, {400, kSeed + 1}});
  ASSERT_OK(AppendSome(fork, model_, 600, 200, kSeed + 2));
  ASSERT_OK(session.Extend());
  const Content content{{0, kSeed}, {400, kSeed + 1}, {600, kSeed + 2}};
  fetch(session, content);
  ASSERT_OK_ASSIGN(SparseSession other, arena_.Open(fork, options));
  fetch(other, content);
}

// One thread fetches, one reads ahead, one lets the session grow.
TEST_F(SparseTest, PrefetchesAndFetchesGoOnBesideExtends) {
  Fill(model_, 410, 410);
  Make();
  SparseOptions options = Small();
  options.tokens_max = 1000;
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, options));
  bool ends = false;
  {
    const auto grows = sim_.scheduler->StartThread("grows", [&] {
      for (uint64_t tokens = 410; tokens < 1000; tokens += 59) {
        EXPECT_OK(AppendSome(chat_, model_, tokens, 59));
        EXPECT_OK(session.Extend());
        sim_.scheduler->Sleep(200'000);
      }
      ends = true;
    });
    const auto ahead = sim_.scheduler->StartThread("ahead", [&] {
      SeededRandom random(6);
      while (!ends) {
        const std::vector<uint32_t> pieces = Draw(&random, session.pieces(), 6);
        const Status noted =
            session.Prefetch(WantedOf(static_cast<uint32_t>(random.Below(3)), pieces, 6));
        EXPECT_TRUE(noted.ok() || noted.code() == StatusCode::kBusy) << noted.ToString();
        sim_.scheduler->Sleep(30'000);
      }
    });
    SeededRandom random(7);
    while (!ends) {
      const std::vector<uint32_t> pieces = Draw(&random, session.pieces(), 12);
      SparseWanted wanted = WantedOf(static_cast<uint32_t>(random.Below(3)), pieces, 12);
      if (random.Below(3) == 0) wanted.mode = SparseMode::kRelaxed;
      const auto view = session.Fetch(wanted);
      if (view.status().code() == StatusCode::kBusy) continue;
      ASSERT_OK(view);
      Compare(*view, wanted);
      sim_.scheduler->Sleep(10'000);
    }
  }
  EXPECT_EQ(1000u / 4, session.pieces());
}

}  // namespace
}  // namespace cairn::testing
