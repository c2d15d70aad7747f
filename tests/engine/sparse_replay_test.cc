// SPDX-License-Identifier: Apache-2.0
//
// Property: fetches of a graph that is launched again and again bring what was appended, for the
// pieces that lie in the device's memory then; pages that another session takes meanwhile are not
// read any more. Method: graphs of a simulated device.
#include <algorithm>
#include <new>
#include <stdexcept>

#include "tests/engine/sparse_test.h"
#include "tests/gpu/callers_stream.h"

namespace cairn::testing {
namespace {

constexpr uint32_t kLayers = 3, kCount = 6;

class SparseReplayTest : public SparseTest {
 protected:
  // A step of one session: a fetch in each layer.
  struct Step {
    SparseSession session;
    std::byte* pieces = nullptr;  // Device memory: [layer][head][kCount].
    std::vector<SparseView> views;

    SparseWanted Wanted(uint32_t layer, uintptr_t stream) const {
      return {.layer = layer,
              .pieces = reinterpret_cast<const uint32_t*>(pieces) + size_t{layer} * 2 * kCount,
              .count = kCount,
              .stride = kCount,
              .on_device = true,
              .stream = stream,
              .mode = SparseMode::kRelaxed};
    }
  };

  void SetUp() override {
    SparseTest::SetUp();
    Start({.seed = 5, .fail_kinds = gpu::kFailLaunch, .fail_at = UINT64_MAX});
    Fill(model_, 700, 350);
    Make();
    mine_ = std::make_unique<CallersStream>(device_.get());
  }
  void TearDown() override {
    mine_ = nullptr;
    for (Step& step : steps_) {
      step.session = {};
      device_->Free(step.pieces);
    }
    SparseTest::TearDown();
  }

  void Open() {
    ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
    ASSERT_OK_ASSIGN(std::byte* const at,
                     device_->Allocate(gpu::Memory::kDevice, kLayers * 2 * kCount * 4));
    steps_.push_back({.session = session, .pieces = at, .views = {}});
  }
  void CaptureAll() {
    mine_->Capture([this] {
      for (Step& step : steps_) {
        for (uint32_t layer = 0; layer < kLayers; ++layer) {
          ASSERT_OK_ASSIGN(const SparseView view,
                           step.session.Capture(step.Wanted(layer, mine_->handle())));
          step.views.push_back(view);
        }
      }
    });
  }
  void Choose() {
    for (Step& step : steps_) {
      std::vector<uint32_t> all;
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        const auto drawn = Draw(&random_, step.session.pieces(), kCount);
        all.insert(all.end(), drawn.begin(), drawn.end());
      }
      std::memcpy(step.pieces, all.data(), all.size() * sizeof(uint32_t));
    }
  }
  Status Replay() {
    std::vector<SparseSession> sessions;
    for (const Step& step : steps_) sessions.push_back(step.session);
    return SparseSession::Replay(sessions, mine_->handle(), [this] { return mine_->Launch(); });
  }
  // Pieces that were left out.
  uint64_t CompareAll() {
    device_->RunAll();
    uint64_t left_out = 0;
    for (const Step& step : steps_) {
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        left_out += Compare(step.views[layer], step.Wanted(layer, 0));
      }
    }
    return left_out;
  }

  SeededRandom random_{5};
  std::unique_ptr<CallersStream> mine_;
  std::vector<Step> steps_;
};

TEST_F(SparseReplayTest, BringsWhatLiesThereThen) {
  for (int i = 0; i < 2; ++i) ASSERT_NO_FATAL_FAILURE(Open());
  CaptureAll();
  EXPECT_EQ(0u, steps_[0].session.stats().fetches) << "nothing runs yet";
  for (int step = 0; step < 6; ++step) {
    Choose();
    uint64_t left_out = UINT64_MAX;
    for (int i = 0; i < 1000 && left_out != 0; ++i) {
      ASSERT_OK(Replay());
      left_out = CompareAll();
      sim_.scheduler->Sleep(1'000'000);
    }
    EXPECT_EQ(0u, left_out) << "what a replay left out is there for a later one";
  }
  const SparseStats stats = steps_[0].session.stats();
  EXPECT_GT(stats.left_out, 0u);
  EXPECT_EQ(stats.faults, stats.left_out);
  EXPECT_EQ(stats.wanted, stats.fetches * 2 * kCount);
}

// The third replay of a step loads what the first lacked; then another session takes the pages.
TEST_F(SparseReplayTest, PagesGoWhileAGraphRuns) {
  ASSERT_NO_FATAL_FAILURE(Open());
  SparseSession& session = steps_[0].session;
  SparseView replayed;
  const SparseWanted captured = steps_[0].Wanted(0, mine_->handle());
  mine_->Capture([&] { ASSERT_OK_ASSIGN(replayed, session.Capture(captured)); });
  ASSERT_OK_ASSIGN(SparseSession other, arena_.Open(chat_, Small()));
  uint64_t left_out = 0;
  for (uint32_t step = 0; step < 200; ++step) {
    Choose();
    ASSERT_OK(Replay());
    ASSERT_OK(Replay());
    sim_.scheduler->Sleep(10'000'000);
    ASSERT_OK(Replay());
    const std::vector<uint32_t> pieces = Draw(&random_, other.pieces(), kCount);
    const SparseWanted wanted = WantedOf(step % kLayers, pieces, kCount);
    ASSERT_OK_ASSIGN(SparseView view, other.Fetch(wanted));
    EXPECT_EQ(0u, Compare(view, wanted));
    device_->RunAll();
    left_out += Compare(replayed, captured);
    // The same session, also without its graph.
    ASSERT_OK_ASSIGN(view, session.Fetch(wanted));
    EXPECT_EQ(0u, Compare(view, wanted));
  }
  EXPECT_LT(left_out, 200u * 2 * kCount / 2) << "most were loaded";
  EXPECT_GT(arena_.stats().pages_read, 200u * 2 * kCount) << "pages went";
}

TEST_F(SparseReplayTest, ALaunchThatFailsEmptiesSlots) {
  Make(4 << 20);  // It keeps all their pages.
  ASSERT_NO_FATAL_FAILURE(Open());
  CaptureAll();
  Choose();
  while (true) {
    ASSERT_OK(Replay());
    if (CompareAll() == 0) break;
    sim_.scheduler->Sleep(1'000'000);
  }
  const Status failed = SparseSession::Replay({&steps_[0].session, 1}, mine_->handle(), [] {
    return Status(StatusCode::kCancelled, "not now");
  });
  EXPECT_EQ(StatusCode::kCancelled, failed.code());
  // Also one that was enqueued before it failed.
  ASSERT_EQ(StatusCode::kCancelled,
            SparseSession::Replay({&steps_[0].session, 1}, mine_->handle(), [&] {
              EXPECT_OK(mine_->Launch());
              return Status(StatusCode::kCancelled, "not now");
            }).code());
  ASSERT_OK(Replay());
  EXPECT_EQ(0u, CompareAll()) << "from pages that are there";
}

// Slots claim pieces that were not copied there.
TEST_F(SparseReplayTest, AGraphThatRanInPartLeavesNoPiecesBehind) {
  Make(4 << 20);
  ASSERT_NO_FATAL_FAILURE(Open());
  CaptureAll();
  // The kernel that finds slots, without the one that copies.
  CallersStream part(device_.get());
  part.Capture([&] {
    device_->FailAt(device_->calls() + 1);
    EXPECT_FALSE(steps_[0].session.Capture(steps_[0].Wanted(0, part.handle())).ok());
    device_->FailAt(UINT64_MAX);
  });
  Choose();
  do {
    ASSERT_OK(Replay());
    sim_.scheduler->Sleep(1'000'000);
  } while (CompareAll() != 0);
  const std::vector<std::byte> pieces(steps_[0].pieces, steps_[0].pieces + 2 * kCount * 4);
  for (int i = 0; i < 4; ++i) {  // So that the slots of the first are taken.
    Choose();
    do {
      ASSERT_OK(Replay());
      sim_.scheduler->Sleep(1'000'000);
    } while (CompareAll() != 0);
  }
  std::copy(pieces.begin(), pieces.end(), steps_[0].pieces);
  ASSERT_EQ(StatusCode::kCancelled,
            SparseSession::Replay({&steps_[0].session, 1}, part.handle(), [&] {
              EXPECT_OK(part.Launch());
              return Status(StatusCode::kCancelled, "a part");
            }).code());
  ASSERT_OK(Replay());
  CompareAll();
}

TEST_F(SparseReplayTest, EndsBehindItsGraph) {
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    ASSERT_NO_FATAL_FAILURE(Open());
    CaptureAll();
    Choose();
    ASSERT_OK(Replay());
    steps_[0].session = {};  // Frees memory that the graph would read.
    device_->RunAll();
    ASSERT_OK(device_->lost());
    device_->Free(steps_[0].pieces);
    steps_.clear();
  }
}

// The graph was enqueued before: its event comes all the same.
TEST_F(SparseReplayTest, ALaunchThatThrowsEndsBehindItsGraph) {
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    ASSERT_NO_FATAL_FAILURE(Open());
    CaptureAll();
    Choose();
    const auto launch = [&](auto thrown) {
      return SparseSession::Replay({&steps_[0].session, 1}, mine_->handle(), [&]() -> Status {
        EXPECT_OK(mine_->Launch());
        throw thrown;
      });
    };
    if (i % 2 == 0) {
      EXPECT_THROW(static_cast<void>(launch(std::logic_error("thrown"))), std::logic_error);
    } else {
      EXPECT_EQ(StatusCode::kOutOfMemory, launch(std::bad_alloc()).code());
    }
    EXPECT_EQ(0u, steps_[0].session.stats().fetches);
    steps_[0].session = {};  // Frees memory that the graph would read.
    device_->RunAll();
    ASSERT_OK(device_->lost());
    device_->Free(steps_[0].pieces);
    steps_.clear();
  }
}

// Each layer lacks more pages than are noted at once, and the arena holds few of them.
TEST_F(SparseReplayTest, EveryLayerIsReadInItsTurn) {
  ASSERT_OK(store_.Compact());
  constexpr uint32_t kMany = 175;
  SparseOptions options = Small();
  options.page_tokens = options.piece_tokens;
  options.slots = options.wanted_max = kMany;
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, options));
  ASSERT_OK_ASSIGN(std::byte* const at,
                   device_->Allocate(gpu::Memory::kDevice, 2 * kMany * sizeof(uint32_t)));
  for (uint32_t i = 0; i < 2 * kMany; ++i) reinterpret_cast<uint32_t*>(at)[i] = i % kMany;
  std::vector<SparseView> views(kLayers);
  mine_->Capture([&] {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      ASSERT_OK_ASSIGN(views[layer],
                       session.Capture({.layer = layer,
                                        .pieces = reinterpret_cast<const uint32_t*>(at),
                                        .count = kMany,
                                        .stride = kMany,
                                        .on_device = true,
                                        .stream = mine_->handle(),
                                        .mode = SparseMode::kRelaxed}));
    }
  });
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(
        SparseSession::Replay({&session, 1}, mine_->handle(), [&] { return mine_->Launch(); }));
    device_->RunAll();
    sim_.scheduler->Sleep(1'000'000'000);
  }
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    const int32_t* const slots = views[layer].slot_of;
    EXPECT_LT(
        std::count(slots, slots + kMany, -1) + std::count(slots + kMany, slots + 2 * kMany, -1),
        2 * kMany)
        << "layer " << layer;
  }
  session = {};
  device_->Free(at);
}

TEST_F(SparseReplayTest, SavesTheSlotsOfTheLastReplay) {
  Make(32 << 20);  // All pages stay.
  ASSERT_NO_FATAL_FAILURE(Open());
  CaptureAll();
  for (int i = 0; i < 10; ++i) {
    SCOPED_TRACE(i);
    std::vector<uint32_t> pieces(kLayers * 2 * kCount);
    for (int choice = 0; choice < 5; ++choice) {  // Those of the first lose their slots.
      Choose();
      if (choice == 0) std::memcpy(pieces.data(), steps_[0].pieces, pieces.size() * 4);
      do {
        ASSERT_OK(Replay());
        sim_.scheduler->Sleep(1'000'000);
      } while (CompareAll() != 0);
    }
    std::memcpy(steps_[0].pieces, pieces.data(), pieces.size() * 4);
    ASSERT_OK(Replay());
    ASSERT_OK(steps_[0].session.Save());  // The replay may still run.
    ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, Small()));
    const uint64_t faults = session.stats().faults;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const auto first = pieces.begin() + static_cast<std::ptrdiff_t>(layer * 2 * kCount);
      const std::vector<uint32_t> of_layer(first, first + 2 * kCount);
      const SparseWanted wanted = WantedOf(layer, of_layer, kCount);
      ASSERT_OK_ASSIGN(const SparseView view, session.Fetch(wanted));
      EXPECT_EQ(0u, Compare(view, wanted));
    }
    EXPECT_EQ(faults, session.stats().faults);
  }
}

TEST_F(SparseReplayTest, GrowsBetweenReplays) {
  ASSERT_OK(store_.Compact());
  SparseOptions options = Small();
  options.tokens_max = 800;
  ASSERT_OK_ASSIGN(SparseSession session, arena_.Open(chat_, options));
  ASSERT_OK_ASSIGN(std::byte* const at,
                   device_->Allocate(gpu::Memory::kDevice, kLayers * 2 * kCount * 4));
  steps_.push_back({.session = session, .pieces = at, .views = {}});
  CaptureAll();
  Choose();
  ASSERT_OK(Replay());
  ASSERT_OK(AppendSome(chat_, model_, 700, 100, kSeed));
  ASSERT_OK(session.Extend());
  EXPECT_EQ(200u, session.pieces());
  for (int i = 0; i < 20; ++i) {
    Choose();
    ASSERT_OK(Replay());
    device_->RunAll();
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      Compare(steps_[0].views[layer], steps_[0].Wanted(layer, 0), {{0, kSeed}, {700, kSeed}});
    }
    sim_.scheduler->Sleep(1'000'000);
  }
}

TEST_F(SparseReplayTest, RefusesWhatCannotBeCaptured) {
  ASSERT_NO_FATAL_FAILURE(Open());
  Step& step = steps_[0];
  SparseWanted wanted = step.Wanted(0, mine_->handle());
  const auto none = [] {
    ADD_FAILURE() << "launched";
    return Status::Ok();
  };
  EXPECT_FAILS(step.session.Capture(wanted), StatusCode::kInvalidArgument,
               "the stream is not captured");
  mine_->Capture([&] {
    EXPECT_FAILS(step.session.Fetch(wanted), StatusCode::kInvalidArgument,
                 "the stream is captured");
    SparseWanted other = wanted;
    other.mode = SparseMode::kStrict;
    EXPECT_FAILS(step.session.Capture(other), StatusCode::kInvalidArgument, "relaxed");
    other = wanted;
    other.on_device = false;
    EXPECT_FAILS(step.session.Capture(other), StatusCode::kInvalidArgument, "on the device");
    other = wanted;
    other.layer = kLayers;
    EXPECT_FAILS(step.session.Capture(other), StatusCode::kInvalidArgument, "layer is 3");
    ASSERT_OK(step.session.Capture(wanted));
    other = wanted;
    other.count = kCount - 1;
    EXPECT_FAILS(step.session.Capture(other), StatusCode::kInvalidArgument, "captured with 6");
    EXPECT_FAILS(SparseSession::Replay({&step.session, 1}, mine_->handle(), none),
                 StatusCode::kInvalidArgument, "captured into another graph");
  });
  EXPECT_FAILS(SparseSession::Replay({}, mine_->handle(), none), StatusCode::kInvalidArgument,
               "no sessions");
  const std::vector<SparseSession> twice = {step.session, step.session};
  EXPECT_FAILS(SparseSession::Replay(twice, mine_->handle(), none), StatusCode::kInvalidArgument,
               "twice");
  const SparseSession empty;
  EXPECT_EQ(StatusCode::kInvalidState,
            SparseSession::Replay({&empty, 1}, mine_->handle(), none).code());
  EXPECT_EQ(StatusCode::kInvalidState, SparseSession().Capture(wanted).status().code());
  ASSERT_OK(store_.Close());
  EXPECT_EQ(StatusCode::kInvalidState,
            SparseSession::Replay({&step.session, 1}, mine_->handle(), none).code());
}

}  // namespace
}  // namespace cairn::testing
