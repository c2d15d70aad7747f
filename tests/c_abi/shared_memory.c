// SPDX-License-Identifier: Apache-2.0
//
// Property: a second process maps an area and finds what the first one wrote; rows of a part of a
// model go to their place among all, from host and device; what cannot be is refused.
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/c_abi/check.h"

static void CheckArea(const char* directory) {
  cairn_error* error = NULL;
  cairn_shared_memory* area = NULL;
  CHECK_OK(cairn_shared_memory_create(directory, 5000, &area, &error));
  CHECK(cairn_shared_memory_size(area) >= 5000);
  CHECK(cairn_shared_memory_is_creator(area));
  unsigned char* bytes = cairn_shared_memory_data(area);
  bytes[4999] = 42;
  const pid_t child = fork();
  if (child == 0) {
    g_failures = 0;
    CHECK(cairn_shared_memory_data(area) == NULL && cairn_shared_memory_size(area) == 0);
    cairn_shared_memory* mapped = NULL;
    CHECK_OK(cairn_shared_memory_map(cairn_shared_memory_address(area), &mapped, &error));
    unsigned char* there = cairn_shared_memory_data(mapped);
    CHECK(there[4999] == 42 && !cairn_shared_memory_is_creator(mapped));
    there[0] = 7;
    cairn_shared_memory_free(mapped);
    cairn_shared_memory_free(area);
    _exit(g_failures == 0 ? 0 : 1);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  CHECK(bytes[0] == 7);
  CHECK(cairn_shared_memory_mapped(area) == 1 && cairn_shared_memory_refused(area) == 0);
  char address[512];  // Longer than any.
  snprintf(address, sizeof(address), "%s", cairn_shared_memory_address(area));
  cairn_shared_memory_free(area);
  cairn_shared_memory_free(NULL);
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_shared_memory_map(address, &area, &error));
  CHECK(area == NULL);
  CHECK_REFUSED("address", cairn_shared_memory_map("nonsense", &area, &error));
  CHECK_REFUSED("bytes", cairn_shared_memory_create(directory, 0, &area, &error));
  CHECK_REFUSED("directory is NULL", cairn_shared_memory_create(NULL, 1, &area, &error));
  CHECK_REFUSED("area is NULL", cairn_shared_memory_create(directory, 1, NULL, &error));
  CHECK_REFUSED("address is NULL", cairn_shared_memory_map(NULL, &area, &error));
  CHECK_REFUSED("area is NULL", cairn_shared_memory_map("x", NULL, &error));
  CHECK(cairn_shared_memory_data(NULL) == NULL && cairn_shared_memory_size(NULL) == 0);
  CHECK(cairn_shared_memory_address(NULL) == NULL && !cairn_shared_memory_is_creator(NULL));
  CHECK(cairn_shared_memory_mapped(NULL) == 0 && cairn_shared_memory_refused(NULL) == 0);
}

enum { kTokens = 12 };

// The second of two ranks: the upper half of the heads.
static void MakeRank(const Model* all, cairn_logical_group* logical, Model* rank) {
  *rank = *all;
  for (int i = 0; i < 2; ++i) rank->planes[i].heads = kHeads / 2;
  rank->group.planes = rank->planes;
  rank->spec.groups = &rank->group;
  cairn_logical_group_init(logical, sizeof *logical);
  logical->name = all->group.name;
  logical->layers = kLayers;
  logical->heads = kHeads;
  logical->layer_end = kLayers;
  logical->head_begin = kHeads / 2;
  logical->head_end = kHeads;
  rank->spec.logical = logical;
  rank->spec.logical_count = 1;
}

static void CheckRank(const Model* all) {
  cairn_error* error = NULL;
  Model rank;
  cairn_logical_group logical;
  MakeRank(all, &logical, &rank);
  cairn_kv_buffer* whole = MakeKv(all, kTokens, 5);
  cairn_kv_buffer* part = MakeKv(&rank, kTokens, 6);
  cairn_kv_copier* load = NULL;
  uint64_t bytes = 0;
  CHECK_OK(cairn_kv_copier_make(&all->spec, &rank.spec, NULL, 0, &load, &error));
  CHECK_OK(cairn_kv_copier_copy(load, cairn_kv_buffer_view(whole), cairn_kv_buffer_view(part), NULL,
                                &bytes, &error));
  CHECK(bytes == cairn_kv_buffer_size(part) && 2 * bytes == cairn_kv_buffer_size(whole));
  // A layer's plane has its heads one behind the other.
  const size_t plane = cairn_kv_buffer_size(whole) / kLayers / 2;
  const unsigned char* from = cairn_kv_buffer_data(whole);
  const unsigned char* to = cairn_kv_buffer_data(part);
  for (int i = 0; i < 2 * kLayers; ++i) {
    CHECK(memcmp(from + i * plane + plane / 2, to + i * plane / 2, plane / 2) == 0);
  }
  CHECK_REFUSED("gpu_ready",
                cairn_kv_copier_copy(load, cairn_kv_buffer_view(whole), cairn_kv_buffer_view(part),
                                     &(cairn_copy_kv_options){sizeof(cairn_copy_kv_options), 1, 0},
                                     &bytes, &error));
  cairn_kv_copier_free(load);
  rank.spec.name = "another";
  CHECK_CODE(CAIRN_MODEL_MISMATCH,
             cairn_kv_copier_make(&all->spec, &rank.spec, NULL, 0, &load, &error));
  CHECK(load == NULL);
  cairn_kv_buffer_free(whole);
  cairn_kv_buffer_free(part);
}

static void CheckGpu(const Model* all) {
  cairn_error* error = NULL;
  cairn_gpu* gpu = NULL;
  CHECK_OK(cairn_gpu_simulated(3, NULL, &gpu, &error));
  cairn_kv_buffer* from = MakeKv(all, kTokens, 5);
  cairn_kv_buffer* to = MakeKv(all, kTokens, 6);
  void* memory = NULL;
  const size_t size = cairn_kv_buffer_size(from);
  CHECK_OK(cairn_gpu_allocate(gpu, size, &memory, &error));
  cairn_kv_view view = *cairn_kv_buffer_view(from);
  cairn_group_view group = view.groups[0];
  cairn_plane_view planes[2];
  void* bases[2][kLayers];
  for (int i = 0; i < 2; ++i) {
    planes[i] = group.planes[i];
    for (int layer = 0; layer < kLayers; ++layer) {
      bases[i][layer] = (unsigned char*)memory + ((unsigned char*)planes[i].layer_bases[layer] -
                                                  (unsigned char*)cairn_kv_buffer_data(from));
    }
    planes[i].layer_bases = bases[i];
  }
  group.planes = planes;
  view.groups = &group;
  view.memory = CAIRN_MEMORY_CUDA;
  uint64_t bytes = 0;
  cairn_copy_kv_options options;
  cairn_copy_kv_options_init(&options, sizeof options);
  CHECK(options.timeout_ns == UINT64_MAX && options.gpu_ready == 0);
  CHECK_OK(cairn_copy_kv(&all->spec, cairn_kv_buffer_view(from), &view, &options, &gpu, 1, &bytes,
                         &error));
  CHECK(bytes == size);
  CHECK_OK(cairn_copy_kv(&all->spec, &view, cairn_kv_buffer_view(to), NULL, &gpu, 1, NULL, &error));
  CHECK(memcmp(cairn_kv_buffer_data(from), cairn_kv_buffer_data(to), size) == 0);
  CHECK_REFUSED("no such GPU", cairn_copy_kv(&all->spec, &view, cairn_kv_buffer_view(to), NULL,
                                             NULL, 0, &bytes, &error));
  cairn_gpu* none = NULL;
  CHECK_REFUSED("gpus has a NULL", cairn_copy_kv(&all->spec, &view, cairn_kv_buffer_view(to), NULL,
                                                 &none, 1, &bytes, &error));
  CHECK_REFUSED("gpus", cairn_copy_kv(&all->spec, &view, cairn_kv_buffer_view(to), NULL, NULL, 1,
                                      &bytes, &error));
  cairn_gpu_deallocate(gpu, memory);
  cairn_gpu_free(gpu);
  cairn_kv_buffer_free(from);
  cairn_kv_buffer_free(to);
}

static void CheckNulls(const Model* all) {
  cairn_error* error = NULL;
  cairn_kv_copier* copier = NULL;
  const cairn_model_spec* spec = &all->spec;
  cairn_kv_view view;
  cairn_kv_view_init(&view, sizeof view);
  CHECK_REFUSED("from is NULL", cairn_kv_copier_make(NULL, spec, NULL, 0, &copier, &error));
  CHECK_REFUSED("to is NULL", cairn_kv_copier_make(spec, NULL, NULL, 0, &copier, &error));
  CHECK_REFUSED("copier is NULL", cairn_kv_copier_make(spec, spec, NULL, 0, NULL, &error));
  CHECK_REFUSED("copier is NULL", cairn_kv_copier_copy(NULL, &view, &view, NULL, NULL, &error));
  CHECK_REFUSED("spec is NULL", cairn_copy_kv(NULL, &view, &view, NULL, NULL, 0, NULL, &error));
  CHECK_REFUSED("from is NULL", cairn_copy_kv(spec, NULL, &view, NULL, NULL, 0, NULL, &error));
  CHECK_REFUSED("to is NULL", cairn_copy_kv(spec, &view, NULL, NULL, NULL, 0, NULL, &error));
  CHECK_OK(cairn_kv_copier_make(spec, spec, NULL, 0, &copier, &error));
  CHECK_REFUSED("from is NULL", cairn_kv_copier_copy(copier, NULL, &view, NULL, NULL, &error));
  CHECK_REFUSED("to is NULL", cairn_kv_copier_copy(copier, &view, NULL, NULL, NULL, &error));
  CHECK_OK(cairn_kv_copier_copy(copier, &view, &view, NULL, NULL, &error));
  cairn_kv_copier_free(copier);
  cairn_kv_copier_free(NULL);
}

void TestSharedMemory(const char* directory) {
  CheckArea(directory);
  cairn_store* store = OpenStore(":memory:");
  Model model;
  MakeModel(store, "m", &model);
  CheckRank(&model);
  CheckGpu(&model);
  CheckNulls(&model);
  cairn_error* error = NULL;
  CHECK_OK(cairn_store_close(store, &error));
  cairn_store_free(store);
}
