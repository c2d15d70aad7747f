// SPDX-License-Identifier: Apache-2.0
//
// C API: memory that several processes see, and copies of KV rows between views. The C++ twins are
// cairn/shared_memory.h and cairn/copy_kv.h, which have the whole contract.
//
//   // The process with the store:
//   cairn_shared_memory_create("/data/store", 256 << 20, &area, &error);
//   send(worker, cairn_shared_memory_address(area));
//   // The worker:
//   cairn_shared_memory_map(address, &area, &error);
//   cairn_kv_copier_make(&rank_spec, &spec, NULL, 0, &save, &error);
//   cairn_kv_copier_copy(save, rank_view, slot_view, NULL, &bytes, &error);
//
// None of it needs a store.
#pragma once

#include "cairn/c/gpu.h"
#include "cairn/c/view.h"

#ifdef __cplusplus
extern "C" {
#endif

// --- cairn::SharedMemory
typedef struct cairn_shared_memory cairn_shared_memory;

// An area of `bytes`, rounded up to whole pages, all zeros; processes find it in `directory`, which
// exists. *area is freed with cairn_shared_memory_free. Blocking: takes all of its memory. Starts a
// thread.
//   CAIRN_INVALID_ARGUMENT: `bytes` is 0 or above 2^46, or the directory is no path.
//   CAIRN_NOT_FOUND: there is no such directory.
//   CAIRN_LOCKED: another process has been creating one there for two seconds.
//   CAIRN_OUT_OF_MEMORY, CAIRN_IO_ERROR: the system refuses.
CAIRN_API cairn_code cairn_shared_memory_create(const char* directory, uint64_t bytes,
                                                cairn_shared_memory** area, cairn_error** error);
// The area with this address, of a process of the same user on this host. *area is freed with
// cairn_shared_memory_free. Blocking: asks its creator, for ten seconds at most.
//   CAIRN_INVALID_ARGUMENT: `address` is none; names the part.
//   CAIRN_NOT_FOUND: its creator has ended, or is on another host.
//   CAIRN_CONFLICT: another area answers there.
//   CAIRN_DEADLINE_EXCEEDED: its creator does not answer.
//   CAIRN_OUT_OF_MEMORY, CAIRN_IO_ERROR: it is of another user; the system refuses.
CAIRN_API cairn_code cairn_shared_memory_map(const char* address, cairn_shared_memory** area,
                                             cairn_error** error);
// All of it, where this process sees it, as long as the handle lives. NULL and 0 in a child of
// fork().
CAIRN_API void* cairn_shared_memory_data(const cairn_shared_memory* area);
CAIRN_API size_t cairn_shared_memory_size(const cairn_shared_memory* area);
// For cairn_shared_memory_map in other processes; to be kept as a password is. Lives as long as the
// handle.
CAIRN_API const char* cairn_shared_memory_address(const cairn_shared_memory* area);
CAIRN_API bool cairn_shared_memory_is_creator(const cairn_shared_memory* area);
// By the creator: how many times it was mapped, and refused to somebody who asked. Else 0.
CAIRN_API uint64_t cairn_shared_memory_mapped(const cairn_shared_memory* area);
CAIRN_API uint64_t cairn_shared_memory_refused(const cairn_shared_memory* area);
// The memory is gone with the last process that has it. NULL is fine.
CAIRN_API void cairn_shared_memory_free(cairn_shared_memory* area);

// --- cairn::KvCopier
typedef struct cairn_kv_copier cairn_kv_copier;

// cairn::CopyKvOptions.
typedef struct cairn_copy_kv_options {
  size_t struct_size;
  uintptr_t gpu_ready;  // A cudaEvent_t behind which the GPU's memory may be used; 0: at once.
  uint64_t timeout_ns;  // How long to wait for it. UINT64_MAX: without end.
} cairn_copy_kv_options;
CAIRN_API void cairn_copy_kv_options_init(cairn_copy_kv_options* options, size_t struct_size);

// For copies from views of the model `from` to views of `to`; each may say which layers and heads
// of the logical model it holds. Views may lie in the memory of these `gpus`; without any,
// gpu_count is 0 and `gpus` may be NULL. *copier is freed with cairn_kv_copier_free. It does not
// block.
//   CAIRN_INVALID_ARGUMENT: a model, or `gpus`; names the field.
//   CAIRN_MODEL_MISMATCH: the two differ, or have nothing in common.
CAIRN_API cairn_code cairn_kv_copier_make(const cairn_model_spec* from, const cairn_model_spec* to,
                                          cairn_gpu* const* gpus, size_t gpu_count,
                                          cairn_kv_copier** copier, cairn_error** error);
// Copies the rows of all positions of `from` that both hold; *bytes, which may be NULL, is how
// many. `options` may be NULL. Thread-safe. Blocking: returns when all rows are in place.
//   CAIRN_INVALID_ARGUMENT: a view; a position that `to` lacks; a GPU that was not given.
//   CAIRN_DEADLINE_EXCEEDED: `gpu_ready` was not reached; nothing was copied.
//   CAIRN_CORRUPTION: a table on the device changed during the copy.
//   CAIRN_IO_ERROR: the device. CAIRN_OUT_OF_MEMORY.
CAIRN_API cairn_code cairn_kv_copier_copy(const cairn_kv_copier* copier, const cairn_kv_view* from,
                                          const cairn_kv_view* to,
                                          const cairn_copy_kv_options* options, uint64_t* bytes,
                                          cairn_error** error);
CAIRN_API void cairn_kv_copier_free(cairn_kv_copier* copier);

// One copy between views of the same model: both calls above.
CAIRN_API cairn_code cairn_copy_kv(const cairn_model_spec* spec, const cairn_kv_view* from,
                                   const cairn_kv_view* to, const cairn_copy_kv_options* options,
                                   cairn_gpu* const* gpus, size_t gpu_count, uint64_t* bytes,
                                   cairn_error** error);

#ifdef __cplusplus
}  // extern "C"
#endif
