// SPDX-License-Identifier: Apache-2.0
//
// Of the C API: a store. The C++ twin is cairn/store.h, which tells of each call what it does,
// costs and returns; here stands what differs. Searches are in cairn/c_find.h.
#pragma once

#include "cairn/c_branch.h"
#include "cairn/c_metrics.h"

#ifdef __cplusplus
extern "C" {
#endif

// cairn::Store. Thread-safe, but for cairn_store_free.
typedef struct cairn_store cairn_store;

// `path`: a directory, or ":memory:". `options` may be NULL.
CAIRN_API cairn_code cairn_store_open(const char* path, const cairn_options* options,
                                      cairn_store** store, cairn_error** error);
// Blocking. From then on every call is CAIRN_INVALID_STATE; the handle stays, until it is freed.
CAIRN_API cairn_code cairn_store_close(cairn_store* store, cairn_error** error);
// Closes it as well; errors are lost then.
CAIRN_API void cairn_store_free(cairn_store* store);

// --- Models
CAIRN_API cairn_code cairn_store_register_model(cairn_store* store, const cairn_model_spec* spec,
                                                cairn_durability durability, uint64_t* model,
                                                cairn_error** error);
CAIRN_API cairn_code cairn_store_get_model(const cairn_store* store, uint64_t model,
                                           cairn_model_info** info, cairn_error** error);
CAIRN_API cairn_code cairn_store_models(const cairn_store* store, cairn_models** models,
                                        cairn_error** error);

// --- Branches. `options` and `ns` may be NULL.
CAIRN_API cairn_code cairn_store_create_branch(cairn_store* store, uint64_t model,
                                               const cairn_branch_options* options,
                                               cairn_branch** branch, cairn_error** error);
CAIRN_API cairn_code cairn_store_find_branch(const cairn_store* store, const char* name,
                                             const char* ns, cairn_branch** branch,
                                             cairn_error** error);
CAIRN_API cairn_code cairn_store_get_branch(const cairn_store* store, uint64_t id,
                                            cairn_branch** branch, cairn_error** error);

// cairn::BranchPage
typedef struct cairn_branch_page {
  size_t struct_size;
  const cairn_branch_info* const* items;
  size_t count;
  cairn_bytes cursor;  // Pass it on for the next page; empty: no more.
} cairn_branch_page;
// `cursor`: of the page before, or NULL.
CAIRN_API cairn_code cairn_store_list_branches(const cairn_store* store, const char* ns,
                                               const char* prefix, size_t limit,
                                               const cairn_bytes* cursor, cairn_branch_page** page,
                                               cairn_error** error);
CAIRN_API void cairn_branch_page_free(cairn_branch_page* page);

CAIRN_API cairn_code cairn_store_namespaces(const cairn_store* store, cairn_namespaces** namespaces,
                                            cairn_error** error);
CAIRN_API cairn_code cairn_store_set_namespace(cairn_store* store, const char* ns,
                                               const cairn_namespace_policy* policy,
                                               cairn_durability durability, cairn_error** error);

// --- Several changes in one: cairn::WriteBatch. Not thread-safe. Tokens, KV memory and tables of
// its deltas are borrowed until cairn_store_write returns, or the batch is freed; it may be written
// several times. A target is a branch, or, where that is NULL, `created`: the index that create or
// fork gave.
typedef struct cairn_write_batch cairn_write_batch;
CAIRN_API cairn_code cairn_write_batch_new(cairn_write_batch** batch, cairn_error** error);
CAIRN_API cairn_code cairn_write_batch_create(cairn_write_batch* batch, uint64_t model,
                                              const cairn_branch_options* options, int32_t* created,
                                              cairn_error** error);
CAIRN_API cairn_code cairn_write_batch_fork(cairn_write_batch* batch, const cairn_branch* from,
                                            int32_t from_created, uint64_t position,
                                            const cairn_branch_options* options, int32_t* created,
                                            cairn_error** error);
// `expected_length`: UINT64_MAX for any.
CAIRN_API cairn_code cairn_write_batch_append(cairn_write_batch* batch, const cairn_branch* to,
                                              int32_t to_created, const cairn_delta* delta,
                                              uint64_t expected_length, cairn_error** error);
CAIRN_API cairn_code cairn_write_batch_rewind(cairn_write_batch* batch, const cairn_branch* branch,
                                              int32_t created, uint64_t length,
                                              cairn_error** error);
CAIRN_API cairn_code cairn_write_batch_rename(cairn_write_batch* batch, const cairn_branch* branch,
                                              int32_t created, const char* name,
                                              cairn_error** error);
CAIRN_API cairn_code cairn_write_batch_drop(cairn_write_batch* batch, const cairn_branch* branch,
                                            int32_t created, cairn_error** error);
CAIRN_API size_t cairn_write_batch_size(const cairn_write_batch* batch);           // Changes.
CAIRN_API size_t cairn_write_batch_created_count(const cairn_write_batch* batch);  // Of these new.
CAIRN_API void cairn_write_batch_free(cairn_write_batch* batch);
// Blocking. `created`: room for the branches that it makes, by their index, or NULL; `ticket` may
// be NULL.
CAIRN_API cairn_code cairn_store_write(cairn_store* store, const cairn_write_batch* batch,
                                       const cairn_append_options* options, cairn_branch** created,
                                       size_t created_capacity, cairn_ticket** ticket,
                                       cairn_error** error);

CAIRN_API cairn_code cairn_store_new_completion_queue(cairn_store* store,
                                                      cairn_completion_queue** queue,
                                                      cairn_error** error);

// --- Care. Blocking, but for the metrics.
CAIRN_API cairn_code cairn_store_flush(cairn_store* store, cairn_error** error);
CAIRN_API cairn_code cairn_store_compact(cairn_store* store, cairn_error** error);
CAIRN_API cairn_code cairn_store_pause_background(cairn_store* store, cairn_error** error);
CAIRN_API cairn_code cairn_store_resume_background(cairn_store* store, cairn_error** error);

// cairn::RefreshResult
typedef struct cairn_refresh_result {
  size_t struct_size;  // Set before the call.
  bool changed;
  uint64_t sequence;
} cairn_refresh_result;
CAIRN_API void cairn_refresh_result_init(cairn_refresh_result* result, size_t struct_size);
// `result` may be NULL.
CAIRN_API cairn_code cairn_store_refresh(cairn_store* store, cairn_refresh_result* result,
                                         cairn_error** error);

// Bytes done, of those to do. See convention 9 of cairn/c.h.
typedef void (*cairn_progress)(void* context, uint64_t done, uint64_t total);

// cairn::CheckpointInfo
typedef struct cairn_checkpoint_info {
  size_t struct_size;  // Set before the call.
  uint64_t sequence;
  uint64_t linked_tables, linked_bytes;
  uint64_t copied_tables, copied_bytes;
} cairn_checkpoint_info;
CAIRN_API void cairn_checkpoint_info_init(cairn_checkpoint_info* info, size_t struct_size);
// `progress` and `info` may be NULL.
CAIRN_API cairn_code cairn_store_checkpoint(cairn_store* store, const char* path,
                                            cairn_progress progress, void* context,
                                            cairn_checkpoint_info* info, cairn_error** error);

typedef uint32_t cairn_verify_level;  // cairn::VerifyLevel
enum { CAIRN_VERIFY_HEADERS = 0, CAIRN_VERIFY_INDEX = 1, CAIRN_VERIFY_ALL = 2 };
// cairn::VerifyReport
typedef struct cairn_damage {
  size_t struct_size;
  const char* where;
  const char* what;
  uint64_t sequence;
} cairn_damage;
typedef struct cairn_verify_report {
  size_t struct_size;
  uint64_t records, strips;
  uint64_t index_tables, tables;
  uint64_t frames;
  uint64_t bytes;
  const cairn_damage* const* damages;
  size_t damage_count;
} cairn_verify_report;
// CAIRN_OK also where there is damage: the report tells. `progress` may be NULL.
CAIRN_API cairn_code cairn_store_verify(const cairn_store* store, cairn_verify_level level,
                                        cairn_progress progress, void* context,
                                        cairn_verify_report** report, cairn_error** error);
CAIRN_API void cairn_verify_report_free(cairn_verify_report* report);

CAIRN_API cairn_code cairn_store_metrics(const cairn_store* store, cairn_metrics** metrics,
                                         cairn_error** error);
// As of the metrics now. `label` may be NULL.
CAIRN_API cairn_code cairn_store_prometheus_text(const cairn_store* store, const char* label,
                                                 char** text, cairn_error** error);
CAIRN_API cairn_code cairn_store_health(const cairn_store* store, cairn_health** health,
                                        cairn_error** error);
// CAIRN_OK while it is healthy, else why it is not.
CAIRN_API cairn_code cairn_store_poisoned(const cairn_store* store, cairn_error** error);
// Texts, to be freed by cairn_text_free.
CAIRN_API cairn_code cairn_store_io_name(const cairn_store* store, char** text,
                                         cairn_error** error);
CAIRN_API cairn_code cairn_store_sync_method(const cairn_store* store, char** text,
                                             cairn_error** error);
CAIRN_API cairn_code cairn_store_recovery_note(const cairn_store* store, char** text,
                                               cairn_error** error);

#ifdef __cplusplus
}  // extern "C"
#endif
