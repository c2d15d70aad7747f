// SPDX-License-Identifier: Apache-2.0
//
// Property: a branch and a forest leave as files and come back through C, with what each call says
// of them; mistakes are named.
#include <stdlib.h>

#include "tests/c_abi/check.h"

static void OnExportProgress(void* context, uint64_t done, uint64_t total) {
  CHECK(done <= total);
  *(uint64_t*)context = done;
}

static void CheckBranch(cairn_store* into, const cairn_branch* chat, const char* file,
                        const char* part) {
  cairn_error* error = NULL;
  cairn_export_options options;
  cairn_export_options_init(&options, sizeof options);
  options.end = 60;
  cairn_export_info *first = NULL, *second = NULL;
  uint64_t done = 0;
  CHECK_OK(cairn_export_branch(chat, file, &options, OnExportProgress, &done, &first, &error));
  CHECK(first->begin == 0 && first->end == 60 && first->kv_end_count == 1);
  CHECK(first->kv_ends[0] == 60 && strlen(first->snapshot_id) == 32);
  CHECK(strcmp(first->base_snapshot_id, "") == 0 && done > first->kv_bytes);
  CHECK_CODE(CAIRN_ALREADY_EXISTS, cairn_export_branch(chat, file, NULL, NULL, NULL, NULL, &error));
  options.replace = 2;
  CHECK_REFUSED("replace", cairn_export_branch(chat, file, &options, NULL, NULL, NULL, &error));
  options.replace = 1;
  CHECK_OK(cairn_export_branch(chat, file, &options, NULL, NULL, NULL, &error));
  options.begin = 60;
  options.end = UINT64_MAX;
  CHECK_OK(cairn_export_branch(chat, part, &options, NULL, NULL, &second, &error));
  CHECK(strcmp(second->base_snapshot_id, first->snapshot_id) == 0 && second->end == 100);
  CHECK_REFUSED("branch", cairn_export_branch(NULL, file, NULL, NULL, NULL, NULL, &error));
  CHECK_REFUSED("path", cairn_export_branch(chat, NULL, NULL, NULL, NULL, NULL, &error));

  cairn_branch* copy = NULL;
  cairn_import_info* info = NULL;
  CHECK_CODE(CAIRN_NOT_FOUND,
             cairn_import_branch(into, part, NULL, NULL, NULL, &copy, &info, &error));
  CHECK(copy == NULL && info == NULL);
  cairn_import_options as;
  cairn_import_options_init(&as, sizeof as);
  as.name = "copy";
  as.ns = "space";
  CHECK_OK(cairn_import_branch(into, file, &as, OnExportProgress, &done, &copy, &info, &error));
  CHECK(info->begin == 0 && info->end == 60 && info->found == 0 && info->kv_length_count == 1);
  CHECK(info->kv_lengths[0] == 60 && info->kv_bytes == first->kv_bytes);
  cairn_import_info_free(info);
  CHECK_OK(cairn_import_branch(into, part, &as, NULL, NULL, NULL, NULL, &error));
  uint64_t length = 0;
  CHECK_OK(cairn_branch_length(copy, &length, &error));
  CHECK(length == 100);
  as.model = 12345;
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_import_branch(into, file, &as, NULL, NULL, NULL, NULL, &error));
  CHECK_REFUSED("store", cairn_import_branch(NULL, file, NULL, NULL, NULL, NULL, NULL, &error));
  CHECK_REFUSED("path", cairn_import_branch(into, NULL, NULL, NULL, NULL, NULL, NULL, &error));
  cairn_branch_free(copy);
  cairn_export_info_free(first);
  cairn_export_info_free(second);
  cairn_export_info_free(NULL);
  cairn_import_info_free(NULL);
}

static void CheckForest(cairn_store* from, cairn_store* into, const char* file) {
  cairn_error* error = NULL;
  cairn_forest_options options;
  cairn_forest_options_init(&options, sizeof options);
  cairn_forest_info made, brought;
  cairn_forest_info_init(&made, sizeof made);
  cairn_forest_info_init(&brought, sizeof brought);
  CHECK_OK(cairn_export_forest(from, file, &options, NULL, NULL, &made, &error));
  CHECK(made.models == 1 && made.branches == 2 && made.tokens == 100 && made.file_bytes > 400);
  CHECK_CODE(CAIRN_ALREADY_EXISTS, cairn_export_forest(from, file, NULL, NULL, NULL, NULL, &error));
  uint64_t done = 0;
  CHECK_OK(cairn_import_forest(into, file, OnExportProgress, &done, &brought, &error));
  CHECK(brought.branches == 2 && brought.tokens == 100 && done != 0);
  options.ns = "none";
  options.replace = 1;
  CHECK_OK(cairn_export_forest(from, file, &options, NULL, NULL, &made, &error));
  CHECK(made.branches == 0);
  options.replace = 7;
  CHECK_REFUSED("replace", cairn_export_forest(from, file, &options, NULL, NULL, NULL, &error));
  made.struct_size = 1;
  CHECK_REFUSED("cairn_forest_info",
                cairn_export_forest(from, file, NULL, NULL, NULL, &made, &error));
  CHECK_REFUSED("cairn_forest_info", cairn_import_forest(into, file, NULL, NULL, &made, &error));
  CHECK_REFUSED("store", cairn_export_forest(NULL, file, NULL, NULL, NULL, NULL, &error));
  CHECK_REFUSED("path", cairn_export_forest(from, NULL, NULL, NULL, NULL, NULL, &error));
  CHECK_REFUSED("store", cairn_import_forest(NULL, file, NULL, NULL, NULL, &error));
  CHECK_REFUSED("path", cairn_import_forest(into, NULL, NULL, NULL, NULL, &error));
}

void TestExport(const char* directory) {
  cairn_error* error = NULL;
  char path[4096], file[4096], part[4096];
  snprintf(path, sizeof path, "%s/from", directory);
  cairn_store* from = OpenStore(path);
  cairn_store* into = OpenStore(":memory:");
  Model model;
  MakeModel(from, "toy", &model);
  cairn_branch* chat = CreateBranch(from, model.id, "chat");
  AppendTokens(chat, &model, 0, 100, 3);
  snprintf(file, sizeof file, "%s/chat.safetensors", directory);
  snprintf(part, sizeof part, "%s/part.safetensors", directory);
  CheckBranch(into, chat, file, part);
  cairn_branch* fork = NULL;
  cairn_branch_options options;
  cairn_branch_options_init(&options, sizeof options);
  options.name = "fork";
  CHECK_OK(cairn_branch_fork_at(chat, 50, &options, &fork, &error));
  snprintf(file, sizeof file, "%s/all.msgpack", directory);
  CheckForest(from, into, file);
  cairn_branch_free(fork);
  cairn_branch_free(chat);
  cairn_store_free(into);
  cairn_store_free(from);
}
