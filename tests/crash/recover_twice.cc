// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/recover_twice.h"

#include <map>
#include <memory>
#include <vector>

#include "base/core/check.h"
#include "sim/disk.h"

namespace cairn::crash {
namespace {

// A store that was recovered and closed has nothing left to do when it is opened and closed
// again, but to count the closing, and to make segments ready.
std::string ChangeBySecondRecovery(const std::string& path, Options options) {
  options.index = Index::kNone;  // Which is made in the background, and goes on there.
  options.read_only = false;
  // Nothing is due in the background.
  options.max_delta_chain = 0;
  options.snapshot_interval_tokens = 0;
  options.replay_records_max = 1 << 20;
  options.log_bytes_max = uint64_t{1} << 30;
  auto& disk = *std::const_pointer_cast<io::SimDisk>(
      std::static_pointer_cast<const io::SimDisk>(options.world->files));
  std::string change;
  std::map<std::string, std::vector<std::byte>> before;  // Written files.
  disk.set_on_operation([&](const io::SimOperation& operation) {
    // A rename counts by its old name: no segment in use may become a spare one.
    const std::string name = operation.path.substr(0, operation.path.find(" to "));
    const auto is = [&](const char* what) { return name.find(what) != std::string::npos; };
    if (is("/HINT") || is("/MANIFEST-") || is("/spare-")) return;
    // Tables of an index of prefixes that was given up go at an opening.
    if (is(".index") && operation.op == io::SimOp::kRemove) return;
    if (operation.op == io::SimOp::kSync || operation.op == io::SimOp::kSyncDirectory) return;
    const bool writes =
        operation.op == io::SimOp::kWrite || operation.op == io::SimOp::kDurableWrite;
    if (writes && !before.contains(operation.path)) {
      before[operation.path] = *disk.ReadRaw(operation.path);
    }
    if (!writes && change.empty()) change = operation.ToString();
  });
  {
    auto store = Store::Open(path, options);
    Status status = store.status();
    if (store.ok()) status = store->Close();
    if (!status.ok()) change = status.ToString();
  }
  disk.set_on_operation(nullptr);
  for (const auto& [file, bytes] : before) {
    const auto after = disk.ReadRaw(file);
    if (!after.ok() || *after != bytes) change = "other bytes in " + file;
  }
  return change;
}

Status Wrong(const std::string& what) { return Status(StatusCode::kCorruption, what); }

}  // namespace

Result<StoreState> OpenAndRead(const std::string& path, const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(Store store, Store::Open(path, options));
  return ReadStore(store);
}

Result<StoreState> RecoverTwice(const std::string& path, const Options& options,
                                uint64_t* second_recoveries) {
  const auto& disk = static_cast<const io::SimDisk&>(*options.world->files);
  CAIRN_ASSIGN_OR_RETURN(StoreState state, OpenAndRead(path, options));
  const uint64_t operations = disk.operations();
  if (options.read_only) {
    if (operations != 0) return Wrong("reading wrote");
    return state;
  }
  Options again = options;
  again.create_if_missing = false;
  again.read_only = true;
  const auto second = OpenAndRead(path, again);
  if (!second.ok()) return second.status().WithContext("second recovery");
  if (*second != state) return Wrong("the second recovery differs");
  if (disk.operations() != operations) return Wrong("the second recovery wrote");
  ++*second_recoveries;
  const std::string change = ChangeBySecondRecovery(path, again);
  if (!change.empty()) return Wrong("the second recovery, for writing, did: " + change);
  return state;
}

}  // namespace cairn::crash
