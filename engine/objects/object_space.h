// SPDX-License-Identifier: Apache-2.0
//
// Objects under keys (cairn/objects.h): branches of models of their own, in namespaces of their own
// (object_names.h). They have no ops, records or files of their own, so log, tables, checksums,
// caps, followers and crash rules apply to them unchanged.
//
//   puts        writing them            object_puts.h
//   gets        reading them            object_gets.h
//   directory   which exist             object_directory.h
//
// Thread-safe, but for Start and Stop. No lock may be held around the calls. Errors: those of
// Objects.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/executor.h"
#include "cairn/objects.h"
#include "engine/commit/appender.h"
#include "engine/commit/changes.h"
#include "engine/config/memory_parts.h"
#include "engine/find/leases.h"
#include "engine/objects/object_directory.h"
#include "engine/objects/object_gets.h"
#include "engine/objects/object_puts.h"
#include "engine/restore/branch_reads.h"

namespace cairn::engine {

class ObjectSpace {
 public:
  // The referenced objects outlive this.
  ObjectSpace(const WriteDeps& deps, Appender* appender, Changes* changes, BranchReads* reads,
              Leases* leases, MemoryBudget* budget)
      : deps_(deps),
        changes_(*changes),
        leases_(*leases),
        directory_(&deps.tree(), budget, DivideMemory(*deps.options).objects()),
        puts_(deps, appender, &counters_),
        gets_(deps, reads, &counters_) {}
  ObjectSpace(const ObjectSpace&) = delete;
  ObjectSpace& operator=(const ObjectSpace&) = delete;

  // For a store that writes, once it is open: fills the directory in the background, and drops what
  // an earlier process left of unfinished puts.
  void Start(uint64_t seed);
  void Stop();

  Result<ObjectClassId> RegisterClass(const ObjectClass& object_class);
  Result<std::vector<PutResult>> Put(std::span<const ObjectPut> puts, const PutOptions& options);
  Result<std::vector<Ticket>> PutAsync(std::span<const ObjectPut> puts, const PutOptions& options);
  Result<std::vector<GetResult>> Get(std::span<const ObjectGet> gets, const GetOptions& options);
  Result<std::vector<Ticket>> GetAsync(std::span<const ObjectGet> gets, const GetOptions& options);
  Result<ObjectsFound> Exists(std::span<const std::string_view> keys, std::string_view ns,
                              uint64_t lease_ns);
  Status Touch(std::span<const std::string_view> keys, std::string_view ns);
  Result<std::vector<Status>> Delete(std::span<const std::string_view> keys, std::string_view ns,
                                     Durability durability);
  Result<ObjectInfo> Stat(std::string_view key, std::string_view ns);
  Result<ObjectPage> List(std::string_view ns, size_t limit, std::string_view cursor);
  Result<std::vector<NamespaceInfo>> Usage() const;
  Status SetPolicy(std::string_view ns, const NamespacePolicy& policy, Durability durability);

  ObjectDirectory& directory() { return directory_; }
  const ObjectDirectory& directory() const { return directory_; }
  const ObjectCounters& counters() const { return counters_; }

 private:
  using Classes = std::map<uint64_t, Result<ObjectClass>>;  // By model, as a listing meets them.

  Status CheckKeys(std::span<const std::string_view> keys) const;
  Result<ObjectPuts::Into> IntoOf(const PutOptions& options) const;
  Result<ObjectGets::From> FromOf(const GetOptions& options, size_t at_once) const;
  void DeleteSome(const std::string& space, std::span<const std::string_view> keys,
                  std::span<Status> outcomes, uint64_t* sequence);
  Result<uint64_t> DropNamed(const std::string& space, std::span<const std::string_view> keys,
                             std::span<Status> outcomes);
  Status AskIndex(std::string_view ns, std::span<const std::string_view> keys,
                  std::span<ObjectDirectory::Answer> answers);
  Result<LeaseId> PutOnLease(std::string_view ns, std::span<const std::string_view> keys,
                             uint64_t lease_ns, std::span<ObjectDirectory::Answer> answers);
  static ObjectInfo InfoOf(const Head& head, std::string_view key, const ObjectClass& object_class);
  void AddTo(ObjectPage* page, std::span<const Head> heads, Classes* classes) const;
  Status Fill(const std::string& space, uint64_t first_id);
  void EndFill(bool all);
  Status Sweep(uint64_t branch);

  const WriteDeps& deps_;
  Changes& changes_;
  Leases& leases_;
  ObjectCounters counters_;
  ObjectDirectory directory_;
  ObjectPuts puts_;
  ObjectGets gets_;
  std::unique_ptr<io::Executor> filler_;  // One thread, if there is something to fill from.
};

}  // namespace cairn::engine
