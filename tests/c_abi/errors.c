// SPDX-License-Identifier: Apache-2.0
//
// Property: what cannot be done is refused with a code and a message that names why, wherever it
// comes from: a path, a NULL, a closed store, a value that does not exist.
#include <sys/wait.h>
#include <unistd.h>

#include "tests/c_abi/check.h"

static void CheckVersions(void) {
  unsigned major = 99, minor = 99, patch = 99;
  CHECK(sscanf(cairn_version(), "%u.%u.%u", &major, &minor, &patch) == 3);
  CHECK(cairn_version_number() == major * 1000000 + minor * 1000 + patch);
  CHECK(cairn_format_version() == 1);
  CHECK(strcmp(cairn_code_name(CAIRN_NO_SPACE), "NoSpace") == 0);
  CHECK(strcmp(cairn_code_name(-1), "Unknown") == 0);
  CHECK(strcmp(cairn_code_name(1000), "Unknown") == 0);
}

static void CheckLimits(void) {
  uint64_t names = 0;
  for (size_t i = 0; i < cairn_limit_count(); ++i) {
    const char* field = NULL;
    uint64_t value = 0;
    CHECK(cairn_limit_at(i, &field, &value));
    if (strcmp(field, "BranchOptions::name") == 0) names = value;
  }
  CHECK(names == 256);
  CHECK(!cairn_limit_at(cairn_limit_count(), NULL, NULL));
}

// In a child nothing works, and everything can be freed; the parent goes on.
static void CheckChild(cairn_store* store, cairn_branch* branch) {
  cairn_error* error = NULL;
  uint64_t length = 0;
  const pid_t child = fork();
  if (child == 0) {
    g_failures = 0;
    CHECK_CODE(CAIRN_INVALID_STATE, cairn_branch_length(branch, &length, &error));
    cairn_branch_free(branch);
    cairn_store_free(store);
    _exit(g_failures == 0 ? 0 : 1);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  CHECK_OK(cairn_branch_length(branch, &length, &error));
}

static void CheckClosed(const char* directory) {
  cairn_error* error = NULL;
  char path[4096];
  snprintf(path, sizeof path, "%s/closed", directory);
  cairn_store* store = OpenStore(path);
  Model model;
  MakeModel(store, "m", &model);
  cairn_branch* branch = CreateBranch(store, model.id, "b");
  cairn_objects* objects = NULL;
  CHECK_OK(cairn_objects_new(store, &objects, &error));
  CheckChild(store, branch);
  // The second opening for writing is refused, and gives nothing.
  cairn_store* second = store;
  CHECK_CODE(CAIRN_LOCKED, cairn_store_open(path, NULL, &second, &error));
  CHECK(second == NULL);
  CHECK_OK(cairn_store_close(store, &error));
  CHECK_OK(cairn_store_close(store, &error));
  uint64_t length = 0;
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_branch_length(branch, &length, &error));
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_store_flush(store, &error));
  cairn_delta delta;
  cairn_delta_init(&delta, sizeof delta);
  const uint32_t token = 1;
  delta.tokens = &token;
  delta.token_count = 1;
  cairn_ticket* ticket = NULL;
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_branch_append(branch, &delta, NULL, &ticket, &error));
  CHECK(ticket == NULL);
  cairn_namespaces* usage = NULL;
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_objects_usage(objects, &usage, &error));
  cairn_store_free(store);  // Handles of it may go later.
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_branch_length(branch, &length, &error));
  cairn_objects_free(objects);
  cairn_branch_free(branch);
}

void TestErrors(const char* directory) {
  CheckVersions();
  CheckLimits();
  cairn_error* error = NULL;
  cairn_store* store = NULL;
  char path[4096];
  snprintf(path, sizeof path, "%s/none", directory);
  CHECK(cairn_store_open(path, NULL, &store, &error) == CAIRN_NOT_FOUND);
  CHECK(store == NULL && error != NULL);
  CHECK(cairn_error_code(error) == CAIRN_NOT_FOUND);
  CHECK(cairn_error_reason(error) == CAIRN_REASON_NONE);
  CHECK(strstr(cairn_error_message(error), "none") != NULL);
  cairn_error_free(error);
  // The old value does not matter, and a success sets it to NULL.
  error = (cairn_error*)&path;
  CHECK(cairn_options_validate(NULL, &error) == CAIRN_OK);
  CHECK(error == NULL && cairn_error_code(NULL) == CAIRN_OK);
  CHECK(strcmp(cairn_error_message(NULL), "") == 0);
  // Without an error object: the code says enough.
  CHECK(cairn_store_open(path, NULL, &store, NULL) == CAIRN_NOT_FOUND);

  cairn_options options;
  cairn_options_init(&options, sizeof options);
  options.segment_bytes = 1;
  CHECK_REFUSED("segment_bytes", cairn_store_open(path, &options, &store, &error));
  cairn_options_init(&options, sizeof options);
  options.evict = 256 + CAIRN_EVICT_KV;  // Which a byte would make of it.
  CHECK_REFUSED("cairn_options::evict", cairn_options_validate(&options, &error));
  cairn_options_init(&options, sizeof options);
  options.gpu_count = 1;
  CHECK_REFUSED("cairn_options::gpus", cairn_options_validate(&options, &error));
  cairn_options_init(&options, sizeof options);
  options.allocator_context = &options;
  CHECK_OK(cairn_options_validate(&options, &error));  // Useless without a function.
  CheckClosed(directory);
}

void TestNulls(const char* directory) {
  (void)directory;
  cairn_error* error = NULL;
  cairn_store* store = NULL;
  cairn_branch* branch = NULL;
  cairn_delta delta;
  cairn_delta_init(&delta, sizeof delta);
  uint64_t number = 0;
  CHECK_REFUSED("path is NULL", cairn_store_open(NULL, NULL, &store, &error));
  store = OpenStore(":memory:");
  CHECK_REFUSED("store is NULL", cairn_store_open(":memory:", NULL, NULL, &error));
  CHECK_REFUSED("store is NULL", cairn_store_close(NULL, &error));
  CHECK_REFUSED("store is NULL", cairn_store_create_branch(NULL, 1, NULL, &branch, &error));
  CHECK_REFUSED("branch is NULL", cairn_store_create_branch(store, 1, NULL, NULL, &error));
  CHECK_REFUSED("spec is NULL", cairn_store_register_model(store, NULL, 0, &number, &error));
  CHECK_REFUSED("name is NULL", cairn_store_find_branch(store, NULL, NULL, &branch, &error));
  CHECK_REFUSED("branch is NULL", cairn_branch_length(NULL, &number, &error));
  CHECK_REFUSED("branch is NULL", cairn_branch_append(NULL, &delta, NULL, NULL, &error));
  CHECK_REFUSED("branch is NULL", cairn_branch_append_sync(NULL, &delta, NULL, NULL, &error));
  CHECK_REFUSED("branch is NULL", cairn_branch_restore(NULL, NULL, NULL, NULL, &error));
  CHECK_REFUSED("branch is NULL", cairn_branch_drop(NULL, 0, &error));
  CHECK_REFUSED("draft is NULL", cairn_draft_commit(NULL, &delta, NULL, NULL, &error));
  CHECK_REFUSED("ticket is NULL", cairn_ticket_wait(NULL, 0, &error));
  CHECK_REFUSED("hit is NULL", cairn_store_fork(store, NULL, 0, NULL, &branch, &error));
  CHECK_REFUSED("objects is NULL", cairn_objects_touch(NULL, NULL, 0, NULL, &error));
  CHECK_REFUSED("batch is NULL", cairn_store_write(store, NULL, NULL, NULL, 0, NULL, &error));
  CHECK_REFUSED("gpu is NULL", cairn_gpu_allocate(NULL, 1, (void**)&branch, &error));
  CHECK_REFUSED("step is NULL", cairn_gpu_step_wait(NULL, 0, &error));
  Model model;
  MakeModel(store, "m", &model);
  branch = CreateBranch(store, model.id, "b");
  CHECK_REFUSED("group is NULL", cairn_rotate_keys(NULL, NULL, &error));
  CHECK_REFUSED("rotation is NULL", cairn_rotate_keys(&model.group, NULL, &error));
  CHECK_REFUSED("delta is NULL", cairn_branch_append_sync(branch, NULL, NULL, NULL, &error));
  CHECK_REFUSED("length is NULL", cairn_branch_length(branch, NULL, &error));
  CHECK_REFUSED("request is NULL", cairn_branch_restore(branch, NULL, NULL, NULL, &error));
  delta.token_count = 3;
  CHECK_REFUSED("cairn_delta::tokens is NULL",
                cairn_branch_append_sync(branch, &delta, NULL, NULL, &error));
  // Functions without a code return nothing, and every free takes NULL.
  CHECK(!cairn_ticket_done(NULL) && cairn_branch_id(NULL) == 0);
  CHECK(cairn_completion_queue_event_fd(NULL) == -1);
  CHECK(cairn_completion_queue_drain(NULL, NULL, 1) == 0);
  CHECK(cairn_kv_buffer_view(NULL) == NULL && cairn_gpu_name(NULL) == NULL);
  CHECK(cairn_layer_progress_state(NULL, 0) == CAIRN_LAYER_FAILED);
  cairn_error_free(NULL);
  cairn_text_free(NULL);
  cairn_store_free(NULL);
  cairn_branch_free(NULL);
  cairn_draft_free(NULL);
  cairn_draft_abort(NULL);
  cairn_ticket_free(NULL);
  cairn_completion_queue_free(NULL);
  cairn_layer_progress_free(NULL);
  cairn_objects_free(NULL);
  cairn_metrics_free(NULL);
  cairn_gpu_free(NULL);
  cairn_write_batch_free(NULL);
  cairn_branch_info_free(NULL);
  cairn_restore_result_free(NULL);
  cairn_branch_free(branch);
  cairn_store_free(store);
}
