// SPDX-License-Identifier: Apache-2.0
//
// How objects come into the store.
//
//   small   several in one record of the log: each is a branch, made and appended to
//   large   what does not fit a record, and what waits for room in its namespace: an unnamed branch
//           gets the bytes, as any large append; then one record gives it the name
//           (object_large_puts.cc)
//
// The same record drops the key's earlier branch. So a branch of an object never changes, and is
// whole once it has a name. An unnamed branch is a put that is under way. If a crash leaves one,
// the next opening drops it (object_space.h).
//
// Thread-safe. No lock may be held around the calls. Errors: those of Objects::PutBatch.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/core/mutex.h"
#include "cairn/objects.h"
#include "engine/commit/appender.h"
#include "engine/commit/ticket.h"
#include "engine/commit/write_deps.h"
#include "engine/objects/object_rows.h"

namespace cairn::engine {

struct ObjectCounters {
  std::atomic<uint64_t> put{0}, put_bytes{0}, kept{0}, not_put{0};
  std::atomic<uint64_t> got{0}, got_bytes{0}, missed{0}, unknown{0};
};

// As a timeout.
inline uint64_t TimeLeft(const WriteDeps& deps, uint64_t deadline_ns) {
  const uint64_t now_ns = deps.world.scheduler->MonotonicNs();
  if (deadline_ns == io::kNoDeadline) return UINT64_MAX;
  return deadline_ns - std::min(deadline_ns, now_ns);
}

class ObjectPuts {
 public:
  // Where and how all of a call go. What is named outlives the call.
  struct Into {
    std::string space;  // The namespace, as the tree has it.
    ModelId model{};
    std::shared_ptr<const ModelSpec> spec{};
    const PutOptions& options;
    uint64_t deadline_ns = io::kNoDeadline;
  };
  // How one ended: stored, or kept as it was, and safe with that sequence.
  struct Outcome {
    Status status{};
    bool stored = false;
    uint64_t sequence = 0;
  };
  // Both by index. Whether it still begins, or ends without a word; and the ticket that may cancel
  // it later, or null.
  using Begins = std::function<bool(size_t, const TicketState**)>;
  using Ended = std::function<void(size_t, Outcome)>;

  ObjectPuts(const WriteDeps& deps, Appender* appender, ObjectCounters* counters)
      : deps_(deps), appender_(*appender), counters_(*counters) {}
  ObjectPuts(const ObjectPuts&) = delete;
  ObjectPuts& operator=(const ObjectPuts&) = delete;

  // Waits for room, not for the log.
  void Run(const Into& into, std::span<const ObjectPut> puts, const Begins& begins,
           const Ended& ended);

 private:
  // One that is under way.
  struct Put {
    Put(size_t index_in, const ObjectPut& put, const ModelSpec& spec);
    bool CancelRequested() const { return ticket != nullptr && ticket->cancel_requested(); }
    const size_t index;
    const ObjectPut& object;
    const TicketState* ticket = nullptr;
    bool cancelled = false;  // As it was seen when the record was prepared.
    const std::string name;
    const Keep keep;
    ObjectRows rows;
    uint64_t record_bytes = 0;
    Outcome outcome{};
  };
  using Puts = std::vector<std::unique_ptr<Put>>;
  class Resolver;

  static Status Cancelled();
  Result<std::unique_ptr<Put>> Begin(const Into& into, size_t index, const ObjectPut& object) const;
  // All of one record, which is empty then.
  void RunSmall(const Into& into, Puts* puts, const Ended& ended);
  void RunOneByOne(const Into& into, Puts* puts, const Ended& ended);
  void RunLarge(const Into& into, Put* put, const Ended& ended);
  Result<Outcome> PutLarge(const Into& into, const Put& put);
  Result<Outcome> Fill(const Into& into, const Put& put, uint64_t branch);
  Result<Outcome> GiveName(const Into& into, const Put& put, uint64_t branch);
  void DropUnnamed(std::list<uint64_t> branches);
  void DropLeft();
  void End(Put* put, const Ended& ended);
  void Count(const Outcome& outcome, size_t value_bytes);

  const WriteDeps& deps_;
  Appender& appender_;
  ObjectCounters& counters_;
  Mutex mutex_;
  // Unnamed ones that should be gone, and could not be dropped: the next put tries again, or the
  // next opening sweeps them.
  std::list<uint64_t> left_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::engine
