// SPDX-License-Identifier: Apache-2.0
#include "tests/support/append_to_log.h"

#include <utility>

#include "base/core/check.h"
#include "engine/manifest/manifest.h"

namespace cairn::testing {

Status AppendToLog(io::World world, const std::string& store, const Options& options,
                   const wal::RecordSpec& spec) {
  CAIRN_CHECK(spec.strips.empty());
  CAIRN_ASSIGN_OR_RETURN(const engine::Manifest manifest,
                         engine::ReadManifest(*world.files, store));
  wal::RecoveryOptions recovery;
  recovery.directory = store + "/log";
  recovery.store = manifest.store;
  recovery.first_segment = manifest.log_start_segment;
  CAIRN_ASSIGN_OR_RETURN(auto found, wal::Recover(world, recovery, [](const wal::RecordView&) {
                           return Status::Ok();
                         }));
  wal::LogOptions log_options;
  log_options.directory = recovery.directory;
  log_options.store = recovery.store;
  log_options.segment_bytes = options.segment_bytes;
  log_options.hot_tail_bytes = options.hot_tail_bytes;
  CAIRN_ASSIGN_OR_RETURN(const auto log, wal::Log::Open(world, log_options, std::move(found)));
  CAIRN_ASSIGN_OR_RETURN(wal::Log::Slot slot, log->Reserve(spec, wal::Log::Purpose::kData));
  log->Publish(slot, {});
  CAIRN_RETURN_IF_ERROR(log->Wait(slot.sequence, /*durable=*/true, io::kNoDeadline));
  return log->Close();
}

}  // namespace cairn::testing
