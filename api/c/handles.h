// SPDX-License-Identifier: Apache-2.0
//
// The handles of the C API: each holds the C++ value of the same name.
#pragma once

#include <list>
#include <optional>
#include <vector>

#include "api/c/convert_view.h"
#include "base/core/mutex.h"
#include "cairn/c.h"
#include "cairn/gpu.h"
#include "cairn/gpu_steps.h"
#include "cairn/kv_buffer.h"
#include "cairn/objects.h"
#include "cairn/shadow_session.h"
#include "cairn/sparse.h"
#include "cairn/store.h"

namespace cairn::capi {

// Views of GPU memory that were put into a draft: they live until it is over.
struct PutViews {
  Mutex mutex;
  std::list<KvArrays> views CAIRN_GUARDED_BY(mutex);
};

}  // namespace cairn::capi

struct cairn_store {
  cairn::Store value;
};
struct cairn_branch {
  cairn::Branch value;
};
struct cairn_draft {
  std::shared_ptr<cairn::capi::PutViews> views;  // Outlives `value`.
  cairn::Draft value;
};
struct cairn_ticket {
  cairn::Ticket value;
};
struct cairn_completion_queue {
  cairn::CompletionQueue value;
};
struct cairn_layer_progress {
  explicit cairn_layer_progress(size_t layers) : words(layers) { value.layers = words; }
  std::vector<std::atomic<uint32_t>> words;
  cairn::LayerProgress value;
};
struct cairn_blend_options {
  cairn::BlendOptions value;
};
struct cairn_objects {
  cairn::Objects value;
};
struct cairn_metrics {
  cairn::StoreMetrics value;
};
struct cairn_gpu {
  std::optional<cairn::Gpu> value;
};
struct cairn_gpu_steps {
  std::optional<cairn::GpuSteps> value;
};
struct cairn_gpu_step {
  cairn::GpuStep value;
  std::list<cairn::capi::KvAsC> rows;
};
struct cairn_sparse_arena {
  cairn::SparseArena value;
};
struct cairn_sparse_session {
  cairn::SparseSession value;
};
struct cairn_shadow_session {
  cairn::ShadowSession value;
};
struct cairn_owned_kv_view {
  cairn::OwnedKvView value;
  cairn::capi::KvAsC view;
};
struct cairn_kv_buffer {
  cairn_kv_buffer(const cairn::ModelSpec& model, uint64_t tokens)
      : value(model, tokens), view(*value.view()) {}
  cairn::KvBuffer value;
  cairn::capi::KvAsC view;
};

namespace cairn::capi {

// kInvalidState in a child of fork(), for calls whose C++ twins have no code to say so.
Status CheckProcess(const cairn_store& store);

}  // namespace cairn::capi
