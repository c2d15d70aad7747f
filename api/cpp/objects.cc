// SPDX-License-Identifier: Apache-2.0
//
// The public class Objects: checks the call, and passes it on to ObjectSpace.
#include "cairn/objects.h"

#include "api/cpp/on_core.h"
#include "base/core/check.h"

namespace cairn {

Result<ObjectClassId> Objects::RegisterClass(const ObjectClass& object_class) {
  return OnCore(core_, [&](StoreCore& core) { return core.objects().RegisterClass(object_class); });
}
Result<std::vector<PutResult>> Objects::PutBatch(std::span<const ObjectPut> puts,
                                                 const PutOptions& options) {
  return OnCore(core_, [&](StoreCore& core) { return core.objects().Put(puts, options); });
}
Result<std::vector<Ticket>> Objects::PutBatchAsync(std::span<const ObjectPut> puts,
                                                   const PutOptions& options) {
  return OnCore(core_, [&](StoreCore& core) { return core.objects().PutAsync(puts, options); });
}
Result<std::vector<GetResult>> Objects::GetBatch(std::span<const ObjectGet> gets,
                                                 const GetOptions& options) const {
  return OnCore(core_, [&](StoreCore& core) { return core.objects().Get(gets, options); });
}
Result<std::vector<Ticket>> Objects::GetBatchAsync(std::span<const ObjectGet> gets,
                                                   const GetOptions& options) const {
  return OnCore(core_, [&](StoreCore& core) { return core.objects().GetAsync(gets, options); });
}
Result<ObjectsFound> Objects::Exists(std::span<const std::string_view> keys, std::string_view ns,
                                     uint64_t lease_ns) const {
  return OnCore(core_, [&](StoreCore& core) { return core.objects().Exists(keys, ns, lease_ns); });
}
Status Objects::Touch(std::span<const std::string_view> keys, std::string_view ns) {
  return OnCore(core_, [&](StoreCore& core) { return core.objects().Touch(keys, ns); });
}
Result<std::vector<Status>> Objects::Delete(std::span<const std::string_view> keys,
                                            std::string_view ns, Durability durability) {
  return OnCore(core_,
                [&](StoreCore& core) { return core.objects().Delete(keys, ns, durability); });
}
Result<ObjectInfo> Objects::Stat(std::string_view key, std::string_view ns) const {
  return OnCore(core_, [&](StoreCore& core) { return core.objects().Stat(key, ns); });
}
Result<ObjectPage> Objects::List(std::string_view ns, size_t limit, std::string_view cursor) const {
  return OnCore(core_, [&](StoreCore& core) { return core.objects().List(ns, limit, cursor); });
}
Result<std::vector<NamespaceInfo>> Objects::Usage() const {
  return OnCore(core_, [&](StoreCore& core) { return core.objects().Usage(); });
}
Status Objects::SetPolicy(std::string_view ns, const NamespacePolicy& policy,
                          Durability durability) {
  return OnCore(core_,
                [&](StoreCore& core) { return core.objects().SetPolicy(ns, policy, durability); });
}

}  // namespace cairn
