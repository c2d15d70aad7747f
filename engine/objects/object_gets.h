// SPDX-License-Identifier: Apache-2.0
//
// How objects are read: keys become branches, and all of them are one restore of many sources. A
// branch of an object never changes, so a read returns exactly the object that was found, or finds
// it gone.
//
// Thread-safe. No lock may be held around the calls. Errors: those of Objects::GetBatch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/objects.h"
#include "engine/commit/write_deps.h"
#include "engine/objects/object_puts.h"
#include "engine/restore/branch_reads.h"

namespace cairn::engine {

// An object, as the tree has it.
struct FoundObject {
  uint64_t branch = 0;  // 0: there is none.
  uint64_t model = 0, rows = 0;
  uint32_t page_bytes = 0;
  Status status{};  // Not Ok: it is unknown whether it exists.
};

class ObjectGets {
 public:
  struct From {
    std::string space;
    ObjectClassId object_class{};
    uint64_t deadline_ns = io::kNoDeadline;
    size_t at_once = 0;  // How many are read together.
  };
  // By index: whether it is still wanted, and if so the ticket that may cancel it, or null.
  using Begins = std::function<bool(size_t, const TicketState**)>;
  using Ended = std::function<void(size_t, GetResult)>;

  ObjectGets(const WriteDeps& deps, BranchReads* reads, ObjectCounters* counters)
      : deps_(deps), reads_(*reads), counters_(*counters) {}
  ObjectGets(const ObjectGets&) = delete;
  ObjectGets& operator=(const ObjectGets&) = delete;

  void Run(const From& from, std::span<const ObjectGet> gets, const Begins& begins,
           const Ended& ended);
  // Finds the objects of these keys, all of which are valid.
  std::vector<FoundObject> Find(const std::string& space,
                                std::span<const std::string_view> keys) const;
  // Its size: reads its last id. kNotFound: it is gone by now.
  Result<uint64_t> BytesOf(const FoundObject& object, uint64_t deadline_ns) const;

 private:
  struct Get;
  void RunSome(const From& from, std::vector<Get>* gets);
  void Look(const From& from, std::span<Get* const> gets) const;
  void FindNamed(const std::string& space, std::span<const std::string> names,
                 std::span<FoundObject> found) const;

  const WriteDeps& deps_;
  BranchReads& reads_;
  ObjectCounters& counters_;
};

}  // namespace cairn::engine
