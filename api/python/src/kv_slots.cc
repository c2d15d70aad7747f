// SPDX-License-Identifier: Apache-2.0
//
// Slots of shared memory between the process with the store and the ranks of an engine.
#include "cairn/kv_slots.h"

#include <nanobind/ndarray.h>

#include "api/python/src/common.h"

namespace cairn::python {

namespace {

using Area = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;

// Keeps the array whose memory is cut into slots.
struct Slots {
  Area area;
  KvSlots slots;
};

std::span<std::byte> SpanOf(const Area& area) {
  return {reinterpret_cast<std::byte*>(area.data()), area.size()};
}

// `owner` keeps the memory.
Bytes ArrayOf(std::span<std::byte> bytes, nb::handle owner) {
  const size_t size = bytes.size();
  return {bytes.data(), {size}, owner};
}

nb::dict CountsOf(const SlotCounts& counts) {
  nb::dict all;
  all["slots"] = counts.slots;
  all["free"] = counts.free;
  all["filling"] = counts.filling;
  all["filled"] = counts.filled;
  all["appending"] = counts.appending;
  all["restoring"] = counts.restoring;
  all["emptying"] = counts.emptying;
  all["left"] = counts.left;
  all["uses"] = counts.uses;
  all["refused"] = counts.refused;
  all["failed"] = counts.failed;
  all["strange"] = counts.strange;
  return all;
}

void BindUse(nb::module_& module) {
  nb::class_<SlotUse>(module, "SlotUse",
                      R"(One use of a slot: plain data for messages, which can be pickled.

number: no two uses of a KvSlots have the same; 0: none.)")
      .def(
          "__init__",
          [](SlotUse* self, uint32_t slot, uint64_t number) { new (self) SlotUse(slot, number); },
          "slot"_a, "number"_a)
      .def_ro("slot", &SlotUse::slot)
      .def_ro("number", &SlotUse::number)
      .def(
          "__eq__", [](const SlotUse& a, const SlotUse& b) { return a == b; }, nb::is_operator())
      .def("__hash__",
           [](const SlotUse& self) { return nb::hash(nb::make_tuple(self.slot, self.number)); })
      .def("__getstate__", [](const SlotUse& self) { return std::pair(self.slot, self.number); })
      .def("__setstate__", [](SlotUse& self, const std::pair<uint32_t, uint64_t>& state) {
        new (&self) SlotUse(state.first, state.second);
      });
  nb::class_<SlotNews>(module, "SlotNews", "What a report led to.")
      .def_prop_ro(
          "state", [](const SlotNews& self) { return SlotStateName(self.state); },
          nb::sig("def state(self) -> str"), "The slot's, now.")
      .def_ro("all_reported", &SlotNews::all_reported, "It was the last one.")
      .def_ro("all_copied", &SlotNews::all_copied, "And each rank had copied its rows.");
}

void BindStates(nb::class_<Slots>& slots) {
  slots
      .def(
          "begin_save", [](const Slots& self) { return Take(self.slots.BeginSave()); },
          "A free slot, into which all ranks copy from now on. Busy: none is free, or a rank is "
          "gone.")
      .def(
          "begin_load", [](const Slots& self) { return Take(self.slots.BeginLoad()); },
          "A free slot, into which the owner restores. Busy as begin_save.")
      .def(
          "report",
          [](const Slots& self, const SlotUse& use, uint32_t rank, bool copied) {
            return Take(self.slots.Report(use, rank, copied));
          },
          "use"_a, "rank"_a, "copied"_a = true,
          R"(A rank has ended its copy for a use, or failed; it touches the slot no more.

Raises InvalidArgument (no such rank or slot), Stale (of no use that is), Conflict (it has reported
already, or is gone), InvalidState (ranks were told of nothing); all of these count as strange.)")
      .def(
          "begin_append",
          [](const Slots& self, const SlotUse& use) { Check(self.slots.BeginAppend(use)); },
          "use"_a, "From here on an append may read the slot, which is filled, up to end_append.")
      .def(
          "end_append",
          [](const Slots& self, const SlotUse& use) { Check(self.slots.EndAppend(use)); }, "use"_a)
      .def(
          "end_restore",
          [](const Slots& self, const SlotUse& use, bool restored) {
            return Take(self.slots.EndRestore(use, restored));
          },
          "use"_a, "restored"_a = true,
          R"(Nothing writes to the slot any more. True: the ranks are to be told.

False: it was not restored, or the use was given up; the slot is free.)")
      .def(
          "leave",
          [](const Slots& self, const SlotUse& use) {
            return SlotStateName(Take(self.slots.Leave(use)));
          },
          "use"_a, nb::sig("def leave(self, use: SlotUse) -> str"),
          "Gives a use up; the state that its slot has now. \"left\": somebody may still touch it.")
      .def(
          "rank_gone", [](const Slots& self, uint32_t rank) { Check(self.slots.RankGone(rank)); },
          "rank"_a,
          "A rank's process has ended and can write nothing any more. While one is gone no use\n"
          "begins. Conflict: it is gone already.")
      .def(
          "rank_came", [](const Slots& self, uint32_t rank) { Check(self.slots.RankCame(rank)); },
          "rank"_a, "Another process has taken its place. Conflict: it is not gone.");
}

}  // namespace

void BindKvSlots(nb::module_& module) {
  BindUse(module);
  nb::class_<Slots> slots(module, "KvSlots",
                          R"(Which slot of shared memory may be touched by whom, and when.

For the process with the store; ranks do what its messages say, and report. docs/processes.md.
States: "free", "filling", "filled", "appending", "restoring", "emptying", "left". Nothing blocks.
Any thread may use it. Calls about a use raise Stale (it is over), InvalidArgument (no such slot)
and InvalidState (its slot is in another state); then nothing changes.)");
  slots
      .def(
          "__init__",
          [](Slots* self, Area area, uint64_t slot_bytes, uint32_t ranks) {
            KvSlots made = Take(KvSlots::Make(SpanOf(area), slot_bytes, ranks));
            new (self) Slots{std::move(area), std::move(made)};
          },
          "area"_a, "slot_bytes"_a, "ranks"_a,
          nb::sig("def __init__(self, area: numpy.typing.NDArray[numpy.uint8], slot_bytes: int, "
                  "ranks: int) -> None"),
          R"(Cuts `area`, SharedMemory.bytes say, into slots of slot_bytes, rounded up to 64.

Raises InvalidArgument: no room for one slot, or more than 2^20; no ranks, or more than 1024.)")
      .def_static(
          "memory_of",
          [](Area area, uint64_t slot_bytes, uint32_t slot) {
            const std::span<std::byte> bytes =
                Take(KvSlots::BytesOf(SpanOf(area), slot_bytes, slot));
            return ArrayOf(bytes, nb::cast(area));
          },
          "area"_a, "slot_bytes"_a, "slot"_a,
          nb::sig("def memory_of(area: numpy.typing.NDArray[numpy.uint8], slot_bytes: int, "
                  "slot: int) -> numpy.typing.NDArray[numpy.uint8]"),
          "The memory of a slot, in any process. InvalidArgument: it is beyond the area.")
      .def(
          "bytes",
          [](nb::handle self, const SlotUse& use) {
            return ArrayOf(Take(nb::cast<const Slots&>(self).slots.BytesOf(use)), self);
          },
          "use"_a,
          nb::sig("def bytes(self, use: SlotUse) -> numpy.typing.NDArray[numpy.uint8]"),
          "The memory of its slot.")
      .def(
          "state_of",
          [](const Slots& self, const SlotUse& use) {
            return SlotStateName(Take(self.slots.StateOf(use)));
          },
          "use"_a, nb::sig("def state_of(self, use: SlotUse) -> str"))
      .def(
          "missing_reports",
          [](const Slots& self, const SlotUse& use) {
            return Take(self.slots.MissingReports(use));
          },
          "use"_a, "How many ranks were told and have not reported yet.")
      .def(
          "counts", [](const Slots& self) { return CountsOf(self.slots.Counts()); },
          nb::sig("def counts(self) -> dict[str, int]"),
          R"(How many slots there are, and are in each state; and what happened so far.

"uses" were begun, "refused" not, since no slot was free; "failed": of a rank or a restore;
"strange": reports of no such use.)")
      .def_prop_ro("slots", [](const Slots& self) { return self.slots.slots(); })
      .def_prop_ro("ranks", [](const Slots& self) { return self.slots.ranks(); })
      .def_prop_ro(
          "slot_bytes", [](const Slots& self) { return self.slots.slot_bytes(); }, "Rounded up.");
  BindStates(slots);
}

}  // namespace cairn::python
