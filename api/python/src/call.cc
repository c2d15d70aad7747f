// SPDX-License-Identifier: Apache-2.0
#include "api/python/src/call.h"

namespace cairn::python {

namespace {

template <typename T>
const T* Optional(nb::handle object, const char* name, std::optional<T>* kept) {
  if (object.is_none()) return nullptr;
  if (!nb::isinstance<T>(object)) {
    BadArgument(std::string(name) + ": a " + nb::inst_name(object).c_str() + " is none");
  }
  *kept = nb::cast<const T&>(object);
  return &**kept;
}

}  // namespace

DeltaArguments::DeltaArguments(const ModelSpec* model, nb::handle tokens, nb::handle kv,
                               nb::handle sampler, nb::handle metadata, nb::handle spans,
                               bool exact)
    : ids_(tokens, "tokens"), kv_(nb::borrow(kv)) {
  delta_.tokens = ids_.span();
  delta_.kv = ViewOf(kv, model, "kv", false);
  delta_.sampler = Optional(sampler, "sampler", &sampler_);
  delta_.metadata = Optional(metadata, "metadata", &metadata_);
  if (!spans.is_none() && !nb::try_cast(spans, spans_)) {
    BadArgument("spans: must be a sequence of ContentSpans");
  }
  delta_.spans = spans_;
  delta_.exact = exact;
}

Call::~Call() {
  if (owners_.empty() || ticket_.done()) return;
  // Nobody waits for it any more, but the store still reads or writes its arguments.
  nb::cast<OpenStore&>(store_).Outlive(std::move(ticket_), std::move(owners_));
}

void Call::Release() {
  if (!(kind_ == Kind::kRestore ? ticket_.done() : ticket_.released())) return;
  // Destructors of these objects may call back into this.
  std::vector<nb::object> gone;
  gone.swap(owners_);
}

}  // namespace cairn::python
