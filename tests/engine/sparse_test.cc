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
  SeededRandom random(1);
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
          EXPECT_EQ(0u, Compare(view, wanted, {{0, kSeed}}, options));
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
  const StoreMetrics metrics = store_.Metrics();
  EXPECT_EQ(1u, metrics.sparse_fetches);
  EXPECT_EQ(12u, metrics.sparse_wanted);
  EXPECT_EQ(12u, metrics.sparse_faults);
  EXPECT_EQ(0u, metrics.sparse_left_out);
  EXPECT_EQ(6u, metrics.sparse_pages_read);
  EXPECT_EQ(first.page_bytes_read, metrics.sparse_page_bytes_read);
  EXPECT_EQ(session.device_bytes(), metrics.sparse_device_bytes);
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_ASSIGN(view, session.Fetch(wanted));
    Compare(view, wanted);
  }
  EXPECT_EQ(first.faults, session.stats().faults);
  EXPECT_EQ(first.pages_read, session.stats().pages_read);
  // Another piece of a page in memory.
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
  SeededRandom random(3);
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
  EXPECT_EQ(session.stats().left_out, store_.Metrics().sparse_left_out);
  session = SparseSession();
  EXPECT_EQ(0u, store_.Metrics().sparse_device_bytes);
}

TEST_F(SparseTest, PrefetchesThatAreTooLateAreLeft) {
  Fill(model_, 1024, 256);
  ASSERT_OK(store_.Compact());
  Make();
  SparseOptions options = Small();
  options.slots = options.wanted_max = 100;
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, options));
  SeededRandom random(8);
  const std::vector<uint32_t> pieces = Draw(&random, session.pieces(), 100);
  SparseWanted wanted = WantedOf(0, pieces, 100);
  wanted.timeout_ns = 0;
  ASSERT_OK(session.Prefetch(wanted));
  sim_.scheduler->Sleep(100'000'000);
  EXPECT_EQ(0u, session.stats().pages_read);
  wanted.timeout_ns = UINT64_MAX;
  ASSERT_OK(session.Prefetch(wanted));
  sim_.scheduler->Sleep(100'000'000);
  EXPECT_GT(session.stats().pages_read, 32u) << "more than one batch";
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

TEST_F(SparseTest, GrowthForgetsNoPrefetch) {
  Fill(model_, 400, 400);
  Make();
  SparseOptions options = Small();
  options.tokens_max = 800;
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, options));
  ASSERT_OK(AppendSome(chat_, model_, 400, 100, kSeed));
  const std::vector<uint32_t> pieces = {7, 60, 3, 99};
  const SparseWanted wanted = WantedOf(0, pieces, 2);
  ASSERT_OK(session.Prefetch(wanted));
  ASSERT_OK(session.Extend());
  sim_.scheduler->Sleep(1'000'000'000);
  EXPECT_EQ(4u, session.stats().pages_read);
  ASSERT_OK_ASSIGN(const SparseView view, session.Fetch(wanted));
  EXPECT_EQ(0u, Compare(view, wanted));
  EXPECT_EQ(0u, session.stats().faults);
}

// A fetch that comes right behind may find the one before still running when it looks at the
// layers.
TEST_F(SparseTest, WhatARelaxedFetchLeftOutIsCountedOnce) {
  Fill(model_, 400, 400);
  Make();
  const std::vector<uint32_t> pieces = {7, 60, 3, 99};
  for (uint32_t i = 0; i < 30; ++i) {
    SCOPED_TRACE(i);
    ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
    SparseWanted wanted = WantedOf(i % 3, pieces, 2);
    wanted.mode = SparseMode::kRelaxed;
    ASSERT_OK_ASSIGN(SparseView view, session.Fetch(wanted));
    const std::vector<uint32_t> others = {8, 61, 2, 98};
    ASSERT_OK_ASSIGN(view, session.Fetch(WantedOf(i % 3, others, 2)));
    EXPECT_EQ(0u, Compare(view, WantedOf(i % 3, others, 2)));
    EXPECT_EQ(4u, session.stats().left_out);
  }
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
  Compare(view, behind, {{0, kSeed}, {300, kSeed + 1}});
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
  Compare(view, other, {{0, kSeed}, {100, kSeed + 1}});
  ASSERT_OK(chat_.Drop());
  ASSERT_OK_ASSIGN(view, session.Fetch(wanted));  // It is in memory.
  const std::vector<uint32_t> more = {30, 31};
  EXPECT_FAILS(session.Fetch(WantedOf(0, more, 1)), StatusCode::kNotFound, "");
}

TEST_F(SparseTest, GrowsWithItsBranch) {
  Fill(model_, 410, 410);
  Make();
  SparseOptions options = Small();
  options.tokens_max = 700;
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, options));
  EXPECT_EQ(102u, session.pieces());
  const std::vector<uint32_t> pieces = {7, 101, 3, 100};  // The last page has 26 tokens.
  const SparseWanted wanted = WantedOf(0, pieces, 2);
  ASSERT_OK_ASSIGN(SparseView view, session.Fetch(wanted));
  Compare(view, wanted);
  const uint64_t faults = session.stats().faults;
  ASSERT_OK(AppendSome(chat_, model_, 410, 290, kSeed + 1));
  const std::vector<uint32_t> beyond = {102, 103};
  EXPECT_FAILS(session.Fetch(WantedOf(0, beyond, 1)), StatusCode::kInvalidArgument, "beyond");
  ASSERT_OK(session.Extend());
  EXPECT_EQ(175u, session.pieces());
  ASSERT_OK_ASSIGN(view, session.Fetch(wanted));
  Compare(view, wanted);
  EXPECT_EQ(faults, session.stats().faults);  // Pieces in slots cause no faults.
  const Content content{{0, kSeed}, {410, kSeed + 1}};
  SeededRandom random(5);
  for (int step = 0; step < 8; ++step) {
    const std::vector<uint32_t> more = Draw(&random, 175, 12);
    const SparseWanted of_more = WantedOf(static_cast<uint32_t>(step % 3), more, 12);
    ASSERT_OK_ASSIGN(view, session.Fetch(of_more));
    Compare(view, of_more, content);
  }
  // A part of its tokens; more than it has room for; another branch than before.
  EXPECT_FAILS(session.Extend(500), StatusCode::kConflict, "rewound");
  EXPECT_FAILS(session.Extend(701), StatusCode::kInvalidArgument, "end is 701");
  ASSERT_OK(AppendSome(chat_, model_, 700, 100));
  EXPECT_FAILS(session.Extend(), StatusCode::kInvalidArgument, "tokens_max");
  ASSERT_OK(chat_.Rewind(600));
  ASSERT_OK(AppendSome(chat_, model_, 600, 100, kSeed + 2));
  EXPECT_FAILS(session.Extend(), StatusCode::kConflict, "token 700");
  ASSERT_OK_ASSIGN(view, session.Fetch(wanted));
  Compare(view, wanted);
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

TEST_F(SparseTest, WhatIsWrongWithPiecesIsSaid) {
  Fill(model_, 400, 400);
  Make();
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
  const std::vector<uint32_t> beyond = {7, 60, 3, 100};
  EXPECT_FAILS(session.Fetch(WantedOf(2, beyond, 2)), StatusCode::kInvalidArgument,
               "layer 2, head 1: piece 100 is beyond the last, 99");
  const std::vector<uint32_t> twice = {7, 7, 3, 9};
  EXPECT_FAILS(session.Fetch(WantedOf(2, twice, 2)), StatusCode::kInvalidArgument,
               "layer 2, head 0: piece 7 is wanted twice");
  EXPECT_FAILS(session.Prefetch(WantedOf(2, beyond, 2)), StatusCode::kInvalidArgument,
               "piece 100 is beyond");
  SparseWanted wanted = WantedOf(2, twice, 2);
  wanted.mode = SparseMode::kRelaxed;
  ASSERT_OK_ASSIGN(SparseView view, session.Fetch(wanted));
  EXPECT_EQ(4u, Compare(view, wanted));  // None of the head that is wrong, none of the other yet.
  const std::vector<uint32_t> right = {7, 60, 3, 99};
  EXPECT_FAILS(session.Fetch(WantedOf(2, right, 2)), StatusCode::kInvalidArgument, "twice");
  ASSERT_OK_ASSIGN(view, session.Fetch(WantedOf(2, right, 2)));
  EXPECT_EQ(0u, Compare(view, WantedOf(2, right, 2)));
  wanted = WantedOf(3, right, 2);
  EXPECT_FAILS(session.Fetch(wanted), StatusCode::kInvalidArgument, "layer is 3; there are 3");
  wanted = WantedOf(0, right, 13);
  EXPECT_FAILS(session.Fetch(wanted), StatusCode::kInvalidArgument, "count is 13");
  wanted = WantedOf(0, right, 2);
  wanted.stride = 1;
  EXPECT_FAILS(session.Fetch(wanted), StatusCode::kInvalidArgument, "stride is 1");
  wanted.pieces = nullptr;
  EXPECT_FAILS(session.Fetch(wanted), StatusCode::kInvalidArgument, "pieces is null");
  ASSERT_OK(store_.Compact());
  const std::vector<uint32_t> on_disk = {30, 40, 50, 60};
  wanted = WantedOf(0, on_disk, 2);
  wanted.timeout_ns = 0;
  EXPECT_FAILS(session.Fetch(wanted), StatusCode::kDeadlineExceeded, "");
  EXPECT_FAILS(SparseSession().Fetch(wanted), StatusCode::kInvalidState, "empty handle");
}

TEST_F(SparseTest, OptionsThatCannotBe) {
  Fill(model_, 400, 400);
  const auto refused = [&](const char* what, auto change) {
    SparseOptions options = Small();
    change(&options);
    EXPECT_FAILS(arena_.Open(chat_, options), StatusCode::kInvalidArgument, what);
  };
  EXPECT_FAILS(SparseArena::Make(store_, *gpu_, {.pinned_bytes = 1000}),
               StatusCode::kInvalidArgument, "pinned_bytes is 1000");
  const Gpu other(gpu::MakeSimDevice(sim_.scheduler, {}), kOrdinal);
  EXPECT_FAILS(SparseArena::Make(store_, other, {.pinned_bytes = kSmallArena}),
               StatusCode::kInvalidArgument, "none of Options::gpus");
  Make();
  refused("group is 1", [](SparseOptions* o) { o->group = 1; });
  refused("planes is 0", [](SparseOptions* o) { o->planes = 0; });
  refused("planes is 4", [](SparseOptions* o) { o->planes = 4; });
  refused("piece_tokens is 0", [](SparseOptions* o) { o->piece_tokens = 0; });
  refused("piece_tokens is 3000", [](SparseOptions* o) { o->piece_tokens = 3000; });
  refused("page_tokens is 18", [](SparseOptions* o) { o->page_tokens = 18; });
  refused("slots is 0", [](SparseOptions* o) { o->slots = 0; });
  refused("slots is 65537", [](SparseOptions* o) { o->slots = 65'537; });
  refused("wanted_max is 25", [](SparseOptions* o) { o->wanted_max = 25; });
  refused("wanted_max is 0", [](SparseOptions* o) { o->wanted_max = 0; });
  refused("end is 401", [](SparseOptions* o) { o->end = 401; });
  refused("0 whole pieces", [](SparseOptions* o) { o->end = 3; });
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
  const uint64_t bytes = session.device_bytes();
  Make(kSmallArena, 2 * bytes - 1);
  ASSERT_OK_ASSIGN(session, arena_.Open(chat_, Small()));
  EXPECT_FAILS(arena_.Open(chat_, Small()), StatusCode::kOutOfMemory,
               std::to_string(bytes - 1) + " are left");
  ASSERT_OK_ASSIGN(Branch none, store_.CreateBranch(*store_.RegisterModel(model_), {}));
  EXPECT_FAILS(arena_.Open(none, Small()), StatusCode::kInvalidArgument, "has no tokens");
  EXPECT_FAILS(SparseArena().Open(chat_), StatusCode::kInvalidState, "empty handle");
}

// The next session begins with what was saved, in the same order of use.
TEST_F(SparseTest, WhatWasSavedIsThereAtOnce) {
  Fill(model_, 400, 400);
  Make();
  const std::vector<uint32_t> first = {1, 2, 3, 4}, then = {7, 60, 3, 99};
  {
    ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
    for (uint32_t layer = 0; layer < 3; ++layer) {
      ASSERT_OK(session.Fetch(WantedOf(layer, first, 2)));
      ASSERT_OK(session.Fetch(WantedOf(layer, then, 2)));
    }
    ASSERT_OK(session.Save());
  }
  ASSERT_OK_ASSIGN(Branch fork, chat_.ForkAt(400, {.name = "fork"}));
  ASSERT_OK(AppendSome(fork, model_, 400, 20));
  for (const char* when : {"at once", "opened again"}) {
    SCOPED_TRACE(when);
    if (std::string(when) == "opened again") {
      Unmake();
      Start({.seed = 9});
      Find();
      ASSERT_OK_ASSIGN(fork, store_.FindBranch("fork"));
    }
    Make();
    for (const Branch& branch : {chat_, fork}) {
      SparseOptions options = Small();
      options.slots = 5;  // The newest five of each head, of which one goes with what is new.
      options.wanted_max = 3;
      ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(branch, options));
      const uint64_t warm = session.stats().faults;
      for (uint32_t layer = 0; layer < 3; ++layer) {
        ASSERT_OK_ASSIGN(const SparseView view, session.Fetch(WantedOf(layer, then, 2)));
        EXPECT_EQ(0u, Compare(view, WantedOf(layer, then, 2)));
      }
      EXPECT_EQ(warm, session.stats().faults) << "something was not there";
      options.warm = false;
      ASSERT_OK_ASSIGN(SparseSession cold, arena_.Open(branch, options));
      EXPECT_EQ(0u, cold.stats().faults);
      options.warm = true;
      options.piece_tokens = 2;
      ASSERT_OK_ASSIGN(SparseSession other, arena_.Open(branch, options));
      EXPECT_EQ(0u, other.stats().faults);
    }
  }
}

// A save of what was rewound was kInvalidArgument, which no document named, and one of a branch
// that had grown again was taken for a save of the new tokens.
TEST_F(SparseTest, ASaveOfWhatWasRewoundIsAConflict) {
  Fill(model_, 400, 400);
  Make();
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
  ASSERT_OK(session.Save());
  ASSERT_OK(chat_.Rewind(100));
  EXPECT_FAILS(session.Save(), StatusCode::kConflict, "rewound to before token 400");
  EXPECT_FAILS(session.Extend(), StatusCode::kConflict, "rewound to before token 400");
  ASSERT_OK(AppendSome(chat_, model_, 100, 300, kSeed + 1));
  EXPECT_FAILS(session.Save(), StatusCode::kConflict, "rewound to before token 400");
  ASSERT_OK(chat_.Rewind(0));
  EXPECT_FAILS(session.Save(), StatusCode::kConflict, "rewound to before token 400");
  EXPECT_FAILS(session.Extend(), StatusCode::kConflict, "rewound to before token 400");
  EXPECT_FAILS(arena_.Open(chat_, Small()), StatusCode::kInvalidArgument, "has no tokens");
}

// Between finding slots and copying into them the device fails: what the slots are said to hold is
// not there.
TEST_F(SparseTest, ADeviceThatFailsInBetween) {
  for (uint64_t at = 0; at < 12; ++at) {
    SCOPED_TRACE(at);
    Start({.seed = 5, .fail_kinds = gpu::kFailAny, .fail_at = UINT64_MAX});
    if (at == 0) {
      Fill(model_, 400, 400);
    } else {
      Find();
    }
    Make();
    {
      ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
      const std::vector<uint32_t> first = {1, 2, 3, 4}, then = {7, 60, 3, 99};
      ASSERT_OK_ASSIGN(SparseView view, session.Fetch(WantedOf(0, first, 2)));
      device_->FailAt(device_->calls() + at);
      const auto failed = session.Fetch(WantedOf(0, then, 2));
      device_->FailAt(UINT64_MAX);
      if (failed.ok()) {
        EXPECT_EQ(0u, Compare(*failed, WantedOf(0, then, 2)));
      }
      ASSERT_OK_ASSIGN(view, session.Fetch(WantedOf(0, then, 2)));
      EXPECT_EQ(0u, Compare(view, WantedOf(0, then, 2)));
    }
    Unmake();
  }
}

}  // namespace
}  // namespace cairn::testing
