// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/python/src/call.h"

namespace cairn::python {

// append, fill and restore, and their arguments.
void BindTransfer(nb::class_<PyBranch>& branch, nb::module_& module);

// Branch.export.
void BindBranchExport(nb::class_<PyBranch>& branch, nb::module_& module);

void BindDraft(nb::class_<PyBranch>& branch, nb::module_& module);

// The arguments of a restore, as C++ takes them. Owns the memory that the request points to, or
// keeps its owner. `model`: of the branch; may be null without `into`.
class RestoreArguments {
 public:
  RestoreArguments(const ModelSpec* model, nb::handle into, nb::handle tokens, uint64_t begin,
                   std::optional<uint64_t> end, bool require_kv, std::optional<double> timeout,
                   nb::handle progress, uintptr_t gpu_ready, std::vector<uintptr_t> layer_events,
                   bool fall_back_to_host);
  RestoreArguments(const RestoreArguments&) = delete;
  RestoreArguments& operator=(const RestoreArguments&) = delete;
  RestoreRequest& request() { return request_; }
  LayerProgress* progress() { return progress_; }

 private:
  IdBuffer room_;
  nb::object into_, progress_object_;
  std::vector<uintptr_t> layer_events_;
  GpuSync gpu_;
  LayerProgress* progress_ = nullptr;
  RestoreRequest request_;
};

}  // namespace cairn::python
