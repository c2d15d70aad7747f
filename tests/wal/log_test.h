// SPDX-License-Identifier: Apache-2.0
//
// A log on a simulated machine, an observer that remembers, and a ledger of space.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "sim/world.h"
#include "tests/support/log_fixture.h"
#include "wal/log.h"

namespace cairn::wal {

inline constexpr int kEio = 5;
inline constexpr uint64_t kMs = 1'000'000;

class Observer final : public LogObserver {
 public:
  void OnProgress(uint64_t written, uint64_t durable) override {
    EXPECT_GE(written, written_);
    EXPECT_GE(durable, durable_);
    EXPECT_LE(durable, written);
    EXPECT_FALSE(inside_) << "calls overlap";
    inside_ = true;
    written_ = written;
    durable_ = durable;
    inside_ = false;
  }
  void OnPoison(const Status& cause, uint64_t acknowledged) override {
    ++poisons_;
    cause_ = cause;
    acknowledged_ = acknowledged;
  }
  void OnEvent(const std::string& line) override { events_.push_back(line); }
  uint64_t Count(std::string_view words) const {
    return static_cast<uint64_t>(std::ranges::count_if(
        events_, [&](const std::string& line) { return line.find(words) != std::string::npos; }));
  }

  uint64_t written_ = 0, durable_ = 0, acknowledged_ = 0;
  int poisons_ = 0;
  Status cause_;
  std::vector<std::string> events_;
  bool inside_ = false;
};

class Grant final : public SpaceGrant {
 public:
  explicit Grant(uint64_t limit) : limit_(limit) {}
  Status Take(uint64_t bytes, Purpose purpose) override {
    const uint64_t limit = purpose == Purpose::kData ? limit_ - reserve_ : limit_;
    if (taken_ + bytes > limit) return Status(StatusCode::kNoSpace, "max_bytes");
    taken_ += bytes;
    return Status::Ok();
  }
  void TakeAnyway(uint64_t bytes) override { taken_ += bytes; }
  void Return(uint64_t bytes) override {
    ASSERT_LE(bytes, taken_);
    taken_ -= bytes;
  }
  void Promise(int64_t bytes) override {
    promised_ += bytes;
    ASSERT_GE(promised_, 0);
    ASSERT_LE(static_cast<uint64_t>(promised_), taken_);
  }
  bool IsShort() const override { return taken_ > limit_ - reserve_; }
  uint64_t room(Purpose purpose) const override {
    const uint64_t limit = purpose == Purpose::kData ? limit_ - reserve_ : limit_;
    return limit - std::min(limit, taken_);
  }
  uint64_t limit_;
  uint64_t reserve_ = 0;
  uint64_t taken_ = 0;
  int64_t promised_ = 0;
};

class LogTest : public ::testing::Test {
 protected:
  LogTest() : machine_(io::MakeSimWorld(7)), fixture_(machine_.world()) {
    fixture_.options.observer = &observer_;
    // Without its name the directory would not survive a crash.
    EXPECT_TRUE(machine_.disk->SyncDirectory("").ok());
  }
  ~LogTest() override {
    machine_.disk->set_on_operation(nullptr);
    fixture_.log.reset();
  }

  Log& log() { return *fixture_.log; }
  uint64_t Append(size_t bytes, Log::Purpose purpose = Log::Purpose::kData) {
    return fixture_.Append(Payload(fixture_.appended.size() + 1, bytes), purpose);
  }
  Result<uint64_t> TryAppend(size_t bytes, Log::Purpose purpose = Log::Purpose::kData) {
    return fixture_.TryAppend(Payload(fixture_.appended.size() + 1, bytes), purpose);
  }
  Status Durable(uint64_t sequence) { return log().Wait(sequence, true, io::kNoDeadline); }
  void ExpectRecovered(size_t count, uint64_t first_segment = 1) {
    RecoveryOptions options;
    options.directory = "log";
    options.store = kTestStore;
    options.first_segment = first_segment;
    const Recovered found = RecoverLog(fixture_.world, options);
    ASSERT_TRUE(found.status.ok()) << found.status.ToString();
    EXPECT_EQ(found.log.last_sequence, count);
    ASSERT_LE(found.records.size(), fixture_.appended.size());
    const size_t skipped = count - found.records.size();
    EXPECT_TRUE(std::equal(found.records.begin(), found.records.end(),
                           fixture_.appended.begin() + static_cast<ptrdiff_t>(skipped)));
  }
  void RunFor(uint64_t ns) { machine_.scheduler->Sleep(ns); }

  io::SimWorld machine_;
  Observer observer_;
  LogFixture fixture_;
};

}  // namespace cairn::wal
