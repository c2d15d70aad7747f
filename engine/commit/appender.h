// SPDX-License-Identifier: Apache-2.0
//
// Adds content to branches: appends and fills. Checks everything that can be checked before the
// commit lock is taken, chooses the way of the delta, and makes the caller's result.
//
//   coalesced  one token, with delta_batch_tokens             coalesced_appends.h
//   a record   a delta that fits one                          append_resolver.h
//   large      in parts, or into a table; borrowed memory     large_appends.h
//   filled     KV that comes later than its tokens            fill.cc
//   from a GPU any of these, through staging memory           append_from_gpu.cc
//
// Thread-safe. No lock may be held around the calls. Errors: those of Branch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "cairn/branch_types.h"
#include "engine/commit/append_resolver.h"
#include "engine/commit/coalesced_appends.h"
#include "engine/commit/large_appends.h"
#include "engine/commit/write_deps.h"

namespace cairn::engine {

// Additions of a draft to an append.
struct Drafted {
  std::shared_ptr<void> owner{};      // Lives as long as a borrowed source is read.
  std::optional<uint64_t> version{};  // kConflict unless the branch has that Head::version.
  Arrival arrival{};                  // When KV in host memory may be read.
};

class Appender {
 public:
  Appender(const WriteDeps& deps, CoalescedAppends* coalesced)
      : deps_(deps), coalesced_(coalesced), large_(deps, coalesced) {}
  Appender(const Appender&) = delete;
  Appender& operator=(const Appender&) = delete;

  Result<Ticket> Append(BranchId id, const Delta& delta, const AppendOptions& options,
                        Drafted drafted = {});
  // Waits for room, and until the append is as durable as asked for. Returns the branch's new
  // length.
  Result<uint64_t> AppendSync(BranchId id, const Delta& delta, const AppendOptions& options);
  Status Fill(BranchId id, const KvView& kv, const AppendOptions& options);

 private:
  // Checks a delta before any lock is taken: shapes, emptiness, its model.
  Result<std::shared_ptr<const ModelSpec>> CheckDelta(BranchId id, const Delta& delta,
                                                      const AppendOptions& options, bool fill,
                                                      bool* keeps_kv);
  // One record.
  Result<Applied> AppendRecord(BranchId id, const Delta& delta, const Expected& expected,
                               const ModelSpec& model, RetryPolicy policy);
  // An append of any size; waits for room that eviction makes.
  Result<Applied> AppendWithRoom(BranchId id, const Delta& delta, const Expected& expected,
                                 const ModelSpec& model, const AppendOptions& options,
                                 uint64_t deadline_ns);
  // --- append_from_gpu.cc
  // The source of a delta's KV; empty if that is host memory.
  Result<LargeAppends::Source> OpenSource(const ModelSpec& model, const Delta& delta,
                                          const AppendOptions& options) const;
  Result<std::shared_ptr<StagedWindow>> TakeStaging(uint64_t bytes, uint64_t position_bytes) const;
  Result<Ticket> PostFromGpu(BranchId id, const Delta& delta, const AppendOptions& options,
                             const Expected& expected,
                             const std::shared_ptr<const ModelSpec>& model, bool kv_shed);
  Result<uint64_t> FillFromGpu(BranchId id, const Delta& delta, const ModelSpec& model,
                               const AppendOptions& options, uint64_t deadline_ns);

  Result<bool> HasGap(BranchId id, const Delta& delta);
  Result<Ticket> AppendShedding(BranchId id, const Delta& delta, const AppendOptions& options,
                                const Expected& expected, const Status& cause);
  // Fills all that the view describes; returns the sequence of its last record.
  Result<uint64_t> FillView(BranchId id, const Delta& delta, size_t view_index,
                            const ModelSpec& model, const AppendOptions& options,
                            uint64_t deadline_ns);
  Result<uint64_t> FillNext(BranchId id, const Delta& delta, size_t view_index, uint64_t* from,
                            const ModelSpec& model, const AppendOptions& options,
                            uint64_t deadline_ns);

  const WriteDeps& deps_;
  CoalescedAppends* const coalesced_;
  LargeAppends large_;
};

}  // namespace cairn::engine
