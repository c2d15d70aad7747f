// SPDX-License-Identifier: Apache-2.0
//
// Property: copies open, followers follow, checks find nothing, a store describes itself; and the
// callbacks of a program come with its context.
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/c_abi/check.h"

static atomic_size_t g_allocations = 0, g_given_back = 0;
static atomic_int g_lines = 0;

static void* Allocate(void* context, size_t bytes, size_t alignment) {
  CHECK(context == &g_allocations);
  void* memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  atomic_fetch_add(&g_allocations, memory != NULL);
  return memory;
}
static void Deallocate(void* context, void* memory, size_t bytes, size_t alignment) {
  (void)bytes, (void)alignment;
  CHECK(context == &g_allocations);
  atomic_fetch_add(&g_given_back, 1);
  free(memory);
}
static void OnEvent(void* context, const char* line) {
  CHECK(context == &g_lines && strlen(line) != 0);
  atomic_fetch_add(&g_lines, 1);
}
static void OnProgress(void* context, uint64_t done, uint64_t total) {
  CHECK(done <= total);
  *(uint64_t*)context = done;
}

static void CheckCopy(cairn_store* store, const char* directory) {
  cairn_error* error = NULL;
  char path[4096];
  snprintf(path, sizeof path, "%s/copy", directory);
  cairn_checkpoint_info made;
  cairn_checkpoint_info_init(&made, sizeof made);
  uint64_t copied = 0;
  CHECK_OK(cairn_store_checkpoint(store, path, OnProgress, &copied, &made, &error));
  CHECK(made.sequence != 0);
  CHECK_CODE(CAIRN_ALREADY_EXISTS, cairn_store_checkpoint(store, path, NULL, NULL, NULL, &error));
  cairn_store* copy = OpenStore(path);
  cairn_branch* branch = NULL;
  CHECK_OK(cairn_store_find_branch(copy, "chat", NULL, &branch, &error));
  uint64_t length = 0;
  CHECK_OK(cairn_branch_length(branch, &length, &error));
  CHECK(length == 100);
  cairn_branch_free(branch);
  cairn_store_free(copy);
}

static void CheckFollower(cairn_store* store, const char* path) {
  cairn_error* error = NULL;
  cairn_options options;
  cairn_options_init(&options, sizeof options);
  options.read_only = true;
  cairn_store* follower = NULL;
  CHECK_OK(cairn_store_open(path, &options, &follower, &error));
  Model model;
  CHECK_CODE(CAIRN_READ_ONLY, cairn_store_flush(follower, &error));
  cairn_refresh_result refreshed;
  cairn_refresh_result_init(&refreshed, sizeof refreshed);
  MakeModel(store, "later", &model);
  for (int i = 0; i < 3000 && !refreshed.changed; ++i) {  // It shows some milliseconds later.
    poll(NULL, 0, 10);
    CHECK_OK(cairn_store_refresh(follower, &refreshed, &error));
  }
  CHECK(refreshed.changed && refreshed.sequence != 0);
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_store_refresh(store, NULL, &error));
  CHECK_OK(cairn_store_close(follower, &error));
  cairn_store_free(follower);
}

static void CheckMetrics(cairn_store* store) {
  cairn_error* error = NULL;
  cairn_metrics* metrics = NULL;
  CHECK_OK(cairn_store_metrics(store, &metrics, &error));
  uint64_t value = 0;
  CHECK(cairn_metrics_value(metrics, "tokens_appended", &value) && value == 100);
  CHECK(!cairn_metrics_value(metrics, "none", &value) &&
        !cairn_metrics_value(NULL, "none", &value));
  size_t counters = 0;
  for (size_t i = 0; i < cairn_metric_count(); ++i) {
    uint64_t by_name = 1;
    CHECK(cairn_metrics_value_at(metrics, i, &value));
    CHECK(cairn_metrics_value(metrics, cairn_metric_name(i), &by_name) && by_name == value);
    counters += cairn_metric_is_counter(i);
  }
  CHECK(counters > 20 && counters < cairn_metric_count());
  CHECK(cairn_metric_name(cairn_metric_count()) == NULL);
  CHECK(cairn_metrics_quantile_ns(metrics, "save", 0.5) > 0);
  CHECK(cairn_metrics_quantile_ns(metrics, "none", 0.5) == 0);
  const double none[] = {-0.1, 1.1, 1e300, -1e300, strtod("nan", NULL)};
  for (size_t i = 0; i < sizeof none / sizeof none[0]; ++i) {
    CHECK(cairn_metrics_quantile_ns(metrics, "save", none[i]) == 0);
  }
  CHECK(cairn_histogram_upper_ns(0) < cairn_histogram_upper_ns(100));
  CHECK(cairn_metrics_restores_failed(metrics) == 0 && cairn_metrics_stored_ratio(metrics) > 0);
  char* text = NULL;
  CHECK_OK(cairn_metrics_prometheus_text(metrics, "a", &text, &error));
  CHECK(strstr(text, "cairn_appended_tokens_total{store=\"a\"} 100") != NULL);
  cairn_text_free(text);
  CHECK_OK(cairn_store_prometheus_text(store, NULL, &text, &error));
  CHECK(strstr(text, "cairn_branches 1") != NULL);
  cairn_text_free(text);
  cairn_health* health = NULL;
  CHECK_OK(cairn_metrics_check_health(metrics, &health, &error));
  CHECK(health->ok && health->alarm_count == 0);
  cairn_health_free(health);
  CHECK_OK(cairn_store_health(store, &health, &error));
  cairn_health_free(health);
  cairn_metrics_free(metrics);
}

// The store's figures about itself: the call returns `code`.
static void CheckTold(cairn_store* store, cairn_code code) {
  cairn_error* error = NULL;
  cairn_metrics* metrics = NULL;
  cairn_health* health = NULL;
  cairn_models* models = NULL;
  char* text = NULL;
  CHECK_CODE(code, cairn_store_metrics(store, &metrics, &error));
  CHECK_CODE(code, cairn_store_health(store, &health, &error));
  CHECK_CODE(code, cairn_store_models(store, &models, &error));
  CHECK((metrics == NULL) == (code != CAIRN_OK) && (health == NULL) == (code != CAIRN_OK));
  CHECK(models == NULL ? code != CAIRN_OK : models->count == 2);
  cairn_metrics_free(metrics);
  cairn_health_free(health);
  cairn_models_free(models);
  cairn_code (*const texts[])(const cairn_store*, char**, cairn_error**) = {
      cairn_store_io_name, cairn_store_sync_method, cairn_store_recovery_note};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
    CHECK_CODE(code, texts[i](store, &text, &error));
    CHECK((text == NULL) == (code != CAIRN_OK));
    cairn_text_free(text);
  }
  CHECK_CODE(code, cairn_store_prometheus_text(store, NULL, &text, &error));
  cairn_text_free(text);
}

// In a child of fork() calls are refused; an empty answer would be wrong.
static void CheckChild(cairn_store* store) {
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    g_failures = 0;
    CheckTold(store, CAIRN_INVALID_STATE);
    _exit(g_failures == 0 ? 0 : 1);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

void TestCare(const char* directory) {
  cairn_error* error = NULL;
  char path[4096];
  snprintf(path, sizeof path, "%s/care", directory);
  cairn_options options;
  cairn_options_init(&options, sizeof options);
  options.create_if_missing = true;
  options.segment_bytes = 1 << 20;
  options.allocate = Allocate;
  CHECK_REFUSED("allocator", cairn_options_validate(&options, &error));
  options.deallocate = Deallocate;
  options.allocator_context = &g_allocations;
  options.on_event = OnEvent;
  options.listener_context = &g_lines;
  cairn_store* store = NULL;
  CHECK_OK(cairn_store_open(path, &options, &store, &error));
  CHECK(atomic_load(&g_allocations) != 0);
  Model model;
  MakeModel(store, "m", &model);
  cairn_branch* branch = CreateBranch(store, model.id, "chat");
  AppendTokens(branch, &model, 0, 100, 5);
  CHECK_OK(cairn_store_flush(store, &error));
  CheckMetrics(store);
  CHECK_OK(cairn_store_pause_background(store, &error));
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_store_compact(store, &error));
  CHECK_OK(cairn_store_resume_background(store, &error));
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_store_resume_background(store, &error));
  CHECK_OK(cairn_store_compact(store, &error));
  CheckCopy(store, directory);
  CheckFollower(store, path);
  uint64_t checked = 0;
  cairn_verify_report* report = NULL;
  CHECK_OK(cairn_store_verify(store, CAIRN_VERIFY_ALL, OnProgress, &checked, &report, &error));
  CHECK(report->damage_count == 0 && report->tables >= 1 && report->frames != 0 && checked != 0);
  cairn_verify_report_free(report);
  CHECK_REFUSED("level", cairn_store_verify(store, 3, NULL, NULL, &report, &error));
  CHECK_OK(cairn_store_poisoned(store, &error));
  char* text = NULL;
  CHECK_OK(cairn_store_io_name(store, &text, &error));
  CHECK(strlen(text) != 0);
  cairn_text_free(text);
  CHECK_OK(cairn_store_sync_method(store, &text, &error));
  cairn_text_free(text);
  CHECK_OK(cairn_store_recovery_note(store, &text, &error));
  CHECK(strcmp(text, "") == 0);
  cairn_text_free(text);
  CheckTold(store, CAIRN_OK);
  CheckChild(store);
  CHECK_OK(cairn_store_close(store, &error));
  CheckTold(store, CAIRN_OK);
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_store_poisoned(store, &error));
  // The allocator is needed until the last handle is gone, and not after that.
  cairn_store_free(store);
  cairn_branch_free(branch);
  CHECK(atomic_load(&g_given_back) == atomic_load(&g_allocations));
}
