// SPDX-License-Identifier: Apache-2.0
//
// Sparse sessions in Python: the objects behind SparseSession and SparseView.
#pragma once

#include "cairn/sparse.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "api/python/src/branch.h"
#include "api/python/src/tensor.h"

namespace cairn::python {

struct PyArena {
  PyArena(SparseArena made, const Gpu& on, nb::object of)
      : arena(std::move(made)), gpu(on), store(std::move(of)) {}
  ~PyArena() {
    Unlocked([this] { arena = {}; });
  }
  PyArena(const PyArena&) = delete;
  PyArena& operator=(const PyArena&) = delete;

  SparseArena arena;  // Its destructor waits for its thread.
  Gpu gpu;
  nb::object store;
};

// Destroyed without the interpreter's lock: it waits for the device. Tensors on the device that a
// relaxed fetch may still read outlive it.
class PySession {
 public:
  PySession(SparseSession session, Gpu gpu, nb::object store, std::shared_ptr<const ModelSpec> spec,
            const SparseOptions& options)
      : session_(std::move(session)),
        gpu_(std::move(gpu)),
        store_(std::move(store)),
        spec_(std::move(spec)),
        options_(options) {
    for (uint32_t plane = 0; plane < group().planes.size(); ++plane) {
      if ((options.planes >> plane & 1) != 0) planes_.push_back(&group().planes[plane]);
    }
  }
  ~PySession() {
    Unlocked([this] { session_ = {}; });
  }
  PySession(const PySession&) = delete;
  PySession& operator=(const PySession&) = delete;

  SparseSession& session() { return session_; }
  const SparseSession& session() const { return session_; }
  const Gpu& gpu() const { return gpu_; }
  const SparseOptions& options() const { return options_; }
  const LayerGroup& group() const { return spec_->groups[options_.group]; }
  const std::vector<const Plane*>& planes() const { return planes_; }
  uint32_t heads() const { return planes_[0]->heads; }
  // Sets the number of this fetch, from 1 on. Called without the interpreter's lock.
  Result<SparseView> Fetch(const SparseWanted& wanted, uint64_t* number) {
    const std::lock_guard lock(mutex_);  // Fetches wait for each other anyway.
    Result<SparseView> view = session_.Fetch(wanted);
    *number = ++fetches_;
    return view;
  }
  // The layer's last fetch, the one of this number, may still read them.
  void Keep(uint32_t layer, uint64_t number, nb::object pieces) {
    Kept& kept = kept_[layer];
    if (number < kept.number) return;
    std::swap(kept.pieces, pieces);
    kept.number = number;
  }
  // Graphs may read them as long as it lives.
  void KeepCaptured(nb::object pieces) { captured_.push_back(std::move(pieces)); }

 private:
  struct Kept {
    uint64_t number = 0;
    nb::object pieces;
  };
  std::map<uint32_t, Kept> kept_;  // By layer. Needs the interpreter's lock, as the next.
  std::vector<nb::object> captured_;
  std::mutex mutex_;
  uint64_t fetches_ = 0;
  SparseSession session_;
  Gpu gpu_;
  nb::object store_;  // Stays open as long.
  const std::shared_ptr<const ModelSpec> spec_;
  const SparseOptions options_;
  std::vector<const Plane*> planes_;
};

// The result of a fetch, as tensors of the device.
struct PyView {
  SparseView view;
  nb::object session;
  uint32_t count = 0;
  PySession& of() const { return nb::cast<PySession&>(session); }
};

// Pieces by head, converted from Python to C++.
class Pieces {
 public:
  struct Rules {
    std::string what;  // Their name in errors.
    uint32_t heads = 0;
    uint32_t max = 0;  // For each head.
    std::string max_name;
    uint32_t ordinal = 0;  // The device that they may be on.
  };
  // Throws StatusError.
  Pieces(nb::handle object, Rules rules);
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;
  void Into(SparseWanted* wanted) const;

 private:
  static constexpr int64_t kBytes = sizeof(uint32_t);

  void CheckDevice() const;
  void Copy();
  template <typename T>
  void Add(T piece, int64_t head, int64_t i);

  const Rules rules_;
  Tensor tensor_;
  std::vector<uint32_t> copy_;  // Holds them where they are in host memory.
};

nb::dict StatsDict(const SparseStats& stats);

// Store.sparse_arena, SparseArena, SparseSession and SparseView.
void BindSparse(nb::class_<OpenStore>& store, nb::module_& module);
void BindSparseView(nb::module_& module);

}  // namespace cairn::python
