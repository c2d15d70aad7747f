// SPDX-License-Identifier: Apache-2.0
//
// The arguments that appends and restores have in common, as Python gives them and as C++ takes
// them. They live as long as the call, or its ticket.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/python/src/common.h"
#include "api/python/src/ids.h"
#include "api/python/src/kv.h"
#include "api/python/src/store.h"
#include "cairn/branch.h"

namespace cairn::python {

// The content of an append. Owns the memory that `delta` points to, or keeps its owner. `model`: of
// the branch; may be null without KV.
class DeltaArguments {
 public:
  DeltaArguments(const ModelSpec* model, nb::handle tokens, nb::handle kv, nb::handle sampler,
                 nb::handle metadata, nb::handle spans, bool exact);
  DeltaArguments(const DeltaArguments&) = delete;
  DeltaArguments& operator=(const DeltaArguments&) = delete;
  const Delta& delta() const { return delta_; }

 private:
  Ids ids_;
  nb::object kv_;
  std::optional<SamplerState> sampler_;
  std::optional<AppMetadata> metadata_;
  std::vector<ContentSpan> spans_;
  Delta delta_;
};

// A call under way, its arguments, and where its end is reported.
class Call {
 public:
  enum class Kind : uint8_t { kAppend, kRestore, kObject };
  Call(nb::object store, Ticket ticket, Kind kind, std::vector<nb::object> owners)
      : store_(std::move(store)),
        ticket_(std::move(ticket)),
        kind_(kind),
        owners_(std::move(owners)) {}
  Call(Call&&) = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  Call& operator=(Call&&) = delete;
  ~Call();

  Ticket& ticket() { return ticket_; }
  Kind kind() const { return kind_; }
  // For a wait that reads the call's arguments: another thread may see its end, and release them.
  std::vector<nb::object> Owners() const { return owners_; }
  // Releases objects that the call does not touch any more.
  void Release();

 private:
  nb::object store_;
  Ticket ticket_;
  Kind kind_;
  std::vector<nb::object> owners_;
};

// A Python object that owns `value`, for a Call to keep.
template <typename T>
nb::object Owned(std::unique_ptr<T> value) {
  const nb::capsule capsule(value.get(),
                            [](void* pointer) noexcept { delete static_cast<T*>(pointer); });
  static_cast<void>(value.release());
  return capsule;
}

// Where the end of a call is reported: in the caller's queue, or, if it is made in a running event
// loop, in that one's (cairn/_loop.py).
class Told {
 public:
  explicit Told(nb::handle store, nb::handle queue = nb::none(), uint64_t user_data = 0);
  const CompletionQueue* queue() const { return queue_; }
  uint64_t number() const { return number_; }
  // None outside of a loop.
  const nb::object& of_loop() const { return of_loop_; }

 private:
  nb::object of_loop_;
  const CompletionQueue* queue_ = nullptr;
  uint64_t number_ = 0;
};

// The Python ticket of a call that was made.
nb::object MakeTicket(Call&& call, const Told& told);

}  // namespace cairn::python
