// SPDX-License-Identifier: Apache-2.0
//
// Shared memory and copies of KV in C.
#include "cairn/shared_memory.h"

#include "api/c/convert.h"
#include "api/c/handles.h"
#include "cairn/copy_kv.h"

using cairn::Result;
using cairn::Status;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

struct cairn_shared_memory {
  cairn::SharedMemory value;
};
struct cairn_kv_copier {
  std::optional<cairn::KvCopier> value;
};

namespace cairn::capi {

namespace {

Result<std::vector<Gpu>> ToGpus(cairn_gpu* const* gpus, size_t count) {
  CAIRN_RETURN_IF_ERROR(CheckCount(gpus, count, 1024, "gpus"));
  std::vector<Gpu> all;
  for (size_t i = 0; i < count; ++i) {
    if (gpus[i] == nullptr) return Invalid("gpus has a NULL");
    all.push_back(*gpus[i]->value);
  }
  return all;
}

Result<KvCopier> MakeCopier(const cairn_model_spec* from, const cairn_model_spec* to,
                            cairn_gpu* const* gpus, size_t count) {
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec from_spec, ToModel(from));
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec to_spec, ToModel(to));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Gpu> all, ToGpus(gpus, count));
  return KvCopier::Make(from_spec, to_spec, all);
}

Status Copy(const KvCopier& copier, const cairn_kv_view* from, const cairn_kv_view* to,
            const cairn_copy_kv_options* options, uint64_t* bytes) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_copy_kv_options read, Read(options));
  KvArrays from_view, to_view;
  CAIRN_RETURN_IF_ERROR(from_view.Fill(from));
  CAIRN_RETURN_IF_ERROR(to_view.Fill(to));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t copied,
                         copier.Copy(from_view.view, to_view.view,
                                     {.gpu_ready = read.gpu_ready, .timeout_ns = read.timeout_ns}));
  if (bytes != nullptr) *bytes = copied;
  return Status::Ok();
}

}  // namespace

}  // namespace cairn::capi

extern "C" {

cairn_code cairn_shared_memory_create(const char* directory, uint64_t bytes,
                                      cairn_shared_memory** area, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(area);
    CAIRN_C_NEED(directory);
    return Give(area, [&] { return cairn::SharedMemory::Create(directory, bytes); });
  });
}
cairn_code cairn_shared_memory_map(const char* address, cairn_shared_memory** area,
                                   cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(area);
    CAIRN_C_NEED(address);
    return Give(area, [&] { return cairn::SharedMemory::Map(address); });
  });
}
void* cairn_shared_memory_data(const cairn_shared_memory* area) {
  return area == nullptr ? nullptr : area->value.bytes().data();
}
size_t cairn_shared_memory_size(const cairn_shared_memory* area) {
  return area == nullptr ? 0 : area->value.bytes().size();
}
const char* cairn_shared_memory_address(const cairn_shared_memory* area) {
  return area == nullptr ? nullptr : area->value.address().c_str();
}
bool cairn_shared_memory_is_creator(const cairn_shared_memory* area) {
  return area != nullptr && area->value.is_creator();
}
uint64_t cairn_shared_memory_mapped(const cairn_shared_memory* area) {
  return area == nullptr ? 0 : area->value.mapped();
}
uint64_t cairn_shared_memory_refused(const cairn_shared_memory* area) {
  return area == nullptr ? 0 : area->value.refused();
}
void cairn_shared_memory_free(cairn_shared_memory* area) { delete area; }

cairn_code cairn_kv_copier_make(const cairn_model_spec* from, const cairn_model_spec* to,
                                cairn_gpu* const* gpus, size_t gpu_count, cairn_kv_copier** copier,
                                cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(copier);
    CAIRN_C_NEED(from);
    CAIRN_C_NEED(to);
    return Give(copier, [&] { return MakeCopier(from, to, gpus, gpu_count); });
  });
}
cairn_code cairn_kv_copier_copy(const cairn_kv_copier* copier, const cairn_kv_view* from,
                                const cairn_kv_view* to, const cairn_copy_kv_options* options,
                                uint64_t* bytes, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(copier);
    CAIRN_C_NEED(from);
    CAIRN_C_NEED(to);
    return Copy(*copier->value, from, to, options, bytes);
  });
}
void cairn_kv_copier_free(cairn_kv_copier* copier) { delete copier; }

cairn_code cairn_copy_kv(const cairn_model_spec* spec, const cairn_kv_view* from,
                         const cairn_kv_view* to, const cairn_copy_kv_options* options,
                         cairn_gpu* const* gpus, size_t gpu_count, uint64_t* bytes,
                         cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(spec);
    CAIRN_C_NEED(from);
    CAIRN_C_NEED(to);
    CAIRN_ASSIGN_OR_RETURN(const cairn::KvCopier copier, MakeCopier(spec, spec, gpus, gpu_count));
    return Copy(copier, from, to, options, bytes);
  });
}

}  // extern "C"
