// SPDX-License-Identifier: Apache-2.0
//
// C API: GPUs. The C++ twins are cairn/gpu.h and cairn/gpu_steps.h. Streams and events are CUDA's
// handles (cudaStream_t, cudaEvent_t) as integers; 0 is the default stream.
//
// Errors of the device, of every call here that has a cairn_code: CAIRN_IO_ERROR (the driver
// refused) and CAIRN_OUT_OF_MEMORY. A device that fails so that CUDA refuses everything is lost:
// each later call on it is CAIRN_IO_ERROR with the first cause, and the stores go on without it. A
// call leaves the current device of its thread as it was.
#pragma once

#include "cairn/c/options.h"
#include "cairn/c/view.h"

#ifdef __cplusplus
extern "C" {
#endif

// An exception to cairn_gpu_options::pinned_tokens for one model. Never gets another field.
typedef struct cairn_pinned_tokens {
  const char* model;  // cairn_model_spec::name.
  uint64_t tokens;    // So many newest tokens of a branch stay pinned.
} cairn_pinned_tokens;

// cairn::GpuOptions: how one GPU is used. Copied by the call.
typedef struct cairn_gpu_options {
  size_t struct_size;
  uint32_t ordinal;         // As CUDA counts devices in this process.
  uint32_t processors_max;  // Multiprocessors that unpacking may fill; 0: a sixth of them.
  uint64_t pinned_bytes;    // Host memory for packed pages, of each store; 0, or from 1 MiB.
  uint64_t pinned_tokens;   // 4096: newest tokens of a branch that stay pinned.
  const cairn_pinned_tokens* pinned_tokens_of;  // Models with another number of them.
  size_t pinned_tokens_of_count;                // At most 65,536.
} cairn_gpu_options;
CAIRN_API void cairn_gpu_options_init(cairn_gpu_options* options, size_t struct_size);

// cairn::Gpu: a GPU of this machine, in its primary context, which the program shares. `options`
// may be NULL. *gpu is freed with cairn_gpu_free; a store that was given it keeps the device. Takes
// no device memory before the first restore, and pins memory when a store with it is opened.
// Blocking: it asks the driver.
//   CAIRN_NOT_FOUND: there is no driver, no such device, or the library was built without CUDA.
CAIRN_API cairn_code cairn_gpu_open(const cairn_gpu_options* options, cairn_gpu** gpu,
                                    cairn_error** error);
// A device on the CPU with 64 MiB of memory, for tests of code that restores into a GPU. It runs
// the same kernels, and its streams as late and in as unlikely an order as they may; the order
// follows from the seed. It knows only memory of cairn_gpu_allocate. *gpu is freed with
// cairn_gpu_free.
CAIRN_API cairn_code cairn_gpu_simulated(uint64_t seed, const cairn_gpu_options* options,
                                         cairn_gpu** gpu, cairn_error** error);
// As the options said. Does not block.
CAIRN_API uint32_t cairn_gpu_ordinal(const cairn_gpu* gpu);
// The name of the card. The text lives as long as the handle. Does not block.
CAIRN_API const char* cairn_gpu_name(const cairn_gpu* gpu);
// Frees the handle. The device goes with the last handle and the last store that has it; memory of
// cairn_gpu_allocate is given back before that.
CAIRN_API void cairn_gpu_free(cairn_gpu* gpu);

// --- Memory of the device, for programs that have no other means. Blocking: each call waits for
// its own work on the device, and for no stream of the caller's. Errors of the device.
// *memory is the caller's until it goes to cairn_gpu_deallocate. Aligned to 256 bytes, of undefined
// content. NULL after an error.
CAIRN_API cairn_code cairn_gpu_allocate(const cairn_gpu* gpu, uint64_t bytes, void** memory,
                                        cairn_error** error);
// `memory` comes from cairn_gpu_allocate of this device, else the process ends; NULL is fine. No
// restore, append or kernel may use it any more.
CAIRN_API void cairn_gpu_deallocate(const cairn_gpu* gpu, void* memory);
// From host to device. Returns when the copy is done; goes through pinned memory, 4 MiB at a time,
// in a stream of its own.
CAIRN_API cairn_code cairn_gpu_copy_in(const cairn_gpu* gpu, void* device, const void* host,
                                       uint64_t bytes, cairn_error** error);
// The same from device to host.
CAIRN_API cairn_code cairn_gpu_copy_out(const cairn_gpu* gpu, void* host, const void* device,
                                        uint64_t bytes, cairn_error** error);

// --- Steps of generation: cairn::GpuSteps, which takes the rows of each step out of the GPU
// without stopping it. Nothing here is in a store before it is appended, so a crash costs the steps
// that were not. Not tied to a store.
//
//   cairn_gpu_steps_enqueue(steps, stream, &error);          // Once, while the graph is captured.
//   code = cairn_gpu_steps_begin(steps, stream, &step, &error);  // Before each launch.
//   cudaGraphLaunch(graph, (cudaStream_t)stream);
//   cudaEventRecord(done, (cudaStream_t)stream);
//   if (code == CAIRN_OK) cairn_gpu_step_end(step, (uintptr_t)done, &error);
//   ...                                                      // While the next step runs:
//   cairn_gpu_step_wait(step, UINT64_MAX, &error);
//   cairn_gpu_step_row(step, 0, position, &delta.kv, &error);
//   cairn_branch_append(branch, &delta, NULL, &ticket, &error);
//   cairn_gpu_step_free(step);                               // Once the ticket is released.
typedef struct cairn_gpu_steps cairn_gpu_steps;
typedef struct cairn_gpu_step cairn_gpu_step;

// `view` names memory of `gpu`, all layers of each group, and one row for each sequence of the
// step: its `count` is the number of sequences, its position 0. The table, which the caller
// rewrites before each step, says where each row lies. `slots`: steps that may be on their way at
// once, 1 to 1024; 0 is 64. Takes slots * (rows of a step) of device memory, and the same amount of
// pinned memory.
//
// KV memory and tables are borrowed until `steps` and every step of it are freed and no launch of
// their kernels is to come; structs and other arrays are not needed after the call. *steps is freed
// with cairn_gpu_steps_free. Blocking: allocates, and waits for the device.
//   CAIRN_INVALID_ARGUMENT: the spec, the view, its device, its counts, or `slots`; names the
//     field. Also a group that keeps one state a request.
CAIRN_API cairn_code cairn_gpu_steps_make(const cairn_gpu* gpu, const cairn_model_spec* spec,
                                          const cairn_kv_view* view, uint32_t slots,
                                          cairn_gpu_steps** steps, cairn_error** error);
// Puts the kernels into the stream, which may be being captured; each run of them is one step. Does
// not block. CAIRN_INVALID_ARGUMENT: the stream is of another device.
CAIRN_API cairn_code cairn_gpu_steps_enqueue(cairn_gpu_steps* steps, uintptr_t stream,
                                             cairn_error** error);
// The next step that is enqueued, or launched, in this stream is saved; without this call it is
// not. Puts a copy of eight bytes into the stream; does not block. *step is freed with
// cairn_gpu_step_free. All steps run in one stream, or in streams that wait for each other.
//   CAIRN_BUSY: no slot is free, so the step is not saved; launch it all the same, and give its KV
//     later (cairn_branch_fill).
//   CAIRN_INVALID_ARGUMENT: the stream is of another device.
CAIRN_API cairn_code cairn_gpu_steps_begin(cairn_gpu_steps* steps, uintptr_t stream,
                                           cairn_gpu_step** step, cairn_error** error);
// Bytes of one slot on the device; the same amount is pinned. Does not block.
CAIRN_API uint64_t cairn_gpu_steps_slot_bytes(const cairn_gpu_steps* steps);
// May come before the steps are freed. The last of these frees blocks until copies of the library's
// own have ended.
CAIRN_API void cairn_gpu_steps_free(cairn_gpu_steps* steps);

// --- One step on its way to the host: cairn::GpuStep. Calls of one step are not made at the same
// time.
// `done`: an event that the caller recorded behind the launch of the step; it may go when this
// returns. Enqueues the copy to the host; does not block. After an error the step does not arrive.
// CAIRN_INVALID_STATE: called a second time.
CAIRN_API cairn_code cairn_gpu_step_end(cairn_gpu_step* step, uintptr_t done, cairn_error** error);
// *arrived: whether its rows are in host memory. Does not block. CAIRN_INVALID_STATE: the step did
// not run between cairn_gpu_steps_begin and `done`.
CAIRN_API cairn_code cairn_gpu_step_arrived(const cairn_gpu_step* step, bool* arrived,
                                            cairn_error** error);
// Blocks until the rows have arrived, or for `timeout_ns` nanoseconds.
//   CAIRN_DEADLINE_EXCEEDED: not yet; the step goes on.
//   CAIRN_INVALID_STATE: as cairn_gpu_step_arrived; or cairn_gpu_step_end was not called, or
//     failed.
CAIRN_API cairn_code cairn_gpu_step_wait(const cairn_gpu_step* step, uint64_t timeout_ns,
                                         cairn_error** error);
// Row `row` of all groups, in host memory, as the KV of `position`. *view and its memory live as
// long as the step, so an append that borrows it must have released its ticket before the step is
// freed. Does not block.
//   CAIRN_BUSY: the step has not arrived.
//   CAIRN_INVALID_ARGUMENT: there is no such row, or the table named no place for it.
CAIRN_API cairn_code cairn_gpu_step_row(cairn_gpu_step* step, uint32_t row, uint64_t position,
                                        const cairn_kv_view** view, cairn_error** error);
// Gives the slot back, whether or not the step arrived.
CAIRN_API void cairn_gpu_step_free(cairn_gpu_step* step);

#ifdef __cplusplus
}  // extern "C"
#endif
