// SPDX-License-Identifier: Apache-2.0
//
// Property: models, branches, namespaces and batches are what they were made as, and are changed,
// listed and described as in C++.
#include <malloc.h>
#include <stdlib.h>

#include "tests/c_abi/check.h"

// Opaque blocks of one packing: another one is another order of the same bytes.
static void CheckPacking(cairn_store* store) {
  cairn_error* error = NULL;
  cairn_plane plane;
  cairn_plane_init(&plane, sizeof plane);
  plane.name = "kv";
  plane.row_bytes = 64;
  cairn_layer_group groups[2];
  cairn_model_spec specs[2];
  for (size_t i = 0; i < 2; ++i) {
    cairn_layer_group_init(&groups[i], sizeof groups[i]);
    groups[i].name = "attention";
    groups[i].layers = 2;
    groups[i].planes = &plane;
    groups[i].plane_count = 1;
    groups[i].packing = i == 0 ? "amx bf16 32" : "vec bf16 32";
    cairn_model_spec_init(&specs[i], sizeof specs[i]);
    specs[i].name = "packed";
    specs[i].groups = &groups[i];
    specs[i].group_count = 1;
  }
  char* text = NULL;
  CHECK_OK(cairn_model_spec_first_difference(&specs[0], &specs[1], &text, &error));
  CHECK(text != NULL && strstr(text, "packing") != NULL);
  cairn_text_free(text);
  uint64_t id = 0, again = 0;
  CHECK_OK(cairn_store_register_model(store, &specs[0], 2, &id, &error));
  CHECK_CODE(CAIRN_MODEL_MISMATCH, cairn_store_register_model(store, &specs[1], 2, &again, &error));
  cairn_model_info* info = NULL;
  CHECK_OK(cairn_store_get_model(store, id, &info, &error));
  CHECK(strcmp(info->spec->groups[0].packing, "amx bf16 32") == 0);
  CHECK_OK(cairn_store_register_model(store, info->spec, 2, &again, &error));
  CHECK(again == id);
  cairn_model_info_free(info);
  // An output is NULL after an error, whatever the error is.
  text = (char*)&plane;
  CHECK_REFUSED("spec is NULL", cairn_model_spec_first_difference(NULL, &specs[0], &text, &error));
  CHECK(text == NULL);
}

void TestModels(const char* directory) {
  (void)directory;
  cairn_error* error = NULL;
  cairn_store* store = OpenStore(":memory:");
  Model model;
  MakeModel(store, "m", &model);
  const uint64_t id = model.id;
  float inv_freq[kHeadDim / 2];
  CHECK_OK(cairn_rotary_frequencies(kHeadDim, 10000.0, inv_freq, &error));
  CHECK(inv_freq[0] == 1.0F && inv_freq[1] < 1.0F);
  Model other;
  MakeModel(store, "other", &other);
  CHECK(other.id != id);
  other.group.inv_freq = inv_freq;
  other.group.inv_freq_count = kHeadDim / 2;
  char* text = NULL;
  CHECK_OK(cairn_model_spec_first_difference(&model.spec, &other.spec, &text, &error));
  CHECK(text != NULL && strstr(text, "name") != NULL);
  cairn_text_free(text);
  CHECK_OK(cairn_model_spec_first_difference(&model.spec, &model.spec, &text, &error));
  CHECK(text == NULL);
  // The same again is the same model; other shapes are a mismatch.
  MakeModel(store, "m", &model);
  CHECK(model.id == id);
  model.planes[0].heads = 7;
  uint64_t none = 0;
  CHECK_CODE(CAIRN_MODEL_MISMATCH,
             cairn_store_register_model(store, &model.spec, 2, &none, &error));
  model.planes[0].dtype = 99;
  CHECK_REFUSED("cairn_plane::dtype", cairn_model_spec_validate(&model.spec, &error));

  cairn_model_info* info = NULL;
  CHECK_OK(cairn_store_get_model(store, id, &info, &error));
  CHECK(info->id == id && strcmp(info->spec->name, "m") == 0);
  CHECK(info->spec->group_count == 1 && info->spec->groups[0].plane_count == 2);
  CHECK(info->spec->groups[0].planes[1].row_bytes == 2 * kHeadDim);
  CHECK(strcmp(info->spec->groups[0].planes[1].name, "v") == 0);
  // A spec that was returned can be registered unchanged.
  CHECK_OK(cairn_store_register_model(store, info->spec, 2, &none, &error));
  CHECK(none == id);
  cairn_model_info_free(info);
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_store_get_model(store, 1000, &info, &error));
  CHECK(info == NULL);
  cairn_models* models = NULL;
  CHECK_OK(cairn_store_models(store, &models, &error));
  CHECK(models->count == 2 && models->items[1]->spec->group_count == 1);
  cairn_models_free(models);
  CheckPacking(store);
  CHECK(cairn_dtype_bytes(CAIRN_DTYPE_BF16) == 2 && cairn_dtype_bytes(8) == 0);
  CHECK(strcmp(cairn_dtype_name(CAIRN_DTYPE_BF16), "bf16") == 0 && cairn_dtype_name(8) == NULL);
  cairn_store_free(store);
}

static void CheckList(cairn_store* store) {
  cairn_error* error = NULL;
  size_t seen = 0;
  cairn_bytes cursor = {NULL, 0};
  do {
    cairn_branch_page* page = NULL;
    CHECK_OK(cairn_store_list_branches(store, "ns", "b", 2, &cursor, &page, &error));
    free((void*)cursor.data);
    cursor = (cairn_bytes){NULL, 0};
    for (size_t i = 0; i < page->count; ++i, ++seen) {
      const char name[] = {'b', (char)('0' + seen), 0};
      CHECK(strcmp(page->items[i]->name, name) == 0 && strcmp(page->items[i]->ns, "ns") == 0);
    }
    if (page->cursor.size != 0) {
      void* copy = malloc(page->cursor.size);
      memcpy(copy, page->cursor.data, page->cursor.size);
      cursor = (cairn_bytes){copy, page->cursor.size};
    }
    cairn_branch_page_free(page);
  } while (cursor.size != 0);
  CHECK(seen == 5);
}

void TestBranches(const char* directory) {
  (void)directory;
  cairn_error* error = NULL;
  cairn_store* store = OpenStore(":memory:");
  Model model;
  MakeModel(store, "m", &model);
  cairn_branch* branch = CreateBranch(store, model.id, "chat");
  AppendTokens(branch, &model, 0, 100, 1);
  cairn_branch *fork = NULL, *found = NULL;
  CHECK_OK(cairn_branch_fork_at(branch, 60, NULL, &fork, &error));
  CHECK_CODE(CAIRN_INVALID_ARGUMENT, cairn_branch_fork_at(branch, 101, NULL, &found, &error));
  uint64_t length = 0;
  CHECK_OK(cairn_branch_length(fork, &length, &error));
  CHECK(length == 60);
  CHECK_OK(cairn_branch_rename(fork, "twin", CAIRN_DURABILITY_POWER, &error));
  CHECK_REFUSED("name is NULL", cairn_branch_rename(fork, NULL, CAIRN_DURABILITY_POWER, &error));
  CHECK_CODE(CAIRN_ALREADY_EXISTS,
             cairn_branch_rename(fork, "chat", CAIRN_DURABILITY_POWER, &error));
  CHECK_OK(cairn_store_find_branch(store, "twin", NULL, &found, &error));
  CHECK(cairn_branch_id(found) == cairn_branch_id(fork) && cairn_branch_id(fork) != 0);
  cairn_branch_free(found);
  CHECK_OK(cairn_store_get_branch(store, cairn_branch_id(branch), &found, &error));
  CHECK_OK(cairn_branch_rewind(found, 80, CAIRN_DURABILITY_PROCESS, &error));
  cairn_branch_free(found);
  CHECK_OK(cairn_store_flush(store, &error));
  CHECK_OK(cairn_branch_durable_length(branch, &length, &error));
  CHECK(length == 80);
  CHECK_OK(cairn_branch_restorable_length(branch, UINT64_MAX, &length, &error));
  CHECK(length == 80);

  cairn_keep keep;
  cairn_keep_init(&keep, sizeof keep);
  keep.pinned = true;
  keep.priority = 7;
  CHECK_OK(cairn_branch_set_keep(branch, &keep, CAIRN_DURABILITY_PROCESS, &error));
  CHECK_REFUSED("durability", cairn_branch_set_keep(branch, &keep, 3, &error));
  cairn_branch_info* info = NULL;
  CHECK_OK(cairn_branch_get_info(branch, &info, &error));
  CHECK(strcmp(info->name, "chat") == 0 && info->model == model.id && info->length == 80);
  CHECK(info->kv_length_count == 1 && info->kv_lengths[0] == 80);
  CHECK(info->keep->pinned && info->keep->priority == 7);
  cairn_branch_info_free(info);
  cairn_path* path = NULL;
  CHECK_OK(cairn_branch_path(fork, &path, &error));
  CHECK(path->count >= 1 && path->items[0].begin == 0 && path->items[path->count - 1].end == 60);
  cairn_path_free(path);
  CHECK_OK(cairn_branch_drop(fork, CAIRN_DURABILITY_PROCESS, &error));
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_branch_length(fork, &length, &error));

  for (char i = '0'; i < '5'; ++i) {
    const char name[] = {'b', i, 0};
    cairn_branch_options options;
    cairn_branch_options_init(&options, sizeof options);
    options.name = name;
    options.ns = "ns";
    CHECK_OK(cairn_store_create_branch(store, model.id, &options, &found, &error));
    cairn_branch_free(found);
  }
  CheckList(store);
  cairn_namespace_policy policy;
  cairn_namespace_policy_init(&policy, sizeof policy);
  CHECK(policy.max_bytes == UINT64_MAX);
  policy.max_bytes = 1 << 20;
  policy.has_evict = true;
  policy.evict = CAIRN_EVICT_KV;
  policy.index = CAIRN_INDEX_CHUNKS;
  CHECK_OK(cairn_store_set_namespace(store, "ns", &policy, CAIRN_DURABILITY_POWER, &error));
  cairn_namespaces* namespaces = NULL;
  CHECK_OK(cairn_store_namespaces(store, &namespaces, &error));
  CHECK(namespaces->count == 2 && strcmp(namespaces->items[1]->name, "ns") == 0);
  CHECK(namespaces->items[1]->branches == 5 && namespaces->items[1]->policy->max_bytes == 1 << 20);
  CHECK(namespaces->items[1]->policy->evict == CAIRN_EVICT_KV);
  CHECK(namespaces->items[1]->policy->index == CAIRN_INDEX_CHUNKS);
  cairn_namespaces_free(namespaces);
  cairn_branch_free(fork);
  cairn_branch_free(branch);
  cairn_store_free(store);
}

// An append that a batch refuses does not stay in it, however often it is tried.
static void CheckRefusedAppends(cairn_write_batch* batch, const cairn_branch* branch) {
  cairn_error* error = NULL;
  enum { kBlob = 1 << 20, kTries = 64 };
  void* blob = calloc(1, kBlob);
  cairn_sampler_state sampler;
  cairn_sampler_state_init(&sampler, sizeof sampler);
  sampler.generator = CAIRN_GENERATOR_NAMED;
  sampler.blob_name = "test";
  sampler.blob = (cairn_bytes){blob, kBlob};
  cairn_app_metadata metadata;
  cairn_app_metadata_init(&metadata, sizeof metadata);
  metadata.bytes = (cairn_bytes){NULL, 5};
  cairn_delta delta;
  cairn_delta_init(&delta, sizeof delta);
  delta.sampler = &sampler;
  delta.metadata = &metadata;
  const struct mallinfo2 before = mallinfo2();
  const size_t size = cairn_write_batch_size(batch);
  for (int i = 0; i < kTries; ++i) {
    CHECK_REFUSED("cairn_app_metadata::bytes",
                  cairn_write_batch_append(batch, branch, -1, &delta, UINT64_MAX, &error));
  }
  const struct mallinfo2 after = mallinfo2();
  CHECK(cairn_write_batch_size(batch) == size);
  CHECK(after.uordblks + after.hblkhd < before.uordblks + before.hblkhd + kTries / 2 * kBlob);
  CHECK_REFUSED("name is NULL", cairn_write_batch_rename(batch, branch, -1, NULL, &error));
  free(blob);
}

void TestBatches(const char* directory) {
  (void)directory;
  cairn_error* error = NULL;
  cairn_store* store = OpenStore(":memory:");
  Model model;
  MakeModel(store, "m", &model);
  cairn_branch* branch = CreateBranch(store, model.id, "old");
  cairn_write_batch* batch = NULL;
  CHECK_OK(cairn_write_batch_new(&batch, &error));
  int32_t made = -1, forked = -1;
  cairn_branch_options options;
  cairn_branch_options_init(&options, sizeof options);
  options.name = "new";
  CHECK_OK(cairn_write_batch_create(batch, model.id, &options, &made, &error));
  const uint32_t tokens[] = {1, 2, 3};
  cairn_delta delta;
  cairn_delta_init(&delta, sizeof delta);
  delta.tokens = tokens;
  delta.token_count = 3;
  CHECK_OK(cairn_write_batch_append(batch, NULL, made, &delta, 0, &error));
  CHECK_OK(cairn_write_batch_append(batch, branch, -1, &delta, UINT64_MAX, &error));
  CHECK_OK(cairn_write_batch_fork(batch, branch, -1, 2, NULL, &forked, &error));
  CHECK_OK(cairn_write_batch_rename(batch, branch, -1, "older", &error));
  CHECK_OK(cairn_write_batch_rewind(batch, NULL, made, 1, &error));
  CHECK(cairn_write_batch_size(batch) == 6 && cairn_write_batch_created_count(batch) == 2);
  memset(&delta, 0xFF, sizeof delta);  // Only the tokens are still needed.
  CheckRefusedAppends(batch, branch);
  cairn_branch* created[2] = {branch, branch};
  cairn_ticket* ticket = NULL;
  CHECK_REFUSED("created_capacity",
                cairn_store_write(store, batch, NULL, created, 1, &ticket, &error));
  CHECK(created[0] == NULL && ticket == NULL);
  CHECK_OK(cairn_store_write(store, batch, NULL, created, 2, &ticket, &error));
  CHECK_OK(cairn_ticket_wait(ticket, UINT64_MAX, &error));
  uint64_t length = 0;
  CHECK_OK(cairn_branch_length(created[made], &length, &error));
  CHECK(length == 1);
  CHECK_OK(cairn_branch_length(created[forked], &length, &error));
  CHECK(length == 2);
  // Written again it would make "new" twice: nothing of it is applied.
  CHECK_CODE(CAIRN_ALREADY_EXISTS, cairn_store_write(store, batch, NULL, NULL, 0, NULL, &error));
  CHECK_OK(cairn_branch_length(branch, &length, &error));
  CHECK(length == 3);
  cairn_write_batch_free(batch);
  CHECK_OK(cairn_write_batch_new(&batch, &error));
  CHECK_OK(cairn_write_batch_drop(batch, branch, -1, &error));
  CHECK_OK(cairn_store_write(store, batch, NULL, NULL, 0, NULL, &error));
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_branch_length(branch, &length, &error));
  cairn_write_batch_free(batch);
  cairn_ticket_free(ticket);
  cairn_branch_free(created[0]);
  cairn_branch_free(created[1]);
  cairn_branch_free(branch);
  cairn_store_free(store);
}
