// SPDX-License-Identifier: Apache-2.0
//
// Rows of KV from one view to another: between the memory of an engine and a slot of shared memory
// (cairn/shared_memory.h), between layouts, between host and device.
//
// Both views are of one model, or of parts of it: a rank of a tensor- or pipeline-parallel engine
// holds some heads and some layers, and says which (ModelSpec::logical). What both hold is copied.
// So each rank copies its rows to their place among those of all ranks, and takes what is its own
// out of them:
//
//   ModelSpec all = ModelSpec::FullAttention("m", 32, 8, 128, Dtype::kBf16);
//   ModelSpec rank = ModelSpec::FullAttention("m", 32, 4, 128, Dtype::kBf16);
//   rank.logical = {{.name = rank.groups[0].name, .layers = 32, .heads = 8, .layer_end = 32,
//                    .head_begin = 4, .head_end = 8}};     // The second of two.
//   CAIRN_ASSIGN_OR_RETURN(const KvCopier save, KvCopier::Make(rank, all));
//   CAIRN_ASSIGN_OR_RETURN(uint64_t bytes, save.Copy(*of_rank.view(), *slot.view()));
//
// Nothing here needs a store, does I/O, or takes a lock that a caller could see. A copy is not
// atomic: a process that ends in it leaves some rows written. The caller keeps others from reading
// them before the copy has returned.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cairn/gpu.h"
#include "cairn/kv_view.h"
#include "cairn/model.h"

namespace cairn::engine {
class KvCopierState;
}

namespace [[gnu::visibility("default")]] cairn {

struct CopyKvOptions {
  // For a view of GPU memory: a cudaEvent_t of the caller, recorded behind all work on that memory
  // that is to be seen, or that still reads it. 0: the memory may be used at once.
  uintptr_t gpu_ready = 0;
  // How long to wait for `gpu_ready`, in nanoseconds. The copy itself is not bounded by it.
  uint64_t timeout_ns = UINT64_MAX;
};

// What two models have in common, worked out once; with the memory that copies from and to GPUs go
// through, which is kept for the next copy. A handle that may be copied. Thread-safe; copies at the
// same time do not wait for each other.
class KvCopier {
 public:
  // For copies from views of the model `from` to views of `to`. Layer groups are matched by their
  // names. Identity, variant and shapes agree, but for layers and heads where a model says which of
  // them it holds (ModelSpec::logical). A plane without heads of its own (latent KV, a scale for
  // all heads) is copied as a whole; a state, and opaque bytes, where both hold the same heads, or
  // say their parts (Plane::state_parts).
  //
  // Views may lie in the memory of these `gpus`, of which the handles are copied. Takes no memory
  // of theirs. Does not block. Errors:
  //   kInvalidArgument: a model; names the field.
  //   kModelMismatch: they differ, names the field; or have no layer and head in common; or hold
  //     other parts of the positions (ShardSpec::context_rank).
  static Result<KvCopier> Make(const ModelSpec& from, const ModelSpec& to,
                               std::span<const Gpu> gpus = {});

  // Copies the rows of all positions of `from` that `to` has room for in its layers and heads;
  // returns how many bytes. Every position of each group of `from` lies in `to`, which may have
  // more. A group of which the model of `to` holds nothing is left out. At most one of the views
  // names GPU memory; its rows travel through pinned memory, by the kernels of appends and
  // restores, in streams of low priority. The two memories do not overlap.
  //
  // Blocking: returns when all rows are in place. After an error rows of `to` may have any content,
  // but nothing is read or written any more; other memory than the described rows never is. Errors:
  //   kInvalidArgument: a view (ValidateKvView, both as of a restore); a position that `to` lacks;
  //     no layer in common; a GPU that Make was not given, or two of them; `gpu_ready` without one,
  //     or of another device; a table on the device that leads out of its blocks.
  //   kDeadlineExceeded: `gpu_ready` was not reached; nothing was copied.
  //   kCorruption: a table on the device changed during the copy.
  //   kIoError: the device. kOutOfMemory.
  Result<uint64_t> Copy(const KvView& from, const KvView& to,
                        const CopyKvOptions& options = {}) const;

  // For tests inside the library.
  explicit KvCopier(std::shared_ptr<const engine::KvCopierState> state);

 private:
  std::shared_ptr<const engine::KvCopierState> state_;
};

// One copy between views of the same model: KvCopier::Make(model, model, gpus), then Copy, with the
// errors of both. Who copies often, to or from a GPU above all, keeps a KvCopier.
Result<uint64_t> CopyKv(const ModelSpec& model, const KvView& from, const KvView& to,
                        const CopyKvOptions& options = {}, std::span<const Gpu> gpus = {});

}  // namespace cairn
