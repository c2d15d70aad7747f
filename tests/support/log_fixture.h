// SPDX-License-Identifier: Apache-2.0
//
// Shared by the tests of the log: appending records whose contents follow from a seed, and reading
// a recovered log back in full, payload included.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/io/world.h"
#include "wal/log.h"

namespace cairn::wal {

struct TestRecord {
  uint64_t sequence = 0;
  uint16_t kind = 0;
  std::vector<std::byte> fields;
  std::vector<std::vector<std::byte>> strips;
  bool operator==(const TestRecord& other) const;
};

// Deterministic bytes. `Payload(seed, n)` is a record of one strip of n bytes.
std::vector<std::byte> BytesOf(uint64_t seed, size_t count);
TestRecord Payload(uint64_t seed, size_t bytes);
TestRecord WithStrips(uint64_t seed, std::vector<size_t> strip_bytes);

struct Recovered {
  Status status;
  RecoveredLog log;
  std::vector<TestRecord> records;       // Strips that fail their check are left empty...
  std::vector<uint64_t> damaged_strips;  // ...and the sequence of their record stands here.
};

inline constexpr StoreId kTestStore{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

// `read_payload` also reads every strip from its segment and verifies it.
Recovered RecoverLog(io::World& world, const RecoveryOptions& options, bool read_payload = true);

// Two log states that a second recovery must not change.
bool SameState(const RecoveredLog& a, const RecoveredLog& b);

// One log in one directory of a world.
struct LogFixture {
  explicit LogFixture(io::World in_world, std::string directory = "log");

  void OpenLog(RecoveredLog recovered = {});
  Status TryOpenLog(RecoveredLog recovered = {});
  // Closes nothing: what a killed process leaves. (The log object is gone afterwards.)
  Recovered RecoverAll();
  // RecoverAll, then OpenLog with what it found.
  Recovered Reopen();

  // Reserves, fills and publishes; remembers the record in `appended`. Retries kBusy.
  uint64_t Append(TestRecord record, Log::Purpose purpose = Log::Purpose::kData);
  Result<uint64_t> TryAppend(TestRecord record, Log::Purpose purpose = Log::Purpose::kData);

  io::World world;
  LogOptions options;
  std::unique_ptr<Log> log;
  std::vector<TestRecord> appended;
};

// Reserve of data, again when kBusy passes.
Result<Log::Slot> ReserveWithRoom(Log& log, const RecordSpec& spec);
// Fills and publishes a reserved slot. In pieces when `piece_bytes` is not 0.
void Fill(Log& log, Log::Slot& slot, const TestRecord& record, size_t piece_bytes = 0);

}  // namespace cairn::wal
