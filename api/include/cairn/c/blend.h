// SPDX-License-Identifier: Apache-2.0
//
// C API: KV of a prompt at any position. The C++ twins are cairn/blend.h and cairn/compose.h; the
// calls are those of cairn/store.h. docs/blend.md goes from a prompt to a plan.
//
//   cairn_blend_plan* plan;
//   if (cairn_store_plan_blend(store, &query, NULL, &plan, &error) == CAIRN_OK) {
//     for (size_t i = 0; i < plan->step_count; ++i) {
//       const cairn_blend_step* step = &plan->steps[i];
//       request.begin = step->begin;
//       request.end = step->end;
//       if (!step->loads ||
//           cairn_store_restore_plan(store, plan, &request, NULL, NULL, NULL) != CAIRN_OK) {
//         compute(step->begin, step->end);  // The cache holds [0, step->begin).
//       }
//     }
//     cairn_blend_plan_free(plan);
//   }
//
// All calls of this file may be made from any thread.
#pragma once

#include "cairn/c/find.h"
#include "cairn/c/restore.h"
#include "cairn/c/store.h"

#ifdef __cplusplus
extern "C" {
#endif

// cairn::BlendOptions: a handle, whose options are set by name. Each is made with the defaults of
// Cairn, or with the documented ones of LMCache's or UCM's blending, and freed with
// cairn_blend_options_free. Not to be changed while a call uses it.
typedef struct cairn_blend_options cairn_blend_options;
CAIRN_API cairn_code cairn_blend_options_create(cairn_blend_options** options, cairn_error** error);
CAIRN_API cairn_code cairn_blend_options_lmcache(cairn_blend_options** options,
                                                 cairn_error** error);
CAIRN_API cairn_code cairn_blend_options_ucm(cairn_blend_options** options, cairn_error** error);
CAIRN_API void cairn_blend_options_free(cairn_blend_options* options);
// Sets an option by its name here, in LMCache or in UCM, as cairn::SetBlendOption: "min_tokens" to
// "64", "separators" to "12,13;14", "recompute" to "100-116", "sources" to "7:0-512@64". Does not
// block. CAIRN_INVALID_ARGUMENT: there is no such option, or the value is of another kind; nothing
// is set.
CAIRN_API cairn_code cairn_blend_options_set(cairn_blend_options* options, const char* name,
                                             const char* value, cairn_error** error);

typedef uint32_t cairn_blend_match;
#define CAIRN_BLEND_MATCH_NONE 0     // Found nowhere.
#define CAIRN_BLEND_MATCH_PREFIX 1   // The same from position 0 on, exact.
#define CAIRN_BLEND_MATCH_FULL 2     // All ids are equal, elsewhere or behind other tokens.
#define CAIRN_BLEND_MATCH_PARTIAL 3  // Most ids are equal.
// "none", "prefix", "full", "partial"; "unknown" for another value. The text is static.
CAIRN_API const char* cairn_blend_match_name(cairn_blend_match match);

// cairn::BlendSegment: positions [begin, end) of the prompt, and where their KV is: from position
// `source` on of the path that ends with the node. Never gets another field.
typedef struct cairn_blend_segment {
  uint64_t begin, end;
  uint64_t node;    // 0 of CAIRN_BLEND_MATCH_NONE.
  uint64_t source;  // A position.
  uint64_t match;   // A cairn_blend_match.
  uint64_t digest[2];  // Not for callers.
} cairn_blend_segment;
// cairn::BlendStep. Never gets another field.
typedef struct cairn_blend_step {
  uint64_t begin, end;
  uint64_t loads;  // 1: it is loaded; 0: computed.
} cairn_blend_step;

// cairn::BlendPlan: which positions of the prompt are loaded, from where, and which are computed.
// The library makes it, and it is not to be changed. It may be kept, and used from any thread; only
// its lease holds content. Free it with cairn_blend_plan_free.
typedef struct cairn_blend_plan {
  size_t struct_size;
  uint64_t model;
  uint64_t tokens;                      // The prompt's length.
  const cairn_blend_segment* segments;  // In order; they cover the prompt.
  size_t segment_count;
  const cairn_blend_step* steps;  // The same. A step that computes is last.
  size_t step_count;
  uint64_t exact;  // Nothing before this position is approximate.
  uint64_t load_tokens, compute_tokens;
  uint64_t load_bytes;       // Raw KV of what is loaded.
  bool complete;             // Off: the index is behind, and there may be more.
  bool positions_checked;    // Stored keys turn as the model says.
  bool position_correction;  // As in the options.
  uint64_t lease;            // Holds all that is loaded (cairn_store_release). 0: none.
} cairn_blend_plan;
CAIRN_API void cairn_blend_plan_free(cairn_blend_plan* plan);

// Plans what is loaded of the prompt, and from where: its prefix, and runs of its ids that stand
// elsewhere, in namespaces that index chunks. The query's `confirm` counts as on. `options` may be
// NULL. *plan is freed with cairn_blend_plan_free. Nothing found is no error.
//
// Blocking, unless memory_only is on: as cairn_store_find_prefix, and it reads ids of what it
// finds. Its errors, and
//   CAIRN_INVALID_ARGUMENT: no tokens; an option, by its name; a model with a group of states; keys
//     that would have to be turned and cannot be.
//   CAIRN_INVALID_STATE: no namespace of the query indexes chunks, and there are no sources.
//   CAIRN_MODEL_MISMATCH: an option or a source does not fit the model, or stored keys do not turn
//     as it says.
//   CAIRN_NOT_FOUND, CAIRN_CONFLICT, CAIRN_EVICTED: a source is gone, has other ids, or lacks KV.
//   CAIRN_STALE: the tree changes faster than it is read.
CAIRN_API cairn_code cairn_store_plan_blend(const cairn_store* store,
                                            const cairn_prefix_query* query,
                                            const cairn_blend_options* options,
                                            cairn_blend_plan** plan, cairn_error** error);
// Brings what the plan loads of the request's [begin, end), positions of the prompt, keys turned to
// where they stand now; the rest of the view stays. As cairn_store_restore, with its borrowing. All
// or nothing. `tokens` of the request must be NULL. Errors beside those of cairn_branch_restore:
//   CAIRN_INVALID_ARGUMENT: the range, tokens, or a plan of another store.
//   CAIRN_NOT_FOUND: a source was dropped. CAIRN_CONFLICT: it has other ids by now.
//   CAIRN_STALE: the tree changes faster than it is read.
CAIRN_API cairn_code cairn_store_restore_plan(const cairn_store* store,
                                              const cairn_blend_plan* plan,
                                              const cairn_restore_request* request,
                                              cairn_layer_progress* progress,
                                              cairn_restore_result** result, cairn_error** error);

// cairn::ComposeDocument: a branch of the request's namespace.
typedef struct cairn_compose_document {
  size_t struct_size;
  const char* name;
  bool is_beginning;  // All whose names begin so, in order of name.
  uint64_t begin;     // Leaves out a header that it was computed behind.
  uint64_t end;       // UINT64_MAX: the branch's length.
} cairn_compose_document;
CAIRN_API void cairn_compose_document_init(cairn_compose_document* document, size_t struct_size);

// cairn::ComposeRequest: documents, with the separator between them and before the question. All
// that it points to is borrowed for the call.
typedef struct cairn_compose_request {
  size_t struct_size;
  uint64_t model;
  const char* ns;  // NULL: the one without a name.
  const cairn_compose_document* documents;
  size_t document_count;
  const uint32_t* separator;
  size_t separator_count;
  const uint32_t* question;
  size_t question_count;
  uint64_t lease_ns;  // As of a cairn_prefix_query.
} cairn_compose_request;
CAIRN_API void cairn_compose_request_init(cairn_compose_request* request, size_t struct_size);

// cairn::ComposedDocument: where a document stands in the prompt. Never gets another field.
typedef struct cairn_composed_document {
  const char* name;
  uint64_t branch;  // Id.
  uint64_t begin, end;
} cairn_composed_document;
// cairn::Composed: the prompt and its plan. Free it with cairn_composed_free, the plan included.
typedef struct cairn_composed {
  size_t struct_size;
  const uint32_t* tokens;
  size_t token_count;
  const cairn_content_span* spans;
  size_t span_count;
  const cairn_composed_document* documents;
  size_t document_count;
  const cairn_blend_plan* plan;
} cairn_composed;
CAIRN_API void cairn_composed_free(cairn_composed* composed);

// Puts named branches in a row and plans that with them as sources, where they have exact KV;
// nothing is searched. `options` may be NULL. Blocking: reads their ids. Errors beside those of
// cairn_store_plan_blend:
//   CAIRN_INVALID_ARGUMENT: the request, a range beyond a document, or options with sources.
//   CAIRN_NOT_FOUND: the model or a document. CAIRN_MODEL_MISMATCH: a document of another model.
//   CAIRN_CONFLICT: a document changed meanwhile.
CAIRN_API cairn_code cairn_store_compose(const cairn_store* store,
                                         const cairn_compose_request* request,
                                         const cairn_blend_options* options,
                                         cairn_composed** composed, cairn_error** error);

#ifdef __cplusplus
}  // extern "C"
#endif
