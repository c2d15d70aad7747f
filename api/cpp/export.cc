// SPDX-License-Identifier: Apache-2.0
//
// Exports and imports: passed on.
#include "cairn/export.h"

#include "api/cpp/on_core.h"
#include "engine/exchange/exchange.h"

namespace cairn {

Result<ExportInfo> ExportBranch(const Branch& branch, const std::string& path,
                                const ExportOptions& options, const ExportProgress& progress) {
  return OnCore(branch.core(), [&](StoreCore& core) {
    return engine::ExportBranch(&core, branch.id(), path, options, progress);
  });
}

Result<ImportInfo> ImportBranch(Store& store, const std::string& path, const ImportOptions& options,
                                const ExportProgress& progress) {
  return OnCore(store.core(), [&](StoreCore& core) {
    return engine::ImportBranch(&core, path, options, progress);
  });
}

Result<ForestInfo> ExportForest(const Store& store, const std::string& path,
                                const ForestOptions& options, const ExportProgress& progress) {
  return OnCore(store.core(), [&](StoreCore& core) {
    return engine::ExportForest(&core, path, options, progress);
  });
}

Result<ForestInfo> ImportForest(Store& store, const std::string& path,
                                const ExportProgress& progress) {
  return OnCore(store.core(),
                [&](StoreCore& core) { return engine::ImportForest(&core, path, progress); });
}

}  // namespace cairn
