// SPDX-License-Identifier: Apache-2.0
//
// Property: what is restored is what was appended, in the range that was asked for, and each layer
// is reported when it is complete.
#include "tests/c_abi/check.h"

static void CheckRange(const cairn_branch* branch, const Model* model, cairn_kv_buffer* kv) {
  cairn_error* error = NULL;
  cairn_kv_buffer* back = NULL;
  CHECK_OK(cairn_kv_buffer_new(&model->spec, 200, &back, &error));
  cairn_owned_kv_view* part = NULL;
  CHECK_REFUSED("[120, 50)", cairn_kv_buffer_view_of(back, 120, 50, &part, &error));
  CHECK_OK(cairn_kv_buffer_view_of(back, 50, 120, &part, &error));
  uint32_t tokens[70];
  cairn_restore_request request;
  cairn_restore_request_init(&request, sizeof request);
  request.begin = 50;
  request.end = 120;
  request.tokens = tokens;
  request.token_count = 70;
  request.into = cairn_owned_kv_view_view(part);
  request.require_kv = true;
  cairn_restore_result* result = NULL;
  CHECK_OK(cairn_branch_restore(branch, &request, NULL, &result, &error));
  CHECK(result->begin == 50 && result->end == 120 && result->kv_end_count == 1);
  CHECK(result->kv_ends[0] == 120 && result->lossy_bytes == 0 && result->approximate_bytes == 0);
  uint64_t token_bytes = 0;
  CHECK_OK(cairn_model_spec_token_bytes(&model->spec, &token_bytes, &error));
  CHECK(result->bytes == 70 * token_bytes);
  cairn_restore_result_free(result);
  for (uint64_t p = 50; p < 120; ++p) {
    CHECK(tokens[p - 50] == TokenAt(p));
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      CHECK(memcmp(cairn_kv_buffer_row(kv, 0, layer, 1, 1, p),
                   cairn_kv_buffer_row(back, 0, layer, 1, 1, p), 2 * kHeadDim) == 0);
    }
  }
  request.end = 201;
  CHECK_CODE(CAIRN_INVALID_ARGUMENT, cairn_branch_restore(branch, &request, NULL, &result, &error));
  CHECK(result == NULL);
  cairn_owned_kv_view_free(part);
  cairn_kv_buffer_free(back);
}

static void CheckAsync(const cairn_branch* branch, const Model* model, cairn_kv_buffer* kv) {
  cairn_error* error = NULL;
  cairn_kv_buffer* back = NULL;
  CHECK_OK(cairn_kv_buffer_new(&model->spec, 200, &back, &error));
  cairn_layer_progress* progress = NULL;
  CHECK_OK(cairn_layer_progress_new(kLayers, &progress, &error));
  CHECK(cairn_layer_progress_state(progress, 0) == CAIRN_LAYER_PENDING);
  cairn_ticket* ticket = NULL;
  {
    cairn_group_view group = cairn_kv_buffer_view(back)->groups[0];
    cairn_kv_view view = *cairn_kv_buffer_view(back);
    view.groups = &group;
    cairn_restore_request request;
    cairn_restore_request_init(&request, sizeof request);
    request.into = &view;
    CHECK_OK(cairn_branch_restore_async(branch, &request, progress, &ticket, &error));
    memset(&group, 0xEE, sizeof group);
    memset(&view, 0xEE, sizeof view);
    memset(&request, 0xEE, sizeof request);
  }
  for (size_t layer = 0; layer < kLayers; ++layer) {
    CHECK_OK(cairn_ticket_wait_for_layer(ticket, layer, CAIRN_LAYER_COMPLETE, UINT64_MAX, &error));
    CHECK(cairn_layer_progress_state(progress, layer) == CAIRN_LAYER_COMPLETE);
  }
  CHECK(cairn_layer_progress_state(progress, kLayers) == CAIRN_LAYER_FAILED);
  CHECK_OK(cairn_ticket_wait(ticket, UINT64_MAX, &error));
  CHECK(cairn_kv_buffer_equal(kv, back));
  cairn_restore_result* result = NULL;
  CHECK_OK(cairn_ticket_restored(ticket, &result, &error));
  CHECK(result->end == 200);
  cairn_restore_result_free(result);
  cairn_ticket_free(ticket);
  cairn_layer_progress_free(progress);
  cairn_kv_buffer_free(back);
}

// Tokens first, their KV later, from tensors described by the name of their layout.
static void CheckFill(cairn_store* store, const Model* model) {
  cairn_error* error = NULL;
  cairn_branch* branch = CreateBranch(store, model->id, "filled");
  uint32_t tokens[32];
  for (uint32_t i = 0; i < 32; ++i) tokens[i] = TokenAt(i);
  cairn_delta delta;
  cairn_delta_init(&delta, sizeof delta);
  delta.tokens = tokens;
  delta.token_count = 32;
  CHECK_OK(cairn_branch_append_sync(branch, &delta, NULL, NULL, &error));
  // [block][token][head][row], blocks 3 and 1 of 16 tokens.
  static unsigned char pool[2 * kLayers][4 * 16 * kHeads * 2 * kHeadDim];
  void* tensors[2 * kLayers];
  for (size_t i = 0; i < 2 * kLayers; ++i) {
    for (size_t j = 0; j < sizeof pool[i]; ++j) pool[i][j] = (unsigned char)(i * 7 + j * 13);
    tensors[i] = pool[i];
  }
  int32_t blocks[] = {3, 1};
  cairn_group_tensors group;
  cairn_group_tensors_init(&group, sizeof group);
  group.layout = CAIRN_TENSOR_TOKEN_MAJOR;
  group.tensors = tensors;
  group.tensor_count = 2 * kLayers;
  group.blocks = 4;
  group.tokens_per_block = 16;
  group.count = 32;
  group.table_kind = CAIRN_TABLE_BLOCKS;
  group.table_entries = blocks;
  group.table_count = 2;
  cairn_owned_kv_view* view = NULL;
  CHECK_OK(cairn_owned_kv_view_make(&model->spec, &group, 1, CAIRN_KV_USE_APPEND, CAIRN_MEMORY_HOST,
                                    0, &view, &error));
  blocks[0] = 99;  // Tables of the host are copied.
  CHECK_OK(cairn_kv_view_validate(&model->spec, cairn_owned_kv_view_view(view), CAIRN_KV_USE_APPEND,
                                  &error));
  CHECK_OK(cairn_branch_fill(branch, cairn_owned_kv_view_view(view), NULL, &error));
  cairn_owned_kv_view_free(view);
  CHECK_CODE(CAIRN_INVALID_ARGUMENT,
             cairn_owned_kv_view_make(&model->spec, &group, 1, CAIRN_KV_USE_APPEND,
                                      CAIRN_MEMORY_HOST, 0, &view, &error));
  group.layout = 7;
  CHECK_REFUSED("cairn_group_tensors::layout",
                cairn_owned_kv_view_make(&model->spec, &group, 1, CAIRN_KV_USE_APPEND,
                                         CAIRN_MEMORY_HOST, 0, &view, &error));
  cairn_kv_holes* holes = NULL;
  CHECK_OK(cairn_branch_evicted_kv(branch, 0, UINT64_MAX, &holes, &error));
  CHECK(holes->count == 0);
  cairn_kv_holes_free(holes);
  cairn_kv_buffer* back = NULL;
  CHECK_OK(cairn_kv_buffer_new(&model->spec, 32, &back, &error));
  cairn_restore_request request;
  cairn_restore_request_init(&request, sizeof request);
  request.into = cairn_kv_buffer_view(back);
  request.require_kv = true;
  CHECK_OK(cairn_branch_restore(branch, &request, NULL, NULL, &error));
  for (uint64_t p = 0; p < 32; ++p) {  // Layer 1, values, head 1: the fourth tensor.
    const size_t block = p < 16 ? 3 : 1;
    const size_t at = ((block * 16 + p % 16) * kHeads + 1) * 2 * kHeadDim;
    CHECK(memcmp(cairn_kv_buffer_row(back, 0, 1, 1, 1, p), &pool[3][at], 2 * kHeadDim) == 0);
  }
  cairn_kv_buffer_free(back);
  cairn_branch_free(branch);
}

// Sizes that no model and no engine has are refused before anything is read through them.
static void CheckNonsense(const Model* model) {
  cairn_error* error = NULL;
  static unsigned char memory[16 * kHeads * 2 * kHeadDim];
  void* tensors[2 * kLayers] = {memory, memory, memory, memory};
  const int32_t block = 0;
  cairn_group_tensors tensor;
  cairn_group_tensors_init(&tensor, sizeof tensor);
  tensor.tensors = tensors;
  tensor.tensor_count = 2 * kLayers;
  tensor.blocks = 1;
  tensor.tokens_per_block = 16;
  tensor.count = 16;
  tensor.table_kind = CAIRN_TABLE_BLOCKS;
  tensor.table_entries = &block;
  tensor.table_count = UINT64_MAX;  // As an int of -1 becomes one.
  cairn_owned_kv_view* view = NULL;
  CHECK_REFUSED("table.count",
                cairn_owned_kv_view_make(&model->spec, &tensor, 1, CAIRN_KV_USE_APPEND,
                                         CAIRN_MEMORY_HOST, 0, &view, &error));
  CHECK(view == NULL);
  tensor.table_count = 1;

  cairn_layer_group group = model->group;
  group.plane_count = 0;
  cairn_model_spec spec = model->spec;
  spec.groups = &group;
  CHECK_REFUSED("planes", cairn_owned_kv_view_make(&spec, &tensor, 1, CAIRN_KV_USE_APPEND,
                                                   CAIRN_MEMORY_HOST, 0, &view, &error));
  cairn_group_view none;
  cairn_group_view_init(&none, sizeof none);
  cairn_kv_view of_none;
  cairn_kv_view_init(&of_none, sizeof of_none);
  of_none.groups = &none;
  of_none.group_count = 1;
  CHECK_REFUSED("planes", cairn_kv_view_validate(&spec, &of_none, CAIRN_KV_USE_RESTORE, &error));
  cairn_plane planes[2] = {model->planes[0], model->planes[1]};
  planes[0].role = 0;  // Which does not exist.
  group.planes = planes;
  group.plane_count = 2;
  CHECK_REFUSED("role", cairn_owned_kv_view_make(&spec, &tensor, 1, CAIRN_KV_USE_APPEND,
                                                 CAIRN_MEMORY_HOST, 0, &view, &error));
}

// Where there is no GPU nothing falls back from it; an event of one is a mistake.
static void CheckFallback(const cairn_branch* branch, const Model* model) {
  cairn_error* error = NULL;
  cairn_kv_buffer* back = NULL;
  CHECK_OK(cairn_kv_buffer_new(&model->spec, 200, &back, &error));
  cairn_restore_request request;
  cairn_restore_request_init(&request, sizeof request);
  request.into = cairn_kv_buffer_view(back);
  request.fall_back_to_host = true;
  CHECK_OK(cairn_branch_restore(branch, &request, NULL, NULL, &error));
  request.into = NULL;
  CHECK_OK(cairn_branch_restore(branch, &request, NULL, NULL, &error));
  request.into = cairn_kv_buffer_view(back);
  request.gpu_ready = 1;
  CHECK_REFUSED("gpu", cairn_branch_restore(branch, &request, NULL, NULL, &error));
  cairn_kv_buffer_free(back);
}

void TestRestores(const char* directory) {
  cairn_error* error = NULL;
  char path[4096];
  snprintf(path, sizeof path, "%s/restores", directory);
  cairn_store* store = OpenStore(path);
  Model model;
  MakeModel(store, "m", &model);
  cairn_branch* branch = CreateBranch(store, model.id, "chat");
  AppendTokens(branch, &model, 0, 200, 9);
  cairn_kv_buffer* kv = MakeKv(&model, 200, 9);
  CheckRange(branch, &model, kv);
  CheckAsync(branch, &model, kv);
  CHECK_OK(cairn_store_compact(store, &error));  // From tables, too.
  CHECK_OK(cairn_branch_prefetch(branch, 0, UINT64_MAX, &error));
  CHECK_CODE(CAIRN_INVALID_ARGUMENT, cairn_branch_prefetch_gpu(branch, 0, 10, 3, &error));
  CheckRange(branch, &model, kv);
  CheckAsync(branch, &model, kv);
  CheckFill(store, &model);
  CheckNonsense(&model);
  CheckFallback(branch, &model);
  cairn_kv_buffer_free(kv);
  cairn_branch_free(branch);
  cairn_store_free(store);
}
