// SPDX-License-Identifier: Apache-2.0
//
// Opening, the part about tables: the index, from which the tree is read, and which files are the
// store's.
#include <string>
#include <vector>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/io/file_util.h"
#include "engine/store_core.h"

namespace cairn {

void StoreCore::SetTableContext() {
  sstable::TableContext context;
  context.files = world_.files.get();
  context.directory = io::JoinPath(path_, engine::kTableDirectory);
  context.store = manifest_.at_opening().store;
  context.allocator = options_.allocator;
  context.cache = &block_cache_;
  context.open_files = &reader_.open_files();
  context.host = space_.reclaim_host();
  context.counters = &table_counters_;
  reader_.tables().SetContext(context);
  options_.segment_bytes = manifest_.at_opening().segment_bytes;
  space_.retirer().SetLogStart(manifest_.at_opening().log_start_segment);
}

// The tree as the checkpoint has it, from which the log goes on.
Status StoreCore::OpenTree(const engine::Manifest& manifest, engine::Tree* tree) {
  const sstable::MergeShape shape{.table_bytes = engine::kIndexTableBytes,
                                  .level1_bytes = engine::kIndexLevel1Bytes};
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<sstable::LsmIndex> index,
                         sstable::LsmIndex::Open({space_.IndexContext(), shape}, manifest.index));
  tree->SetIndex(std::move(index));
  tree->seal_queue().SetLimits(options_.snapshot_interval_tokens, options_.max_delta_chain);
  return engine::TreeRecords::LoadRoots(tree);
}

// For a store that writes, after replay: what is there is counted, what nothing names goes. No
// number of a table that is named is given again, whatever the manifest says.
Status StoreCore::ClaimTables() {
  const sstable::TableContext& context = reader_.tables().context();
  CAIRN_RETURN_IF_ERROR(io::CreateDirectoryIfMissing(*world_.files, context.directory));
  CAIRN_RETURN_IF_ERROR(manifest_.RemoveOld());
  space_.SetIndex(tree_.index(), manifest_.at_opening().index_sequence);
  std::vector<uint64_t> live;
  for (const sstable::LiveTable& table : manifest_.at_opening().index) {
    live.push_back(table.number);
    manifest_.NameTable(table.number);
    ledger_.TakeAnyway(table.bytes);
  }
  std::vector<uint64_t> deleted;  // Tables that were dead, before the index knew.
  for (const auto& [number, use] : tree_.tables()) {
    manifest_.NameTable(number);
    const std::string path = sstable::SnapshotTablePath(context.directory, number);
    if (use.live_bytes == 0 && world_.files->Info(path).status().code() == StatusCode::kNotFound) {
      deleted.push_back(number);
      continue;
    }
    live.push_back(number);
    ledger_.TakeAnyway(use.bytes);
  }
  for (const uint64_t number : deleted) tree_.ForgetTable(number);
  if (!CAIRN_KEPT(kLiveOrphans)) return Status::Ok();
  return sstable::RemoveTableOrphans(*world_.files, context.directory, live);
}

}  // namespace cairn
