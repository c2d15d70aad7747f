// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "api/python/src/common.h"
#include "cairn/model.h"

namespace cairn::python {

// A registered model. The spec lives as long as any object made from it.
struct Model {
  ModelId id{};
  std::shared_ptr<const ModelSpec> spec;
  // Ids are valid within one store only.
  bool operator==(const Model& other) const { return id == other.id && *spec == *other.spec; }
};

// `model` is a ModelSpec or a Model; anything else is a TypeError.
std::shared_ptr<const ModelSpec> SpecOf(nb::handle model);

}  // namespace cairn::python
