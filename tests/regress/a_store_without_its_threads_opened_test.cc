// SPDX-License-Identifier: Apache-2.0
//
// The bug: where the system refused the thread of the log, of its segments or of the timer, the
// store opened all the same, and calls that waited for one of them waited for ever. Now opening
// says so; other threads are done without. Method: a scheduler that refuses the n-th thread, or
// every one from the n-th on, for every n.
#include "tests/engine/engine_test.h"
#include "tests/support/wrapped_scheduler.h"

namespace cairn::testing {
namespace {

class FewThreads final : public WrappedScheduler {
 public:
  FewThreads(std::shared_ptr<io::Scheduler> inner, int refused, bool all_behind)
      : WrappedScheduler(std::move(inner)), refused_(refused), all_behind_(all_behind) {}

  std::unique_ptr<io::Thread> StartThread(std::string name, std::function<void()> body,
                                          io::ThreadPriority priority) override {
    const int number = asked_++;
    if (number == refused_ || (all_behind_ && number > refused_)) return nullptr;
    return WrappedScheduler::StartThread(std::move(name), std::move(body), priority);
  }

  int asked() const { return asked_; }

 private:
  const int refused_;
  const bool all_behind_;
  std::atomic<int> asked_{0};
};

class AStoreWithoutItsThreads : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(, AStoreWithoutItsThreads, ::testing::Bool(),
                         [](const auto& all) { return all.param ? "AllBehind" : "One"; });

TEST_P(AStoreWithoutItsThreads, IsNotOpenedAndLosesNothing) {
  const io::World memory = io::MakeMemoryWorld();
  const ModelSpec model = TinyModel();
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(memory);
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK(AppendSome(chat, model, 0, 10));
  }
  int refused_openings = 0;
  uint64_t length = 10;
  bool met = true;
  for (int n = 0; met; ++n) {
    SCOPED_TRACE("thread " + std::to_string(n));
    const auto few = std::make_shared<FewThreads>(memory.scheduler, n, GetParam());
    options.world = std::make_shared<io::World>(io::World{memory.files, few});
    auto opened = Store::Open("/store", options);
    if (!opened.ok()) {
      EXPECT_FAILS(opened, StatusCode::kIoError, "thread");
      ++refused_openings;
      continue;
    }
    ASSERT_OK_ASSIGN(Branch chat, opened->FindBranch("chat"));
    EXPECT_TRUE(HasKv(chat, model, 0, length));
    ASSERT_OK(AppendSome(chat, model, length, 1));
    ++length;
    ASSERT_OK(opened->Close());
    met = few->asked() > n;
  }
  // The log and its segments, the timer, and what gives space back. Others are called later.
  EXPECT_EQ(refused_openings, 4);
  options.world = std::make_shared<io::World>(memory);
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const Branch chat, store.FindBranch("chat"));
  EXPECT_TRUE(HasKv(chat, model, 0, length));
}

}  // namespace
}  // namespace cairn::testing
