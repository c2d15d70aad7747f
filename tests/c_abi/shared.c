// SPDX-License-Identifier: Apache-2.0
//
// Property: what a prompt has in common with a branch is found, forked and restored; objects are
// put, got, listed and deleted as in C++.
#include <stdlib.h>

#include "tests/c_abi/check.h"

// A prompt may have more spans than one append; and not more than tokens.
static void CheckManySpans(cairn_store* store, uint64_t model) {
  cairn_error* error = NULL;
  enum { kSpans = 70000 };
  uint32_t* tokens = calloc(kSpans, sizeof *tokens);
  cairn_content_span* spans = calloc(kSpans + 1, sizeof *spans);
  for (uint64_t i = 0; i < kSpans; ++i) {
    spans[i] = (cairn_content_span){i, i + 1, {i + 1, i + 1}, false};
  }
  cairn_prefix_query query;
  cairn_prefix_query_init(&query, sizeof query);
  query.model = model;
  query.tokens = tokens;
  query.token_count = kSpans;
  query.spans = spans;
  query.span_count = kSpans;
  cairn_prefix_hit hit;
  memset(&hit, 0xAB, sizeof hit);
  hit.struct_size = sizeof hit;
  CHECK_OK(cairn_store_find_prefix(store, &query, &hit, &error));
  CHECK(hit.node == 0);
  query.span_count = kSpans + 1;
  CHECK_REFUSED("spans", cairn_store_find_prefix(store, &query, &hit, &error));
  free(tokens);
  free(spans);
}

void TestFind(const char* directory) {
  (void)directory;
  cairn_error* error = NULL;
  cairn_store* store = OpenStore(":memory:");
  Model model;
  MakeModel(store, "m", &model);
  cairn_branch* branch = CreateBranch(store, model.id, "chat");
  AppendTokens(branch, &model, 0, 256, 5);
  uint32_t prompt[300];
  for (uint32_t i = 0; i < 300; ++i) prompt[i] = i < 200 ? TokenAt(i) : 1;
  cairn_prefix_query query;
  cairn_prefix_query_init(&query, sizeof query);
  CHECK(query.confirm && !query.approximate);
  query.model = model.id;
  query.tokens = prompt;
  query.token_count = 300;
  query.lease_ns = UINT64_C(1000000000);
  cairn_prefix_hit hit;
  cairn_prefix_hit_init(&hit, sizeof hit);
  CHECK_OK(cairn_store_find_prefix(store, &query, &hit, &error));
  CHECK(hit.node != 0 && hit.matched == 200 && hit.restorable == 200 && hit.exact == 200);
  CHECK(hit.confirmed && hit.lease != 0);
  CHECK(hit.longest_node == hit.node && hit.longest_matched == 200);
  CHECK_OK(cairn_store_renew(store, hit.lease, 1000, &error));
  CHECK_OK(cairn_store_release(store, hit.lease, &error));
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_store_renew(store, hit.lease, 1000, &error));

  const cairn_prefix_hit copy = hit;
  cairn_branch* fork = NULL;
  CHECK_OK(cairn_store_fork(store, &copy, 200, NULL, &fork, &error));
  uint64_t length = 0;
  CHECK_OK(cairn_branch_restorable_length(fork, UINT64_MAX, &length, &error));
  CHECK(length == 200);
  cairn_kv_buffer *kv = MakeKv(&model, 256, 5), *back = NULL;
  CHECK_OK(cairn_kv_buffer_new(&model.spec, 256, &back, &error));
  cairn_owned_kv_view* part = NULL;
  CHECK_OK(cairn_kv_buffer_view_of(back, 0, 200, &part, &error));
  cairn_restore_request request;
  cairn_restore_request_init(&request, sizeof request);
  request.end = 200;
  request.into = cairn_owned_kv_view_view(part);
  cairn_restore_result* result = NULL;
  CHECK_OK(cairn_store_restore(store, &copy, &request, NULL, &result, &error));
  CHECK(result->end == 200);
  CHECK(memcmp(cairn_kv_buffer_row(kv, 0, 1, 0, 1, 199), cairn_kv_buffer_row(back, 0, 1, 0, 1, 199),
               2 * kHeadDim) == 0);
  cairn_branch_free(fork);
  CHECK_CODE(CAIRN_INVALID_ARGUMENT, cairn_store_fork(store, &copy, 201, NULL, &fork, &error));
  CHECK(fork == NULL);
  const char* const also[] = {"a", "b"};
  query.also = also;
  query.also_count = 2;
  query.ns = "other";
  CHECK_OK(cairn_store_find_prefix(store, &query, &hit, &error));
  CHECK(hit.node == 0);  // No hit is no error.
  query.model = 77;
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_store_find_prefix(store, &query, &hit, &error));
  query.also_count = 17;
  CHECK_REFUSED("cairn_prefix_query::also", cairn_store_find_prefix(store, &query, &hit, &error));
  CheckManySpans(store, model.id);
  cairn_restore_result_free(result);
  cairn_owned_kv_view_free(part);
  cairn_kv_buffer_free(kv);
  cairn_kv_buffer_free(back);
  cairn_branch_free(branch);
  cairn_store_free(store);
}

static cairn_bytes Key(const char* text) { return (cairn_bytes){text, strlen(text)}; }

static void CheckAsyncObjects(cairn_store* store, cairn_objects* objects,
                              const cairn_put_options* options) {
  cairn_error* error = NULL;
  cairn_completion_queue* queue = NULL;
  CHECK_OK(cairn_store_new_completion_queue(store, &queue, &error));
  cairn_object_put puts[2];
  cairn_object_get gets[2];
  static char values[2][5000], back[2][5000];
  for (size_t i = 0; i < 2; ++i) {
    memset(values[i], 'x' + (int)i, sizeof values[i]);
    cairn_object_put_init(&puts[i], sizeof puts[i]);
    puts[i].key = Key(i == 0 ? "async0" : "async1");
    puts[i].value = (cairn_bytes){values[i], sizeof values[i]};
    puts[i].user_data = i;
    cairn_object_get_init(&gets[i], sizeof gets[i]);
    gets[i].key = puts[i].key;
    gets[i].into = back[i];
    gets[i].into_size = sizeof back[i];
    gets[i].user_data = 10 + i;
  }
  cairn_put_options with = *options;
  with.queue = queue;
  CHECK_OK(cairn_objects_put_batch_async(objects, puts, 2, &with, NULL, &error));
  uint64_t seen = 0;
  for (size_t left = 2; left != 0;) {
    CHECK(cairn_completion_queue_wait(queue, UINT64_MAX));
    cairn_completion ended[2];
    const size_t count = cairn_completion_queue_drain(queue, ended, 2);
    for (size_t i = 0; i < count; ++i, --left) {
      CHECK(ended[i].code == CAIRN_OK && cairn_ticket_length(ended[i].ticket) == 5000);
      seen += 1 + ended[i].user_data;
      cairn_ticket_free(ended[i].ticket);
    }
  }
  CHECK(seen == 3);
  cairn_ticket* tickets[2] = {NULL, NULL};
  CHECK_OK(cairn_objects_get_batch_async(objects, gets, 2, NULL, tickets, &error));
  for (size_t i = 0; i < 2; ++i) {
    CHECK_OK(cairn_ticket_wait(tickets[i], UINT64_MAX, &error));
    CHECK(memcmp(values[i], back[i], sizeof back[i]) == 0);
    cairn_ticket_free(tickets[i]);
  }
  cairn_completion_queue_free(queue);
}

// With a lease what was found stays until it is given back.
static void CheckLease(cairn_store* store, const cairn_objects* objects) {
  cairn_error* error = NULL;
  const cairn_bytes keys[] = {Key("a"), Key("b")};
  const uint64_t second = UINT64_C(1000000000);
  uint64_t found = 0, lease = 77;
  CHECK_REFUSED("lease is NULL", cairn_objects_exists(objects, keys, 2, NULL, second, NULL, &found,
                                                      NULL, NULL, &error));
  CHECK_OK(cairn_objects_exists(objects, keys, 2, NULL, 0, NULL, &found, NULL, &lease, &error));
  CHECK(found == 2 && lease == 0);
  CHECK_OK(
      cairn_objects_exists(objects, keys, 2, NULL, second, NULL, &found, NULL, &lease, &error));
  CHECK(found == 2 && lease != 0);
  CHECK_OK(cairn_store_renew(store, lease, second, &error));
  CHECK_OK(cairn_store_release(store, lease, &error));
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_store_renew(store, lease, second, &error));
}

// A key that has a size and no bytes is refused wherever there are keys, and gives no tickets.
static void CheckKeysWithoutBytes(cairn_objects* objects, const cairn_put_options* options) {
  cairn_error* error = NULL;
  const cairn_bytes key = {NULL, 5};
  char into[8];
  cairn_object_put put;
  cairn_object_put_init(&put, sizeof put);
  put.key = key;
  cairn_object_get get;
  cairn_object_get_init(&get, sizeof get);
  get.key = key;
  get.into = into;
  get.into_size = sizeof into;
  uint64_t found = 0;
  cairn_object_info* info = NULL;
  cairn_ticket* ticket = (cairn_ticket*)into;
  CHECK_REFUSED("key is NULL",
                cairn_objects_exists(objects, &key, 1, NULL, 0, NULL, &found, NULL, NULL, &error));
  CHECK_REFUSED("key is NULL", cairn_objects_touch(objects, &key, 1, NULL, &error));
  CHECK_REFUSED("key is NULL", cairn_objects_stat(objects, &key, NULL, &info, &error));
  CHECK_REFUSED("key is NULL", cairn_objects_delete(objects, &key, 1, NULL,
                                                    CAIRN_DURABILITY_PROCESS, NULL, &error));
  CHECK_REFUSED("key is NULL", cairn_objects_put_batch(objects, &put, 1, options, NULL, &error));
  CHECK_REFUSED("key is NULL", cairn_objects_get_batch(objects, &get, 1, NULL, NULL, &error));
  CHECK_REFUSED("key is NULL",
                cairn_objects_put_batch_async(objects, &put, 1, options, &ticket, &error));
  CHECK(ticket == NULL);
  ticket = (cairn_ticket*)into;
  CHECK_REFUSED("key is NULL",
                cairn_objects_get_batch_async(objects, &get, 1, NULL, &ticket, &error));
  CHECK(ticket == NULL);
}

static void CheckKeys(cairn_objects* objects) {
  cairn_error* error = NULL;
  const cairn_bytes keys[] = {Key("a"), Key("b"), Key("none")};
  uint64_t bits = 0, found = 0, leading = 0;
  CHECK_OK(cairn_objects_exists(objects, keys, 3, NULL, 0, &bits, &found, &leading, NULL, &error));
  CHECK(bits == 3 && found == 2 && leading == 2);
  CHECK_OK(cairn_objects_touch(objects, keys, 2, NULL, &error));
  cairn_object_info* info = NULL;
  CHECK_OK(cairn_objects_stat(objects, &keys[1], NULL, &info, &error));
  CHECK(info->key.size == 1 && info->bytes == 4 && info->depth == 1);
  CHECK(strcmp(info->object_class->name, "kv") == 0 && info->object_class->page_bytes == 4096);
  cairn_object_info_free(info);
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_objects_stat(objects, &keys[2], NULL, &info, &error));
  cairn_object_page* page = NULL;
  CHECK_OK(cairn_objects_list(objects, NULL, 1, NULL, &page, &error));
  CHECK(page->count == 1 && page->items[0]->key.size == 1 && page->cursor.size != 0);
  cairn_object_page* next = NULL;
  CHECK_OK(cairn_objects_list(objects, NULL, 1, &page->cursor, &next, &error));
  CHECK(next->count == 1 && memcmp(next->items[0]->key.data, "async0", 6) == 0);
  cairn_object_page_free(page);
  cairn_object_page_free(next);
  cairn_object_results* results = NULL;
  CHECK_OK(
      cairn_objects_delete(objects, keys, 3, NULL, CAIRN_DURABILITY_PROCESS, &results, &error));
  CHECK(results->count == 3 && results->items[0].code == CAIRN_OK);
  CHECK(results->items[2].code == CAIRN_NOT_FOUND);
  CHECK(cairn_error_code(results->items[2].error) == CAIRN_NOT_FOUND);
  cairn_object_results_free(results);
}

void TestObjects(const char* directory) {
  (void)directory;
  cairn_error* error = NULL;
  cairn_store* store = OpenStore(":memory:");
  cairn_objects* objects = NULL;
  CHECK_OK(cairn_objects_new(store, &objects, &error));
  cairn_object_class kind;
  cairn_object_class_init(&kind, sizeof kind);
  CHECK(kind.page_bytes == 4096);
  kind.name = "kv";
  uint64_t id = 0;
  CHECK_OK(cairn_objects_register_class(objects, &kind, &id, &error));
  kind.page_bytes = 8192;
  CHECK_CODE(CAIRN_MODEL_MISMATCH, cairn_objects_register_class(objects, &kind, &id, &error));
  cairn_put_options options;
  cairn_put_options_init(&options, sizeof options);
  options.object_class = id;
  cairn_object_put puts[3];
  for (size_t i = 0; i < 3; ++i) cairn_object_put_init(&puts[i], sizeof puts[i]);
  puts[0].key = Key("a");
  puts[1].key = Key("b");
  puts[1].value = (cairn_bytes){"\0v\0w", 4};
  puts[1].depth = 1;
  cairn_object_results* results = NULL;  // puts[2] has no key: its error alone.
  CHECK_OK(cairn_objects_put_batch(objects, puts, 3, &options, &results, &error));
  CHECK(results->count == 3 && results->items[0].stored && results->items[1].stored);
  CHECK(results->items[2].code == CAIRN_INVALID_ARGUMENT);
  CHECK(strlen(cairn_error_message(results->items[2].error)) != 0);
  cairn_object_results_free(results);
  options.if_present = 2;
  CHECK_REFUSED("cairn_put_options::if_present",
                cairn_objects_put_batch(objects, puts, 3, &options, NULL, &error));
  options.if_present = CAIRN_IF_PRESENT_KEEP;

  char back[8], tiny[2];
  cairn_object_get gets[2];
  for (size_t i = 0; i < 2; ++i) {
    cairn_object_get_init(&gets[i], sizeof gets[i]);
    gets[i].key = Key("b");
    gets[i].into = i == 0 ? back : tiny;
    gets[i].into_size = i == 0 ? sizeof back : sizeof tiny;
  }
  CHECK_OK(cairn_objects_get_batch(objects, gets, 2, NULL, &results, &error));
  CHECK(results->items[0].code == CAIRN_OK && results->items[0].bytes == 4);
  CHECK(memcmp(back, "\0v\0w", 4) == 0);
  CHECK(results->items[1].code == CAIRN_INVALID_ARGUMENT && results->items[1].bytes == 4);
  cairn_object_results_free(results);
  CheckAsyncObjects(store, objects, &options);
  CheckKeysWithoutBytes(objects, &options);
  CheckLease(store, objects);
  CheckKeys(objects);

  cairn_namespace_policy policy;
  cairn_namespace_policy_init(&policy, sizeof policy);
  policy.max_bytes = 1 << 20;
  CHECK_OK(cairn_objects_set_policy(objects, "t", &policy, CAIRN_DURABILITY_PROCESS, &error));
  cairn_namespaces* usage = NULL;
  CHECK_OK(cairn_objects_usage(objects, &usage, &error));
  CHECK(usage->count == 2 && usage->items[0]->branches == 2);
  CHECK(strcmp(usage->items[1]->name, "t") == 0 && usage->items[1]->policy->max_bytes == 1 << 20);
  cairn_namespaces_free(usage);
  cairn_objects_free(objects);
  cairn_store_free(store);
}
