// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <vector>

#include "api/python/src/common.h"
#include "cairn/completion.h"
#include "cairn/store.h"

namespace cairn::python {

// An open store. What calls under way still need of Python's objects is here, too.
class OpenStore {
 public:
  explicit OpenStore(Store store) : store_(std::move(store)) {}
  ~OpenStore();  // Closes.
  OpenStore(const OpenStore&) = delete;
  OpenStore& operator=(const OpenStore&) = delete;

  Store& store() { return store_; }
  Status Close();

  // Objects of a call that nobody holds the ticket of any more: they are let go when it is over.
  void Outlive(Ticket ticket, std::vector<nb::object> keep);
  void Sweep();

 private:
  struct Orphan {
    Ticket ticket;
    std::vector<nb::object> keep;
  };
  Store store_;
  std::vector<Orphan> orphans_;  // With the interpreter's lock.
};

// A Branch and the Python object of its store, which stays open as long.
struct PyBranch {
  Branch branch;
  nb::object store;
  OpenStore& open() const { return nb::cast<OpenStore&>(store); }
};

// Reads Store(...)'s keywords.
Options OptionsOf(const nb::kwargs& arguments);

// Store.find_prefix and PrefixHit.
void BindFind(nb::class_<OpenStore>& store, nb::module_& module);

// VerifyReport, BranchInfo and the like.
void BindStoreValues(nb::module_& module);

nb::dict MetricsDict(const StoreMetrics& metrics);

}  // namespace cairn::python
