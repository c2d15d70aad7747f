// SPDX-License-Identifier: Apache-2.0
//
// Property: a program that was built with a shorter struct, or with a longer one that it leaves at
// zero, is served; one that never set the size, or set what the library does not know, is refused.
#include <stdlib.h>

#include "tests/c_abi/check.h"

// A struct as a later version may have it.
typedef struct {
  cairn_append_options known;
  uint64_t later;
} LongerOptions;

// And as an earlier one may have had it.
typedef struct {
  size_t struct_size;
  cairn_durability durability;
  cairn_overload overload;
  bool has_expected_length;
  bool ends_turn;
  bool approximate;
} ShorterOptions;
typedef struct {
  size_t struct_size;
  const uint32_t* tokens;
  size_t token_count;
} ShorterDelta;

static void CheckShorter(cairn_branch* branch) {
  cairn_error* error = NULL;
  const uint32_t token = 7;
  CHECK(sizeof(ShorterOptions) == offsetof(cairn_append_options, expected_length));
  CHECK(sizeof(ShorterDelta) == offsetof(cairn_delta, kv));
  // On the heap, where a sanitizer sees what reaches beyond it.
  ShorterOptions* options = malloc(sizeof *options);
  cairn_append_options_init((cairn_append_options*)options, sizeof *options);
  CHECK(options->struct_size == sizeof *options && options->durability == CAIRN_DURABILITY_PROCESS);
  ShorterDelta* delta = malloc(sizeof *delta);
  cairn_delta_init((cairn_delta*)delta, sizeof *delta);
  delta->tokens = &token;
  delta->token_count = 1;
  // The timeout is the library's default, for ever: else this would be an unknown outcome.
  uint64_t length = 0;
  CHECK_OK(cairn_branch_append_sync(branch, (cairn_delta*)delta, (cairn_append_options*)options,
                                    &length, &error));
  CHECK(length == 1);
  free(options);
  free(delta);
}

static void CheckLonger(cairn_branch* branch) {
  cairn_error* error = NULL;
  const uint32_t token = 7;
  cairn_delta delta;
  cairn_delta_init(&delta, sizeof delta);
  delta.tokens = &token;
  delta.token_count = 1;
  LongerOptions options;
  memset(&options, 0xFF, sizeof options);
  cairn_append_options_init(&options.known, sizeof options);
  CHECK(options.known.struct_size == sizeof options && options.later == 0);
  CHECK_OK(cairn_branch_append_sync(branch, &delta, &options.known, NULL, &error));
  options.later = 1;
  CHECK_REFUSED("cairn_append_options",
                cairn_branch_append_sync(branch, &delta, &options.known, NULL, &error));
}

static void CheckNonsense(cairn_branch* branch) {
  cairn_error* error = NULL;
  const size_t sizes[] = {0, 1, 8, 17, 4104, SIZE_MAX, SIZE_MAX - 7};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    cairn_append_options options;
    cairn_append_options_init(&options, sizeof options);
    options.struct_size = sizes[i];
    cairn_delta delta;
    cairn_delta_init(&delta, sizeof delta);
    CHECK_REFUSED("cairn_append_options::struct_size",
                  cairn_branch_append_sync(branch, &delta, &options, NULL, &error));
    delta.struct_size = sizes[i];
    CHECK_REFUSED("cairn_delta::struct_size",
                  cairn_branch_append_sync(branch, &delta, NULL, NULL, &error));
  }
}

static void CheckOutputs(cairn_store* store) {
  cairn_error* error = NULL;
  cairn_metrics* metrics = NULL;
  CHECK_OK(cairn_store_metrics(store, &metrics, &error));
  // An older program's: what lies behind it stays as it is.
  cairn_histogram histogram;
  memset(&histogram, 0xAB, sizeof histogram);
  histogram.struct_size = offsetof(cairn_histogram, sum_ns);
  CHECK_OK(cairn_metrics_histogram(metrics, "save", &histogram, &error));
  CHECK(histogram.count >= 1);
  CHECK(histogram.struct_size == offsetof(cairn_histogram, sum_ns));
  CHECK(histogram.sum_ns == UINT64_C(0xABABABABABABABAB));
  histogram.struct_size = 3;
  CHECK_REFUSED("cairn_histogram", cairn_metrics_histogram(metrics, "save", &histogram, &error));
  cairn_histogram_init(&histogram, sizeof histogram);
  CHECK_CODE(CAIRN_NOT_FOUND, cairn_metrics_histogram(metrics, "none", &histogram, &error));
  CHECK_OK(cairn_metrics_histogram(metrics, "save", &histogram, &error));
  CHECK(histogram.bucket_count == 704 && histogram.counts != NULL);
  // And a newer one's, of which it set the size alone.
  struct {
    cairn_histogram known;
    uint64_t later[2];
  } longer;
  memset(&longer, 0xAB, sizeof longer);
  longer.known.struct_size = sizeof longer;
  CHECK_OK(cairn_metrics_histogram(metrics, "save", &longer.known, &error));
  CHECK(longer.known.bucket_count == 704 && longer.known.struct_size == sizeof longer);
  CHECK(longer.later[0] == 0 && longer.later[1] == 0);
  cairn_metrics_free(metrics);
}

// Presets fill what nobody has set, the sizes apart.
static void CheckPresets(void) {
  cairn_error* error = NULL;
  struct {
    cairn_plane known;
    uint64_t later;
  } planes[2];
  struct {
    cairn_layer_group known;
    uint64_t later;
  } group;
  memset(planes, 0xAB, sizeof planes);
  memset(&group, 0xAB, sizeof group);
  planes[0].known.struct_size = planes[1].known.struct_size = sizeof planes[0];
  group.known.struct_size = sizeof group;
  CHECK_OK(cairn_layer_group_full_attention(&group.known, &planes[0].known, 1, 2, 8,
                                            CAIRN_DTYPE_F16, &error));
  CHECK(group.later == 0 && planes[0].later == 0 && planes[1].later == 0);
  CHECK(group.known.packing == NULL && planes[1].known.heads == 2);
}

// The planes of a later version's program, one behind the other.
static void CheckArrays(cairn_store* store) {
  cairn_error* error = NULL;
  struct {
    cairn_plane known;
    uint64_t later;
  } planes[2];
  cairn_layer_group group;
  cairn_layer_group_init(&group, sizeof group);
  cairn_plane_init(&planes[0].known, sizeof planes[0]);
  cairn_plane_init(&planes[1].known, sizeof planes[1]);
  CHECK_OK(
      cairn_layer_group_full_attention(&group, &planes[0].known, 1, 2, 8, CAIRN_DTYPE_F16, &error));
  CHECK(strcmp(planes[0].known.name, "k") == 0 && strcmp(planes[1].known.name, "v") == 0);
  CHECK(planes[1].known.heads == 2 && planes[1].known.row_bytes == 16);
  CHECK(planes[1].known.struct_size == sizeof planes[1]);
  cairn_model_spec spec;
  cairn_model_spec_init(&spec, sizeof spec);
  spec.name = "longer";
  spec.groups = &group;
  spec.group_count = 1;
  uint64_t bytes = 0, model = 0;
  CHECK_OK(cairn_model_spec_token_bytes(&spec, &bytes, &error));
  CHECK(bytes == 64);
  CHECK_OK(cairn_store_register_model(store, &spec, CAIRN_DURABILITY_MEMORY, &model, &error));
  planes[1].known.struct_size = sizeof planes[1].known;
  CHECK_REFUSED("struct_size of element 1", cairn_model_spec_validate(&spec, &error));
}

void TestSizes(const char* directory) {
  (void)directory;
  cairn_store* store = OpenStore(":memory:");
  Model model;
  MakeModel(store, "m", &model);
  cairn_branch* branch = CreateBranch(store, model.id, "b");
  CheckShorter(branch);
  CheckLonger(branch);
  CheckNonsense(branch);
  CheckOutputs(store);
  CheckPresets();
  CheckArrays(store);
  cairn_branch_free(branch);
  cairn_store_free(store);
}
