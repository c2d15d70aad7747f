// SPDX-License-Identifier: Apache-2.0
//
// Cairn as a C program sees it: `cairn_c_program STORY DIRECTORY` runs one story in an empty
// directory, and fails if anything was not as it must be.
#include <stdlib.h>

#include "tests/c_abi/check.h"

int g_failures = 0;

cairn_store* OpenStore(const char* path) {
  cairn_error* error = NULL;
  cairn_store* store = NULL;
  cairn_options options;
  cairn_options_init(&options, sizeof options);
  options.create_if_missing = true;
  options.segment_bytes = 1 << 20;
  options.max_memory_bytes = 64 << 20;
  options.hot_tail_bytes = 8 << 20;
  CHECK_OK(cairn_store_open(path, &options, &store, &error));
  return store;
}

void MakeModel(cairn_store* store, const char* name, Model* model) {
  cairn_error* error = NULL;
  cairn_plane_init(&model->planes[0], sizeof model->planes[0]);
  cairn_plane_init(&model->planes[1], sizeof model->planes[1]);
  cairn_layer_group_init(&model->group, sizeof model->group);
  cairn_model_spec_init(&model->spec, sizeof model->spec);
  CHECK_OK(cairn_layer_group_full_attention(&model->group, model->planes, kLayers, kHeads, kHeadDim,
                                            CAIRN_DTYPE_BF16, &error));
  model->spec.name = name;
  model->spec.groups = &model->group;
  model->spec.group_count = 1;
  model->id = 0;
  CHECK_OK(
      cairn_store_register_model(store, &model->spec, CAIRN_DURABILITY_POWER, &model->id, &error));
}

cairn_branch* CreateBranch(cairn_store* store, uint64_t model, const char* name) {
  cairn_error* error = NULL;
  cairn_branch* branch = NULL;
  cairn_branch_options options;
  cairn_branch_options_init(&options, sizeof options);
  options.name = name;
  CHECK_OK(cairn_store_create_branch(store, model, &options, &branch, &error));
  return branch;
}

uint32_t TokenAt(uint64_t position) { return 100 + (uint32_t)position; }

cairn_kv_buffer* MakeKv(const Model* model, uint64_t tokens, uint32_t seed) {
  cairn_error* error = NULL;
  cairn_kv_buffer* kv = NULL;
  CHECK_OK(cairn_kv_buffer_new(&model->spec, tokens, &kv, &error));
  unsigned char* bytes = cairn_kv_buffer_data(kv);
  for (size_t i = 0; i < cairn_kv_buffer_size(kv); ++i) {
    seed = seed * 1664525u + 1013904223u;
    bytes[i] = (unsigned char)(seed >> 24);
  }
  return kv;
}

void AppendTokens(cairn_branch* branch, const Model* model, uint64_t begin, uint64_t end,
                  uint32_t seed) {
  cairn_error* error = NULL;
  cairn_kv_buffer* kv = MakeKv(model, end, seed);
  cairn_owned_kv_view* view = NULL;
  CHECK_OK(cairn_kv_buffer_view_of(kv, begin, end, &view, &error));
  uint32_t tokens[kTokensMax];
  for (uint64_t i = begin; i < end; ++i) tokens[i - begin] = TokenAt(i);
  cairn_delta delta;
  cairn_delta_init(&delta, sizeof delta);
  delta.tokens = tokens;
  delta.token_count = (size_t)(end - begin);
  delta.kv = cairn_owned_kv_view_view(view);
  uint64_t length = 0;
  CHECK_OK(cairn_branch_append_sync(branch, &delta, NULL, &length, &error));
  CHECK(length == end);
  cairn_owned_kv_view_free(view);
  cairn_kv_buffer_free(kv);
}

static const struct {
  const char* name;
  void (*run)(const char* directory);
} kStories[] = {
    {"errors", TestErrors}, {"nulls", TestNulls},       {"sizes", TestSizes},
    {"models", TestModels}, {"branches", TestBranches}, {"appends", TestAppends},
    {"states", TestStates}, {"restores", TestRestores}, {"batches", TestBatches},
    {"find", TestFind},     {"objects", TestObjects},   {"care", TestCare},
    {"gpu", TestGpu},       {"sparse", TestSparse},     {"sparse_calls", TestSparseCalls},
    {"shadow", TestShadow}, {"blend", TestBlend},       {"export", TestExport},
    {"shared_memory", TestSharedMemory}, {"slots", TestSlots},
};

int main(int argc, char** argv) {
  if (argc == 3) {
    for (size_t i = 0; i < sizeof kStories / sizeof kStories[0]; ++i) {
      if (strcmp(argv[1], kStories[i].name) != 0) continue;
      kStories[i].run(argv[2]);
      printf("%s: %d failures\n", argv[1], g_failures);
      return g_failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
  }
  fprintf(stderr, "usage: cairn_c_program STORY DIRECTORY\n");
  return 2;
}
