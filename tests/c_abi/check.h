// SPDX-License-Identifier: Apache-2.0
//
// Helpers of the C program's tests: a check that names itself and goes on, and things that every
// story needs.
#pragma once

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cairn/c.h"

extern int g_failures;

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      ++g_failures;                                                           \
    }                                                                         \
  } while (0)

// A call that must end so. Uses a variable `error` of the caller's, which is NULL behind it.
#define CHECK_CODE(code, call)                                                                  \
  do {                                                                                          \
    const cairn_code got_ = (call);                                                             \
    if (got_ != (code)) {                                                                       \
      fprintf(stderr, "%s:%d: %s, not %s: %s: %s\n", __FILE__, __LINE__, cairn_code_name(got_), \
              cairn_code_name(code), #call, cairn_error_message(error));                        \
      ++g_failures;                                                                             \
    }                                                                                           \
    cairn_error_free(error);                                                                    \
    error = NULL;                                                                               \
  } while (0)
#define CHECK_OK(call) CHECK_CODE(CAIRN_OK, call)

// That it is refused, with a message that has this in it.
#define CHECK_REFUSED(words, call)                                                            \
  do {                                                                                        \
    const cairn_code got_ = (call);                                                           \
    if (got_ != CAIRN_INVALID_ARGUMENT || error == NULL ||                                    \
        strstr(cairn_error_message(error), words) == NULL) {                                  \
      fprintf(stderr, "%s:%d: %s is not refused for \"%s\" but %s: %s\n", __FILE__, __LINE__, \
              #call, words, cairn_code_name(got_), cairn_error_message(error));               \
      ++g_failures;                                                                           \
    }                                                                                         \
    cairn_error_free(error);                                                                  \
    error = NULL;                                                                             \
  } while (0)

enum { kLayers = 2, kHeads = 2, kHeadDim = 4 };

// A store in `path` (":memory:" is one), with segments of 1 MiB; NULL after a failed check.
cairn_store* OpenStore(const char* path);
// A model of one group of full attention, in bf16. The arrays live as long as `model` does.
typedef struct Model {
  cairn_plane planes[2];
  cairn_layer_group group;
  cairn_model_spec spec;
  uint64_t id;
} Model;
void MakeModel(cairn_store* store, const char* name, Model* model);
cairn_branch* CreateBranch(cairn_store* store, uint64_t model, const char* name);
// Tokens 100, 101, ... and KV that follows from `seed`, appended with AppendSync.
enum { kTokensMax = 512 };
void AppendTokens(cairn_branch* branch, const Model* model, uint64_t begin, uint64_t end,
                  uint32_t seed);
// A buffer of KV that follows from `seed`.
cairn_kv_buffer* MakeKv(const Model* model, uint64_t tokens, uint32_t seed);
uint32_t TokenAt(uint64_t position);

void TestErrors(const char* directory);
void TestNulls(const char* directory);
void TestSizes(const char* directory);
void TestModels(const char* directory);
void TestBranches(const char* directory);
void TestAppends(const char* directory);
void TestStates(const char* directory);
void TestRestores(const char* directory);
void TestBatches(const char* directory);
void TestFind(const char* directory);
void TestBlend(const char* directory);
void TestSharedMemory(const char* directory);
void TestSlots(const char* directory);
void TestObjects(const char* directory);
void TestCare(const char* directory);
void TestExport(const char* directory);
void TestGpu(const char* directory);
void TestSparse(const char* directory);
void TestSparseCalls(const char* directory);
void TestShadow(const char* directory);
