// SPDX-License-Identifier: Apache-2.0
//
// The bug: a store that was closed kept files, rings, and the memory of its hot tail, its caches
// and its log until the last handle of it went, which in a server may be never.
// Method: a store with data in tables and in the log, read from both; what it has from its
// allocator, and the descriptors of the process, before and after Close, with a handle left.
#include <algorithm>
#include <atomic>
#include <filesystem>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

// But for those of the index, which goes with the last handle.
uint64_t Descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<uint64_t>(std::count_if(begin(all), end(all), [](const auto& entry) {
    std::error_code gone;  // The one that lists them.
    return std::filesystem::read_symlink(entry, gone).extension() != ".index";
  }));
}

Allocator CountingAllocator(std::atomic<uint64_t>* bytes) {
  return {.allocate =
              [](void* context, size_t size, size_t alignment) {
                *static_cast<std::atomic<uint64_t>*>(context) += size;
                return Allocator::Default().allocate(nullptr, size, alignment);
              },
          .deallocate =
              [](void* context, void* memory, size_t size, size_t alignment) {
                *static_cast<std::atomic<uint64_t>*>(context) -= size;
                Allocator::Default().deallocate(nullptr, memory, size, alignment);
              },
          .context = bytes};
}

class AClosedStoreKeptItsFiles : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Worlds, AClosedStoreKeptItsFiles, ::testing::Values("io_uring", "threads"),
                         NameOf);

TEST_P(AClosedStoreKeptItsFiles, AndItsMemory) {
  const auto world = TestWorld::Make(GetParam());
  if (world == nullptr) GTEST_SKIP() << GetParam() << " is not granted on this machine";
  const ModelSpec model = WideModel();
  std::atomic<uint64_t> bytes{0};
  Options options = world->options();
  options.hot_tail_bytes = 4 << 20;
  options.allocator = CountingAllocator(&bytes);
  const uint64_t descriptors_before = Descriptors();
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = "long"}));
  uint64_t length = 0;
  const auto append = [&](uint64_t until) {
    for (; length < until; length += 16) ASSERT_OK(AppendSome(branch, model, length, 16));
  };
  append(256);
  ASSERT_OK(store.Compact());
  append(384);
  for (int again = 0; again < 3; ++again) EXPECT_TRUE(HasKv(branch, model, 0, length));
  // The store's directory, its parent, log/ and tables/, each known and held.
  constexpr uint64_t kHeld = 6;
  EXPECT_LT(descriptors_before + kHeld, Descriptors());
  EXPECT_LT(2u << 20, bytes.load());
  ASSERT_OK(store.Close());
  EXPECT_GE(descriptors_before + kHeld, Descriptors()) << "directories that are held";
  EXPECT_GT(32u << 10, bytes.load()) << "blocks of the index";
  EXPECT_EQ(StatusCode::kInvalidState, branch.length().status().code());
}

}  // namespace
}  // namespace cairn::testing
