// SPDX-License-Identifier: Apache-2.0
//
// The bug: when the log failed, the tree was replayed to what was acknowledged from the manifest's
// first segment, and with its tables of the index. Space management, which was about to give both
// back, could take them away meanwhile: the replay failed, and reads showed what never was
// acknowledged.
// Method: appends and drops on a simulated machine whose log fails at some change of the files that
// space management makes, for many of them.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kStep = 24;

// Whether `operation` is one of space management's steps that take something away.
bool GivesBack(const io::SimOperation& operation) {
  return operation.path.find("MANIFEST") != std::string::npos ||
         operation.op == io::SimOp::kRemove ||
         (operation.op == io::SimOp::kRename && operation.path.find("/log/") != std::string::npos);
}

struct Outcome {
  bool failed = false;  // The log.
  std::string event;    // That it could not be rolled back.
};

// The log fails from the `nth` such step on.
void FailAt(uint64_t seed, uint64_t nth, Outcome* outcome) {
  const io::SimWorld machine = io::MakeSimWorld(seed);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  options.max_bytes = 6 << 20;
  options.evict = Evict::kBranches;
  options.listener = std::make_shared<EventListener>();
  options.listener->on_event = [&](const std::string& line) {
    if (line.find("could not be replayed") != std::string::npos) outcome->event = line;
  };
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(Store store, Store::Open("store", options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  uint64_t steps = 0;
  machine.disk->set_on_operation([&](const io::SimOperation& operation) {
    if (!GivesBack(operation) || ++steps != nth) return;
    io::SimFault fault;
    fault.when = [](const io::SimOperation& one) {
      const bool write = one.op == io::SimOp::kWrite || one.op == io::SimOp::kDurableWrite;
      return write && one.path.find("/log/") != std::string::npos;
    };
    fault.error = EIO;
    fault.persistent = true;
    machine.disk->AddFault(std::move(fault));
  });
  std::vector<std::pair<Branch, uint64_t>> known;
  for (int i = 0; i < 200 && store.poisoned().ok(); ++i) {
    auto branch = store.CreateBranch(id, {.name = std::to_string(i)});
    if (!branch.ok()) break;
    known.emplace_back(*branch, 0);
    for (int step = 0; step < 3; ++step) {
      const auto length = AppendSome(*branch, model, step * kStep, kStep);
      if (!length.ok()) break;
      known.back().second = *length;
    }
  }
  outcome->failed = !store.poisoned().ok();
  machine.scheduler->Sleep(1'000'000'000);
  for (const auto& [branch, length] : known) {
    const auto info = branch.Info();
    if (info.status().code() == StatusCode::kNotFound) continue;  // It was evicted.
    ASSERT_OK(info);
    const uint64_t now = info->kv_lengths[0];
    EXPECT_EQ(length, info->length) << "what was acknowledged, and no more";
    if (branch.EvictedKv()->empty()) {
      EXPECT_TRUE(HasKv(branch, model, 0, now));
    }
  }
  machine.disk->set_on_operation({});
}

TEST(ALogThatFailedWhileSpaceWasGivenBack, IsRolledBack) {
  int failed = 0;
  for (uint64_t nth = 1; nth <= 200 && !HasFailure(); ++nth) {
    SCOPED_TRACE("from step " + std::to_string(nth));
    Outcome outcome;
    FailAt(nth, nth, &outcome);
    EXPECT_EQ("", outcome.event);
    failed += outcome.failed;
  }
  EXPECT_GT(failed, 150);
}

}  // namespace
}  // namespace cairn::testing
