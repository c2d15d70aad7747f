// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/python/src/call.h"
#include "cairn/objects.h"

namespace cairn::python {

struct PyObjects {
  Objects objects;
  nb::object store;
};

// A key: bytes, or text in UTF-8.
std::string KeyOf(nb::handle key);

class Keys {
 public:
  explicit Keys(nb::handle keys);
  std::span<const std::string_view> views() const { return views_; }
  const std::string& operator[](size_t i) const { return keys_[i]; }

 private:
  std::vector<std::string> keys_;
  std::vector<std::string_view> views_;
};

// Values that objects return, and calls about all of them: stat, list, usage and the like.
void BindObjectValues(nb::module_& module);
void BindObjectLooks(nb::class_<PyObjects>& objects);

}  // namespace cairn::python
