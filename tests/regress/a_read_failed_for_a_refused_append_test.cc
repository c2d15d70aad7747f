// SPDX-License-Identifier: Apache-2.0
//
// The bug: a read of a branch with appends that waited to be coalesced failed as these did: with
// kNoSpace when the store was full, with kPoisoned when the log had failed. The next read worked.
// And where eviction was about to make room the appends were kNoSpace, as if nothing could go,
// instead of kBusy.
// Method: an append that waits for long, no room for it or a log that fails, and every way to read.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kHour = 3'600'000'000'000;

class AReadFailedForARefusedAppend : public ::testing::Test {
 protected:
  void Open(Evict evict) {
    Options options = TinyOptions();
    options.max_bytes = 4 << 20;
    options.delta_batch_tokens = 8;
    options.delta_batch_wait_ns = kHour;
    options.evict = evict;
    options.world = std::make_shared<io::World>(sim_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(id_, store_.RegisterModel(model_));
    for (Branch& one : read_) {
      ASSERT_OK_ASSIGN(one, store_.CreateBranch(id_, {.keep = {.pinned = true}}));
      const std::vector<TokenId> two = Tokens(2);
      KvSet kv(model_, Layout::kContiguous, 0, 2);
      SamplerState sampler;
      sampler.generator = GeneratorKind::kPhilox;
      ASSERT_OK(one.AppendSync({.tokens = two, .kv = kv.View(0, 2), .sampler = &sampler},
                               {.durability = Durability::kPower}));
    }
  }
  // One position more for each waits.
  void Wait() {
    KvSet kv(model_, Layout::kContiguous, 0, 3);
    for (Branch& one : read_) {
      ASSERT_OK_ASSIGN(const Ticket ticket, one.Append(MakeDelta(Tokens(1), kv.View(2, 1))));
      tickets_.push_back(ticket);
    }
  }
  // So that not even one position fits the log.
  void TakeAllRoom() {
    ASSERT_OK_ASSIGN(Branch all, store_.CreateBranch(id_, {.keep = {.pinned = true}}));
    uint64_t length = 0;
    for (const uint64_t count : {16, 1}) {
      for (int refused = 0; refused < 5;) {
        const auto appended = AppendSome(all, model_, length, count);
        if (appended.ok()) {
          length = *appended;
          refused = 0;
          continue;
        }
        ASSERT_EQ(StatusCode::kNoSpace, appended.status().code());
        ++refused;
        sim_.scheduler->Sleep(10'000'000);
      }
    }
  }
  void CheckReads() {
    size_t at = 0;
    const auto next = [&] { return read_[at++]; };
    EXPECT_EQ(2U, *next().length());
    EXPECT_OK(next().Info());
    EXPECT_OK(next().durable_length());
    EXPECT_OK(next().Path());
    EXPECT_OK(next().Spans(0, 2));
    EXPECT_EQ(Tokens(2), *next().ReadTokens(0, 2));
    EXPECT_OK(next().SamplerAt(2));
    EXPECT_OK(next().RestorableLength());
    EXPECT_EQ(kReads, at);
  }

  static constexpr size_t kReads = 8;
  const io::SimWorld sim_ = io::MakeSimWorld(1);
  const ModelSpec model_ = WideModel();
  Store store_;
  ModelId id_{};
  std::array<Branch, kReads> read_;
  std::vector<Ticket> tickets_;
};

TEST_F(AReadFailedForARefusedAppend, WhenTheStoreWasFull) {
  Open(Evict::kNever);
  TakeAllRoom();
  Wait();
  CheckReads();
  for (Ticket& ticket : tickets_) EXPECT_FAILS(ticket.Wait(), StatusCode::kNoSpace, "max_bytes");
}

TEST_F(AReadFailedForARefusedAppend, WhenRoomWasToBeMade) {
  Open(Evict::kKv);
  TakeAllRoom();
  Wait();
  CheckReads();
  for (Ticket& ticket : tickets_) EXPECT_FAILS(ticket.Wait(), StatusCode::kBusy, "being made");
}

TEST_F(AReadFailedForARefusedAppend, WhenTheLogFailed) {
  Open(Evict::kNever);
  Wait();
  sim_.disk->AddFault({.when =
                           [](const io::SimOperation& operation) {
                             return operation.changes_world() &&
                                    operation.path.find("/log/") != std::string::npos;
                           },
                       .error = EIO,
                       .persistent = true});
  EXPECT_FALSE(store_.CreateBranch(id_, {.durability = Durability::kPower}).ok());
  ASSERT_EQ(StatusCode::kPoisoned, store_.poisoned().code());
  CheckReads();
  for (Ticket& ticket : tickets_) EXPECT_FAILS(ticket.Wait(), StatusCode::kPoisoned);
}

}  // namespace
}  // namespace cairn::testing
