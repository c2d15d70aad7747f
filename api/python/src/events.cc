// SPDX-License-Identifier: Apache-2.0
#include "api/python/src/events.h"

#include <nanobind/stl/shared_ptr.h>

namespace cairn::python {

void Events::Push(const std::string& line) {
  {
    MutexLock lock(&mutex_);
    if (closed_ || lines_.size() == kLinesMax) return;
    lines_.push_back(line);
  }
  tokens_.release();
}

std::optional<std::string> Events::Next() {
  tokens_.acquire();
  MutexLock lock(&mutex_);
  if (lines_.empty()) return {};
  std::string line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

void Events::Close() {
  if (getpid() != process_) return;  // The mutex may be held for ever.
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    closed_ = true;
  }
  tokens_.release();
}

Listening::Listening(nb::handle call, Options* options) : thread_(nb::none()) {
  if (call.is_none()) return;
  if (PyCallable_Check(call.ptr()) == 0) {
    BadArgument("on_event: " + std::string(nb::repr(call).c_str()) + " cannot be called");
  }
  events_ = std::make_shared<Events>();
  options->listener = std::make_shared<EventListener>();
  options->listener->on_event = [events = events_](const std::string& line) { events->Push(line); };
  thread_ = nb::module_::import_("cairn._exit").attr("start")(nb::cast(events_), call);
}

Listening::~Listening() {
  if (events_ != nullptr) events_->Close();
}

void Listening::End() {
  if (events_ == nullptr) return;
  events_->Close();
  if (nb::cast<uint64_t>(thread_.attr("ident")) == PyThread_get_thread_ident()) return;
  nb::module_::import_("cairn._exit").attr("join")(thread_);
}

void BindEvents(nb::module_& module) {
  nb::class_<Events>(module, "_Events").def("tell", [](Events& self, nb::handle call) {
    while (const std::optional<std::string> line = Unlocked([&] { return self.Next(); })) {
      try {
        call(*line);
      } catch (nb::python_error& error) {
        error.discard_as_unraisable("on_event");
      }
    }
  });
}

}  // namespace cairn::python
