// SPDX-License-Identifier: Apache-2.0
//
// Property: KV goes into the memory of a device and comes out of it, also in layers of a draft
// whose descriptions are gone when the call returns. On a simulated device.
#include <stdlib.h>

#include "tests/c_abi/check.h"

enum { kTokens = 64 };

// The view of all of `kv`, in the device's memory instead.
typedef struct OnDevice {
  void* bases[2][kLayers];
  cairn_plane_view planes[2];
  cairn_group_view group;
  cairn_kv_view view;
} OnDevice;

static void Describe(cairn_kv_buffer* kv, unsigned char* device, OnDevice* on) {
  const unsigned char* first = cairn_kv_buffer_data(kv);
  on->view = *cairn_kv_buffer_view(kv);
  on->group = on->view.groups[0];
  for (size_t i = 0; i < 2; ++i) {
    on->planes[i] = on->group.planes[i];
    for (size_t layer = 0; layer < kLayers; ++layer) {
      on->bases[i][layer] =
          device + ((const unsigned char*)on->planes[i].layer_bases[layer] - first);
    }
    on->planes[i].layer_bases = on->bases[i];
  }
  on->group.planes = on->planes;
  on->view.groups = &on->group;
  on->view.memory = CAIRN_MEMORY_CUDA;
}

static cairn_delta TokensOnly(const uint32_t* tokens) {
  cairn_delta delta;
  cairn_delta_init(&delta, sizeof delta);
  delta.tokens = tokens;
  delta.token_count = kTokens;
  return delta;
}

// Its layers are put from the device, each by a view that does not outlive the call.
static void PutLayers(cairn_branch* branch, cairn_kv_buffer* kv, unsigned char* device,
                      const uint32_t* tokens) {
  cairn_error* error = NULL;
  cairn_draft* draft = NULL;
  CHECK_OK(cairn_branch_begin_append(branch, kTokens, &draft, &error));
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    OnDevice* on = malloc(sizeof *on);
    Describe(kv, device, on);
    on->group.layer_begin = layer;
    for (size_t i = 0; i < 2; ++i) {
      on->planes[i].layer_bases += layer;
      on->planes[i].layer_count = 1;
    }
    CHECK_OK(cairn_draft_put_from_gpu(draft, layer, &on->view, 0, &error));
    memset(on, 0xEE, sizeof *on);
    free(on);
  }
  cairn_delta delta = TokensOnly(tokens);
  cairn_ticket* ticket = NULL;
  CHECK_OK(cairn_draft_commit(draft, &delta, NULL, &ticket, &error));
  cairn_draft_free(draft);
  CHECK_OK(cairn_ticket_wait(ticket, UINT64_MAX, &error));
  cairn_ticket_free(ticket);
}

static void CheckSteps(cairn_gpu* gpu, const Model* model) {
  cairn_error* error = NULL;
  cairn_gpu_steps* steps = NULL;
  cairn_kv_buffer* host = MakeKv(model, 4, 1);
  CHECK_CODE(
      CAIRN_INVALID_ARGUMENT,
      cairn_gpu_steps_make(gpu, &model->spec, cairn_kv_buffer_view(host), 0, &steps, &error));
  CHECK(steps == NULL && cairn_gpu_steps_slot_bytes(NULL) == 0);
  void* memory = NULL;
  CHECK_OK(cairn_gpu_allocate(gpu, cairn_kv_buffer_size(host), &memory, &error));
  OnDevice on;
  Describe(host, memory, &on);
  on.group.position = 0;
  CHECK_OK(cairn_gpu_steps_make(gpu, &model->spec, &on.view, 2, &steps, &error));
  CHECK(cairn_gpu_steps_slot_bytes(steps) >= cairn_kv_buffer_size(host));
  cairn_gpu_steps_free(steps);
  cairn_layer_group group = model->group;
  cairn_model_spec spec = model->spec;
  group.plane_count = 0;
  spec.groups = &group;
  on.group.plane_count = 0;
  CHECK_REFUSED("planes", cairn_gpu_steps_make(gpu, &spec, &on.view, 2, &steps, &error));
  cairn_gpu_deallocate(gpu, memory);
  cairn_kv_buffer_free(host);
}

void TestGpu(const char* directory) {
  (void)directory;
  cairn_error* error = NULL;
  const cairn_pinned_tokens pinned = {"m", 100};
  cairn_gpu_options gpu_options;
  cairn_gpu_options_init(&gpu_options, sizeof gpu_options);
  CHECK(gpu_options.pinned_tokens == 4096);
  gpu_options.pinned_bytes = 4 << 20;
  gpu_options.pinned_tokens_of = &pinned;
  gpu_options.pinned_tokens_of_count = 1;
  cairn_gpu* gpu = NULL;
  CHECK_OK(cairn_gpu_simulated(7, &gpu_options, &gpu, &error));
  CHECK(cairn_gpu_ordinal(gpu) == 0 && strlen(cairn_gpu_name(gpu)) != 0);
  cairn_options options;
  cairn_options_init(&options, sizeof options);
  options.create_if_missing = true;
  options.gpus = &gpu;
  options.gpu_count = 1;
  cairn_store* store = NULL;
  CHECK_OK(cairn_store_open(":memory:", &options, &store, &error));
  Model model;
  MakeModel(store, "m", &model);
  cairn_branch* branch = CreateBranch(store, model.id, "chat");

  cairn_kv_buffer* kv = MakeKv(&model, kTokens, 6);
  const size_t bytes = cairn_kv_buffer_size(kv);
  void *device = NULL, *target = NULL;
  CHECK_OK(cairn_gpu_allocate(gpu, bytes, &device, &error));
  CHECK_OK(cairn_gpu_allocate(gpu, bytes, &target, &error));
  CHECK_OK(cairn_gpu_copy_in(gpu, device, cairn_kv_buffer_data(kv), bytes, &error));
  uint32_t tokens[kTokens];
  for (uint32_t i = 0; i < kTokens; ++i) tokens[i] = TokenAt(i);
  OnDevice on;
  Describe(kv, device, &on);
  cairn_delta delta = TokensOnly(tokens);
  delta.kv = &on.view;
  CHECK_OK(cairn_branch_append_sync(branch, &delta, NULL, NULL, &error));
  cairn_branch* second = CreateBranch(store, model.id, "layers");
  PutLayers(second, kv, device, tokens);
  cairn_branch* const sources[] = {branch, second};
  unsigned char* back = malloc(bytes);
  for (size_t i = 0; i < 2; ++i) {
    memset(back, 0, bytes);
    CHECK_OK(cairn_gpu_copy_in(gpu, target, back, bytes, &error));
    Describe(kv, target, &on);
    cairn_restore_request request;
    cairn_restore_request_init(&request, sizeof request);
    request.into = &on.view;
    request.require_kv = true;
    request.fall_back_to_host = true;
    CHECK_OK(cairn_branch_restore(sources[i], &request, NULL, NULL, &error));
    CHECK_OK(cairn_gpu_copy_out(gpu, back, target, bytes, &error));
    CHECK(memcmp(back, cairn_kv_buffer_data(kv), bytes) == 0);
  }
  CHECK_OK(cairn_branch_prefetch_gpu(branch, 0, UINT64_MAX, 0, &error));
  on.view.device = 5;  // Which the store was not given.
  CHECK_CODE(CAIRN_INVALID_ARGUMENT, cairn_branch_append_sync(branch, &delta, NULL, NULL, &error));
  CheckSteps(gpu, &model);
  free(back);
  cairn_branch_free(branch);
  cairn_branch_free(second);
  cairn_store_free(store);
  cairn_kv_buffer_free(kv);
  cairn_gpu_deallocate(gpu, device);
  cairn_gpu_deallocate(gpu, target);
  cairn_gpu_free(gpu);
}
