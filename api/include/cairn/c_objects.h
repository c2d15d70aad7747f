// SPDX-License-Identifier: Apache-2.0
//
// Of the C API: bytes under keys of the caller's own. The C++ twin is cairn/objects.h.
#pragma once

#include "cairn/c_store.h"

#ifdef __cplusplus
extern "C" {
#endif

// The objects of a store: cairn::Objects. Thread-safe, but for the free. Does not keep the store
// open.
typedef struct cairn_objects cairn_objects;
CAIRN_API cairn_code cairn_objects_new(const cairn_store* store, cairn_objects** objects,
                                       cairn_error** error);
CAIRN_API void cairn_objects_free(cairn_objects* objects);

// cairn::ObjectClass
typedef struct cairn_object_class {
  size_t struct_size;
  const char* name;
  uint32_t page_bytes;  // 4096
  cairn_dtype dtype;
} cairn_object_class;
CAIRN_API void cairn_object_class_init(cairn_object_class* object_class, size_t struct_size);
// Blocking, and durable when it returns.
CAIRN_API cairn_code cairn_objects_register_class(cairn_objects* objects,
                                                  const cairn_object_class* object_class,
                                                  uint64_t* id, cairn_error** error);

typedef uint32_t cairn_if_present;  // cairn::IfPresent
enum { CAIRN_IF_PRESENT_KEEP = 0, CAIRN_IF_PRESENT_REPLACE = 1 };

// cairn::ObjectPut
typedef struct cairn_object_put {
  size_t struct_size;
  cairn_bytes key;
  cairn_bytes value;
  uint32_t depth;
  uint64_t user_data;
} cairn_object_put;
CAIRN_API void cairn_object_put_init(cairn_object_put* put, size_t struct_size);

// cairn::PutOptions
typedef struct cairn_put_options {
  size_t struct_size;
  const char* ns;
  uint64_t object_class;
  cairn_if_present if_present;
  cairn_durability durability;  // CAIRN_DURABILITY_PROCESS
  bool pinned;
  uint64_t ttl_ns;
  uint64_t timeout_ns;                  // UINT64_MAX: for ever.
  const cairn_completion_queue* queue;  // cairn_objects_put_batch_async; may be NULL.
} cairn_put_options;
CAIRN_API void cairn_put_options_init(cairn_put_options* options, size_t struct_size);

// cairn::ObjectGet. `into` is written to.
typedef struct cairn_object_get {
  size_t struct_size;
  cairn_bytes key;
  void* into;
  size_t into_size;
  uint64_t user_data;
} cairn_object_get;
CAIRN_API void cairn_object_get_init(cairn_object_get* get, size_t struct_size);

// cairn::GetOptions
typedef struct cairn_get_options {
  size_t struct_size;
  const char* ns;
  uint64_t object_class;
  uint64_t timeout_ns;                  // UINT64_MAX: for ever.
  const cairn_completion_queue* queue;  // cairn_objects_get_batch_async; may be NULL.
} cairn_get_options;
CAIRN_API void cairn_get_options_init(cairn_get_options* options, size_t struct_size);

// What became of one put, get or deletion: cairn::PutResult, GetResult. Never gets another field.
typedef struct cairn_object_result {
  cairn_code code;
  bool stored;               // Of a put: or it was there already, and was kept.
  uint64_t bytes;            // Of a get: the object's, also where `into` is too small.
  const cairn_error* error;  // NULL if all went well. Lives as long as the results.
} cairn_object_result;
typedef struct cairn_object_results {
  size_t struct_size;
  const cairn_object_result* items;  // In the order that was asked in.
  size_t count;
} cairn_object_results;
CAIRN_API void cairn_object_results_free(cairn_object_results* results);

// Blocking. CAIRN_OK also where single ones failed: `results`, which may be NULL, tell of each.
CAIRN_API cairn_code cairn_objects_put_batch(cairn_objects* objects, const cairn_object_put* puts,
                                             size_t count, const cairn_put_options* options,
                                             cairn_object_results** results, cairn_error** error);
CAIRN_API cairn_code cairn_objects_get_batch(const cairn_objects* objects,
                                             const cairn_object_get* gets, size_t count,
                                             const cairn_get_options* options,
                                             cairn_object_results** results, cairn_error** error);
// Never block on the disk. `tickets`: room for `count`, or NULL. Keys and values, or what they are
// read into, are borrowed until its ticket is released, or done; the array is not.
CAIRN_API cairn_code cairn_objects_put_batch_async(cairn_objects* objects,
                                                   const cairn_object_put* puts, size_t count,
                                                   const cairn_put_options* options,
                                                   cairn_ticket** tickets, cairn_error** error);
CAIRN_API cairn_code cairn_objects_get_batch_async(const cairn_objects* objects,
                                                   const cairn_object_get* gets, size_t count,
                                                   const cairn_get_options* options,
                                                   cairn_ticket** tickets, cairn_error** error);

// Each of the last three may be NULL. `bits`: (count + 63) / 64 words; key i is there: bit i % 64
// of word i / 64. `found`: how many; `leading`: how many before the first that is not there.
CAIRN_API cairn_code cairn_objects_exists(const cairn_objects* objects, const cairn_bytes* keys,
                                          size_t count, const char* ns, uint64_t* bits,
                                          uint64_t* found, uint64_t* leading, cairn_error** error);
CAIRN_API cairn_code cairn_objects_touch(cairn_objects* objects, const cairn_bytes* keys,
                                         size_t count, const char* ns, cairn_error** error);
// Blocking. `results` may be NULL.
CAIRN_API cairn_code cairn_objects_delete(cairn_objects* objects, const cairn_bytes* keys,
                                          size_t count, const char* ns, cairn_durability durability,
                                          cairn_object_results** results, cairn_error** error);

// cairn::ObjectInfo
typedef struct cairn_object_info {
  size_t struct_size;
  cairn_bytes key;
  const cairn_object_class* object_class;
  uint64_t pages;
  uint64_t bytes;
  uint32_t depth;
  bool pinned;
  uint64_t ttl_ns, put_at_ns, used_at_ns;
} cairn_object_info;
CAIRN_API cairn_code cairn_objects_stat(const cairn_objects* objects, const cairn_bytes* key,
                                        const char* ns, cairn_object_info** info,
                                        cairn_error** error);
CAIRN_API void cairn_object_info_free(cairn_object_info* info);

// cairn::ObjectPage
typedef struct cairn_object_page {
  size_t struct_size;
  const cairn_object_info* const* items;
  size_t count;
  cairn_bytes cursor;  // Pass it on for the next page; empty: no more.
} cairn_object_page;
// `cursor`: of the page before, or NULL.
CAIRN_API cairn_code cairn_objects_list(const cairn_objects* objects, const char* ns, size_t limit,
                                        const cairn_bytes* cursor, cairn_object_page** page,
                                        cairn_error** error);
CAIRN_API void cairn_object_page_free(cairn_object_page* page);

CAIRN_API cairn_code cairn_objects_usage(const cairn_objects* objects,
                                         cairn_namespaces** namespaces, cairn_error** error);
CAIRN_API cairn_code cairn_objects_set_policy(cairn_objects* objects, const char* ns,
                                              const cairn_namespace_policy* policy,
                                              cairn_durability durability, cairn_error** error);

#ifdef __cplusplus
}  // extern "C"
#endif
