// SPDX-License-Identifier: Apache-2.0
//
// The bug: a draft that was aborted in a child of fork() waited there for its puts, which a thread
// gathered that only the parent has.
// Method: a put that is being gathered when the process forks; a child that hangs is killed.
#include <unistd.h>

#include <atomic>

#include "base/io/real_scheduler.h"
#include "tests/engine/gpu_test.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kTokens = 60;
constexpr unsigned kChildLimitS = 20;

TEST(AnAbortInAChild, DoesNotWaitForThreadsOfItsParent) {
  const auto world = TestWorld::Make("threads");
  const std::shared_ptr<gpu::SimDevice> device =
      gpu::MakeSimDevice(std::make_shared<io::RealScheduler>(), {.seed = 1});
  const Gpu gpu(device, kOrdinal);
  Options options = world->options();
  options.gpus = {gpu};
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  const ModelSpec model = TinyModel();
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id));
  DeviceKv from(gpu, model, Layout::kNhd, 0, kTokens);
  KvView layer = *from.View(0, kTokens);
  GroupView group = layer.groups[0];
  std::vector<PlaneView> planes(group.planes.begin(), group.planes.end());
  for (PlaneView& plane : planes) plane.layer_bases = plane.layer_bases.first(1);
  group.planes = planes;
  layer.groups = std::span(&group, 1);

  std::atomic<bool> gathers{false}, go_on{false};
  device->OnLaunch([&](gpu::Kernel kernel) {
    if (kernel != gpu::Kernel::kGatherSave) return;
    gathers = true;
    while (!go_on.load()) usleep(1000);
  });
  ASSERT_OK_ASSIGN(Draft draft, chat.BeginAppend(kTokens));
  ASSERT_OK(draft.PutFromGpu(0, layer, 0));
  while (!gathers.load()) usleep(1000);
  EXPECT_TRUE(InChild([&] {
    alarm(kChildLimitS);
    draft.Abort();
    return true;
  }));
  go_on = true;
  draft.Abort();  // The parent's own waits.
  device->OnLaunch(nullptr);
}

}  // namespace
}  // namespace cairn::testing
