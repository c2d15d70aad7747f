// SPDX-License-Identifier: Apache-2.0
//
// Property: what a step is given is what was appended, byte for byte, whatever lies in slots, in
// pages, in tables or in the log, and however small the arena is.
#include "tests/engine/sparse_test.h"

#include "tests/support/test_seed.h"

namespace cairn::testing {
namespace {

TEST_F(SparseTest, BringsWhatIsWanted) {
  Fill(model_, 700, 130);
  io::SimRandom random(1);
  for (const char* when : {"in the log", "in tables", "opened again"}) {
    SCOPED_TRACE(when);
    if (std::string(when) == "in tables") {
      ASSERT_OK(store_.Compact());
    }
    if (std::string(when) == "opened again") {
      Unmake();
      Start({.seed = 9});
      Find();
    }
    Make();
    for (const uint32_t planes : {3u, 1u, 2u}) {
      SparseOptions options = Small();
      options.planes = planes;
      ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, options));
      EXPECT_EQ(175u, session.pieces());
      for (int step = 0; step < 8; ++step) {
        for (uint32_t layer = 0; layer < 3; ++layer) {
          const uint32_t count = static_cast<uint32_t>(random.Below(13));
          const std::vector<uint32_t> pieces = Draw(&random, session.pieces(), count);
          const SparseWanted wanted = WantedOf(layer, pieces, count);
          ASSERT_OK_ASSIGN(const SparseView view, session.Fetch(wanted));
          EXPECT_EQ(0u, Compare(view, wanted, kSeed, options));
        }
      }
      EXPECT_EQ(24u, session.stats().fetches);
      EXPECT_EQ(0u, session.stats().left_out);
    }
  }
}

TEST_F(SparseTest, WhatIsThereIsNotReadAgain) {
  Fill(model_, 400, 400);
  Make();
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
  const std::vector<uint32_t> pieces = {0, 1, 2, 3, 40, 41, /*head 1*/ 0, 99, 50, 51, 52, 53};
  const SparseWanted wanted = WantedOf(1, pieces, 6);
  ASSERT_OK_ASSIGN(SparseView view, session.Fetch(wanted));
  Compare(view, wanted);
  const SparseStats first = session.stats();
  EXPECT_EQ(12u, first.faults);
  EXPECT_EQ(6u, first.pages_read);  // Pieces 0..3, 40..43; 0..3, 96..99, 48..51, 52..55.
  EXPECT_EQ(6u * 2 * 16 * 32, first.page_bytes_read);
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_ASSIGN(view, session.Fetch(wanted));
    Compare(view, wanted);
  }
  EXPECT_EQ(first.faults, session.stats().faults);
  EXPECT_EQ(first.pages_read, session.stats().pages_read);
  // Another piece of a page that is there.
  const std::vector<uint32_t> near = {42, 49};
  const SparseWanted more = WantedOf(1, near, 1);
  ASSERT_OK_ASSIGN(view, session.Fetch(more));
  Compare(view, more);
  EXPECT_EQ(first.faults, session.stats().faults);
}

// A fetch that wants more pages than the arena has is brought in parts.
TEST_F(SparseTest, AnArenaSmallerThanAStep) {
  Fill(model_, 1024, 256);
  ASSERT_OK(store_.Compact());
  Make();
  SparseOptions options = Small();
  options.slots = 200;
  options.wanted_max = 128;
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, options));
  io::SimRandom random(3);
  for (int step = 0; step < 3; ++step) {
    const std::vector<uint32_t> pieces = Draw(&random, session.pieces(), 128);
    const SparseWanted wanted = WantedOf(2, pieces, 128);
    ASSERT_OK_ASSIGN(const SparseView view, session.Fetch(wanted));
    EXPECT_EQ(0u, Compare(view, wanted));
    EXPECT_LE(arena_.pinned_bytes(), kSmallArena);
  }
  EXPECT_GT(session.stats().pages_read, 100u);
}

TEST_F(SparseTest, RelaxedFetchesLeaveOutAndHaveItTheNextTime) {
  Fill(model_, 400, 400);
  Make();
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
  const std::vector<uint32_t> pieces = {7, 60, 3, 99};
  SparseWanted wanted = WantedOf(0, pieces, 2);
  wanted.mode = SparseMode::kRelaxed;
  ASSERT_OK_ASSIGN(SparseView view, session.Fetch(wanted));
  EXPECT_EQ(4u, Compare(view, wanted));
  uint64_t left_out = 4;
  for (int i = 0; i < 1000 && left_out != 0; ++i) {
    sim_.scheduler->Sleep(1'000'000);
    device_->RunAll();
    const auto again = session.Fetch(wanted);
    if (again.status().code() == StatusCode::kBusy) continue;
    ASSERT_OK(again);
    left_out = Compare(*again, wanted);
  }
  EXPECT_EQ(0u, left_out);
  EXPECT_GE(session.stats().left_out, 4u);
  EXPECT_EQ(session.stats().faults, session.stats().left_out);
}

TEST_F(SparseTest, PrefetchedPagesNeedNoDisk) {
  Fill(model_, 400, 400);
  Make();
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
  const std::vector<uint32_t> pieces = {7, 60, 3, 99};
  const SparseWanted wanted = WantedOf(0, pieces, 2);
  ASSERT_OK(session.Prefetch(wanted));
  for (int i = 0; i < 1000 && session.stats().pages_read < 4; ++i) {
    sim_.scheduler->Sleep(1'000'000);
  }
  ASSERT_OK_ASSIGN(const SparseView view, session.Fetch(wanted));
  EXPECT_EQ(0u, Compare(view, wanted));
  EXPECT_EQ(0u, session.stats().faults);
  EXPECT_EQ(4u, session.stats().pages_read);
}

TEST_F(SparseTest, PiecesOnTheDevice) {
  Fill(model_, 400, 400);
  Make();
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
  const std::vector<uint32_t> pieces = {7, 60, 3, 99};
  ASSERT_OK_ASSIGN(std::byte* const at, gpu_->Allocate(16));
  ASSERT_OK(gpu_->CopyIn(at, reinterpret_cast<const std::byte*>(pieces.data()), 16));
  SparseWanted wanted = WantedOf(0, pieces, 2);
  const SparseWanted compared = wanted;
  wanted.pieces = reinterpret_cast<const uint32_t*>(at);
  wanted.on_device = true;
  ASSERT_OK_ASSIGN(const SparseView view, session.Fetch(wanted));
  EXPECT_EQ(0u, Compare(view, compared));
  EXPECT_FAILS(session.Prefetch(wanted), StatusCode::kInvalidArgument, "host memory");
  gpu_->Free(at);
}

TEST_F(SparseTest, ForksShareTheirPages) {
  Fill(model_, 400, 400);
  Make();
  ASSERT_OK_ASSIGN(Branch fork, chat_.ForkAt(300, {}));
  ASSERT_OK(AppendSome(fork, model_, 300, 100, kSeed + 1));
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
  ASSERT_OK_ASSIGN(SparseSession of_fork, arena_.Open(fork, Small()));
  const std::vector<uint32_t> shared = {7, 60, 3, 50};
  const SparseWanted wanted = WantedOf(0, shared, 2);
  ASSERT_OK_ASSIGN(SparseView view, session.Fetch(wanted));
  Compare(view, wanted);
  ASSERT_OK_ASSIGN(view, of_fork.Fetch(wanted));
  Compare(view, wanted);
  EXPECT_EQ(4u, arena_.stats().pages_read);
  EXPECT_EQ(4u, of_fork.stats().faults);
  // Behind the fork each has its own; so has a page that the fork begins in.
  const std::vector<uint32_t> own = {99, 80, 75, 90};
  const SparseWanted behind = WantedOf(0, own, 2);
  ASSERT_OK_ASSIGN(view, session.Fetch(behind));
  Compare(view, behind);
  ASSERT_OK_ASSIGN(view, of_fork.Fetch(behind));
  Compare(view, behind, kSeed + 1);
  EXPECT_EQ(4u + 8, arena_.stats().pages_read);
}

TEST_F(SparseTest, ARewindGoesOnElsewhereADropEndsIt) {
  Fill(model_, 400, 400);
  Make();
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
  ASSERT_OK(chat_.Rewind(100));
  ASSERT_OK(AppendSome(chat_, model_, 100, 300, kSeed + 1));
  ASSERT_OK(store_.Compact());
  const std::vector<uint32_t> pieces = {7, 60, 3, 99};
  const SparseWanted wanted = WantedOf(0, pieces, 2);
  ASSERT_OK_ASSIGN(SparseView view, session.Fetch(wanted));
  Compare(view, wanted);
  ASSERT_OK_ASSIGN(SparseSession of_now, arena_.Open(chat_, Small()));
  const std::vector<uint32_t> changed = {60, 99};
  const SparseWanted other = WantedOf(0, changed, 1);
  ASSERT_OK_ASSIGN(view, of_now.Fetch(other));
  Compare(view, other, kSeed + 1);
  ASSERT_OK(chat_.Drop());
  ASSERT_OK_ASSIGN(view, session.Fetch(wanted));  // It is there.
  const std::vector<uint32_t> more = {30, 31};
  EXPECT_FAILS(session.Fetch(WantedOf(0, more, 1)), StatusCode::kNotFound, "");
}

TEST_F(SparseTest, ASessionEndsBeforeThatOfOthers) {
  Fill(model_, 400, 400);
  Make();
  ASSERT_OK_ASSIGN(SparseSession stays, arena_.Open(chat_, Small()));
  const std::vector<uint32_t> pieces = {7, 60, 3, 99};
  const SparseWanted wanted = WantedOf(0, pieces, 2);
  const uint64_t device_bytes = arena_.device_bytes();
  EXPECT_EQ(stays.device_bytes(), device_bytes);
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
    ASSERT_OK_ASSIGN(const SparseView view, session.Fetch(wanted));
    Compare(view, wanted);
  }
  EXPECT_EQ(device_bytes, arena_.device_bytes());
  ASSERT_OK_ASSIGN(const SparseView view, stays.Fetch(wanted));
  Compare(view, wanted);
  EXPECT_EQ(4u, arena_.stats().pages_read);
  ASSERT_OK(store_.Close());
  EXPECT_FAILS(stays.Fetch(wanted), StatusCode::kInvalidState, "");
}

}  // namespace
}  // namespace cairn::testing
