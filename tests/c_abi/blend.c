// SPDX-License-Identifier: Apache-2.0
//
// Property: a plan says what of a prompt is loaded from where, and its restore brings that, keys
// turned; a composition is the documents' ids with such a plan; options have all their names.
#include <stdlib.h>

#include "tests/c_abi/check.h"

static float g_inv_freq[kHeadDim / 2] = {1.0F, 0.01F};

static void CheckOptions(void) {
  cairn_error* error = NULL;
  cairn_blend_options *options = NULL, *lmcache = NULL, *ucm = NULL;
  CHECK_OK(cairn_blend_options_create(&options, &error));
  CHECK_OK(cairn_blend_options_lmcache(&lmcache, &error));
  CHECK_OK(cairn_blend_options_ucm(&ucm, &error));
  CHECK_OK(cairn_blend_options_set(options, "LMCACHE_BLEND_MIN_TOKENS", "256", &error));
  CHECK_REFUSED("no option is called", cairn_blend_options_set(options, "x", "1", &error));
  CHECK_REFUSED("takes a number", cairn_blend_options_set(options, "recompute_ratio", "a", &error));
  CHECK_REFUSED("options", cairn_blend_options_set(NULL, "x", "1", &error));
  CHECK_REFUSED("name", cairn_blend_options_set(options, NULL, "1", &error));
  CHECK_REFUSED("value", cairn_blend_options_set(options, "min_tokens", NULL, &error));
  CHECK_REFUSED("options", cairn_blend_options_create(NULL, &error));
  CHECK_REFUSED("options", cairn_blend_options_lmcache(NULL, &error));
  CHECK_REFUSED("options", cairn_blend_options_ucm(NULL, &error));
  cairn_blend_options_free(options);
  cairn_blend_options_free(lmcache);
  cairn_blend_options_free(ucm);
  cairn_blend_options_free(NULL);
  CHECK(strcmp("partial", cairn_blend_match_name(CAIRN_BLEND_MATCH_PARTIAL)) == 0);
  CHECK(strcmp("unknown", cairn_blend_match_name(9)) == 0);
}

static void CheckRestore(cairn_store* store, const Model* model, const cairn_blend_plan* plan) {
  cairn_error* error = NULL;
  cairn_kv_buffer *kv = MakeKv(model, 200, 5), *back = NULL;
  CHECK_OK(cairn_kv_buffer_new(&model->spec, 300, &back, &error));
  cairn_restore_request request;
  cairn_restore_request_init(&request, sizeof request);
  request.into = cairn_kv_buffer_view(back);
  cairn_restore_result* result = NULL;
  CHECK_OK(cairn_store_restore_plan(store, plan, &request, NULL, &result, &error));
  CHECK(result->begin == 0 && result->end == 300);
  CHECK(result->approximate_bytes == result->bytes && result->bytes != 0);
  cairn_restore_result_free(result);
  // Values are those of the source, keys are turned, and the rest is untouched.
  CHECK(memcmp(cairn_kv_buffer_row(kv, 0, 1, 1, 1, 100), cairn_kv_buffer_row(back, 0, 1, 1, 1, 150),
               2 * kHeadDim) == 0);
  CHECK(memcmp(cairn_kv_buffer_row(kv, 0, 1, 0, 1, 100), cairn_kv_buffer_row(back, 0, 1, 0, 1, 150),
               2 * kHeadDim) != 0);
  const unsigned char zeros[2 * kHeadDim] = {0};
  CHECK(memcmp(zeros, cairn_kv_buffer_row(back, 0, 1, 0, 1, 60), sizeof zeros) == 0);
  request.end = 301;
  CHECK_REFUSED("restore of a plan",
                cairn_store_restore_plan(store, plan, &request, NULL, &result, &error));
  CHECK(result == NULL);
  CHECK_REFUSED("store", cairn_store_restore_plan(NULL, plan, &request, NULL, NULL, &error));
  CHECK_REFUSED("plan", cairn_store_restore_plan(store, NULL, &request, NULL, NULL, &error));
  CHECK_REFUSED("request", cairn_store_restore_plan(store, plan, NULL, NULL, NULL, &error));
  cairn_kv_buffer_free(kv);
  cairn_kv_buffer_free(back);
}

static void CheckPlan(cairn_store* store, const Model* model) {
  cairn_error* error = NULL;
  uint32_t prompt[300];
  for (uint32_t i = 0; i < 300; ++i) {
    prompt[i] = i < 50 ? 7 + i % 3 : i < 250 ? TokenAt(i - 50) : 5000 + i;
  }
  cairn_prefix_query query;
  cairn_prefix_query_init(&query, sizeof query);
  query.model = model->id;
  query.tokens = prompt;
  query.token_count = 300;
  query.lease_ns = UINT64_C(1000000000);
  cairn_blend_plan* plan = NULL;
  CHECK_OK(cairn_store_plan_blend(store, &query, NULL, &plan, &error));
  CHECK(plan->tokens == 300 && plan->model == model->id && plan->segment_count == 3);
  CHECK(plan->segments[0].match == CAIRN_BLEND_MATCH_NONE && plan->segments[0].node == 0);
  CHECK(plan->segments[1].match == CAIRN_BLEND_MATCH_FULL);
  CHECK(plan->segments[1].begin == 50 && plan->segments[1].end == 250);
  CHECK(plan->segments[1].source == 0 && plan->segments[1].node != 0);
  CHECK(plan->step_count == 3 && plan->steps[1].loads == 1 && plan->steps[2].loads == 0);
  CHECK(plan->steps[1].begin == 66 && plan->steps[1].end == 248 && plan->exact == 66);
  CHECK(plan->load_tokens == 182 && plan->compute_tokens == 118 && plan->load_bytes != 0);
  CHECK(plan->complete && plan->position_correction && plan->lease != 0);
  CheckRestore(store, model, plan);
  CHECK_OK(cairn_store_release(store, plan->lease, &error));
  cairn_blend_plan_free(plan);
  cairn_blend_plan_free(NULL);

  cairn_blend_options* options = NULL;
  CHECK_OK(cairn_blend_options_create(&options, &error));
  CHECK_OK(cairn_blend_options_set(options, "min_tokens", "31", &error));
  CHECK_REFUSED("options.min_tokens",
                cairn_store_plan_blend(store, &query, options, &plan, &error));
  CHECK(plan == NULL);
  cairn_blend_options_free(options);
  query.token_count = 0;
  CHECK_REFUSED("query.tokens", cairn_store_plan_blend(store, &query, NULL, &plan, &error));
  CHECK_REFUSED("store", cairn_store_plan_blend(NULL, &query, NULL, &plan, &error));
  CHECK_REFUSED("query", cairn_store_plan_blend(store, NULL, NULL, &plan, &error));
  CHECK_REFUSED("plan", cairn_store_plan_blend(store, &query, NULL, NULL, &error));
}

static void CheckCompose(cairn_store* store, const Model* model) {
  cairn_error* error = NULL;
  const uint32_t separator[] = {7, 8}, question[] = {1, 2, 3};
  cairn_compose_document documents[2];
  for (int i = 0; i < 2; ++i) {
    cairn_compose_document_init(&documents[i], sizeof documents[i]);
    documents[i].name = i == 0 ? "doc" : "do";
    documents[i].is_beginning = i == 1;
    documents[i].begin = i == 0 ? 10 : 0;
  }
  cairn_compose_request request;
  cairn_compose_request_init(&request, sizeof request);
  request.model = model->id;
  request.documents = documents;
  request.document_count = 2;
  request.separator = separator;
  request.separator_count = 2;
  request.question = question;
  request.question_count = 3;
  cairn_composed* composed = NULL;
  CHECK_OK(cairn_store_compose(store, &request, NULL, &composed, &error));
  CHECK(composed->token_count == 190 + 2 + 200 + 2 + 3 && composed->span_count == 0);
  CHECK(composed->tokens[0] == TokenAt(10) && composed->tokens[190] == 7);
  CHECK(composed->document_count == 2 && strcmp(composed->documents[1].name, "doc") == 0);
  CHECK(composed->documents[1].begin == 192 && composed->documents[1].end == 392);
  CHECK(composed->plan->tokens == composed->token_count && composed->plan->segment_count == 4);
  cairn_composed_free(composed);
  cairn_composed_free(NULL);
  documents[0].name = "none";
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_store_compose(store, &request, NULL, &composed, &error));
  CHECK(composed == NULL);
  CHECK_REFUSED("store", cairn_store_compose(NULL, &request, NULL, &composed, &error));
  CHECK_REFUSED("request", cairn_store_compose(store, NULL, NULL, &composed, &error));
  CHECK_REFUSED("composed", cairn_store_compose(store, &request, NULL, NULL, &error));
  request.separator = NULL;
  CHECK_REFUSED("separator", cairn_store_compose(store, &request, NULL, &composed, &error));
}

void TestBlend(const char* directory) {
  (void)directory;
  CheckOptions();
  cairn_error* error = NULL;
  cairn_store* store = OpenStore(":memory:");
  Model model;
  MakeModel(store, "m", &model);
  model.group.inv_freq = g_inv_freq;
  model.group.inv_freq_count = kHeadDim / 2;
  CHECK_OK(
      cairn_store_register_model(store, &model.spec, CAIRN_DURABILITY_POWER, &model.id, &error));
  cairn_namespace_policy policy;
  cairn_namespace_policy_init(&policy, sizeof policy);
  policy.index = CAIRN_INDEX_CHUNKS;
  CHECK_OK(cairn_store_set_namespace(store, "", &policy, CAIRN_DURABILITY_POWER, &error));
  cairn_branch* branch = CreateBranch(store, model.id, "doc");
  AppendTokens(branch, &model, 0, 200, 5);
  CheckPlan(store, &model);
  CheckCompose(store, &model);
  cairn_branch_free(branch);
  CHECK_OK(cairn_store_close(store, &error));
  cairn_store_free(store);
}
