// SPDX-License-Identifier: Apache-2.0
//
// Recovery of a log whose files are damaged: it ends, with a Status or with records that are those
// that were written, in their order; a second one finds the same.
#include <memory>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "base/io/sim_world.h"
#include "fuzz/input.h"
#include "wal/log.h"

using namespace cairn;
using namespace cairn::wal;

namespace {

constexpr StoreId kStore{{7, 7, 7}};
constexpr char kDirectory[] = "log";

// A log of three segments and two epochs; `fields` of a record say its number.
std::unique_ptr<io::SimDisk> MakeLog() {
  const io::SimWorld machine = io::MakeSimWorld(1);
  CAIRN_CHECK(machine.disk->CreateDirectory(kDirectory).ok());
  io::World world = machine.world();
  LogOptions options;
  options.directory = kDirectory;
  options.store = kStore;
  options.segment_bytes = 256 << 10;
  options.hot_tail_bytes = 1 << 20;
  options.chunk_bytes = 64 << 10;
  RecoveryOptions recovery;
  recovery.directory = kDirectory;
  recovery.store = kStore;
  uint64_t number = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    auto recovered = Recover(world, recovery, [](const RecordView&) { return Status::Ok(); });
    CAIRN_CHECK(recovered.ok());
    auto log = Log::Open(world, options, std::move(*recovered));
    CAIRN_CHECK(log.ok());
    for (int i = 0; i < 12; ++i) {
      ++number;
      const uint64_t bytes = i % 3 == 0 ? 90'000 : 100 * i;
      std::vector<std::byte> fields(8);
      std::memcpy(fields.data(), &number, sizeof(number));
      const std::vector<Strip> strips = {{0, static_cast<uint32_t>(bytes)}};
      auto slot = (*log)->Reserve({1, false, 0, fields, strips}, Log::Purpose::kData);
      while (!slot.ok()) {
        CAIRN_CHECK(slot.status().code() == StatusCode::kBusy);
        CAIRN_CHECK((*log)->WaitForRoom(io::kNoDeadline).ok());
        slot = (*log)->Reserve({1, false, 0, fields, strips}, Log::Purpose::kData);
      }
      const std::span<std::byte> payload(slot->payload, bytes);
      std::fill(payload.begin(), payload.end(), static_cast<std::byte>(number));
      const std::vector<uint64_t> hashes = {Hash(payload)};
      const uint64_t sequence = slot->sequence;
      (*log)->Publish(*slot, hashes);
      CAIRN_CHECK((*log)->Wait(sequence, i % 2 == 0, io::kNoDeadline).ok());
    }
  }
  return machine.disk->CrashClone(io::CrashChoice::KeepAll());
}

struct Found {
  Status status;
  std::vector<uint64_t> sequences;
  uint64_t last_sequence = 0;
};

Found Look(io::SimDisk& disk, const RecoveryOptions& options) {
  io::SimWorld machine = io::CrashWorld(disk, io::CrashChoice::KeepAll());
  io::World world = machine.world();
  Found found;
  const auto recovered = Recover(world, options, [&](const RecordView& record) {
    uint64_t number = 0;
    CAIRN_CHECK(record.fields.size() == sizeof(number));
    std::memcpy(&number, record.fields.data(), sizeof(number));
    CAIRN_CHECK(number == record.sequence);
    CAIRN_CHECK(found.sequences.empty() || record.sequence == found.sequences.back() + 1);
    found.sequences.push_back(record.sequence);
    return Status::Ok();
  });
  found.status = recovered.status();
  if (recovered.ok()) found.last_sequence = recovered->last_sequence;
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const std::unique_ptr<io::SimDisk> whole = MakeLog();
  fuzz::Input input(data, bytes);
  const uint8_t how = input.Take<uint8_t>();
  RecoveryOptions options;
  options.directory = kDirectory;
  options.store = kStore;
  options.read_only = true;
  options.salvage = how % 4 == 1;
  options.following = how % 4 == 2;
  if (options.following) options.stop_after = how % 30;
  const auto disk = whole->CrashClone(io::CrashChoice::KeepAll());
  fuzz::Damage(*disk, input);
  const Found first = Look(*disk, options);
  const Found second = Look(*disk, options);
  CAIRN_CHECK(first.status.code() == second.status.code());
  CAIRN_CHECK(first.sequences == second.sequences && first.last_sequence == second.last_sequence);
  return 0;
}
