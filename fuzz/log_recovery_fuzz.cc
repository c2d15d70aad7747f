// SPDX-License-Identifier: Apache-2.0
//
// Recovery of a log whose files are damaged: it ends, with a Status or with records that are those
// that were written, in their order; a second one finds the same. Where headers were changed under
// hashes that fit, the records need only follow each other.
#include <cstring>
#include <memory>
#include <vector>

#include "base/core/check.h"
#include "fuzz/input.h"
#include "fuzz/log_files.h"
#include "sim/world.h"
#include "wal/log.h"

using namespace cairn;
using namespace cairn::wal;

namespace {

struct Found {
  Status status;
  std::vector<uint64_t> sequences;
  uint64_t last_sequence = 0;
};

Found Look(io::SimDisk& disk, const RecoveryOptions& options, bool forged) {
  io::SimWorld machine = io::CrashWorld(disk, io::CrashChoice::KeepAll());
  io::World world = machine.world();
  Found found;
  const auto recovered = Recover(world, options, [&](const RecordView& record) {
    if (!forged) {
      uint64_t number = 0;
      CAIRN_CHECK(record.fields.size() == sizeof(number));
      std::memcpy(&number, record.fields.data(), sizeof(number));
      CAIRN_CHECK(number == record.sequence);
    }
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
  static const std::unique_ptr<io::SimDisk> whole = fuzz::MakeLog();
  static fuzz::SegmentHeaders first_segment(*whole, 1);
  fuzz::Input input(data, bytes);
  const uint8_t how = input.Take<uint8_t>();
  RecoveryOptions options;
  options.directory = fuzz::kDirectory;
  options.store = fuzz::kStore;
  options.read_only = true;
  options.salvage = how % 4 == 1;
  options.following = how % 4 == 2;
  if (options.following) options.stop_after = how % 30;
  const bool forged = how >= 192;
  const auto disk = whole->CrashClone(io::CrashChoice::KeepAll());
  if (forged) {
    first_segment.Change(*disk, input);
  } else {
    fuzz::Damage(*disk, input);
  }
  const Found first = Look(*disk, options, forged);
  const Found second = Look(*disk, options, forged);
  CAIRN_CHECK(first.status.code() == second.status.code());
  CAIRN_CHECK(first.sequences == second.sequences && first.last_sequence == second.last_sequence);
  return 0;
}
