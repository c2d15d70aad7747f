// SPDX-License-Identifier: Apache-2.0
//
// Tickets, completion queues, and how both meet asyncio.
#include <algorithm>

#include "api/python/src/call.h"
#include "api/python/src/names.h"

namespace cairn::python {

namespace {

// A Call, and its number in the event loop that it was made in.
struct PyTicket {
  Call call;
  nb::object of_loop;  // Or None.
  uint64_t number;
};

// The result of the call: raised, or returned as its kind says.
nb::object Outcome(Call* call) {
  Ticket& ticket = call->ticket();
  call->Release();
  Check(ticket.status());
  if (call->kind() != Call::Kind::kRestore) return nb::cast(ticket.length());
  return nb::cast(RestoreResult(*ticket.restored()));
}

// Ctrl-C ends the wait: signals' handlers run between slices, and what they raise is raised.
bool WaitOrRaise(CompletionQueue* queue, uint64_t timeout_ns) {
  constexpr uint64_t kSliceNs = 100'000'000;  // Feels prompt, and costs ten wakes a second.
  for (uint64_t left_ns = timeout_ns;;) {
    const uint64_t slice_ns = std::min(left_ns, kSliceNs);
    if (Unlocked([&] { return queue->Wait(slice_ns); })) return true;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (left_ns == slice_ns) return false;
    if (left_ns != UINT64_MAX) left_ns -= slice_ns;
  }
}

void BindTickets(nb::module_& module) {
  nb::class_<PyTicket>(module, "Ticket", R"(One asynchronous call.

`await ticket` in the event loop that it was made in, or wait(). The result is the branch's length
after an append, a RestoreResult, or an object's bytes. What the call was given is kept alive until
the store does not touch it any more, whether or not the ticket is. Any thread may use it.)")
      .def_prop_ro(
          "done", [](PyTicket& self) { return self.call.ticket().done(); },
          "Over: the result will not change.")
      .def_prop_ro(
          "released", [](PyTicket& self) { return self.call.ticket().released(); },
          "The tensors of an append may be written again.")
      .def_prop_ro(
          "kv_shed", [](PyTicket& self) { return self.call.ticket().kv_shed(); },
          "The tokens were kept, the KV was not.")
      .def(
          "wait_for_layer",
          [](PyTicket& self, size_t layer, std::string_view state, std::optional<double> timeout) {
            const uint64_t ns = TimeoutNs(timeout);
            const auto wanted = Parse<LayerState>(state, "state");
            const Ticket ticket = self.call.ticket();
            // The words of the progress must outlive the wait.
            const std::vector<nb::object> kept = self.call.Owners();
            Check(Unlocked([&] { return ticket.WaitForLayer(layer, wanted, ns); }));
          },
          "layer"_a, "state"_a = "complete", "timeout"_a = nb::none(),
          "Of a restore with a LayerProgress: blocks until word `layer` of it is \"complete\" (or\n"
          "\"enqueued\", of a GPU), or raises what the restore ended with.")
      .def_prop_ro(
          "length", [](PyTicket& self) { return self.call.ticket().length(); },
          "Of the branch, right after the append was applied.")
      .def(
          "result", [](PyTicket& self) { return Outcome(&self.call); },
          nb::sig("def result(self) -> int | RestoreResult"),
          "The result, or its exception; Busy until it is over.")
      .def(
          "wait",
          [](PyTicket& self, std::optional<double> timeout) {
            const uint64_t ns = TimeoutNs(timeout);
            Ticket ticket = self.call.ticket();
            Check(Unlocked([&] { return ticket.Wait(ns); }));
            return Outcome(&self.call);
          },
          "timeout"_a = nb::none(),
          nb::sig("def wait(self, timeout: float | None = None) -> int | RestoreResult"),
          "Blocks until it is over and gives the result, or raises its exception. "
          "DeadlineExceeded\n"
          "after `timeout` seconds leaves the ticket as it is.")
      .def(
          "cancel",
          [](PyTicket& self) -> nb::object {
            Ticket ticket = self.call.ticket();
            const Status status = Unlocked([&] { return ticket.Cancel(); });
            self.call.Release();
            return status.ok() ? nb::none() : MakeError(status);
          },
          nb::sig("def cancel(self) -> cairn._errors.Error | None"),
          "Ends it now, and returns what it ended with: None is success. When this returns no "
          "memory\n"
          "of the call is touched any more.")
      .def(
          "__await__",
          [](nb::handle self) {
            const auto& ticket = nb::cast<PyTicket&>(self);
            return nb::module_::import_("cairn._loop")
                .attr("wait_for")(self, ticket.of_loop, ticket.number);
          },
          nb::sig(
              "def __await__(self) -> typing.Generator[typing.Any, None, int | RestoreResult]"));
}

void BindQueue(nb::module_& module) {
  nb::class_<CompletionQueue>(module, "CompletionQueue",
                              R"(Ends of many calls behind one file descriptor.

Event loops get one of their own by themselves; this is for programs with a loop of another kind.)")
      .def(
          "__init__",
          [](CompletionQueue* self, OpenStore& store) {
            new (self)
                CompletionQueue(Take(Unlocked([&] { return store.store().NewCompletionQueue(); })));
          },
          "store"_a)
      .def("fileno", &CompletionQueue::event_fd, "Readable while completions wait.")
      .def(
          "drain",
          [](CompletionQueue& self) {
            std::vector<uint64_t> over;
            for (const Completion& completion : Unlocked([&] { return self.Drain(); }))
              over.push_back(completion.user_data);
            return over;
          },
          "The user_data of calls that are over, oldest first; never blocks.")
      .def(
          "wait",
          [](CompletionQueue& self, std::optional<double> timeout) {
            return WaitOrRaise(&self, TimeoutNs(timeout));
          },
          "timeout"_a = nb::none(),
          "Blocks until a completion waits; False after `timeout` seconds. Signals end it.");
}

}  // namespace

Told::Told(nb::handle store, nb::handle queue, uint64_t user_data) : of_loop_(nb::none()) {
  nb::cast<OpenStore&>(store).Sweep();
  if (!queue.is_none()) {
    if (!nb::isinstance<CompletionQueue>(queue)) BadArgument("queue: is no CompletionQueue");
    queue_ = &nb::cast<CompletionQueue&>(queue);
    number_ = user_data;
    return;
  }
  of_loop_ = nb::module_::import_("cairn._loop").attr("queue_of")(store);
  if (of_loop_.is_none()) return;
  queue_ = &nb::cast<CompletionQueue&>(of_loop_.attr("queue"));
  number_ = nb::cast<uint64_t>(of_loop_.attr("next_number")());
}

nb::object MakeTicket(Call&& call, const Told& told) {
  return nb::cast(
      PyTicket{.call = std::move(call), .of_loop = told.of_loop(), .number = told.number()});
}

void BindTicket(nb::module_& module) {
  BindTickets(module);
  BindQueue(module);
}

}  // namespace cairn::python
