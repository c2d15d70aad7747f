// SPDX-License-Identifier: Apache-2.0
//
// Shadows in Python: the objects behind ShadowSession and ShadowView.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "api/python/src/branch.h"
#include "api/python/src/sparse.h"
#include "api/python/src/tensor.h"
#include "cairn/shadow_session.h"

namespace cairn::python {

// Tensors on the device that enqueued work may still read, until a fetch proves that it has been.
// Needs the interpreter's lock.
class KeptTensors {
 public:
  // Call after the call that reads it.
  void Add(uintptr_t stream, nb::object tensor) { kept_[stream].emplace(next_++, tensor); }
  // The number up to which a fetch that is about to begin waits.
  uint64_t Now() const { return next_; }
  // A strict fetch of this stream has ended; it began at `now`.
  void Ended(uintptr_t stream, uint64_t now);
  // A relaxed fetch is refused unless the layer's last has ended: earlier work is over.
  void Began(uint32_t layer, uintptr_t stream, uint64_t now);

 private:
  struct Fetch {
    uintptr_t stream = 0;
    uint64_t began = 0;
  };
  uint64_t next_ = 0;
  std::map<uintptr_t, std::map<uint64_t, nb::object>> kept_;  // By stream.
  std::map<uint32_t, Fetch> last_;                            // By layer.
};

// Destroyed without the interpreter's lock: it waits for the device.
class PyShadowSession {
 public:
  PyShadowSession(ShadowSession session, Gpu gpu, nb::object store,
                  std::shared_ptr<const ModelSpec> spec, const ShadowOptions& options)
      : session_(std::move(session)),
        gpu_(std::move(gpu)),
        store_(std::move(store)),
        spec_(std::move(spec)),
        options_(options) {}
  ~PyShadowSession() {
    Unlocked([this] { session_ = {}; });
  }
  PyShadowSession(const PyShadowSession&) = delete;
  PyShadowSession& operator=(const PyShadowSession&) = delete;

  ShadowSession& session() { return session_; }
  const ShadowSession& session() const { return session_; }
  const Gpu& gpu() const { return gpu_; }
  const ShadowOptions& options() const { return options_; }
  KeptTensors& kept() { return kept_; }
  const Plane& plane(uint32_t index) const { return spec_->groups[options_.group].planes[index]; }
  uint32_t heads() const { return plane(0).heads; }
  uint32_t row_elements(uint32_t index) const {
    return plane(index).row_bytes / DtypeBytes(plane(index).dtype);
  }

 private:
  KeptTensors kept_;  // Outlives the session that reads them.
  ShadowSession session_;
  Gpu gpu_;
  nb::object store_;  // Stays open as long.
  const std::shared_ptr<const ModelSpec> spec_;
  const ShadowOptions options_;
};

// The content that a step attends to, as tensors of the device.
struct PyShadowView {
  ShadowView view;
  nb::object session;
  const PyShadowSession& of() const { return nb::cast<const PyShadowSession&>(session); }
};

// ShadowSpec, ShadowInfo, the calls of branches, ShadowSession and ShadowView.
void BindShadow(nb::class_<PyBranch>& branch, nb::module_& module);
void BindShadowSession(nb::module_& module);
void BindShadowView(nb::module_& module);

}  // namespace cairn::python
