// SPDX-License-Identifier: Apache-2.0
//
// KV in Python's arrays as a cairn::KvView. KvTensors holds the tensors of an engine and their
// layout, checked once. KvView is some positions of it, made for a call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/python/src/common.h"
#include "api/python/src/tensor.h"
#include "cairn/kv_view.h"
#include "cairn/model.h"

namespace cairn::python {

// Immutable; every view of it shares it.
struct GroupMemory {
  std::shared_ptr<const ModelSpec> spec;
  uint32_t group = 0;
  uint32_t layer_begin = 0, layers = 0;
  std::string layout;
  std::vector<Tensor> tensors;                 // Keep the memory alive.
  std::vector<std::vector<std::byte*>> bases;  // By plane and layer.
  std::vector<PlaneView> planes;               // Strides; without bases.
  uint64_t blocks = 0;                         // 0: there are none.
  uint64_t tokens_per_block = 0;               // All tokens, if there are no blocks.
  MemoryKind memory = MemoryKind::kHost;
  uint32_t device = 0;
  bool writable = true;

  const LayerGroup& of() const { return spec->groups[group]; }
  uint64_t tokens() const { return tokens_per_block * (blocks == 0 ? 1 : blocks); }
};

// The memory that a view of one group points to.
struct ViewPart {
  std::shared_ptr<const GroupMemory> memory;
  std::vector<std::vector<std::byte*>> bases;
  std::vector<PlaneView> planes;
  std::vector<int64_t> table;
  std::optional<Tensor> table_tensor;  // On the device.
};

class Kv {
 public:
  // For groups of a model that point into memory that `keep` holds.
  Kv(const KvView& view, std::shared_ptr<const ModelSpec> spec, std::shared_ptr<const void> owner,
     bool writable);
  Kv(const Kv& other) { *this = other; }
  Kv& operator=(const Kv& other);

  // Both, in this order.
  static Kv Join(const Kv& a, const Kv& b);

  const KvView& view() const { return view_; }
  bool writable() const { return writable_; }
  // ModelMismatch unless `model` has layer groups of the same shapes: strides and bases do not show
  // heads, rows and dtypes.
  void CheckModel(const ModelSpec& model, const char* name) const;

 private:
  std::shared_ptr<const ModelSpec> spec_;
  std::vector<std::shared_ptr<const void>> owners_;
  std::vector<GroupView> groups_;
  KvView view_;
  bool writable_ = true;
};

// kv= and into= of calls on state of `model`: null for None, and then `model` may be null. Throws
// StatusError if it is no KvView or KvBuffer, or of a model of other shapes. `to_write`: refuses
// read-only memory.
const KvView* ViewOf(nb::handle kv, const ModelSpec* model, const char* name, bool to_write);

// The index of a group given by number or name.
uint32_t GroupIndex(const ModelSpec& spec, const std::variant<uint32_t, std::string>& group);

// KvBuffer, and ViewOf's other half.
void BindBuffer(nb::module_& module);

std::shared_ptr<const GroupMemory> MakeGroupMemory(std::shared_ptr<const ModelSpec> spec,
                                                   uint32_t group, uint32_t layer_begin,
                                                   const std::string& layout,
                                                   std::vector<Tensor> tensors);

}  // namespace cairn::python
