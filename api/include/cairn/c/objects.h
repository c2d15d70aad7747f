// SPDX-License-Identifier: Apache-2.0
//
// C API: bytes under keys of the caller's own, for engines that name their cache pages and know no
// branches. The C++ twin is cairn/objects.h. Objects live in the same store, log and tables as
// branches do, under the same cap.
//
//   cairn_objects_new(store, &objects, &error);
//   cairn_object_class kv;
//   cairn_object_class_init(&kv, sizeof kv);
//   kv.name = "kv";
//   kv.page_bytes = 16384;
//   kv.dtype = CAIRN_DTYPE_BF16;
//   cairn_put_options options;
//   cairn_put_options_init(&options, sizeof options);
//   cairn_objects_register_class(objects, &kv, &options.object_class, &error);
//   cairn_objects_put_batch(objects, puts, put_count, &options, NULL, &error);
//   cairn_objects_exists(objects, keys, key_count, NULL, 0, NULL, NULL, &leading, NULL, &error);
//   cairn_objects_get_batch(objects, gets, leading, NULL, &results, &error);
//
// An object never changes. Puts are atomic in memory, for followers, and across any crash. Keys are
// 1 to 256 bytes of any value, objects 0 bytes to 1 GiB. Keys belong to a namespace (`ns`, NULL:
// the one without a name), which is not one of branches. A call takes 2^24 objects or keys at most;
// all that it is given is borrowed until it returns, unless its comment says longer. A follower
// answers calls that only look, and gives CAIRN_READ_ONLY for the others.
#pragma once

#include "cairn/c/store.h"

#ifdef __cplusplus
extern "C" {
#endif

// The objects of a store: cairn::Objects. Thread-safe, but for the free. Does not keep the store
// open: after cairn_store_close each call is CAIRN_INVALID_STATE.
typedef struct cairn_objects cairn_objects;
// *objects is freed with cairn_objects_free. Does not block.
CAIRN_API cairn_code cairn_objects_new(const cairn_store* store, cairn_objects** objects,
                                       cairn_error** error);
// Frees the handle alone. Asynchronous calls go on.
CAIRN_API void cairn_objects_free(cairn_objects* objects);

// cairn::ObjectClass: how objects of one kind are laid out, as pages and a rest.
typedef struct cairn_object_class {
  size_t struct_size;
  const char* name;     // Not empty; at most 1024 bytes.
  uint32_t page_bytes;  // 4096. 64 to 1 MiB; a page is read, checked and packed as one.
  cairn_dtype dtype;    // Only BF16 and F16 are packed, without loss: they are KV.
} cairn_object_class;
CAIRN_API void cairn_object_class_init(cairn_object_class* object_class, size_t struct_size);
// Idempotent: the same class gives the same id, which is stable for the store's life. Blocking: a
// change, durable when it returns.
//   CAIRN_INVALID_ARGUMENT: names the field.
//   CAIRN_MODEL_MISMATCH: a class of that name has another page size or dtype.
//   CAIRN_READ_ONLY: a follower, and the class is not there.
//   and errors of a change.
CAIRN_API cairn_code cairn_objects_register_class(cairn_objects* objects,
                                                  const cairn_object_class* object_class,
                                                  uint64_t* id, cairn_error** error);

// cairn::IfPresent: what a put does with an existing object. KEEP leaves it, for keys that name
// content; REPLACE drops it in the same step as the new one comes.
typedef uint32_t cairn_if_present;
enum { CAIRN_IF_PRESENT_KEEP = 0, CAIRN_IF_PRESENT_REPLACE = 1 };

// cairn::ObjectPut: one object to put.
typedef struct cairn_object_put {
  size_t struct_size;  // The same in all elements of an array.
  cairn_bytes key;     // 1 to 256 bytes.
  cairn_bytes value;   // Up to 1 GiB.
  uint32_t depth;      // Place in its chain of keys: the deeper is evicted first.
  uint64_t user_data;  // Handed back with its completion.
} cairn_object_put;
CAIRN_API void cairn_object_put_init(cairn_object_put* put, size_t struct_size);

// cairn::PutOptions: how all objects of a call are put.
typedef struct cairn_put_options {
  size_t struct_size;
  const char* ns;         // Namespace; need not exist before.
  uint64_t object_class;  // Required: an id of cairn_objects_register_class.
  cairn_if_present if_present;
  cairn_durability durability;  // CAIRN_DURABILITY_PROCESS
  bool pinned;                  // Neither evicted nor expired.
  uint64_t ttl_ns;              // Dropped when unused for so long; 0: as its namespace says.
  uint64_t timeout_ns;          // Limit for all objects together. UINT64_MAX: for ever.
  const cairn_completion_queue* queue;  // cairn_objects_put_batch_async; may be NULL.
} cairn_put_options;
CAIRN_API void cairn_put_options_init(cairn_put_options* options, size_t struct_size);

// cairn::ObjectGet: one object that is wanted.
typedef struct cairn_object_get {
  size_t struct_size;  // The same in all elements of an array.
  cairn_bytes key;     // 1 to 256 bytes.
  void* into;          // Where it goes; all into_size bytes may be written to.
  size_t into_size;    // At least as large as the object.
  uint64_t user_data;  // Handed back with its completion.
} cairn_object_get;
CAIRN_API void cairn_object_get_init(cairn_object_get* get, size_t struct_size);

// cairn::GetOptions: how all objects of a call are read.
typedef struct cairn_get_options {
  size_t struct_size;
  const char* ns;
  uint64_t object_class;                // 0: of any class.
  uint64_t timeout_ns;                  // Limit for all objects together. UINT64_MAX: for ever.
  const cairn_completion_queue* queue;  // cairn_objects_get_batch_async; may be NULL.
} cairn_get_options;
CAIRN_API void cairn_get_options_init(cairn_get_options* options, size_t struct_size);

// The outcome of one put, get or deletion: cairn::PutResult, GetResult. Never gets another field.
typedef struct cairn_object_result {
  cairn_code code;           // How it ended.
  bool stored;               // A put stored it. False: it existed already, and was kept.
  uint64_t bytes;            // The size of the object got, also where `into` is too small.
  const cairn_error* error;  // NULL if all went well. Lives as long as the results.
} cairn_object_result;
// All outcomes of a call; cairn_object_results_free frees them with their errors.
typedef struct cairn_object_results {
  size_t struct_size;
  const cairn_object_result* items;  // In the order that was asked in.
  size_t count;
} cairn_object_results;
CAIRN_API void cairn_object_results_free(cairn_object_results* results);

// Blocking: waits for room, and until all objects are as durable as the options say, or timeout_ns
// is over. CAIRN_OK also where single puts failed: *results, which may be NULL, has the outcome of
// each.
// CAIRN_READ_ONLY, CAIRN_POISONED, and CAIRN_INVALID_ARGUMENT (the namespace, the class, a number
// or a NULL) say that none was tried. Of each:
//   CAIRN_OK: it exists as it was given, or (KEEP) as it was.
//   CAIRN_INVALID_ARGUMENT: the object is too large, or its key is empty or too long.
//   CAIRN_MODEL_MISMATCH: KEEP, and it exists with another class.
//   CAIRN_NO_SPACE, CAIRN_DEADLINE_EXCEEDED, CAIRN_POISONED, CAIRN_IO_ERROR, CAIRN_CORRUPTION,
//     CAIRN_OUT_OF_MEMORY: it was not put.
//   CAIRN_UNKNOWN_OUTCOME: it exists unless the process or the machine ends now.
// Objects are written together, a few MiB per log record; a crash leaves all of a record or none of
// it. A large object is written alone, and exists once it is complete.
CAIRN_API cairn_code cairn_objects_put_batch(cairn_objects* objects, const cairn_object_put* puts,
                                             size_t count, const cairn_put_options* options,
                                             cairn_object_results** results, cairn_error** error);
// Blocking, until timeout_ns: reads straight into the caller's memory, 1024 objects at a time.
// CAIRN_OK also where single ones failed. On failure `into` is undefined. Of each:
//   CAIRN_NOT_FOUND: there is no such object.
//   CAIRN_INVALID_ARGUMENT: `into` is too small, and `bytes` is what it needs; or the key is empty
//     or too long.
//   CAIRN_MODEL_MISMATCH: it has another class than was asked for.
//   CAIRN_BUSY: it was replaced repeatedly meanwhile; retry.
//   and as cairn_branch_restore.
CAIRN_API cairn_code cairn_objects_get_batch(const cairn_objects* objects,
                                             const cairn_object_get* gets, size_t count,
                                             const cairn_get_options* options,
                                             cairn_object_results** results, cairn_error** error);
// The same by threads of the store; these calls do not block on the disk. `tickets`: room for
// `count`, or NULL; each is freed with cairn_ticket_free. Keys and values are borrowed until the
// ticket of their object is released; structs and arrays are not needed after the call. A put that
// is cancelled before it is in the log (CAIRN_CANCELLED) is not there.
CAIRN_API cairn_code cairn_objects_put_batch_async(cairn_objects* objects,
                                                   const cairn_object_put* puts, size_t count,
                                                   const cairn_put_options* options,
                                                   cairn_ticket** tickets, cairn_error** error);
// Keys and `into` are borrowed until the ticket of the object is done.
CAIRN_API cairn_code cairn_objects_get_batch_async(const cairn_objects* objects,
                                                   const cairn_object_get* gets, size_t count,
                                                   const cairn_get_options* options,
                                                   cairn_ticket** tickets, cairn_error** error);

// Reports which keys exist. `bits`: (count + 63) / 64 words; key i exists: bit i % 64 of word i /
// 64. `found`: how many exist; `leading`: how many before the first that does not. Each of these
// may be NULL.
//
// Answered from memory where the directory of objects knows them all (after an opening it is filled
// in the background); else it reads the index, and blocks on the disk. A follower has no directory.
// Without a lease a key may be reported as existing by 64 bits of its hash alone, and objects may
// be evicted at any time.
//
// `lease_ns`: the objects found stay for this many nanoseconds, cairn_options::max_lease_ns at
// most; deletion and REPLACE still remove them, and the lease ends with its last object. *lease is
// then for cairn_store_renew and _release; 0: nothing is held, since the objects exceed
// max_leased_bytes, no key exists, or the store is a follower. `lease` may be NULL where `lease_ns`
// is 0. A crash or a restart ends leases.
//   CAIRN_INVALID_ARGUMENT: names a key that cannot be, or the namespace.
//   CAIRN_CORRUPTION, CAIRN_IO_ERROR: the index could not be read; nothing is held.
CAIRN_API cairn_code cairn_objects_exists(const cairn_objects* objects, const cairn_bytes* keys,
                                          size_t count, const char* ns, uint64_t lease_ns,
                                          uint64_t* bits, uint64_t* found, uint64_t* leading,
                                          uint64_t* lease, cairn_error** error);
// Says that these are of use: when it is their turn to be evicted each is passed over once. In
// memory alone: does not block, writes nothing, and a crash forgets it. CAIRN_INVALID_ARGUMENT: as
// cairn_objects_exists. CAIRN_READ_ONLY.
CAIRN_API cairn_code cairn_objects_touch(cairn_objects* objects, const cairn_bytes* keys,
                                         size_t count, const char* ns, cairn_error** error);
// Blocking: a change, and it works where there is no room for data. All in one record, or in
// several of 4096. CAIRN_OK also where single ones failed; `results` may be NULL.
// CAIRN_INVALID_ARGUMENT (as cairn_objects_exists) and CAIRN_READ_ONLY say that none was tried. Of
// each:
//   CAIRN_OK: it is gone, as durably as was asked for.
//   CAIRN_NOT_FOUND: it was not there.
//   CAIRN_UNKNOWN_OUTCOME: it is gone, unless the process or the machine ends now.
//   another code: it is still there.
CAIRN_API cairn_code cairn_objects_delete(cairn_objects* objects, const cairn_bytes* keys,
                                          size_t count, const char* ns, cairn_durability durability,
                                          cairn_object_results** results, cairn_error** error);

// cairn::ObjectInfo. A copy; freed with cairn_object_info_free, or as a part of its page.
typedef struct cairn_object_info {
  size_t struct_size;
  cairn_bytes key;
  const cairn_object_class* object_class;  // As it was registered.
  uint64_t pages;
  uint64_t bytes;                          // A list counts its last page as if it were full.
  uint32_t depth;                          // Up to 255.
  bool pinned;                             // Neither evicted nor expired.
  uint64_t ttl_ns, put_at_ns, used_at_ns;  // A duration; then times since 1970.
} cairn_object_info;
// Blocking: reads the last block of the object for its exact size. *info is freed with
// cairn_object_info_free. CAIRN_NOT_FOUND; CAIRN_BUSY: it was replaced again and again meanwhile;
// CAIRN_CORRUPTION, CAIRN_IO_ERROR, CAIRN_STALE.
CAIRN_API cairn_code cairn_objects_stat(const cairn_objects* objects, const cairn_bytes* key,
                                        const char* ns, cairn_object_info** info,
                                        cairn_error** error);
CAIRN_API void cairn_object_info_free(cairn_object_info* info);

// cairn::ObjectPage: a page of cairn_objects_list. A copy; cairn_object_page_free frees all of it.
typedef struct cairn_object_page {
  size_t struct_size;
  const cairn_object_info* const* items;
  size_t count;
  cairn_bytes cursor;  // Pass it on for the next page; empty: no more.
} cairn_object_page;
// Objects of a namespace in order of key, `limit` at most. `cursor`: of the page before, or NULL.
// Blocking: reads the index. An object that is put or deleted meanwhile may show or not. Damaged
// objects without a class or a key are left out. CAIRN_INVALID_ARGUMENT: `limit` is 0, or no such
// cursor.
CAIRN_API cairn_code cairn_objects_list(const cairn_objects* objects, const char* ns, size_t limit,
                                        const cairn_bytes* cursor, cairn_object_page** page,
                                        cairn_error** error);
CAIRN_API void cairn_object_page_free(cairn_object_page* page);

// Namespaces with objects or a policy, by name; `branches` counts objects. From memory. *namespaces
// is freed with cairn_namespaces_free.
CAIRN_API cairn_code cairn_objects_usage(const cairn_objects* objects,
                                         cairn_namespaces** namespaces, cairn_error** error);
// Replaces the policy of a namespace. Blocking: a change. CAIRN_INVALID_ARGUMENT: the name, or
// `persist` is not CAIRN_PERSIST_ALWAYS. Errors of a change. EVICT_KV and EVICT_BRANCHES say the
// same: an object goes whole.
CAIRN_API cairn_code cairn_objects_set_policy(cairn_objects* objects, const char* ns,
                                              const cairn_namespace_policy* policy,
                                              cairn_durability durability, cairn_error** error);

#ifdef __cplusplus
}  // extern "C"
#endif
