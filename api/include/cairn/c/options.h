// SPDX-License-Identifier: Apache-2.0
//
// C API: options of a store, and how long things are kept. The C++ twins are cairn/options.h,
// cairn/keep.h and cairn/allocator.h, which say more about each field. Sizes are bytes, times
// nanoseconds. Structs are copied by the call that takes them.
#pragma once

#include "cairn/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn_gpu cairn_gpu;  // cairn/c/gpu.h

// cairn::Durability: what an acknowledgement means. Levels may be mixed; order is kept across them,
// so a loss takes with it everything that came after.
typedef uint32_t cairn_durability;
// MEMORY: in memory, and written within 100 ms; a crash of the process may lose it. PROCESS:
// written to the operating system; survives kill -9, and a power loss may lose it. POWER: on stable
// media.
enum { CAIRN_DURABILITY_MEMORY = 0, CAIRN_DURABILITY_PROCESS = 1, CAIRN_DURABILITY_POWER = 2 };

// cairn::Backend: how files are read and written. AUTO: io_uring if the kernel grants it, else
// threads. URING: io_uring, or cairn_store_open fails.
typedef uint32_t cairn_backend;
enum { CAIRN_BACKEND_AUTO = 0, CAIRN_BACKEND_URING = 1, CAIRN_BACKEND_THREADS = 2 };

// cairn::FatalAction: what happens when a write or sync of the log fails. POISON: writes are
// refused until the store is reopened, reads go on. ABORT: the process ends, after on_poisoned.
typedef uint32_t cairn_fatal_action;
enum { CAIRN_FATAL_POISON = 0, CAIRN_FATAL_ABORT = 1 };

// cairn::Recovery: what an opening does where files that it reads are damaged. REFUSE:
// CAIRN_CORRUPTION. SET_ASIDE: serves what is provable; damaged files move to lost/ in the store.
typedef uint32_t cairn_recovery;
enum { CAIRN_RECOVERY_REFUSE = 0, CAIRN_RECOVERY_SET_ASIDE = 1 };

// cairn::Evict: what may go when room is needed. NEVER: nothing, so CAIRN_NO_SPACE. KV: KV and
// recurrent states; tokens stay. BRANCHES: KV first, then whole branches.
typedef uint32_t cairn_evict;
enum { CAIRN_EVICT_NEVER = 0, CAIRN_EVICT_KV = 1, CAIRN_EVICT_BRANCHES = 2 };

// cairn::Persist: which KV of appends is kept. Where it is not, the tokens are, as if the KV had
// been shed (cairn_ticket_kv_shed).
typedef uint32_t cairn_persist;
enum {
  CAIRN_PERSIST_ALWAYS = 0,
  CAIRN_PERSIST_TURN_END = 1,    // Appends with cairn_append_options::ends_turn.
  CAIRN_PERSIST_REUSED = 2,      // Branches that are forks, were forked, or restored.
  CAIRN_PERSIST_TOKENS_ONLY = 3  // None; cairn_branch_fill still attaches it.
};

// cairn::Index: what is indexed of a namespace. CHUNKS, which has prefixes as well, is for
// cairn_namespace_policy alone.
typedef uint32_t cairn_index;
enum { CAIRN_INDEX_PREFIX = 0, CAIRN_INDEX_NONE = 1, CAIRN_INDEX_CHUNKS = 2 };

// cairn::Keep: how long a branch is kept.
typedef struct cairn_keep {
  size_t struct_size;
  bool pinned;       // Neither evicted nor expired.
  uint8_t priority;  // The lower is evicted first, however new.
  // Dropped when unused for so long since the opening; 0: as its namespace says.
  uint64_t ttl_ns;
} cairn_keep;
CAIRN_API void cairn_keep_init(cairn_keep* keep, size_t struct_size);

// cairn::NamespacePolicy: what holds for the branches, or the objects, of one namespace. A policy
// of defaults is as if none had been set.
typedef struct cairn_namespace_policy {
  size_t struct_size;
  uint64_t max_bytes;     // UINT64_MAX. Beyond: CAIRN_NO_SPACE, or eviction in it.
  uint64_t ttl_ns;        // cairn_keep::ttl_ns of those that are made without one.
  cairn_persist persist;  // CAIRN_PERSIST_ALWAYS
  cairn_index index;      // CAIRN_INDEX_PREFIX
  bool has_evict;         // Off: as cairn_options::evict says.
  cairn_evict evict;      // Looked at only with has_evict.
} cairn_namespace_policy;
CAIRN_API void cairn_namespace_policy_init(cairn_namespace_policy* policy, size_t struct_size);

// cairn::NamespaceInfo: a namespace that has branches, objects or a policy. A part of its list.
typedef struct cairn_namespace_info {
  size_t struct_size;
  const char* name;
  const cairn_namespace_policy* policy;
  uint64_t branches;  // cairn_objects_usage: objects.
  uint64_t bytes;     // As max_bytes counts them.
} cairn_namespace_info;

// All of them, by name. cairn_namespaces_free frees the list with its items.
typedef struct cairn_namespaces {
  size_t struct_size;
  const cairn_namespace_info* const* items;
  size_t count;
} cairn_namespaces;
CAIRN_API void cairn_namespaces_free(cairn_namespaces* namespaces);

// cairn::Options, in its order of subjects. Copied by cairn_store_open and never changed after. For
// callbacks see convention 9 of cairn/c.h.
typedef struct cairn_options {
  size_t struct_size;
  // --- Opening
  bool create_if_missing;   // Makes the directory and a store in it.
  bool error_if_exists;     // CAIRN_ALREADY_EXISTS where a store is.
  bool read_only;           // A follower: no lock, no writes.
  cairn_recovery recovery;  // What happens where opening meets damage.
  uint32_t file_mode;       // 0600; of new files.
  // --- Space. Bytes.
  uint64_t max_bytes;      // UINT64_MAX: cap on the blocks of all files.
  cairn_evict evict;       // The content that may go when room runs out.
  cairn_index index;       // What the whole store indexes.
  uint64_t segment_bytes;  // Size of a log segment; 0: as the store has, or its disk (options.h).
  uint64_t log_bytes_max;  // 4 GiB: the live log stays below this.
  uint64_t snapshot_interval_tokens;  // 1024: sealed after this many new ones; 0: never for that.
  uint64_t max_delta_chain;           // 100: sealed after this many new ones; 0: never for that.
  uint64_t replay_records_max;        // 8192: records that an opening replays, about.
  uint64_t background_bytes_per_second;  // For sealing and merging; 0: no limit.
  uint32_t spare_segments_min;           // 2: made ahead.
  uint32_t spare_segments_max;           // 16: kept of those given back.
  // --- Memory. Bytes.
  uint64_t max_memory_bytes;       // 1 GiB: all buffers and caches; from 16 MiB.
  uint64_t hot_tail_bytes;         // 256 MiB: newest part of the log in memory.
  uint64_t submit_copy_max_bytes;  // 1 MiB: larger asynchronous appends borrow.
  uint64_t tree_memory_bytes;      // 64 MiB: branches and nodes in memory.
  uint64_t reuse_memory_bytes;     // For indexes in memory; 0: a 16th of max_memory_bytes.
  // cairn::Allocator: where large buffers come from. Both functions or neither: then as
  // cairn::Allocator::Default. They are called from many threads at once, must not block or call
  // into the store, and `allocate` returns NULL on failure. They, and the context, must live until
  // the last handle of the store is freed, drafts included.
  void* (*allocate)(void* context, size_t bytes, size_t alignment);
  void (*deallocate)(void* context, void* memory, size_t bytes, size_t alignment);
  void* allocator_context;
  // --- Finding
  uint64_t max_lease_ns;      // A minute: the longest lease.
  uint64_t max_leased_bytes;  // 16 GiB: raw bytes that leases hold at once.
  // --- Appending
  uint64_t delta_batch_wait_ns;  // 5 ms: how long a coalesced append waits, at most.
  uint64_t reserved;             // Ignored; earlier versions had direct_ingest_bytes here.
  uint32_t delta_batch_tokens;   // 1, or up to 64: one-token appends that are coalesced.
  // --- Failure, and what the store reports. Each may be NULL.
  cairn_fatal_action on_fatal;                                   // CAIRN_FATAL_POISON
  void (*on_poisoned)(void* context, const cairn_error* cause);  // Once.
  void (*on_event)(void* context, const char* line);             // One line for people.
  void* listener_context;
  // --- Machine
  cairn_backend backend;      // CAIRN_BACKEND_AUTO
  uint32_t executor_threads;  // 0: one less than the cores.
  cairn_gpu* const* gpus;     // Need not outlive the call: the store keeps them.
  size_t gpu_count;           // One per ordinal; at most 1024.
} cairn_options;
CAIRN_API void cairn_options_init(cairn_options* options, size_t struct_size);
// The checks that need no store. CAIRN_INVALID_ARGUMENT names the field. Does not block.
CAIRN_API cairn_code cairn_options_validate(const cairn_options* options, cairn_error** error);

#ifdef __cplusplus
}  // extern "C"
#endif
