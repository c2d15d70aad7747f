// SPDX-License-Identifier: Apache-2.0
//
// Exports and imports (cairn/export.h), for an open store. Each call holds the store open for its
// own time. No lock may be held around the calls.
//
//   branch_file.h      what a branch's file says of itself       safetensors.h, model_json.h
//   kv_chunk.h         KV in pieces, and their digests           pipeline.h
//   branch_export.cc   a branch to a file                        output_file.h
//   branch_import.cc   a file to a branch                        branch_writer.h
//   forest_*.cc        tokens and states of all branches         pack.h
#pragma once

#include <string>

#include "cairn/export.h"

namespace cairn::engine {

Result<ExportInfo> ExportBranch(StoreCore* core, BranchId id, const std::string& path,
                                const ExportOptions& options, const ExportProgress& progress);
Result<ImportInfo> ImportBranch(StoreCore* core, const std::string& path,
                                const ImportOptions& options, const ExportProgress& progress);
Result<ForestInfo> ExportForest(StoreCore* core, const std::string& path,
                                const ForestOptions& options, const ExportProgress& progress);
Result<ForestInfo> ImportForest(StoreCore* core, const std::string& path,
                                const ExportProgress& progress);

// Positions whose ids are in memory at a time.
inline constexpr uint64_t kIdsAtOnce = 256u << 10;
// Part of the name of a branch that is being imported.
inline constexpr const char* kImportPrefix = "cairn-import-";

}  // namespace cairn::engine
