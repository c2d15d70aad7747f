// SPDX-License-Identifier: Apache-2.0
//
// GPUs in C.
#include "api/c/convert.h"
#include "api/c/handles.h"

using cairn::Status;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

extern "C" {

cairn_code cairn_gpu_open(const cairn_gpu_options* options, cairn_gpu** gpu, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(gpu);
    CAIRN_ASSIGN_OR_RETURN(const cairn::GpuOptions converted, ToGpuOptions(options));
    return Give(gpu, [&] { return cairn::Gpu::Open(converted); });
  });
}
cairn_code cairn_gpu_simulated(uint64_t seed, const cairn_gpu_options* options, cairn_gpu** gpu,
                               cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(gpu);
    CAIRN_ASSIGN_OR_RETURN(const cairn::GpuOptions converted, ToGpuOptions(options));
    return Give(gpu, [&] { return cairn::Gpu::Simulated(seed, converted); });
  });
}
uint32_t cairn_gpu_ordinal(const cairn_gpu* gpu) {
  return gpu == nullptr ? 0 : gpu->value->ordinal();
}
const char* cairn_gpu_name(const cairn_gpu* gpu) {
  return gpu == nullptr ? nullptr : gpu->value->name().c_str();
}
void cairn_gpu_free(cairn_gpu* gpu) { delete gpu; }

cairn_code cairn_gpu_allocate(const cairn_gpu* gpu, uint64_t bytes, void** memory,
                              cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(memory);
    CAIRN_C_NEED(gpu);
    CAIRN_ASSIGN_OR_RETURN(*memory, gpu->value->Allocate(bytes));
    return Status::Ok();
  });
}
void cairn_gpu_deallocate(const cairn_gpu* gpu, void* memory) {
  if (gpu != nullptr && memory != nullptr) gpu->value->Free(static_cast<std::byte*>(memory));
}
cairn_code cairn_gpu_copy_in(const cairn_gpu* gpu, void* device, const void* host, uint64_t bytes,
                             cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(gpu);
    CAIRN_C_NEED(device);
    CAIRN_C_NEED(host);
    return gpu->value->CopyIn(static_cast<std::byte*>(device), static_cast<const std::byte*>(host),
                              bytes);
  });
}
cairn_code cairn_gpu_copy_out(const cairn_gpu* gpu, void* host, const void* device, uint64_t bytes,
                              cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(gpu);
    CAIRN_C_NEED(host);
    CAIRN_C_NEED(device);
    return gpu->value->CopyOut(static_cast<std::byte*>(host), static_cast<const std::byte*>(device),
                               bytes);
  });
}

cairn_code cairn_gpu_steps_make(const cairn_gpu* gpu, const cairn_model_spec* spec,
                                const cairn_kv_view* view, uint32_t slots, cairn_gpu_steps** steps,
                                cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(steps);
    CAIRN_C_NEED(gpu);
    CAIRN_C_NEED(spec);
    CAIRN_C_NEED(view);
    CAIRN_ASSIGN_OR_RETURN(const cairn::ModelSpec model, ToModel(spec));
    CAIRN_RETURN_IF_ERROR(model.Validate());
    KvArrays arrays;
    CAIRN_RETURN_IF_ERROR(arrays.Fill(view));
    cairn::GpuStepsOptions options;
    if (slots != 0) options.slots = slots;
    return Give(steps,
                [&] { return cairn::GpuSteps::Make(*gpu->value, model, arrays.view, options); });
  });
}
cairn_code cairn_gpu_steps_enqueue(cairn_gpu_steps* steps, uintptr_t stream, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(steps);
    return steps->value->Enqueue(stream);
  });
}
cairn_code cairn_gpu_steps_begin(cairn_gpu_steps* steps, uintptr_t stream, cairn_gpu_step** step,
                                 cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(step);
    CAIRN_C_NEED(steps);
    return Give(step, [&] { return steps->value->Begin(stream); });
  });
}
uint64_t cairn_gpu_steps_slot_bytes(const cairn_gpu_steps* steps) {
  return steps == nullptr ? 0 : steps->value->slot_bytes();
}
void cairn_gpu_steps_free(cairn_gpu_steps* steps) { delete steps; }

cairn_code cairn_gpu_step_end(cairn_gpu_step* step, uintptr_t done, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(step);
    return step->value.End(done);
  });
}
cairn_code cairn_gpu_step_arrived(const cairn_gpu_step* step, bool* arrived, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(step);
    CAIRN_C_NEED(arrived);
    CAIRN_ASSIGN_OR_RETURN(*arrived, step->value.Arrived());
    return Status::Ok();
  });
}
cairn_code cairn_gpu_step_wait(const cairn_gpu_step* step, uint64_t timeout_ns,
                               cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(step);
    return step->value.Wait(timeout_ns);
  });
}
cairn_code cairn_gpu_step_row(cairn_gpu_step* step, uint32_t row, uint64_t position,
                              const cairn_kv_view** view, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(view);
    CAIRN_C_NEED(step);
    CAIRN_ASSIGN_OR_RETURN(const cairn::KvView* found, step->value.Row(row, position));
    *view = &step->rows.emplace_back(*found).view;
    return Status::Ok();
  });
}
void cairn_gpu_step_free(cairn_gpu_step* step) { delete step; }

}  // extern "C"
