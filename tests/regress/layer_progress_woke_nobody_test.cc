// SPDX-License-Identifier: Apache-2.0
//
// The bug: the words of a LayerProgress were set and nobody was woken, so std::atomic::wait on one
// slept for ever. After a restore that failed they stayed as they were: a thread that polled went
// on for ever. Nor was there a wait with a deadline. Method: a thread sleeps on a word, on the real
// machine; on the simulated one tickets wait for layers of restores that are slow, fail, are
// cancelled or refused.
#include <unistd.h>

#include "tests/support/faults.h"
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kSeed = 7, kTokens = 10;
constexpr uint64_t kSecond = 1'000'000'000;

Branch BranchWithKv(Store& store) {
  const ModelSpec spec = TinyModel();
  const auto model = store.RegisterModel(spec);
  EXPECT_OK(model);
  auto chat = store.CreateBranch(*model, {.name = "chat"});
  EXPECT_OK(chat);
  KvSet kv(spec, Layout::kContiguous, 0, kTokens);
  kv.Write(kSeed, 0, kTokens);
  const std::vector<TokenId> tokens = Tokens(kTokens);
  EXPECT_OK(chat->AppendSync({.tokens = tokens, .kv = kv.View(0, kTokens)}));
  return *chat;
}

// Whether the kernel has the thread asleep, which it is in a wait and not on the way there.
bool Sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat[name_end + 2] == 'S';
}

// The value that a thread which slept on the first word of a restore found there. The wait of the
// test has an end, lest a store that wakes nobody hangs it.
uint32_t FoundAfterSleep(Branch& chat, RestoreRequest request) {
  std::vector<std::atomic<uint32_t>> words(2);
  LayerProgress progress{.layers = words};
  std::atomic<pid_t> thread = 0;
  std::atomic<bool> woken = false;
  uint32_t found = kLayerPending;
  std::thread sleeper([&] {
    thread = gettid();
    while ((found = words[0].load()) == kLayerPending) words[0].wait(kLayerPending);
    woken = true;
  });
  while (thread == 0 || !Sleeps(thread)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  static_cast<void>(chat.Restore(request, &progress));
  for (int i = 0; i < 500 && !woken; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(woken) << "the word is " << words[0].load() << ", and its waiter sleeps";
  words[0].notify_all();
  sleeper.join();
  return found;
}

TEST(LayerProgressWokeNobody, AThreadInAtomicWait) {
  ASSERT_OK_ASSIGN(Store store, Store::Open(":memory:", {.create_if_missing = true,
                                                         .segment_bytes = 256 << 10}));
  Branch chat = BranchWithKv(store);
  KvSet got(TinyModel(), Layout::kContiguous, 0, kTokens);
  RestoreRequest request;
  request.into = got.View(0, kTokens);
  EXPECT_EQ(kLayerComplete, FoundAfterSleep(chat, request));
  request.end = kTokens + 1;
  EXPECT_EQ(kLayerFailed, FoundAfterSleep(chat, request));
}

class LayersOfTickets : public ::testing::Test {
 protected:
  void SetUp() override {
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(machine_.world());
    ASSERT_OK_ASSIGN(Store first, Store::Open("store", options));
    BranchWithKv(first);
    ASSERT_OK(first.Close());
    ASSERT_OK_ASSIGN(store_, Store::Open("store", options));  // The restore must read.
    ASSERT_OK_ASSIGN(chat_, store_.FindBranch("chat"));
    request_.into = got_.View(0, kTokens);
  }
  void ReadsTake(uint64_t ns, int error = 0) {
    machine_.disk->AddFault(
        {.when = [](const io::SimOperation& one) { return one.op == io::SimOp::kRead; },
         .error = error,
         .delay_ns = ns,
         .persistent = true});
  }
  void ExpectWords(LayerState state) {
    for (const auto& word : words_) EXPECT_EQ(state, word.load());
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  Store store_;
  Branch chat_;
  KvSet got_{TinyModel(), Layout::kContiguous, 0, kTokens};
  std::vector<std::atomic<uint32_t>> words_ = std::vector<std::atomic<uint32_t>>(2);
  LayerProgress progress_{.layers = words_};
  RestoreRequest request_;
};

TEST_F(LayersOfTickets, AreWaitedForWithADeadline) {
  ReadsTake(10 * kSecond);
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.RestoreAsync(request_, &progress_));
  const uint64_t before = machine_.scheduler->MonotonicNs();
  EXPECT_FAILS(ticket.WaitForLayer(0, kLayerComplete, kSecond), StatusCode::kDeadlineExceeded);
  EXPECT_GE(machine_.scheduler->MonotonicNs(), before + kSecond);
  EXPECT_LT(machine_.scheduler->MonotonicNs(), before + 10 * kSecond);
  EXPECT_FALSE(ticket.done());
  ExpectWords(kLayerPending);
  for (size_t layer = 0; layer < 2; ++layer) {
    ASSERT_OK(ticket.WaitForLayer(layer, kLayerComplete));
    EXPECT_EQ(kLayerComplete, words_[layer].load());
  }
  ASSERT_OK(ticket.Wait());
  KvSet want(TinyModel(), Layout::kContiguous, 0, kTokens);
  want.Write(kSeed, 0, kTokens);
  EXPECT_TRUE(got_ == want);
  words_ = std::vector<std::atomic<uint32_t>>();  // A ticket that is over does not need them.
  EXPECT_OK(ticket.WaitForLayer(1, kLayerComplete));
}

TEST_F(LayersOfTickets, FailWithTheirRestore) {
  ReadsTake(0, EIO);
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.RestoreAsync(request_, &progress_));
  EXPECT_FAILS(ticket.WaitForLayer(1, kLayerComplete), StatusCode::kIoError);
  ExpectWords(kLayerFailed);
  machine_.disk->ClearFaults();
  // The same words once more: what the last restore left there is not this one's.
  ReadsTake(kSecond);
  ASSERT_OK_ASSIGN(Ticket again, chat_.RestoreAsync(request_, &progress_));
  ExpectWords(kLayerPending);
  ASSERT_OK(again.WaitForLayer(0, kLayerComplete));
  ASSERT_OK(again.Wait());
  ExpectWords(kLayerComplete);
}

TEST_F(LayersOfTickets, FailWhenTheTicketIsCancelled) {
  ReadsTake(10 * kSecond);
  ASSERT_OK_ASSIGN(Ticket early, chat_.RestoreAsync(request_, &progress_));  // Not begun.
  EXPECT_FAILS(early.Cancel(), StatusCode::kCancelled);
  ExpectWords(kLayerFailed);
  EXPECT_FAILS(early.WaitForLayer(0, kLayerComplete), StatusCode::kCancelled);

  ASSERT_OK_ASSIGN(Ticket late, chat_.RestoreAsync(request_, &progress_));
  EXPECT_FAILS(late.WaitForLayer(0, kLayerComplete, kSecond), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(late.Cancel().ok());
  ExpectWords(kLayerFailed);
}

TEST_F(LayersOfTickets, FailWithACallThatIsRefused) {
  std::span<std::atomic<uint32_t>> one(words_.data(), 1);
  LayerProgress short_of_words{.layers = one};
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.RestoreAsync(request_, &short_of_words));
  EXPECT_FAILS(ticket.Wait(), StatusCode::kInvalidArgument, "progress");
  EXPECT_EQ(kLayerFailed, words_[0].load());
  EXPECT_EQ(kLayerPending, words_[1].load());
  ASSERT_OK(store_.Close());
  EXPECT_FAILS(chat_.RestoreAsync(request_, &progress_), StatusCode::kInvalidState);
  ExpectWords(kLayerFailed);
  EXPECT_FAILS(chat_.Restore(request_, &progress_), StatusCode::kInvalidState);
}

TEST_F(LayersOfTickets, ThatAreNoneAreRefused) {
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.RestoreAsync(request_, &progress_));
  EXPECT_FAILS(ticket.WaitForLayer(2, kLayerComplete), StatusCode::kInvalidArgument, "layer 2");
  EXPECT_FAILS(ticket.WaitForLayer(0, kLayerPending), StatusCode::kInvalidArgument, "state 0");
  EXPECT_FAILS(ticket.WaitForLayer(0, kLayerFailed), StatusCode::kInvalidArgument, "state 3");
  ASSERT_OK(ticket.Wait());
  ASSERT_OK_ASSIGN(Ticket untold, chat_.RestoreAsync(request_));
  EXPECT_FAILS(untold.WaitForLayer(0, kLayerComplete), StatusCode::kInvalidArgument, "tells of 0");
  ASSERT_OK(untold.Wait());
  EXPECT_FAILS(Ticket().WaitForLayer(0, kLayerComplete), StatusCode::kInvalidState);
}

}  // namespace
}  // namespace cairn::testing
