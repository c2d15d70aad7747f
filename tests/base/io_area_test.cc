// SPDX-License-Identifier: Apache-2.0
//
// Property: one process reads what another one writes to an area. A process gets the area only if
// it knows the address and runs as the creator's user. The area is gone with its last process.
// Method: the same assertions on the operating system and on the simulated machine, and malformed
// addresses.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/io/posix_shared_areas.h"
#include "base/io/real_scheduler.h"
#include "sim/shared_areas.h"
#include "sim/world.h"
#include "tests/base/io_backends.h"
#include "tests/support/status.h"

namespace cairn::io {
namespace {

using testing::TemporaryDirectory;

class AreaContract : public ::testing::TestWithParam<std::string> {
 protected:
  bool IsSimulated() const { return GetParam() == "simulated"; }

  void SetUp() override {
    if (!IsSimulated()) {
      directory_ = temporary_.path();
      creator_ = MakePosixSharedAreas(std::make_shared<RealScheduler>());
      other_ = MakePosixSharedAreas(std::make_shared<RealScheduler>());
      return;
    }
    sim_ = MakeSimWorld(1);
    ASSERT_OK(sim_.disk->CreateDirectory("/store"));
    machine_ = std::make_unique<SimAreas>(sim_.world());
    directory_ = "/store";
    creator_ = machine_->NewProcess();
    other_ = machine_->NewProcess();
  }

  TemporaryDirectory temporary_;
  SimWorld sim_;
  std::unique_ptr<SimAreas> machine_;
  std::string directory_;
  std::unique_ptr<SharedAreas> creator_, other_;
};

using AreaPtr = std::unique_ptr<SharedArea>;

TEST_P(AreaContract, BothSeeTheSameBytesWhichAreZerosAtFirst) {
  ASSERT_OK_ASSIGN(const AreaPtr area, creator_->Create(directory_, 100'000));
  ASSERT_OK_ASSIGN(const AreaPtr mapped, other_->Map(area->address()));
  EXPECT_TRUE(area->is_creator());
  EXPECT_FALSE(mapped->is_creator());
  EXPECT_EQ(area->address(), mapped->address());
  ASSERT_GE(area->bytes().size(), 100'000U);
  ASSERT_EQ(area->bytes().size(), mapped->bytes().size());
  EXPECT_EQ(area->bytes().size() % 4096, 0U);
  EXPECT_NE(area->bytes().data(), nullptr);
  EXPECT_TRUE(std::ranges::all_of(mapped->bytes(), [](std::byte b) { return b == std::byte{}; }));
  area->bytes().front() = std::byte{1};
  mapped->bytes().back() = std::byte{2};
  EXPECT_EQ(mapped->bytes().front(), std::byte{1});
  EXPECT_EQ(area->bytes().back(), std::byte{2});
}

TEST_P(AreaContract, SeveralProcessesAndAreasDoNotDisturbEachOther) {
  std::vector<AreaPtr> areas, mapped;
  for (uint8_t i = 0; i < 4; ++i) {
    ASSERT_OK_ASSIGN(AreaPtr area, creator_->Create(directory_, 1));
    for (int j = 0; j < 3; ++j) {
      ASSERT_OK_ASSIGN(AreaPtr one, other_->Map(area->address()));
      mapped.push_back(std::move(one));
    }
    area->bytes()[7] = std::byte{i};
    EXPECT_EQ(area->counts().mapped, 3U);
    EXPECT_EQ(area->counts().refused, 0U);
    EXPECT_EQ(mapped.back()->counts().mapped, 0U) << "not its creator";
    areas.push_back(std::move(area));
  }
  for (size_t i = 0; i < mapped.size(); ++i) EXPECT_EQ(mapped[i]->bytes()[7], std::byte(i / 3));
}

TEST_P(AreaContract, WhoHasMappedItKeepsItWhenItsCreatorEnds) {
  ASSERT_OK_ASSIGN(AreaPtr area, creator_->Create(directory_, 4096));
  const std::string address = area->address();
  ASSERT_OK_ASSIGN(const AreaPtr mapped, other_->Map(address));
  area->bytes()[0] = std::byte{9};
  area.reset();
  EXPECT_EQ(mapped->bytes()[0], std::byte{9});
  EXPECT_FAILS(other_->Map(address), StatusCode::kNotFound, directory_);
}

TEST_P(AreaContract, AnotherNonceIsRefusedAndCounted) {
  ASSERT_OK_ASSIGN(const AreaPtr area, creator_->Create(directory_, 4096));
  ASSERT_OK_ASSIGN(AreaAddress address, AreaAddress::Parse(area->address()));
  for (size_t i = 0; i < address.nonce.size(); ++i) {
    AreaAddress wrong = address;
    wrong.nonce[i] ^= 0x10;
    EXPECT_FAILS(other_->Map(wrong.Text()), StatusCode::kConflict) << i;
  }
  EXPECT_OK(other_->Map(address.Text()));
  EXPECT_EQ(area->counts().refused, address.nonce.size());
  EXPECT_EQ(area->counts().mapped, 1U);
}

TEST_P(AreaContract, BadArgumentsAreRefused) {
  EXPECT_FAILS(creator_->Create(directory_, 0), StatusCode::kInvalidArgument, "bytes");
  EXPECT_FAILS(creator_->Create(directory_, kAreaBytesMax + 1), StatusCode::kInvalidArgument);
  EXPECT_FAILS(creator_->Create("", 1), StatusCode::kInvalidArgument);
  EXPECT_FAILS(creator_->Create(directory_ + "/none", 1), StatusCode::kNotFound, "none");
  EXPECT_FAILS(other_->Map(""), StatusCode::kInvalidArgument);
  ASSERT_OK_ASSIGN(const AreaPtr area, creator_->Create(directory_, 1));
  ASSERT_OK_ASSIGN(AreaAddress address, AreaAddress::Parse(area->address()));
  address.socket += "0";
  EXPECT_FAILS(other_->Map(address.Text()), StatusCode::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Machines, AreaContract, ::testing::Values("posix", "simulated"),
                         [](const auto& of) { return of.param; });

// ---------------------------------------------------------------- the simulated machine alone

class SimAreaTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(sim_.disk->CreateDirectory("/s")); }
  const SimWorld sim_ = MakeSimWorld(7);
  SimAreas machine_{sim_.world()};
  const std::unique_ptr<SimAreaProcess> creator_ = machine_.NewProcess(1);
};

TEST_F(SimAreaTest, AKilledCreatorLeavesWhatOthersHave) {
  const auto other = machine_.NewProcess(1);
  ASSERT_OK_ASSIGN(AreaPtr area, creator_->Create("/s", 1));
  const std::string address = area->address();
  ASSERT_OK_ASSIGN(AreaPtr mapped, other->Map(address));
  area->bytes()[0] = std::byte{3};
  creator_->Kill();
  EXPECT_TRUE(area->bytes().empty());
  area.reset();
  EXPECT_EQ(mapped->bytes()[0], std::byte{3});
  EXPECT_FAILS(other->Map(address), StatusCode::kNotFound);
  mapped.reset();
  EXPECT_EQ(machine_.living(), 0U);
}

TEST_F(SimAreaTest, OfAnotherUserOrStoppedItIsRefused) {
  const auto stranger = machine_.NewProcess(2), other = machine_.NewProcess(1);
  ASSERT_OK_ASSIGN(const AreaPtr area, creator_->Create("/s", 1));
  EXPECT_FAILS(stranger->Map(area->address()), StatusCode::kIoError, "another user");
  creator_->Stop(true);
  const uint64_t before_ns = sim_.scheduler->MonotonicNs();
  EXPECT_FAILS(other->Map(area->address()), StatusCode::kDeadlineExceeded);
  EXPECT_GE(sim_.scheduler->MonotonicNs() - before_ns, 10'000'000'000U);
  creator_->Stop(false);
  EXPECT_OK(other->Map(area->address()));
}

TEST_F(SimAreaTest, FailsWhereItIsToldTo) {
  machine_.FailAt(0);
  EXPECT_FAILS(creator_->Create("/s", 1), StatusCode::kOutOfMemory);
  ASSERT_OK_ASSIGN(const AreaPtr area, creator_->Create("/s", 1));
  machine_.FailAt(0);
  EXPECT_FAILS(creator_->Map(area->address()), StatusCode::kIoError);
  EXPECT_OK(creator_->Map(area->address()));
}

// ---------------------------------------------------------------- addresses

TEST(AreaAddressTest, IsReadBackAsItWasWritten) {
  AreaAddress address{.host = "0123456789abcdef0123456789abcdef", .bytes = 1, .socket = "/a:b/c"};
  for (size_t i = 0; i < address.nonce.size(); ++i) address.nonce[i] = static_cast<uint8_t>(i * 17);
  for (const std::string& host : {address.host, std::string()}) {
    address.host = host;
    ASSERT_OK_ASSIGN(const AreaAddress read, AreaAddress::Parse(address.Text()));
    EXPECT_EQ(read.host, address.host);
    EXPECT_EQ(read.nonce, address.nonce);
    EXPECT_EQ(read.bytes, address.bytes);
    EXPECT_EQ(read.socket, address.socket);
    EXPECT_EQ(read.Text(), address.Text());
  }
}

TEST(AreaAddressTest, WhatIsNoneIsNamedByItsPart) {
  const std::string nonce(32, 'a'), host(32, '0');
  const std::pair<std::string, const char*> cases[] = {
      {"", "six parts"},
      {"cairn-area:1:-:" + nonce + ":4096", "six parts"},
      {"area:1:-:" + nonce + ":4096:/a", "cairn-area"},
      {"cairn-area:2:-:" + nonce + ":4096:/a", "version"},
      {"cairn-area:1::" + nonce + ":4096:/a", "host"},
      {"cairn-area:1:" + host + "0:" + nonce + ":4096:/a", "host"},
      {"cairn-area:1:" + std::string(32, 'G') + ":" + nonce + ":4096:/a", "host"},
      {"cairn-area:1:-:" + nonce + "a:4096:/a", "nonce"},
      {"cairn-area:1:-:" + std::string(32, 'A') + ":4096:/a", "nonce"},
      {"cairn-area:1:-:" + nonce + ":0:/a", "size"},
      {"cairn-area:1:-:" + nonce + "::/a", "size"},
      {"cairn-area:1:-:" + nonce + ":-1:/a", "size"},
      {"cairn-area:1:-:" + nonce + ":1x:/a", "size"},
      {"cairn-area:1:-:" + nonce + ":99999999999999999999:/a", "size"},
      {"cairn-area:1:-:" + nonce + ":70368744177665:/a", "size"},
      {"cairn-area:1:-:" + nonce + ":4096:a", "absolute"},
      {"cairn-area:1:-:" + nonce + ":4096:", "absolute"},
      {"cairn-area:1:-:" + nonce + ":4096:/a" + std::string(1, '\0'), "absolute"},
      {"cairn-area:1:-:" + nonce + ":4096:/" + std::string(9000, 'a'), "bytes long"},
  };
  for (const auto& [text, part] : cases) {
    EXPECT_FAILS(AreaAddress::Parse(text), StatusCode::kInvalidArgument, part) << text;
  }
  for (const char* const name : {"area-0123456789abcdef"}) EXPECT_TRUE(IsAreaName(name));
  for (const char* const name : {"area-", "area-0123456789abcdeF", "area-0123456789abcdef0", "area",
                                 "AREA-0123456789abcdef"}) {
    EXPECT_FALSE(IsAreaName(name)) << name;
  }
}

}  // namespace
}  // namespace cairn::io
