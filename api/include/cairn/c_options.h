// SPDX-License-Identifier: Apache-2.0
//
// Of the C API: options of a store, and what is kept. The C++ twins are cairn/options.h,
// cairn/keep.h and cairn/allocator.h, where each field and its unit is explained.
#pragma once

#include "cairn/c_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn_gpu cairn_gpu;  // cairn/c_gpu.h

typedef uint32_t cairn_durability;  // cairn::Durability
enum { CAIRN_DURABILITY_MEMORY = 0, CAIRN_DURABILITY_PROCESS = 1, CAIRN_DURABILITY_POWER = 2 };

typedef uint32_t cairn_backend;  // cairn::Backend
enum { CAIRN_BACKEND_AUTO = 0, CAIRN_BACKEND_URING = 1, CAIRN_BACKEND_THREADS = 2 };

typedef uint32_t cairn_fatal_action;  // cairn::FatalAction
enum { CAIRN_FATAL_POISON = 0, CAIRN_FATAL_ABORT = 1 };

typedef uint32_t cairn_evict;  // cairn::Evict
enum { CAIRN_EVICT_NEVER = 0, CAIRN_EVICT_KV = 1, CAIRN_EVICT_BRANCHES = 2 };

typedef uint32_t cairn_persist;  // cairn::Persist
enum {
  CAIRN_PERSIST_ALWAYS = 0,
  CAIRN_PERSIST_TURN_END = 1,
  CAIRN_PERSIST_REUSED = 2,
  CAIRN_PERSIST_TOKENS_ONLY = 3
};

typedef uint32_t cairn_index;  // cairn::Index
enum { CAIRN_INDEX_PREFIX = 0, CAIRN_INDEX_NONE = 1 };

// cairn::Keep
typedef struct cairn_keep {
  size_t struct_size;
  bool pinned;
  uint8_t priority;
  uint64_t ttl_ns;
} cairn_keep;
CAIRN_API void cairn_keep_init(cairn_keep* keep, size_t struct_size);

// cairn::NamespacePolicy
typedef struct cairn_namespace_policy {
  size_t struct_size;
  uint64_t max_bytes;  // UINT64_MAX
  uint64_t ttl_ns;
  cairn_persist persist;
  cairn_index index;
  bool has_evict;     // Off: as cairn_options::evict says.
  cairn_evict evict;
} cairn_namespace_policy;
CAIRN_API void cairn_namespace_policy_init(cairn_namespace_policy* policy, size_t struct_size);

// cairn::NamespaceInfo
typedef struct cairn_namespace_info {
  size_t struct_size;
  const char* name;
  const cairn_namespace_policy* policy;
  uint64_t branches;
  uint64_t bytes;
} cairn_namespace_info;

typedef struct cairn_namespaces {
  size_t struct_size;
  const cairn_namespace_info* const* items;
  size_t count;
} cairn_namespaces;
CAIRN_API void cairn_namespaces_free(cairn_namespaces* namespaces);

// cairn::Options, in its order of subjects. All callbacks: see convention 9 of cairn/c.h.
typedef struct cairn_options {
  size_t struct_size;
  // --- Opening
  bool create_if_missing;
  bool error_if_exists;
  bool read_only;  // A follower.
  bool salvage;
  uint32_t file_mode;  // 0600
  // --- Space. Bytes.
  uint64_t max_bytes;  // UINT64_MAX
  cairn_evict evict;
  cairn_index index;
  uint64_t segment_bytes;
  uint64_t log_bytes_max;             // 4 GiB
  uint64_t snapshot_interval_tokens;  // 1024
  uint64_t max_delta_chain;           // 100
  uint64_t replay_records_max;        // 8192
  uint64_t background_bytes_per_second;
  uint32_t spare_segments_min;  // 2
  uint32_t spare_segments_max;  // 16
  // --- Memory. Bytes.
  uint64_t max_memory_bytes;       // 1 GiB
  uint64_t hot_tail_bytes;         // 256 MiB
  uint64_t submit_copy_max_bytes;  // 1 MiB
  uint64_t tree_memory_bytes;      // 64 MiB
  uint64_t reuse_memory_bytes;
  // cairn::Allocator. Both functions or neither: then memory is from operator new.
  void* (*allocate)(void* context, size_t bytes, size_t alignment);
  void (*deallocate)(void* context, void* memory, size_t bytes, size_t alignment);
  void* allocator_context;
  // --- Finding
  uint64_t max_lease_ns;      // A minute.
  uint64_t max_leased_bytes;  // 16 GiB
  // --- Appending
  uint64_t delta_batch_wait_ns;  // 5 ms
  uint64_t direct_ingest_bytes;  // 8 MiB
  uint32_t delta_batch_tokens;   // 1
  // --- Failure, and what the store tells of itself. Each may be NULL.
  cairn_fatal_action on_fatal;
  void (*on_poisoned)(void* context, const cairn_error* cause);
  void (*on_event)(void* context, const char* line);
  void* listener_context;
  // --- Machine
  cairn_backend backend;
  uint32_t executor_threads;
  cairn_gpu* const* gpus;  // Need not outlive the call: the store keeps them.
  size_t gpu_count;
} cairn_options;
CAIRN_API void cairn_options_init(cairn_options* options, size_t struct_size);
// CAIRN_INVALID_ARGUMENT naming the field.
CAIRN_API cairn_code cairn_options_validate(const cairn_options* options, cairn_error** error);

#ifdef __cplusplus
}  // extern "C"
#endif
