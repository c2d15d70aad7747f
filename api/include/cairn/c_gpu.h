// SPDX-License-Identifier: Apache-2.0
//
// Of the C API: GPUs. The C++ twins are cairn/gpu.h and cairn/gpu_steps.h. Streams and events are
// CUDA's handles as integers.
#pragma once

#include "cairn/c_options.h"
#include "cairn/c_view.h"

#ifdef __cplusplus
extern "C" {
#endif

// Of models of this name so many tokens. Never gets another field.
typedef struct cairn_pinned_tokens {
  const char* model;
  uint64_t tokens;
} cairn_pinned_tokens;

// cairn::GpuOptions
typedef struct cairn_gpu_options {
  size_t struct_size;
  uint32_t ordinal;
  uint32_t processors_max;
  uint64_t pinned_bytes;
  uint64_t pinned_tokens;  // 4096
  const cairn_pinned_tokens* pinned_tokens_of;
  size_t pinned_tokens_of_count;
} cairn_gpu_options;
CAIRN_API void cairn_gpu_options_init(cairn_gpu_options* options, size_t struct_size);

// cairn::Gpu. Thread-safe, but for the free. A store that was given it keeps the device.
CAIRN_API cairn_code cairn_gpu_open(const cairn_gpu_options* options, cairn_gpu** gpu,
                                    cairn_error** error);
// A device on the CPU, for tests.
CAIRN_API cairn_code cairn_gpu_simulated(uint64_t seed, const cairn_gpu_options* options,
                                         cairn_gpu** gpu, cairn_error** error);
CAIRN_API uint32_t cairn_gpu_ordinal(const cairn_gpu* gpu);
CAIRN_API const char* cairn_gpu_name(const cairn_gpu* gpu);  // Lives as long as the handle.
CAIRN_API void cairn_gpu_free(cairn_gpu* gpu);

// Memory of the device, for programs that have no other means. Blocking.
CAIRN_API cairn_code cairn_gpu_allocate(const cairn_gpu* gpu, uint64_t bytes, void** memory,
                                        cairn_error** error);
CAIRN_API void cairn_gpu_deallocate(const cairn_gpu* gpu, void* memory);
CAIRN_API cairn_code cairn_gpu_copy_in(const cairn_gpu* gpu, void* device, const void* host,
                                       uint64_t bytes, cairn_error** error);
CAIRN_API cairn_code cairn_gpu_copy_out(const cairn_gpu* gpu, void* host, const void* device,
                                        uint64_t bytes, cairn_error** error);

// --- Steps of generation: cairn::GpuSteps
typedef struct cairn_gpu_steps cairn_gpu_steps;
typedef struct cairn_gpu_step cairn_gpu_step;

// `slots`: 0 for as many as in C++, 64.
CAIRN_API cairn_code cairn_gpu_steps_make(const cairn_gpu* gpu, const cairn_model_spec* spec,
                                          const cairn_kv_view* view, uint32_t slots,
                                          cairn_gpu_steps** steps, cairn_error** error);
CAIRN_API cairn_code cairn_gpu_steps_enqueue(cairn_gpu_steps* steps, uintptr_t stream,
                                             cairn_error** error);
// CAIRN_BUSY: no slot is free.
CAIRN_API cairn_code cairn_gpu_steps_begin(cairn_gpu_steps* steps, uintptr_t stream,
                                           cairn_gpu_step** step, cairn_error** error);
CAIRN_API uint64_t cairn_gpu_steps_slot_bytes(const cairn_gpu_steps* steps);
CAIRN_API void cairn_gpu_steps_free(cairn_gpu_steps* steps);

// One step on its way to the host: cairn::GpuStep. Its calls are not thread-safe among themselves.
// Freeing it gives its slot back.
CAIRN_API cairn_code cairn_gpu_step_end(cairn_gpu_step* step, uintptr_t done, cairn_error** error);
CAIRN_API cairn_code cairn_gpu_step_arrived(const cairn_gpu_step* step, bool* arrived,
                                            cairn_error** error);
CAIRN_API cairn_code cairn_gpu_step_wait(const cairn_gpu_step* step, uint64_t timeout_ns,
                                         cairn_error** error);
// *view lives as long as the step.
CAIRN_API cairn_code cairn_gpu_step_row(cairn_gpu_step* step, uint32_t row, uint64_t position,
                                        const cairn_kv_view** view, cairn_error** error);
CAIRN_API void cairn_gpu_step_free(cairn_gpu_step* step);

#ifdef __cplusplus
}  // extern "C"
#endif
