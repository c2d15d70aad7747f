// SPDX-License-Identifier: Apache-2.0
//
// The bug: a thread that was cancelled (pthread_cancel) while it led a group of the log, in the
// write or in the sync, left its lead to nobody: every later writer waited for ever. Now a call is
// not cut; the cancellation comes behind it. Method: threads that append durably, each cancelled at
// some moment of it; then an append with a deadline.
#include <pthread.h>
#include <time.h>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class ACancelledThread : public WorldTest {};

INSTANTIATE_TEST_SUITE_P(Worlds, ACancelledThread, ::testing::Values("io_uring", "threads"),
                         NameOf);

struct Writer {
  Branch branch;
  std::atomic<uint64_t> appended{0};
  std::atomic<bool> unwound{false};
};

// Ends by being cancelled alone.
void* WriteOn(void* argument) {
  Writer& writer = *static_cast<Writer*>(argument);
  struct Unwinding {
    std::atomic<bool>& told;
    ~Unwinding() { told = true; }
  } unwinding{writer.unwound};
  const std::vector<TokenId> tokens = Tokens(1);
  AppendOptions options;
  options.durability = Durability::kPower;
  while (true) {
    if (writer.branch.AppendSync(MakeDelta(tokens), options).ok()) ++writer.appended;
    pthread_testcancel();
  }
}

TEST_P(ACancelledThread, LeavesTheLogToOthers) {
  Writer writers[4];
  const ModelId model = Register(TokenModel());
  Branch last = Create(model, "last");
  for (int i = 0; i < 4; ++i) {
    writers[i].branch = Create(model, "chat " + std::to_string(i));
    pthread_t thread;
    ASSERT_EQ(0, pthread_create(&thread, nullptr, WriteOn, &writers[i]));
    const timespec moment{0, 3'000'000 + i * 700'000};
    nanosleep(&moment, nullptr);
    ASSERT_EQ(0, pthread_cancel(thread));
    void* result = nullptr;
    ASSERT_EQ(0, pthread_join(thread, &result));
    EXPECT_EQ(PTHREAD_CANCELED, result);
    EXPECT_TRUE(writers[i].unwound);
    AppendOptions options;
    options.durability = Durability::kPower;
    options.timeout_ns = 20'000'000'000;
    ASSERT_OK(last.AppendSync(MakeDelta(Tokens(1)), options));
  }
  for (Writer& writer : writers) EXPECT_GE(*writer.branch.length(), writer.appended.load());
  Reopen();
  EXPECT_EQ(4u, *Find("last").length());
}

}  // namespace
}  // namespace cairn::testing
