// SPDX-License-Identifier: Apache-2.0
//
// Property: a machine without a disk counts what is written and the time that it takes, uses the
// memory of removed files again, and drops large writes where it is asked to. That it is a file
// system like any other is in tests/base/io_contract_test.cc.

#include "sim/no_disk.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cairn/store.h"

namespace cairn::io {
namespace {

constexpr OpenOptions kNew{.write = true, .create = true};

std::vector<std::byte> Filled(size_t bytes) {
  return std::vector<std::byte>(bytes, std::byte{'x'});
}

std::vector<std::byte> ReadBack(File& file, uint64_t offset, size_t bytes) {
  std::vector<std::byte> into(bytes, std::byte{'?'});
  EXPECT_TRUE(file.Read(offset, into).ok());
  return into;
}

class NoDiskTest : public ::testing::Test {
 protected:
  std::unique_ptr<File> Open(World& world, const std::string& path) {
    auto file = world.files->Open(path, kNew);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    return std::move(*file);
  }
  const std::shared_ptr<NoDisk> machine_ = std::make_shared<NoDisk>();
};

TEST_F(NoDiskTest, CountsBytesAndProcessorTime) {
  World world = MakeNoDiskWorld(machine_, NoDiskKeeps::kAll);
  const auto file = Open(world, "/f");
  EXPECT_EQ(machine_->written_bytes(), 0u);
  ASSERT_TRUE(file->Write(5, Filled(8 << 20), true).ok());
  EXPECT_EQ(machine_->written_bytes(), 8u << 20);
  const double written_s = machine_->cpu_s();
  EXPECT_GT(written_s, 0);
  EXPECT_EQ(ReadBack(*file, 5, 8 << 20), Filled(8 << 20));
  EXPECT_GT(machine_->cpu_s(), written_s);
  EXPECT_EQ(machine_->written_bytes(), 8u << 20) << "reads are no writes";
}

TEST_F(NoDiskTest, DropsLargeWritesAndKeepsSmallOnes) {
  World world = MakeNoDiskWorld(machine_, NoDiskKeeps::kSmall);
  const auto file = Open(world, "/f");
  const size_t large = kNoDiskDroppedBytes, small = large - 1;
  ASSERT_TRUE(file->Write(0, Filled(small), true).ok());
  EXPECT_EQ(ReadBack(*file, 0, small), Filled(small));
  ASSERT_TRUE(file->Write(small, Filled(large), true).ok());
  EXPECT_EQ(*file->Size(), small + large) << "its length is kept";
  EXPECT_EQ(ReadBack(*file, small, large), std::vector<std::byte>(large));
  EXPECT_EQ(ReadBack(*file, 0, small), Filled(small)) << "its neighbour stays";
  ASSERT_TRUE(file->Write(0, Filled(large), true).ok());
  EXPECT_EQ(ReadBack(*file, 0, large), std::vector<std::byte>(large)) << "nothing old shows";
  EXPECT_EQ(machine_->written_bytes(), small + 2 * large);
}

TEST_F(NoDiskTest, MemoryOfARemovedFileIsUsedAgainAndReadsAsZerosWhereItWasNotWritten) {
  World world = MakeNoDiskWorld(machine_, NoDiskKeeps::kAll);
  {
    const auto file = Open(world, "/old");
    ASSERT_TRUE(file->Write(0, Filled(3 * NoDisk::kChunkBytes), true).ok());
  }
  ASSERT_TRUE(world.files->Remove("/old").ok());
  World other = MakeNoDiskWorld(machine_, NoDiskKeeps::kAll);
  const auto file = Open(other, "/new");
  ASSERT_TRUE(file->Write(100, Filled(10), true).ok());
  EXPECT_EQ(ReadBack(*file, 0, 100), std::vector<std::byte>(100));
  EXPECT_EQ(other.files->Info("/new")->allocated_bytes, NoDisk::kChunkBytes);
  ASSERT_TRUE(file->Truncate(50).ok());
  ASSERT_TRUE(file->Truncate(200).ok());
  EXPECT_EQ(ReadBack(*file, 0, 200), std::vector<std::byte>(200)) << "what was cut off is gone";
}

TEST_F(NoDiskTest, AFileKeepsItsContentUnderAnotherName) {
  World world = MakeNoDiskWorld(machine_, NoDiskKeeps::kAll);
  ASSERT_TRUE(world.files->CreateDirectory("/d").ok());
  ASSERT_TRUE(Open(world, "/d/f")->Write(0, Filled(10), true).ok());
  ASSERT_TRUE(Open(world, "/d2")->Write(0, Filled(20), true).ok()) << "no child of /d";
  ASSERT_TRUE(world.files->Rename("/d", "/e").ok());
  EXPECT_EQ(ReadBack(*Open(world, "/e/f"), 0, 10), Filled(10));
  EXPECT_EQ(world.files->Info("/d2")->bytes, 20u);
  ASSERT_TRUE(*world.files->Link("/e/f", "/g"));
  ASSERT_TRUE(world.files->Remove("/e/f").ok());
  EXPECT_EQ(ReadBack(*Open(world, "/g"), 0, 10), Filled(10));
  EXPECT_EQ(world.files->Info("/e/f").status().code(), StatusCode::kNotFound);
}

TEST_F(NoDiskTest, AStoreIsReopenedThere) {
  Options options;
  options.create_if_missing = true;
  options.world = std::make_shared<World>(MakeNoDiskWorld(machine_, NoDiskKeeps::kAll));
  for (const bool first : {true, false}) {
    auto store = Store::Open("/store", options);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    auto branch = first ? store->CreateBranch(*store->RegisterModel({.identity = {.name = "m"}}),
                                              {.name = "b"})
                        : store->FindBranch("b");
    EXPECT_TRUE(branch.ok()) << branch.status().ToString();
    EXPECT_TRUE(store->Close().ok());
  }
}

}  // namespace
}  // namespace cairn::io
