// SPDX-License-Identifier: Apache-2.0
//
// Exports and imports in C.
#include "cairn/export.h"

#include "api/c/convert.h"
#include "api/c/handles.h"
#include "api/c/results.h"

using cairn::Status;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

namespace {

struct ExportInfoAsC : cairn_export_info {
  explicit ExportInfoAsC(const cairn::ExportInfo& info) : cairn_export_info{} {
    struct_size = sizeof(cairn_export_info);
    snapshot_id = info.snapshot_id.c_str();
    base_snapshot_id = info.base_snapshot_id.c_str();
    begin = info.begin;
    end = info.end;
    kv_ends = info.kv_ends.data();
    kv_end_count = info.kv_ends.size();
    kv_bytes = info.kv_bytes;
    file_bytes = info.file_bytes;
  }
};
using ExportHolder = Holding<ExportInfoAsC, cairn::ExportInfo>;

struct ImportInfoAsC : cairn_import_info {
  explicit ImportInfoAsC(const cairn::ImportInfo& info) : cairn_import_info{} {
    struct_size = sizeof(cairn_import_info);
    begin = info.begin;
    end = info.end;
    found = info.found;
    kv_lengths = info.kv_lengths.data();
    kv_length_count = info.kv_lengths.size();
    kv_bytes = info.kv_bytes;
  }
};
using ImportHolder = Holding<ImportInfoAsC, cairn::ImportInfo>;

cairn::ExportProgress ToExportProgress(cairn_progress progress, void* context) {
  if (progress == nullptr) return {};
  return [progress, context](uint64_t done, uint64_t total) { progress(context, done, total); };
}

cairn::Result<bool> ToFlag(uint64_t given, const char* field) {
  if (given > 1) {
    return Invalid(std::string(field) + " is " + std::to_string(given) + "; 0 or 1");
  }
  return given == 1;
}

std::optional<std::string> TextOrNothing(const char* text) {
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

Status CheckForestInfo(const cairn_forest_info* info) {
  if (info == nullptr) return Status::Ok();
  return CheckStructSize(info, sizeof(*info), "cairn_forest_info");
}

void GiveForest(const cairn::ForestInfo& forest, cairn_forest_info* info) {
  if (info == nullptr) return;
  auto c = Sized<cairn_forest_info>::Default();
  c.models = forest.models;
  c.branches = forest.branches;
  c.tokens = forest.tokens;
  c.file_bytes = forest.file_bytes;
  Write(c, info);
}

}  // namespace

extern "C" {

cairn_code cairn_export_branch(const cairn_branch* branch, const char* path,
                               const cairn_export_options* options, cairn_progress progress,
                               void* context, cairn_export_info** info, cairn_error** error) {
  return Call(error, [&]() -> Status {
    if (info != nullptr) *info = nullptr;
    CAIRN_C_NEED(branch);
    CAIRN_C_NEED(path);
    CAIRN_ASSIGN_OR_RETURN(const cairn_export_options read, Read(options));
    CAIRN_ASSIGN_OR_RETURN(const bool replace,
                           ToFlag(read.replace, "cairn_export_options::replace"));
    CAIRN_ASSIGN_OR_RETURN(
        cairn::ExportInfo made,
        cairn::ExportBranch(
            branch->value, path,
            {.begin = read.begin, .end = read.end, .kv_begin = read.kv_begin, .replace = replace},
            ToExportProgress(progress, context)));
    if (info != nullptr) *info = std::make_unique<ExportHolder>(std::move(made)).release();
    return Status::Ok();
  });
}
void cairn_export_info_free(cairn_export_info* info) { delete static_cast<ExportHolder*>(info); }

cairn_code cairn_import_branch(cairn_store* store, const char* path,
                               const cairn_import_options* options, cairn_progress progress,
                               void* context, cairn_branch** branch, cairn_import_info** info,
                               cairn_error** error) {
  return Call(error, [&]() -> Status {
    if (branch != nullptr) *branch = nullptr;
    if (info != nullptr) *info = nullptr;
    CAIRN_C_NEED(store);
    CAIRN_C_NEED(path);
    CAIRN_ASSIGN_OR_RETURN(const cairn_import_options read, Read(options));
    cairn::ImportOptions converted{.name = TextOrNothing(read.name), .ns = TextOrNothing(read.ns)};
    if (read.model != 0) converted.model = cairn::ModelId{read.model};
    auto handle = std::make_unique<cairn_branch>();
    CAIRN_ASSIGN_OR_RETURN(
        cairn::ImportInfo made,
        cairn::ImportBranch(store->value, path, converted, ToExportProgress(progress, context)));
    handle->value = made.branch;
    if (info != nullptr) *info = std::make_unique<ImportHolder>(std::move(made)).release();
    if (branch != nullptr) *branch = handle.release();
    return Status::Ok();
  });
}
void cairn_import_info_free(cairn_import_info* info) { delete static_cast<ImportHolder*>(info); }

cairn_code cairn_export_forest(const cairn_store* store, const char* path,
                               const cairn_forest_options* options, cairn_progress progress,
                               void* context, cairn_forest_info* info, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(store);
    CAIRN_C_NEED(path);
    CAIRN_RETURN_IF_ERROR(CheckForestInfo(info));
    CAIRN_ASSIGN_OR_RETURN(const cairn_forest_options read, Read(options));
    CAIRN_ASSIGN_OR_RETURN(const bool replace,
                           ToFlag(read.replace, "cairn_forest_options::replace"));
    CAIRN_ASSIGN_OR_RETURN(
        const cairn::ForestInfo made,
        cairn::ExportForest(store->value, path, {.ns = TextOrNothing(read.ns), .replace = replace},
                            ToExportProgress(progress, context)));
    GiveForest(made, info);
    return Status::Ok();
  });
}

cairn_code cairn_import_forest(cairn_store* store, const char* path, cairn_progress progress,
                               void* context, cairn_forest_info* info, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(store);
    CAIRN_C_NEED(path);
    CAIRN_RETURN_IF_ERROR(CheckForestInfo(info));
    CAIRN_ASSIGN_OR_RETURN(
        const cairn::ForestInfo made,
        cairn::ImportForest(store->value, path, ToExportProgress(progress, context)));
    GiveForest(made, info);
    return Status::Ok();
  });
}

}  // extern "C"
