// SPDX-License-Identifier: Apache-2.0
//
// The bug: as long as one file, a dead table or a segment of the log, could not be removed, no
// round of the space thread came further: nothing was evicted, so that a store at its cap refused
// every append for good. The rest is done, the failure is reported, and the file is tried again.
#include <string>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(AFileThatWouldNotGoStoppedTheRest, RoomIsMadeWithoutIt) {
  const ModelSpec model = WideModel();
  for (const std::string_view kind : {".log", ".index", ".snapshot"}) {
    SCOPED_TRACE(kind);
    const io::SimWorld machine = io::MakeSimWorld(1);
    Options options = TinyOptions();
    options.spare_segments_max = options.spare_segments_min;
    options.max_bytes = 8 << 20;
    options.evict = Evict::kBranches;
    options.world = std::make_shared<io::World>(machine.world());
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    std::string stuck;
    machine.disk->AddFault({.when =
                                [&](const io::SimOperation& one) {
                                  const std::string_view path =
                                      std::string_view(one.path).substr(0, one.path.find(' '));
                                  const bool goes = one.op == io::SimOp::kRemove ||
                                                    one.path.find(" to /store/log/spare") !=
                                                        std::string_view::npos;
                                  if (stuck.empty() && goes && path.ends_with(kind)) stuck = path;
                                  return !stuck.empty() && path == stuck;
                                },
                            .error = EIO,
                            .persistent = true});
    for (int i = 0; i < 400; ++i) {
      ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = std::to_string(i)}));
      ASSERT_OK(AppendSome(branch, model, 0, 8)) << i;
    }
    ASSERT_NE(stuck, "");
    EXPECT_GT(store.Metrics().evicted_bytes, 8u << 20);
    EXPECT_OK(store.FindBranch("399"));
    EXPECT_FAILS(store.Compact(), StatusCode::kIoError, stuck);
    EXPECT_EQ(store.Metrics().background_failing, 1u);
    machine.disk->ClearFaults();
    EXPECT_OK(store.Compact());
    EXPECT_EQ(store.Metrics().background_failing, 0u);
    EXPECT_FAILS(machine.disk->Info(stuck), StatusCode::kNotFound);
    EXPECT_TRUE(store.Verify(VerifyLevel::kAll)->damages.empty());
  }
}

}  // namespace
}  // namespace cairn::testing
