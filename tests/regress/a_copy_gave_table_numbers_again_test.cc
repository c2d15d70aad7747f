// SPDX-License-Identifier: Apache-2.0
//
// The bug: a copy's MANIFEST was taken before the end of the log that comes along. What got a table
// in between was in the copy, and the number of its table was given again there: the new table was
// renamed over the one that was in use. Method: on the simulated machine the first derived table of
// an opening is written at every moment of a copy. In a second test MANIFEST says that the next
// table gets number 1, while tables with that and later numbers exist: the opening skips them.
#include "engine/manifest/manifest.h"
#include "engine/store/store_core.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kEach = 8;

// The number in "0000000000000012.snapshot".
uint64_t NumberOf(const std::string& name) { return std::stoull(name, nullptr, 16); }

// Every other sync of the log takes so long: what a copy waits for then ends with the one after it.
constexpr uint64_t kSlowSyncNs = 3'000'000;
constexpr uint64_t kStepNs = 300'000;  // Between the moments.

// A table of one frame, derived of the branch's first position.
Status Derive(const Branch& branch) {
  const auto write = [](const engine::DerivedTables::Owner& owner, sstable::SnapshotWriter* table) {
    table->BeginFragment({.node = static_cast<uint64_t>(owner.node),
                          .lane = 1,
                          .begin = owner.position,
                          .count = 1,
                          .page_rows = 1,
                          .slices = 1});
    const std::byte frame[] = {std::byte{1}};
    return table->AddFrame(frame, sizeof frame);
  };
  return branch.core()->derived().Make(branch.id(), 1, /*kind=*/3, write).status();
}

// A table begins to be derived `delay_ns` after a copy begins. Whether the copy has it.
bool CopyBesideATable(uint64_t seed, uint64_t delay_ns) {
  const ModelSpec spec = WideModel();
  const io::SimWorld machine = io::MakeSimWorld(seed);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  auto store = Store::Open("/store", options);
  EXPECT_OK(store);
  const auto model = store->RegisterModel(spec);
  EXPECT_OK(model);
  auto owner = store->CreateBranch(*model);
  auto other = store->CreateBranch(*model);
  EXPECT_OK(owner);
  EXPECT_OK(other);
  EXPECT_OK(AppendSome(*owner, spec, 0, kEach, kSeed, Durability::kPower));
  machine.disk->AddFault(
      {.when =
           [syncs = 0](const io::SimOperation& one) mutable {
             const bool sync = one.op == io::SimOp::kSync || one.op == io::SimOp::kDurableWrite;
             return sync && one.path.find("/log/") != one.path.npos && syncs++ % 2 == 0;
           },
       .delay_ns = kSlowSyncNs,
       .persistent = true});
  auto thread = machine.scheduler->StartThread("derive", [&] {
    machine.scheduler->Sleep(delay_ns);
    EXPECT_OK(Derive(*owner));
  });
  EXPECT_OK(AppendSome(*other, spec, 0, 1, kSeed, Durability::kMemory));  // The copy waits for it.
  EXPECT_OK(store->Checkpoint("/copy"));
  thread = nullptr;  // Waits for it.
  EXPECT_OK(store->Close());

  const auto manifest = engine::ReadManifest(*machine.disk, "/copy");
  EXPECT_OK(manifest);
  const auto names = machine.disk->List("/copy/tables");
  EXPECT_OK(names);
  for (const std::string& name : *names) {
    EXPECT_LT(NumberOf(name), manifest->next_file_number) << "seed " << seed;
  }
  return !names->empty();
}

TEST(ACopyGaveTableNumbersAgain, ItsManifestGivesNoneThatItsLogNames) {
  int with_table = 0, without = 0;
  for (uint64_t seed = 1; seed <= 60 && !::testing::Test::HasFailure(); ++seed) {
    ++(CopyBesideATable(seed, seed % 20 * kStepNs) ? with_table : without);
  }
  EXPECT_GT(with_table, 5);
  EXPECT_GT(without, 5);
}

TEST(ACopyGaveTableNumbersAgain, AnOpeningGivesNoneThatAnythingNames) {
  const ModelSpec spec = WideModel();
  const auto world = TestWorld::Make("simulated");
  ASSERT_OK_ASSIGN(Store store, world->Open(world->options()));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch sealed, store.CreateBranch(model, {.name = "sealed"}));
  ASSERT_OK(AppendSome(sealed, spec, 0, kEach));
  ASSERT_OK(store.Compact());  // The index, too, has tables.
  ASSERT_OK(store.Close());
  io::FileSystem& files = *world->world().files;
  ASSERT_OK_ASSIGN(engine::Manifest manifest, engine::ReadManifest(files, world->path()));
  ++manifest.number;
  manifest.next_file_number = 1;
  ASSERT_OK(engine::WriteManifest(files, world->path(), manifest));
  for (int opening = 0; opening < 2; ++opening) {
    ASSERT_OK_ASSIGN(store, world->Open(world->options()));
    for (int i = 0; i < 4; ++i) {
      ASSERT_OK_ASSIGN(Branch more, store.CreateBranch(model));
      ASSERT_OK(AppendSome(more, spec, 0, kEach, kSeed + 1));
    }
    ASSERT_OK(store.Compact());
    ASSERT_OK(store.Close());
  }
  ASSERT_OK_ASSIGN(store, world->Open(world->options()));
  ASSERT_OK_ASSIGN(const Branch found, store.FindBranch("sealed"));
  EXPECT_TRUE(HasKv(found, spec, 0, kEach));
  ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
  for (const VerifyReport::Damage& damage : report.damages) {
    ADD_FAILURE() << damage.where << ": " << damage.what;
  }
}

}  // namespace
}  // namespace cairn::testing
