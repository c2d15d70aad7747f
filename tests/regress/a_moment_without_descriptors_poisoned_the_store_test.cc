// SPDX-License-Identifier: Apache-2.0
//
// The bug: a process that had no file descriptor left when the log's next segment was to be opened
// found its store poisoned, though nothing had been attempted that cannot be tried again. Method: a
// child takes all descriptors away, appends until the log wants segments that it cannot open, gives
// them back, and goes on with the same store.
#include <sys/resource.h>
#include <unistd.h>

#include "tests/engine/engine_test.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

class NoDescriptors : public ::testing::TestWithParam<Backend> {};

INSTANTIATE_TEST_SUITE_P(, NoDescriptors, ::testing::Values(Backend::kUring, Backend::kThreads),
                         [](const auto& backend) {
                           return backend.param == Backend::kUring ? "Uring" : "Threads";
                         });

bool AppendsWithoutDescriptors(const std::string& path, Backend backend) {
  Options options = TinyOptions();
  options.backend = backend;
  auto store = Store::Open(path, options);
  if (!Expect(store.ok(), store.status().ToString())) return false;
  const ModelSpec model = WideModel();
  Branch chat = store->CreateBranch(store->RegisterModel(model).value(), {.name = "chat"}).value();
  uint64_t length = 0;
  const auto append = [&] {
    const auto appended = AppendSome(chat, model, length, 16, kSeed, Durability::kPower);
    if (appended.ok()) length = *appended;
    return appended.status();
  };
  if (!append().ok()) return false;

  rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit none{0, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  Status refused;
  while (refused.ok() && length < 4096) refused = append();
  setrlimit(RLIMIT_NOFILE, &limit);

  if (!Expect(!refused.ok() && refused.code() != StatusCode::kPoisoned &&
                  refused.code() != StatusCode::kUnknownOutcome &&
                  refused.reason() == StatusReason::kNoDescriptor,
              refused.ToString())) {
    return false;
  }
  Status later = append();
  for (int i = 0; i < 200 && !later.ok(); ++i) {
    usleep(20'000);
    later = append();
  }
  if (!Expect(later.ok(), later.ToString())) return false;
  while (length < 512) {
    if (!append().ok()) return false;
  }
  const auto kv = HasKv(chat, model, 0, length);
  const Status closed = store->Close();
  return Expect(bool{kv}, kv.message()) && Expect(closed.ok(), closed.ToString());
}

TEST_P(NoDescriptors, AreWaitedFor) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/state";
  EXPECT_TRUE(InChild([&] { return AppendsWithoutDescriptors(path, GetParam()); }));
  ASSERT_OK_ASSIGN(Store store, Store::Open(path, TinyOptions()));
  ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
  EXPECT_LE(512u, *chat.length());
}

}  // namespace
}  // namespace cairn::testing
