// SPDX-License-Identifier: Apache-2.0
#include "api/python/src/kv.h"

namespace cairn::python {

Kv::Kv(const KvView& view, std::shared_ptr<const ModelSpec> spec, std::shared_ptr<const void> owner,
       bool writable)
    : spec_(std::move(spec)),
      groups_(view.groups.begin(), view.groups.end()),
      view_(view),
      writable_(writable) {
  owners_.push_back(std::move(owner));
  view_.groups = groups_;
}

Kv& Kv::operator=(const Kv& other) {
  if (this == &other) return *this;
  spec_ = other.spec_;
  owners_ = other.owners_;
  groups_ = other.groups_;
  view_ = other.view_;
  view_.groups = groups_;
  writable_ = other.writable_;
  return *this;
}

void Kv::CheckModel(const ModelSpec& model, const char* name) const {
  if (spec_.get() == &model || spec_->groups == model.groups) return;
  // The same tensors may serve a model and its variants, so shapes alone are compared.
  ModelSpec shapes = model;
  shapes.groups = spec_->groups;
  const std::string difference = model.FirstDifference(shapes);
  if (difference.empty()) return;
  throw StatusError(Status(StatusCode::kModelMismatch,
                           std::string(name) + ": is of another model: " + difference));
}

Kv Kv::Join(const Kv& a, const Kv& b) {
  b.CheckModel(*a.spec_, "view");
  if (!a.groups_.empty() && !b.groups_.empty() &&
      (a.view_.memory != b.view_.memory || a.view_.device != b.view_.device)) {
    BadArgument("views of memory of different devices cannot be one view");
  }
  Kv both = a.groups_.empty() ? b : a;
  if (!a.groups_.empty()) {
    both.groups_.insert(both.groups_.end(), b.groups_.begin(), b.groups_.end());
    both.owners_.insert(both.owners_.end(), b.owners_.begin(), b.owners_.end());
    both.view_.groups = both.groups_;
    both.writable_ = a.writable_ && b.writable_;
  }
  return both;
}

uint32_t GroupIndex(const ModelSpec& spec, const std::variant<uint32_t, std::string>& group) {
  if (const auto* const index = std::get_if<uint32_t>(&group)) return *index;
  const auto& name = std::get<std::string>(group);
  for (uint32_t i = 0; i < spec.groups.size(); ++i) {
    if (spec.groups[i].name == name) return i;
  }
  BadArgument("group: the model has none called '" + name + "'");
}

}  // namespace cairn::python
