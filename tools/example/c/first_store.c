// SPDX-License-Identifier: Apache-2.0
#include <cairn/c.h>
#include <stdio.h>
#include <string.h>

static int Fail(const char* what, cairn_error* error) {
  fprintf(stderr, "%s: %s\n", what, cairn_error_message(error));
  cairn_error_free(error);
  return 1;
}

int main(void) {
  cairn_error* error = NULL;
  cairn_store* store = NULL;
  cairn_options options;
  cairn_options_init(&options, sizeof options);
  options.create_if_missing = true;
  if (cairn_store_open("c-example.store", &options, &store, &error) != CAIRN_OK) {
    return Fail("open", error);
  }

  // The shape of one token's KV: 2 layers, 2 heads of 4 bf16 elements.
  cairn_plane planes[2] = {{.struct_size = sizeof planes[0]}, {.struct_size = sizeof planes[1]}};
  cairn_layer_group group;
  cairn_layer_group_init(&group, sizeof group);
  cairn_layer_group_full_attention(&group, planes, 2, 2, 4, CAIRN_DTYPE_BF16, NULL);
  cairn_model_spec spec;
  cairn_model_spec_init(&spec, sizeof spec);
  spec.name = "toy";
  spec.groups = &group;
  spec.group_count = 1;
  uint64_t model = 0;
  cairn_branch *chat = NULL, *twin = NULL;
  if (cairn_store_register_model(store, &spec, CAIRN_DURABILITY_POWER, &model, &error) !=
          CAIRN_OK ||
      cairn_store_create_branch(store, model, NULL, &chat, &error) != CAIRN_OK) {
    return Fail("create", error);
  }

  const uint32_t tokens[] = {11, 12, 13};
  cairn_kv_buffer *kv = NULL, *back = NULL;
  if (cairn_kv_buffer_new(&spec, 3, &kv, &error) != CAIRN_OK ||
      cairn_kv_buffer_new(&spec, 3, &back, &error) != CAIRN_OK) {
    return Fail("buffers", error);
  }
  memset(cairn_kv_buffer_data(kv), 7, cairn_kv_buffer_size(kv));
  cairn_delta delta = {.struct_size = sizeof delta, .tokens = tokens, .token_count = 3};
  delta.kv = cairn_kv_buffer_view(kv);
  cairn_append_options durably;
  cairn_append_options_init(&durably, sizeof durably);
  durably.durability = CAIRN_DURABILITY_POWER;  // Survives power loss.
  uint64_t length = 0, shared = 0;
  if (cairn_branch_append_sync(chat, &delta, &durably, &length, &error) != CAIRN_OK ||
      cairn_branch_fork_at(chat, 2, NULL, &twin, &error) != CAIRN_OK ||  // Copies nothing.
      cairn_branch_length(twin, &shared, &error) != CAIRN_OK) {
    return Fail("append", error);
  }
  cairn_restore_request request;
  cairn_restore_request_init(&request, sizeof request);
  request.into = cairn_kv_buffer_view(back);
  if (cairn_branch_restore(chat, &request, NULL, NULL, &error) != CAIRN_OK) {
    return Fail("restore", error);
  }
  const bool equal = cairn_kv_buffer_equal(kv, back);
  printf("%d tokens, fork of %d, KV %s\n", (int)length, (int)shared, equal ? "equal" : "lost");
  cairn_kv_buffer_free(kv);
  cairn_kv_buffer_free(back);
  cairn_branch_free(twin);
  cairn_branch_free(chat);
  cairn_store_free(store);
  return equal ? 0 : 1;
}
