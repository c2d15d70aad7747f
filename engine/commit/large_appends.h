// SPDX-License-Identifier: Apache-2.0
//
// Appends larger than one record, asynchronous ones on borrowed memory, and those from a GPU. The
// payload is written first and counts with the append record that comes last. Until that record is
// reserved nothing is applied, so cancelling means only to stop.
//
//   parts   a *unit*: records of kind kPart carry the payload, and the unit's last record, an
//           ordinary append, makes it count. Recovery drops unfinished units.
//   whole   an append that fits a record, and comes from a GPU or is not there yet.
//
// While a branch's unit is being gathered, other appends to it are kBusy (asynchronous) or wait.
// Thread-safe. No lock may be held around the calls.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/branch_types.h"
#include "engine/commit/append_resolver.h"
#include "engine/commit/coalesced_appends.h"
#include "engine/commit/ready_poller.h"
#include "engine/commit/staged_window.h"
#include "engine/commit/write_deps.h"

namespace cairn::engine {

class LargeAppends {
 public:
  LargeAppends(const WriteDeps& deps, CoalescedAppends* coalesced)
      : deps_(deps), coalesced_(coalesced) {}
  LargeAppends(const LargeAppends&) = delete;
  LargeAppends& operator=(const LargeAppends&) = delete;

  // The source of a delta's KV, if that is not host memory which may be read at once.
  struct Source {
    // Both are set for a view of GPU memory: what is read, and where its rows are copied.
    std::shared_ptr<GpuSource> gpu{};
    std::shared_ptr<StagedWindow> staged{};
    Arrival arrival{};
  };

  // One delta to a branch. The memory that it refers to, and the model, outlive the call or the
  // job.
  struct Large {
    BranchId branch{};
    const Delta& delta;
    const Expected& expected;
    const ModelSpec& model;
    uint64_t deadline_ns = io::kNoDeadline;
    TicketState* ticket = nullptr;  // The job's; null: the caller waits.
    const Source* source = nullptr;
  };
  // On the calling thread. Waits for another large append of the branch.
  Result<Applied> Append(const Large& large);

  // As a job. Neither call waits for another large append of the branch: kBusy. `owner` lives as
  // long as the delta's memory is read.
  struct Borrowed {
    BranchId branch{};
    Delta delta;
    Expected expected;
    std::shared_ptr<const ModelSpec> model;
    std::shared_ptr<void> owner{};
    bool kv_shed = false;
    Source source{};
  };
  Result<Ticket> Post(Borrowed borrowed, const AppendOptions& options);

 private:
  class PartResolver;

  Result<uint64_t> Begin(BranchId id, uint64_t bytes, const Expected& expected, bool wait,
                         uint64_t deadline_ns);
  uint64_t LogBytes(const ModelSpec& model, const Delta& delta) const;
  Result<Ticket> PostBegun(Borrowed borrowed, const AppendOptions& options, uint64_t length);
  void Run(const Borrowed& borrowed, const AppendOptions& options, uint64_t length,
           uint64_t deadline_ns, const std::shared_ptr<TicketState>& state, Timer::Entry* timeout);
  Result<Applied> Gather(const Large& large, uint64_t length);
  static Status AwaitSource(const Large& large);
  bool FitsWhole(const Large& large) const;
  Result<const Delta*> OnHost(const Large& large, const DeltaWindow& window) const;
  Result<Applied> WriteWhole(const Large& large);
  Result<Applied> WriteParts(const Large& large, uint64_t length);
  Status GoOn(const Large& large) const;
  Result<Part> WritePart(const Large& large, const DeltaWindow& window, uint64_t length,
                         uint64_t unit, uint64_t* sequence, uint64_t* kv_bytes);
  Result<Applied> WriteLast(const Large& large, DeltaPayload* payload, const Written& written);

  const WriteDeps& deps_;
  CoalescedAppends* const coalesced_;
};

}  // namespace cairn::engine
