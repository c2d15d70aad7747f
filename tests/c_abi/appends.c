// SPDX-License-Identifier: Apache-2.0
//
// Property: what is appended, at once, later, in layers or as a state alone, is stored as it
// was given; structs and arrays are not needed behind the call, and borrowed memory is reported as
// free exactly once.
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/c_abi/check.h"

static atomic_int g_released = 0;
static void Released(void* context) {
  CHECK(strcmp(context, "context") == 0);
  atomic_fetch_add(&g_released, 1);
}

// More KV than the library copies in a call, so that it is borrowed, described by arrays that are
// gone when the call returns.
static void AppendBorrowed(cairn_store* store, const Model* model) {
  cairn_error* error = NULL;
  cairn_branch* branch = CreateBranch(store, model->id, "borrowed");
  enum { kTokens = 40000 };
  cairn_kv_buffer* kv = MakeKv(model, kTokens, 3);
  uint32_t* tokens = calloc(kTokens, sizeof *tokens);
  cairn_completion_queue* queue = NULL;
  CHECK_OK(cairn_store_new_completion_queue(store, &queue, &error));
  {
    const cairn_kv_view* whole = cairn_kv_buffer_view(kv);
    void* bases[2][kLayers];
    cairn_plane_view planes[2];
    cairn_group_view group = whole->groups[0];
    for (size_t i = 0; i < 2; ++i) {
      planes[i] = group.planes[i];
      memcpy(bases[i], planes[i].layer_bases, sizeof bases[i]);
      planes[i].layer_bases = bases[i];
    }
    group.planes = planes;
    cairn_kv_view view = *whole;
    view.groups = &group;
    cairn_delta delta;
    cairn_delta_init(&delta, sizeof delta);
    delta.tokens = tokens;
    delta.token_count = kTokens;
    delta.kv = &view;
    char blob[] = "sampler";
    cairn_sampler_state sampler;
    cairn_sampler_state_init(&sampler, sizeof sampler);
    sampler.generator = CAIRN_GENERATOR_NAMED;
    sampler.blob_name = "test";
    sampler.blob = (cairn_bytes){blob, sizeof blob};
    delta.sampler = &sampler;
    cairn_append_options options;
    cairn_append_options_init(&options, sizeof options);
    options.durability = CAIRN_DURABILITY_POWER;
    options.queue = queue;
    options.user_data = 42;
    options.released = Released;
    options.released_context = "context";
    CHECK_OK(cairn_branch_append(branch, &delta, &options, NULL, &error));
    memset(bases, 0xEE, sizeof bases);
    memset(planes, 0xEE, sizeof planes);
    memset(&group, 0xEE, sizeof group);
    memset(&view, 0xEE, sizeof view);
    memset(&sampler, 0xEE, sizeof sampler);
    memset(blob, 0xEE, sizeof blob);
    memset(&delta, 0xEE, sizeof delta);
  }
  struct pollfd ready = {cairn_completion_queue_event_fd(queue), POLLIN, 0};
  CHECK(poll(&ready, 1, 60000) == 1);
  CHECK(cairn_completion_queue_wait(queue, 0));
  cairn_completion ended[4];
  CHECK(cairn_completion_queue_drain(queue, ended, 4) == 1);
  CHECK(ended[0].code == CAIRN_OK && ended[0].user_data == 42);
  CHECK(cairn_ticket_done(ended[0].ticket) && cairn_ticket_released(ended[0].ticket));
  CHECK(cairn_ticket_length(ended[0].ticket) == kTokens);
  CHECK(!cairn_ticket_kv_shed(ended[0].ticket));
  CHECK_OK(cairn_ticket_status(ended[0].ticket, &error));
  cairn_restore_result* none = NULL;
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_ticket_restored(ended[0].ticket, &none, &error));
  cairn_ticket_free(ended[0].ticket);
  CHECK(!cairn_completion_queue_wait(queue, 0));
  cairn_completion_queue_free(queue);

  cairn_kv_buffer* back = NULL;
  CHECK_OK(cairn_kv_buffer_new(&model->spec, kTokens, &back, &error));
  cairn_restore_request request;
  cairn_restore_request_init(&request, sizeof request);
  request.into = cairn_kv_buffer_view(back);
  CHECK_OK(cairn_branch_restore(branch, &request, NULL, NULL, &error));
  CHECK(cairn_kv_buffer_equal(kv, back));
  cairn_kv_buffer_free(back);
  cairn_kv_buffer_free(kv);
  free(tokens);
  cairn_branch_free(branch);
}

static void AppendSmall(cairn_store* store, const Model* model) {
  cairn_error* error = NULL;
  cairn_branch* branch = CreateBranch(store, model->id, "small");
  const uint32_t token = 5;
  cairn_delta delta;
  cairn_delta_init(&delta, sizeof delta);
  delta.tokens = &token;
  delta.token_count = 1;
  cairn_append_options options;
  cairn_append_options_init(&options, sizeof options);
  options.has_expected_length = true;
  options.expected_length = 9;
  options.released = Released;
  options.released_context = "context";
  cairn_ticket* ticket = NULL;
  const int before = atomic_load(&g_released);
  // A call that fails has borrowed nothing.
  CHECK_CODE(CAIRN_CONFLICT, cairn_branch_append(branch, &delta, &options, &ticket, &error));
  CHECK(ticket == NULL && atomic_load(&g_released) == before);
  options.expected_length = 0;
  CHECK_OK(cairn_branch_append(branch, &delta, &options, &ticket, &error));
  CHECK(atomic_load(&g_released) == before + 1);  // It was copied.
  CHECK_OK(cairn_ticket_wait(ticket, UINT64_MAX, &error));
  CHECK_OK(cairn_ticket_cancel(ticket, &error));  // It is over: nothing to cancel.
  CHECK(cairn_ticket_length(ticket) == 1);
  cairn_ticket_free(ticket);
  cairn_branch_free(branch);
}

static void AppendInLayers(cairn_store* store, const Model* model) {
  cairn_error* error = NULL;
  cairn_branch* branch = CreateBranch(store, model->id, "draft");
  cairn_draft* draft = NULL;
  CHECK_REFUSED("positions", cairn_branch_begin_append(branch, 0, &draft, &error));
  CHECK(draft == NULL);
  CHECK_OK(cairn_branch_begin_append(branch, 8, &draft, &error));
  cairn_kv_buffer* kv = MakeKv(model, 8, 4);
  const cairn_group_view* whole = cairn_kv_buffer_view(kv)->groups;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    cairn_plane_view planes[2] = {whole->planes[0], whole->planes[1]};
    for (size_t i = 0; i < 2; ++i) {
      planes[i].layer_bases += layer;
      planes[i].layer_count = 1;
    }
    cairn_group_view group = *whole;
    group.layer_begin = layer;
    group.planes = planes;
    CHECK_OK(cairn_draft_put(draft, layer, &group, &error));
  }
  uint32_t tokens[8];
  for (uint32_t i = 0; i < 8; ++i) tokens[i] = TokenAt(i);
  cairn_delta delta;
  cairn_delta_init(&delta, sizeof delta);
  delta.tokens = tokens;
  delta.token_count = 9;
  CHECK_REFUSED("9 tokens", cairn_draft_commit(draft, &delta, NULL, NULL, &error));
  delta.token_count = 8;
  cairn_ticket* ticket = NULL;
  CHECK_OK(cairn_draft_commit(draft, &delta, NULL, &ticket, &error));
  CHECK_OK(cairn_ticket_wait(ticket, UINT64_MAX, &error));
  CHECK_CODE(CAIRN_INVALID_STATE, cairn_draft_commit(draft, &delta, NULL, NULL, &error));
  cairn_ticket_free(ticket);
  cairn_draft_free(draft);
  cairn_kv_buffer* back = NULL;
  CHECK_OK(cairn_kv_buffer_new(&model->spec, 8, &back, &error));
  cairn_restore_request request;
  cairn_restore_request_init(&request, sizeof request);
  request.into = cairn_kv_buffer_view(back);
  request.require_kv = true;
  CHECK_OK(cairn_branch_restore(branch, &request, NULL, NULL, &error));
  CHECK(cairn_kv_buffer_equal(kv, back));
  CHECK_OK(cairn_branch_begin_append(branch, 8, &draft, &error));
  cairn_draft_abort(draft);
  cairn_draft_free(draft);
  cairn_kv_buffer_free(back);
  cairn_kv_buffer_free(kv);
  cairn_branch_free(branch);
}

void TestAppends(const char* directory) {
  cairn_error* error = NULL;
  char path[4096];
  snprintf(path, sizeof path, "%s/appends", directory);
  cairn_store* store = OpenStore(path);
  Model model;
  MakeModel(store, "m", &model);
  AppendBorrowed(store, &model);
  AppendSmall(store, &model);
  AppendInLayers(store, &model);
  CHECK_OK(cairn_store_close(store, &error));
  CHECK(atomic_load(&g_released) == 2);
  cairn_store_free(store);
}

void TestStates(const char* directory) {
  (void)directory;
  cairn_error* error = NULL;
  cairn_store* store = OpenStore(":memory:");
  Model model;
  MakeModel(store, "m", &model);
  cairn_branch* branch = CreateBranch(store, model.id, "states");
  uint32_t tokens[10];
  for (uint32_t i = 0; i < 10; ++i) tokens[i] = TokenAt(i);
  const float logits[] = {0.5F, -1.0F};
  const unsigned char blob[] = {1, 0, 2};
  cairn_sampler_state sampler;
  cairn_sampler_state_init(&sampler, sizeof sampler);
  CHECK(sampler.temperature == 1.0 && sampler.top_p == 1.0);
  sampler.generator = CAIRN_GENERATOR_NAMED;
  sampler.blob_name = "torch";
  sampler.blob = (cairn_bytes){blob, sizeof blob};
  sampler.top_k = 40;
  sampler.last_logits = logits;
  sampler.last_logit_count = 2;
  cairn_app_metadata metadata;
  cairn_app_metadata_init(&metadata, sizeof metadata);
  metadata.content_type = "text/plain";
  metadata.bytes = (cairn_bytes){"hi", 2};
  const cairn_content_span span = {2, 5, {11, 12}, true};
  cairn_delta delta;
  cairn_delta_init(&delta, sizeof delta);
  delta.tokens = tokens;
  delta.token_count = 10;
  delta.sampler = &sampler;
  delta.metadata = &metadata;
  delta.spans = &span;
  delta.span_count = 1;
  CHECK_OK(cairn_branch_append_sync(branch, &delta, NULL, NULL, &error));
  sampler.generator = 77;
  CHECK_REFUSED("cairn_sampler_state::generator",
                cairn_branch_append_sync(branch, &delta, NULL, NULL, &error));

  cairn_state_at* state = NULL;
  CHECK_OK(cairn_branch_sampler_at(branch, 10, &state, &error));
  CHECK(state->position == 10 && state->sampler != NULL && state->metadata == NULL);
  CHECK(strcmp(state->sampler->blob_name, "torch") == 0 && state->sampler->top_k == 40);
  CHECK(state->sampler->blob.size == 3 && memcmp(state->sampler->blob.data, blob, 3) == 0);
  CHECK(state->sampler->last_logit_count == 2 && state->sampler->last_logits[1] == -1.0F);
  cairn_state_at_free(state);
  CHECK_OK(cairn_branch_metadata_at(branch, 10, &state, &error));
  CHECK(state->metadata != NULL && state->metadata->bytes.size == 2);
  CHECK(strcmp(state->metadata->content_type, "text/plain") == 0);
  cairn_state_at_free(state);
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_branch_sampler_at(branch, 9, &state, &error));
  CHECK(state == NULL);
  cairn_content_spans* spans = NULL;
  CHECK_OK(cairn_branch_spans(branch, 0, UINT64_MAX, &spans, &error));
  CHECK(spans->count == 1 && spans->items[0].end == 5 && spans->items[0].hash[1] == 12);
  CHECK(spans->items[0].atomic);
  cairn_content_spans_free(spans);

  uint32_t read[10];
  size_t count = 0;
  CHECK_OK(cairn_branch_read_tokens(branch, 3, UINT64_MAX, read, 10, &count, &error));
  CHECK(count == 7 && read[0] == TokenAt(3) && read[6] == TokenAt(9));
  CHECK_REFUSED("capacity is 6",
                cairn_branch_read_tokens(branch, 3, UINT64_MAX, read, 6, &count, &error));
  CHECK(count == 7);
  cairn_branch_free(branch);
  cairn_store_free(store);
}
