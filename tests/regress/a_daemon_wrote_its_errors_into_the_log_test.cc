// SPDX-License-Identifier: Apache-2.0
//
// The bug: in a process that had closed its standard descriptors, as daemons do, the first files of
// the store got the numbers 0 to 2, and what the process then wrote to "stderr" went into the log.
// Method: a child closes them, opens a store and writes to 1 and 2 at every turn; no such write may
// find a file, and the store must be whole.
#include <unistd.h>

#include "tests/engine/engine_test.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

class ADaemon : public ::testing::TestWithParam<Backend> {};

INSTANTIATE_TEST_SUITE_P(, ADaemon, ::testing::Values(Backend::kUring, Backend::kThreads),
                         [](const auto& backend) {
                           return backend.param == Backend::kUring ? "Uring" : "Threads";
                         });

// 0 when all went well, else the step.
int RunDaemon(const std::string& path, Backend backend) {
  for (const int standard : {0, 1, 2}) close(standard);
  const auto complain = [] {
    const std::string line(5000, '!');
    return write(1, line.data(), line.size()) < 0 && write(2, line.data(), line.size()) < 0;
  };
  Options options = TinyOptions();
  options.backend = backend;
  auto store = Store::Open(path, options);
  if (!store.ok()) return 1;
  if (!complain()) return 2;
  const auto queue = store->NewCompletionQueue();
  if (!queue.ok() || queue->event_fd() <= 2) return 3;
  const auto model = store->RegisterModel(WideModel());
  if (!model.ok()) return 4;
  auto chat = store->CreateBranch(*model, {.name = "chat"});
  if (!chat.ok()) return 5;
  for (uint64_t at = 0; at < 640; at += 64) {
    if (!AppendSome(*chat, WideModel(), at, 64).ok()) return 6;
    if (!complain()) return 7;
  }
  if (!store->Compact().ok()) return 8;
  if (!complain()) return 9;
  if (!HasKv(*chat, WideModel(), 0, 640)) return 10;
  if (!complain()) return 11;
  const auto copied = store->Checkpoint(path + ".copy");
  if (!copied.ok() || !complain()) return 12;
  return store->Close().ok() ? 0 : 13;
}

TEST_P(ADaemon, HasNoFileOfTheStoreForItsStderr) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/state";
  int result[2];
  ASSERT_EQ(0, pipe(result));
  InChild([&] {
    const int step = RunDaemon(path, GetParam());
    static_cast<void>(!write(result[1], &step, sizeof(step)));
    return true;
  });
  int step = -1;
  ASSERT_EQ(ssize_t{sizeof(step)}, read(result[0], &step, sizeof(step)));
  EXPECT_EQ(0, step);
  close(result[0]);
  close(result[1]);
  ASSERT_OK_ASSIGN(Store store, Store::Open(path, TinyOptions()));
  ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(report.damages.empty());
}

}  // namespace
}  // namespace cairn::testing
