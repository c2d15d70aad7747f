// SPDX-License-Identifier: Apache-2.0
//
// A salvage cut segments off, and took them for spare ones; they held the only traces of the last
// epoch. It was killed before it wrote anything, and the next one used that epoch again, so that
// what the cut life had left in a segment passed as the new one's: the store did not open any more,
// or showed what nobody had appended since. The manifest says which epochs were used before
// anything is cut.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>

#include "sim/world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

// Whether the two lives before the salvage appended to one branch; else each has its own.
class AKilledSalvage : public ::testing::TestWithParam<bool> {
 protected:
  // Opens it, and kills it behind `use`.
  void Live(bool salvage, const std::function<void(Store&)>& use) {
    Options options = TinyOptions();
    options.spare_segments_max = 16;
    options.recovery = salvage ? Recovery::kSetAside : Recovery::kRefuse;
    options.world = std::make_shared<io::World>(
        io::World{.files = disk_, .scheduler = std::make_shared<io::SimScheduler>(++lives_)});
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    use(store);
    std::shared_ptr<io::SimDisk> left = disk_->KillClone();
    static_cast<void>(store.Close());
    disk_ = std::move(left);
  }
  void Append(Store& store, const std::string& name, uint64_t count, uint64_t seed) {
    auto found = store.FindBranch(name);
    if (!found.ok()) found = store.CreateBranch(store.Models().at(0).id, {.name = name});
    ASSERT_OK(found);
    ASSERT_OK_ASSIGN(const uint64_t length, found->length());
    for (uint64_t i = length; i < length + count; ++i) {
      ASSERT_OK(AppendSome(*found, model_, i, 1, seed, Durability::kPower));
    }
  }

  // The first segment is damaged where only a salvage goes on.
  void MakeDamaged() {
    const bool one = GetParam();
    Live(false, [&](Store& store) {
      ASSERT_OK(store.RegisterModel(model_));
      Append(store, "a", 10, kTrim);
    });
    Live(false, [&](Store& store) { Append(store, one ? "a" : "b", one ? 55 : 10, kTrim); });
    Live(false, [&](Store& store) { Append(store, one ? "a" : "c", kMany, kTrim); });
    ASSERT_OK(disk_->FlipBit("store/log/0000000000000001.log", 5 * 4096 + 20, 2));
  }

  static constexpr uint64_t kTrim = 1, kSince = 5;  // Seeds.
  static constexpr uint64_t kMany = 262;            // Appends that fill some segments.
  const ModelSpec model_ = TinyModel();
  std::shared_ptr<io::SimDisk> disk_ = std::make_shared<io::SimDisk>();
  uint64_t lives_ = 0;
};

TEST_P(AKilledSalvage, DoesNotLetAnEpochBeUsedTwice) {
  ASSERT_NO_FATAL_FAILURE(MakeDamaged());
  Live(true, [](Store&) {});
  uint64_t length = 0;
  Live(true, [&](Store& store) {
    Append(store, "a", kMany, kSince);
    ASSERT_OK_ASSIGN(const Branch a, store.FindBranch("a"));
    ASSERT_OK_ASSIGN(length, a.length());
  });
  Live(false, [&](Store& store) {
    ASSERT_OK_ASSIGN(const Branch a, store.FindBranch("a"));
    ASSERT_OK_ASSIGN(const uint64_t shown, a.length());
    EXPECT_EQ(shown, length);
    EXPECT_TRUE(HasKv(a, model_, length - kMany, length, kSince));
  });
}

// Nothing was cut where that could not be written.
TEST_P(AKilledSalvage, IsRefusedWhereItCannotSayWhichWereUsed) {
  ASSERT_NO_FATAL_FAILURE(MakeDamaged());
  disk_->AddFault({.when =
                       [](const io::SimOperation& operation) {
                         return operation.op == io::SimOp::kRename &&
                                operation.path.find("MANIFEST") != std::string::npos;
                       },
                   .error = EIO});
  Options options = TinyOptions();
  options.recovery = Recovery::kSetAside;
  options.world = std::make_shared<io::World>(
      io::World{.files = disk_, .scheduler = std::make_shared<io::SimScheduler>(++lives_)});
  EXPECT_FAILS(Store::Open("/store", options), StatusCode::kIoError, "MANIFEST");
  EXPECT_EQ(disk_->faults_struck(), 1u);
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  EXPECT_OK(store.FindBranch("a"));
}

INSTANTIATE_TEST_SUITE_P(Branches, AKilledSalvage, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "One" : "OneEach"; });

}  // namespace
}  // namespace cairn::testing
