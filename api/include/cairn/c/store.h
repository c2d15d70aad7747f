// SPDX-License-Identifier: Apache-2.0
//
// C API: a store, a directory that one process owns for writing. The C++ twin is cairn/store.h.
// Searches are in cairn/c/find.h, appends in cairn/c/branch.h.
//
//   cairn_options options;
//   cairn_options_init(&options, sizeof options);
//   options.create_if_missing = true;
//   if (cairn_store_open("state", &options, &store, &error) != CAIRN_OK) {
//     fprintf(stderr, "%s\n", cairn_error_message(error));
//     cairn_error_free(error);
//   }
//
// "A change", and "errors of a change", are explained at the top of cairn/c/branch.h: the call
// blocks until its record is as durable as it says.
#pragma once

#include "cairn/c/branch.h"
#include "cairn/c/metrics.h"

#ifdef __cplusplus
extern "C" {
#endif

// cairn::Store. Thread-safe, but for cairn_store_free.
typedef struct cairn_store cairn_store;

// Opens a store, or makes one. `path`: a directory, or ":memory:", which goes with the store.
// `options` may be NULL, and is copied. *store is freed with cairn_store_free. Blocking: reads the
// index's footers and replays the newest part of the log. A new directory is durable when this
// returns; a crash during an opening loses nothing of a store that was there.
//   CAIRN_NOT_FOUND: no store exists there, and create_if_missing is off; or no parent directory
//     exists.
//   CAIRN_ALREADY_EXISTS: a store exists there, and error_if_exists is on.
//   CAIRN_INVALID_STATE: a file, or a directory with something else in it.
//   CAIRN_LOCKED: another process, or this one, has it open for writing.
//   CAIRN_CORRUPTION: what opening reads is damaged; names file and offset (see recovery).
//   CAIRN_STALE: a follower, and the writer replaced files faster than they were read; retry.
//   CAIRN_INVALID_ARGUMENT: an option, by its name; segment_bytes or max_bytes do not fit the
//     store.
//   CAIRN_UNSUPPORTED_FORMAT, CAIRN_NO_SPACE, CAIRN_READ_ONLY (the file system), CAIRN_IO_ERROR
CAIRN_API cairn_code cairn_store_open(const char* path, const cairn_options* options,
                                      cairn_store** store, cairn_error** error);
// Blocking: makes durable what was given to the log, and ends all threads. From then on every call
// is CAIRN_INVALID_STATE, but those of convention 3; open tickets end with CAIRN_UNKNOWN_OUTCOME.
// The handle stays, until it is freed. A second call returns what the first one did.
// CAIRN_POISONED: the log had failed. CAIRN_UNKNOWN_OUTCOME, CAIRN_NO_SPACE, CAIRN_IO_ERROR: of the
// last writes. The store is closed all the same.
CAIRN_API cairn_code cairn_store_close(cairn_store* store, cairn_error** error);
// Closes it as well, and blocks as cairn_store_close; errors are lost then.
CAIRN_API void cairn_store_free(cairn_store* store);

// --- Models. All of them are in memory.
// Idempotent: the same spec gives the same id, in *model. A change.
//   CAIRN_MODEL_MISMATCH: the same identity, variant and shard, but other shapes; names the field.
//   CAIRN_INVALID_ARGUMENT: the spec, by its field; or its description does not fit a log record.
//   CAIRN_READ_ONLY: a follower, and the model is not there. A known one gives its id.
//   and errors of a change.
CAIRN_API cairn_code cairn_store_register_model(cairn_store* store, const cairn_model_spec* spec,
                                                cairn_durability durability, uint64_t* model,
                                                cairn_error** error);
// *info is freed with cairn_model_info_free. Does no I/O. CAIRN_NOT_FOUND.
CAIRN_API cairn_code cairn_store_get_model(const cairn_store* store, uint64_t model,
                                           cairn_model_info** info, cairn_error** error);
// In order of id. *models is freed with cairn_models_free. Does no I/O; also of a closed store.
CAIRN_API cairn_code cairn_store_models(const cairn_store* store, cairn_models** models,
                                        cairn_error** error);

// --- Branches. `options` and `ns` may be NULL. Each *branch is freed with cairn_branch_free.
// An empty branch of the model. A change.
//   CAIRN_NOT_FOUND: there is no such model.
//   CAIRN_ALREADY_EXISTS: the name is taken in its namespace.
//   CAIRN_INVALID_ARGUMENT: name or namespace is too long, or the namespace is one of objects.
//   and errors of a change.
CAIRN_API cairn_code cairn_store_create_branch(cairn_store* store, uint64_t model,
                                               const cairn_branch_options* options,
                                               cairn_branch** branch, cairn_error** error);
// By name; "" names no branch. Reads the index for one that was not used for long, as the next
// call. CAIRN_NOT_FOUND; CAIRN_INVALID_ARGUMENT: the namespace is one of objects; CAIRN_CORRUPTION,
// CAIRN_IO_ERROR.
CAIRN_API cairn_code cairn_store_find_branch(const cairn_store* store, const char* name,
                                             const char* ns, cairn_branch** branch,
                                             cairn_error** error);
// By id. CAIRN_NOT_FOUND; CAIRN_INVALID_ARGUMENT: it is an object; CAIRN_CORRUPTION,
// CAIRN_IO_ERROR.
CAIRN_API cairn_code cairn_store_get_branch(const cairn_store* store, uint64_t id,
                                            cairn_branch** branch, cairn_error** error);

// cairn::BranchPage. A copy: it does not change with the branches. cairn_branch_page_free frees it
// with its items.
typedef struct cairn_branch_page {
  size_t struct_size;
  const cairn_branch_info* const* items;
  size_t count;
  cairn_bytes cursor;  // Pass it on for the next page; empty: no more.
} cairn_branch_page;
// Branches of a namespace whose names begin with `prefix` (NULL: all), in order of name, `limit` at
// most. `cursor`: of the page before, or NULL. Blocking: reads the index, and applies coalesced
// appends first. A branch that is made, renamed or dropped meanwhile may show or not.
// CAIRN_INVALID_ARGUMENT: `limit` is 0, or the namespace is one of objects. Errors of the index.
CAIRN_API cairn_code cairn_store_list_branches(const cairn_store* store, const char* ns,
                                               const char* prefix, size_t limit,
                                               const cairn_bytes* cursor, cairn_branch_page** page,
                                               cairn_error** error);
CAIRN_API void cairn_branch_page_free(cairn_branch_page* page);

// Those that have branches or a policy, by name. Blocking: reads the index. *namespaces is freed
// with cairn_namespaces_free.
CAIRN_API cairn_code cairn_store_namespaces(const cairn_store* store, cairn_namespaces** namespaces,
                                            cairn_error** error);
// Replaces the policy, also of a namespace without branches. A change that works where there is no
// room for data. CAIRN_INVALID_ARGUMENT: the name, or a number that is no value. Errors of a
// change.
CAIRN_API cairn_code cairn_store_set_namespace(cairn_store* store, const char* ns,
                                               const cairn_namespace_policy* policy,
                                               cairn_durability durability, cairn_error** error);

// --- Several changes in one: cairn::WriteBatch. All of them or none, also in a crash. Not
// thread-safe. It may be written several times: tokens, KV memory and tables of its deltas are
// borrowed until the last cairn_store_write of it returns, or until it is freed unwritten. A change
// that a call refuses is not part of it, and nothing of it is borrowed.
//
// A target is a branch, or, where that is NULL, `created`: the index that create or fork of this
// batch gave. Calls that add a change do not block and check only structs, numbers and NULL;
// cairn_store_write checks the rest. CAIRN_INVALID_ARGUMENT: also of the 4097th change. At most 4
// MiB of tokens and KV in all; larger deltas are appended by themselves.
typedef struct cairn_write_batch cairn_write_batch;
// *batch is freed with cairn_write_batch_free. It belongs to no store yet.
CAIRN_API cairn_code cairn_write_batch_new(cairn_write_batch** batch, cairn_error** error);
// As cairn_store_create_branch. *created, which may be NULL: its index, from 0 on.
CAIRN_API cairn_code cairn_write_batch_create(cairn_write_batch* batch, uint64_t model,
                                              const cairn_branch_options* options, int32_t* created,
                                              cairn_error** error);
// As cairn_branch_fork_at. *created: as above.
CAIRN_API cairn_code cairn_write_batch_fork(cairn_write_batch* batch, const cairn_branch* from,
                                            int32_t from_created, uint64_t position,
                                            const cairn_branch_options* options, int32_t* created,
                                            cairn_error** error);
// As cairn_branch_append, of host memory. `expected_length`: UINT64_MAX for any; else another
// length of the branch at that point of the batch is CAIRN_CONFLICT.
CAIRN_API cairn_code cairn_write_batch_append(cairn_write_batch* batch, const cairn_branch* to,
                                              int32_t to_created, const cairn_delta* delta,
                                              uint64_t expected_length, cairn_error** error);
// As cairn_branch_rewind, _rename and _drop.
CAIRN_API cairn_code cairn_write_batch_rewind(cairn_write_batch* batch, const cairn_branch* branch,
                                              int32_t created, uint64_t length,
                                              cairn_error** error);
CAIRN_API cairn_code cairn_write_batch_rename(cairn_write_batch* batch, const cairn_branch* branch,
                                              int32_t created, const char* name,
                                              cairn_error** error);
CAIRN_API cairn_code cairn_write_batch_drop(cairn_write_batch* batch, const cairn_branch* branch,
                                            int32_t created, cairn_error** error);
// Changes in it. Of NULL: 0, here and below.
CAIRN_API size_t cairn_write_batch_size(const cairn_write_batch* batch);
// Those of them that make a branch.
CAIRN_API size_t cairn_write_batch_created_count(const cairn_write_batch* batch);
// Changes that were written stay.
CAIRN_API void cairn_write_batch_free(cairn_write_batch* batch);
// Applies the batch; a failure applies nothing and names the change ("op 3 of the batch"). Does not
// wait for room or durability: the ticket reports `durability`, as that of cairn_branch_append.
// Blocks on the disk only to read the index, and for coalesced appends of its branches. Only
// durability, ends_turn, timeout_ns, queue and user_data of the options count.
//
// `created`: room for the branches that it makes, by their index, each freed with
// cairn_branch_free, or NULL; `ticket` may be NULL.
//   CAIRN_INVALID_ARGUMENT: an empty or too large batch, an index that was never given, a branch of
//     another store, KV of a GPU, created_capacity, or as the single changes.
//   CAIRN_CONFLICT: the expected_length of an append.
//   CAIRN_NOT_FOUND, CAIRN_ALREADY_EXISTS: as the single changes.
//   CAIRN_BUSY: buffers or the log are full, or a large append of one of the branches is under way.
//   and errors of a change but CAIRN_UNKNOWN_OUTCOME.
CAIRN_API cairn_code cairn_store_write(cairn_store* store, const cairn_write_batch* batch,
                                       const cairn_append_options* options, cairn_branch** created,
                                       size_t created_capacity, cairn_ticket** ticket,
                                       cairn_error** error);

// For asynchronous calls of this store (cairn/c/completion.h). *queue is freed with
// cairn_completion_queue_free. Does not block.
CAIRN_API cairn_code cairn_store_new_completion_queue(cairn_store* store,
                                                      cairn_completion_queue** queue,
                                                      cairn_error** error);

// --- Care
// Everything that was applied so far becomes durable, coalesced appends included; borrowed appends
// that are not applied yet are not. Blocking. CAIRN_READ_ONLY, CAIRN_POISONED,
// CAIRN_UNKNOWN_OUTCOME.
CAIRN_API cairn_code cairn_store_flush(cairn_store* store, cairn_error** error);
// Seals everything appended so far into tables. The background does that anyway; this call waits
// for it, without a deadline, at the rate that background_bytes_per_second allows. A crash
// meanwhile costs the work alone.
//   CAIRN_NO_SPACE: there is no room for even one segment.
//   CAIRN_INVALID_STATE: the background is paused.
//   CAIRN_BUSY: all is sealed, but a read or an append, which the message names, has been in need
//   of
//     the log's oldest segment for longer than two seconds, so that it is not given back; retry.
//   CAIRN_CORRUPTION: damaged content stays where it is.
//   CAIRN_READ_ONLY, CAIRN_POISONED, CAIRN_IO_ERROR
CAIRN_API cairn_code cairn_store_compact(cairn_store* store, cairn_error** error);
// When this returns nothing is sealed, merged or given back, and no table or old log segment is
// written or deleted, until resume was called as many times: for copying the files. Blocking: waits
// for work under way to come to its next step. The log grows meanwhile. Not to be called from a
// callback. A follower has no background: both calls do nothing.
CAIRN_API cairn_code cairn_store_pause_background(cairn_store* store, cairn_error** error);
// Does not block. CAIRN_INVALID_STATE: there was no pause.
CAIRN_API cairn_code cairn_store_resume_background(cairn_store* store, cairn_error** error);

// cairn::RefreshResult
typedef struct cairn_refresh_result {
  size_t struct_size;  // Set before the call.
  bool changed;        // Something is shown that was not before.
  uint64_t sequence;   // Every change up to here is shown, none behind.
} cairn_refresh_result;
CAIRN_API void cairn_refresh_result_init(cairn_refresh_result* result, size_t struct_size);
// Shows a follower what has become durable since it was opened or refreshed last. `result` may be
// NULL. Blocking: reads the disk; other calls go on, and two refreshes wait for each other. Writes
// nothing. After an error the store shows what it showed before.
//   CAIRN_INVALID_STATE: not a follower; or another store has taken its place: open that one.
//   CAIRN_STALE: the writer replaces files faster than they are read; retry.
//   CAIRN_CORRUPTION: also when a writer salvaged the store and cut what was shown.
//   CAIRN_UNSUPPORTED_FORMAT, CAIRN_IO_ERROR
CAIRN_API cairn_code cairn_store_refresh(cairn_store* store, cairn_refresh_result* result,
                                         cairn_error** error);

// Bytes done, of those to do. See convention 9 of cairn/c.h. May be NULL where a call takes it; the
// context is needed until that call returns.
typedef void (*cairn_progress)(void* context, uint64_t done, uint64_t total);

// cairn::CheckpointInfo
typedef struct cairn_checkpoint_info {
  size_t struct_size;                    // Set before the call.
  uint64_t sequence;                     // The copy holds every change up to here, none behind.
  uint64_t linked_tables, linked_bytes;  // Shared with the store by hard links.
  uint64_t copied_tables, copied_bytes;  // On another volume; bytes also of the log.
} cairn_checkpoint_info;
CAIRN_API void cairn_checkpoint_info_init(cairn_checkpoint_info* info, size_t struct_size);
// A copy of the store at `path`, which opens as a store: it holds everything applied before the
// call, and is durable when the call returns. `path` is absent or an empty directory with a parent.
// Blocking; others write meanwhile, and sealing waits. `progress`, called on a thread of the store,
// and `info` may be NULL. After a crash the directory does not open. Never put files of the copy
// into the store, or the other way.
//   CAIRN_ALREADY_EXISTS: a store exists there.
//   CAIRN_INVALID_STATE: something else exists there, or the background is paused.
//   CAIRN_INVALID_ARGUMENT: an empty path, ":memory:", or one within the store.
//   CAIRN_NOT_FOUND: there is no parent directory.
//   CAIRN_LOCKED: another checkpoint goes there.
//   CAIRN_CANCELLED: cairn_store_close came first.
//   CAIRN_READ_ONLY, CAIRN_POISONED, CAIRN_UNKNOWN_OUTCOME, CAIRN_CORRUPTION, CAIRN_NO_SPACE,
//     CAIRN_IO_ERROR
CAIRN_API cairn_code cairn_store_checkpoint(cairn_store* store, const char* path,
                                            cairn_progress progress, void* context,
                                            cairn_checkpoint_info* info, cairn_error** error);

// cairn::VerifyLevel: how much is read. HEADERS: what opening reads. INDEX: every block of the
// index, and whether its parts fit each other. ALL: every payload of the log and frame of the
// tables, too.
typedef uint32_t cairn_verify_level;
enum { CAIRN_VERIFY_HEADERS = 0, CAIRN_VERIFY_INDEX = 1, CAIRN_VERIFY_ALL = 2 };
// One damaged place. Branches that do not need it are not affected. A part of its report.
typedef struct cairn_damage {
  size_t struct_size;
  const char* where;  // File below the store's directory, and offset.
  const char* what;   // For people.
  uint64_t sequence;  // Number of the damaged record; 0: none, or not known.
} cairn_damage;
// cairn::VerifyReport: what was read, and what is damaged. cairn_verify_report_free frees all of
// it.
typedef struct cairn_verify_report {
  size_t struct_size;
  uint64_t records, strips;       // Read from the log.
  uint64_t index_tables, tables;  // Index tables; snapshot tables.
  uint64_t frames;                // Read from snapshot tables.
  uint64_t bytes;                 // Bytes of strips and frames.
  const cairn_damage* const* damages;
  size_t damage_count;
} cairn_verify_report;
// CAIRN_OK also where there is damage: *report lists it. Blocking: flushes a store that writes,
// then reads from the device in large pieces on this thread, which also calls `progress`. Repairs
// nothing.
//   CAIRN_STALE: beside a writer that replaces files faster than they are read.
//   CAIRN_INVALID_ARGUMENT: the level.
//   and as cairn_store_flush.
CAIRN_API cairn_code cairn_store_verify(const cairn_store* store, cairn_verify_level level,
                                        cairn_progress progress, void* context,
                                        cairn_verify_report** report, cairn_error** error);
CAIRN_API void cairn_verify_report_free(cairn_verify_report* report);

// --- What the store reports. None of these waits or does I/O; all but cairn_store_poisoned also of
// a closed store. CAIRN_INVALID_STATE: a child of fork().
// *metrics is freed with cairn_metrics_free. Takes a lock of the store for a moment.
CAIRN_API cairn_code cairn_store_metrics(const cairn_store* store, cairn_metrics** metrics,
                                         cairn_error** error);
// As cairn_metrics_prometheus_text, of the metrics now. *text is freed with cairn_text_free, here
// and below. `label` may be NULL.
CAIRN_API cairn_code cairn_store_prometheus_text(const cairn_store* store, const char* label,
                                                 char** text, cairn_error** error);
// As cairn_metrics_check_health, of the metrics now. *health is freed with cairn_health_free.
CAIRN_API cairn_code cairn_store_health(const cairn_store* store, cairn_health** health,
                                        cairn_error** error);
// CAIRN_OK while it is healthy; else CAIRN_POISONED, with the first cause in *error.
// CAIRN_INVALID_STATE once it is closed.
CAIRN_API cairn_code cairn_store_poisoned(const cairn_store* store, cairn_error** error);
// *text: "io_uring", "threads", "memory" or "simulated".
CAIRN_API cairn_code cairn_store_io_name(const cairn_store* store, char** text,
                                         cairn_error** error);
// *text: how a commit becomes durable, "dsync" or "fdatasync".
CAIRN_API cairn_code cairn_store_sync_method(const cairn_store* store, char** text,
                                             cairn_error** error);
// *text: what recovery dropped at the end of the log, or set aside and what is gone with it; "" if
// nothing.
CAIRN_API cairn_code cairn_store_recovery_note(const cairn_store* store, char** text,
                                               cairn_error** error);

#ifdef __cplusplus
}  // extern "C"
#endif
