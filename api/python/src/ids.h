// SPDX-License-Identifier: Apache-2.0
//
// Token ids: a list of numbers, or one row of them in any array. uint32 is used without a copy.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "api/python/src/common.h"
#include "api/python/src/tensor.h"
#include "cairn/branch.h"

namespace cairn::python {

class Ids {
 public:
  // None: no ids. Throws StatusError naming `name`, and the first number that is no id.
  Ids(nb::handle object, const char* name);
  std::span<const TokenId> span() const { return span_; }

 private:
  std::optional<Tensor> tensor_;
  std::vector<TokenId> copy_;
  std::span<const TokenId> span_;
};

// The caller's memory for ids: a writable row of uint32.
class IdBuffer {
 public:
  IdBuffer(nb::handle object, const char* name);
  std::span<TokenId> span() const { return span_; }

 private:
  std::optional<Tensor> tensor_;
  std::span<TokenId> span_;
};

// An int, or a number of numpy, which can become one. No bool, which is a wrong argument.
bool WholeNumber(nb::handle object, int64_t* number);

// As an array of numpy, which owns them.
nb::object NumpyIds(std::vector<TokenId>&& ids);

}  // namespace cairn::python
