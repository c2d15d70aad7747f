// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/python/src/common.h"
#include "api/python/src/events.h"
#include "api/python/src/model.h"
#include "cairn/completion.h"
#include "cairn/store.h"

namespace cairn::python {

// An open store. Also holds Python objects that calls under way still need.
class OpenStore {
 public:
  OpenStore(Store store, Listening listening)
      : store_(std::move(store)), listening_(std::move(listening)) {}
  ~OpenStore();  // Closes.
  OpenStore(const OpenStore&) = delete;
  OpenStore& operator=(const OpenStore&) = delete;

  Store& store() { return store_; }
  Status Close();
  // Close; returns after on_event got all its lines.
  Status CloseAndTell();

  // The spec of a registered model.
  std::shared_ptr<const ModelSpec> SpecOf(ModelId id);
  void SetSpec(ModelId id, std::shared_ptr<const ModelSpec> spec);
  // Throws StatusError unless the model is one of this store's: ids of models are valid within one
  // store only.
  void CheckModel(const Model& model);

  // Objects of a call whose ticket is gone: they are released when the call is over.
  void Outlive(Ticket ticket, std::vector<nb::object> owners);
  void Sweep();

 private:
  struct Orphan {
    Ticket ticket;
    std::vector<nb::object> owners;
  };
  Store store_;
  Listening listening_;
  // Needs the interpreter's lock:
  std::vector<Orphan> orphans_;
  std::map<ModelId, std::shared_ptr<const ModelSpec>> specs_;
};

// A Branch and the Python object of its store, which stays open as long.
struct PyBranch {
  Branch branch;
  nb::object store;
  mutable std::shared_ptr<const ModelSpec> spec;  // Null: not read yet.
  OpenStore& open() const { return nb::cast<OpenStore&>(store); }
  // The spec of the branch's model.
  std::shared_ptr<const ModelSpec> Spec() const;
  // Null if `kv` is None, which needs none.
  std::shared_ptr<const ModelSpec> SpecFor(nb::handle kv) const {
    return kv.is_none() ? nullptr : Spec();
  }
};

// Reads Store(...)'s keywords.
Options OptionsOf(const nb::kwargs& arguments);
// Store.__init__ as help() and editors show it: each option with its default.
const std::string& OpeningSignature();

// Store.find_prefix and PrefixHit.
void BindFind(nb::class_<OpenStore>& store, nb::module_& module);

// Store.plan_blend, Store.compose, and what they return.
void BindBlend(nb::class_<OpenStore>& store, nb::module_& module);

// Store.batch and WriteBatch.
void BindBatch(nb::class_<OpenStore>& store, nb::module_& module);

// Store.import_branch, and forests.
void BindStoreExport(nb::class_<OpenStore>& store, nb::module_& module);

// VerifyReport, BranchInfo and the like.
void BindStoreValues(nb::module_& module);

// renew, release and the context manager of a class that has `open()`, the store, and a lease.
template <typename Holder>
void BindLease(nb::class_<Holder>* holder, LeaseId (*lease_of)(const Holder&)) {
  const auto release = [lease_of](const Holder& self) {
    Store& store = self.open();
    const LeaseId lease = lease_of(self);
    Check(Unlocked([&] { return store.Release(lease); }));
  };
  holder->def_prop_ro(
      "lease", [lease_of](const Holder& self) { return static_cast<uint64_t>(lease_of(self)); },
      "0: there is none.");
  holder->def(
      "renew",
      [lease_of](const Holder& self, double seconds) {
        const uint64_t ns = DurationNs(seconds, "lease");
        Store& store = self.open();
        const LeaseId lease = lease_of(self);
        Check(Unlocked([&] { return store.Renew(lease, ns); }));
      },
      nb::arg("lease"), "The lease lasts for `lease` seconds from now. NotFound: it is over.");
  holder->def("release", release, "Ends the lease, if there is one.");
  holder->def("__enter__", [](nb::handle self) { return nb::borrow(self); });
  holder->def(
      "__exit__",
      [release](const Holder& self, const nb::object&, const nb::object&, const nb::object&) {
        release(self);
      },
      nb::arg("type") = nb::none(), nb::arg("value") = nb::none(),
      nb::arg("traceback") = nb::none());
}

nb::dict MetricsDict(const StoreMetrics& metrics);

}  // namespace cairn::python
