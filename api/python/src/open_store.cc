// SPDX-License-Identifier: Apache-2.0
#include "api/python/src/store.h"

namespace cairn::python {

OpenStore::~OpenStore() {
  static_cast<void>(Close());  // As ~Store: to see the outcome, close it.
}

Status OpenStore::Close() {
  const Status closed = Unlocked([this] { return store_.Close(); });
  Sweep();  // All calls are over.
  return closed;
}

Status OpenStore::CloseAndTell() {
  Status closed = Close();
  listening_.End();
  return closed;
}

std::shared_ptr<const ModelSpec> OpenStore::SpecOf(ModelId id) {
  if (const auto known = specs_.find(id); known != specs_.end()) return known->second;
  ModelInfo info = Take(Unlocked([&] { return store_.GetModel(id); }));
  const auto spec = std::make_shared<const ModelSpec>(std::move(info.spec));
  specs_.insert_or_assign(id, spec);
  return spec;
}

void OpenStore::SetSpec(ModelId id, std::shared_ptr<const ModelSpec> spec) {
  specs_.insert_or_assign(id, std::move(spec));
}

void OpenStore::CheckModel(const Model& model) {
  const std::shared_ptr<const ModelSpec> known = SpecOf(model.id);
  if (known == model.spec) return;
  const std::string difference = known->FirstDifference(*model.spec);
  if (difference.empty()) return;
  throw StatusError(
      Status(StatusCode::kModelMismatch, "model: is of another store: " + difference));
}

std::shared_ptr<const ModelSpec> PyBranch::Spec() const {
  if (spec == nullptr) {
    const BranchInfo info = Take(Unlocked([this] { return branch.Info(); }));
    spec = open().SpecOf(info.model);
  }
  return spec;
}

void OpenStore::Outlive(Ticket ticket, std::vector<nb::object> owners) {
  orphans_.push_back({.ticket = std::move(ticket), .owners = std::move(owners)});
}

void OpenStore::Sweep() {
  if (orphans_.empty()) return;
  // Destructors of these objects may call back into this.
  std::vector<Orphan> over;
  std::erase_if(orphans_, [&](Orphan& orphan) {
    if (!orphan.ticket.done()) return false;
    over.push_back(std::move(orphan));
    return true;
  });
}

}  // namespace cairn::python
