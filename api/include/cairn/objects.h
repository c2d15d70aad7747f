// SPDX-License-Identifier: Apache-2.0
//
// Objects: bytes under keys of the caller's own, for engines that name their cache pages and know
// no branches. They live in the same store, log and tables as branches do, under the same cap.
//
//   cairn::Objects objects(store);
//   auto pages = objects.RegisterClass({.name = "kv", .page_bytes = 16384, .dtype = Dtype::kBf16});
//   objects.PutBatch(puts, {.object_class = *pages});
//   auto found = objects.Exists(keys);                         // found->leading
//   objects.GetBatch(gets);
//
// An object never changes. Puts are atomic in memory, for followers, and across any crash.
// Replacing an object drops it and puts another under its key, in one step.
//
// Keys are 1 to 256 bytes of any value, objects 0 bytes to 1 GiB. Keys belong to a namespace, which
// is not one of branches: what is called "a" here has nothing to do with their "a". Its cap, its
// ttl and what may be evicted of it are set here (SetPolicy). Calls about branches refuse those
// namespaces, by the name that they have in the store.
//
// Thread-safe; a handle is a small value and keeps the store's memory, but not the store, open:
// after Store::Close each call is kInvalidState. A follower (Options::read_only) answers what only
// looks, and refuses the rest with kReadOnly.
//
// The top of cairn/branch.h explains what is common to all calls: the commit lock, the index,
// errors of every call and of every change. The lists below name the other errors. Everything that
// is given to a call is borrowed for the call, unless its comment says longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/completion.h"
#include "cairn/find.h"
#include "cairn/keep.h"
#include "cairn/limits.h"
#include "cairn/model.h"
#include "cairn/options.h"
#include "cairn/status.h"
#include "cairn/store.h"

namespace [[gnu::visibility("default")]] cairn {

// Limits of keys, objects and pages, in bytes.
inline constexpr uint64_t kMaxObjectKeyBytes = kMaxNameBytes;
inline constexpr uint64_t kMaxObjectBytes = 1u << 30;
inline constexpr uint32_t kMinObjectPageBytes = 64, kMaxObjectPageBytes = 1u << 20;

// How objects of one kind are laid out: as a whole number of pages and a rest.
struct ObjectClass {
  std::string name{};  // Not empty; at most kMaxIdentityBytes.
  // A page is read, checked and packed as one: what the engine's own page has, or a part of that.
  // A partly filled last page takes a whole page's room in memory and in the log.
  uint32_t page_bytes = 4096;
  // The type of the bytes. Only bf16 and f16 are packed: they are KV, then, and get smaller by
  // about a third without loss.
  Dtype dtype = Dtype::kOpaque;
  bool operator==(const ObjectClass&) const = default;
};
enum class ObjectClassId : uint64_t {};  // Given by the store, stable for its life.

enum class IfPresent : uint8_t {
  kKeep,     // An existing object stays: for keys that name content.
  kReplace,  // The new object replaces an existing one atomically.
};

// One object to put.
struct ObjectPut {
  std::string_view key{};  // 1 to 256 bytes of any value.
  std::span<const std::byte> value{};
  // The key's position in its chain. The deeper of two objects is evicted first, however new, since
  // it is useless without those before it. Kept up to 255.
  uint32_t depth = 0;
  uint64_t user_data = 0;  // Handed back with its completion.
};
// How all objects of a call are put.
struct PutOptions {
  std::string_view ns{};
  ObjectClassId object_class{};  // Required: one that RegisterClass gave.
  IfPresent if_present = IfPresent::kKeep;
  bool pinned = false;                           // Neither evicted nor expired.
  uint64_t ttl_ns = 0;                           // As Keep::ttl_ns; 0: that of the namespace.
  Durability durability = Durability::kProcess;  // When a put counts as done.
  // Nanoseconds from the call on, for all of its objects.
  uint64_t timeout_ns = UINT64_MAX;
  const CompletionQueue* queue = nullptr;  // PutBatchAsync only.
};
// The outcome of one put.
struct PutResult {
  Status status{};
  bool stored = false;  // False with Ok: an existing object was kept.
};

// One object to get, and where it goes.
struct ObjectGet {
  std::string_view key{};
  // The caller's memory. Behind the object's last byte it may be written to as well.
  std::span<std::byte> into{};
  uint64_t user_data = 0;
};
// How all objects of a call are read.
struct GetOptions {
  std::string_view ns{};
  ObjectClassId object_class{};            // Another class: kModelMismatch. 0: any.
  uint64_t timeout_ns = UINT64_MAX;        // Nanoseconds from the call on.
  const CompletionQueue* queue = nullptr;  // GetBatchAsync only.
};
// The outcome of one get.
struct GetResult {
  Status status{};
  uint64_t bytes = 0;  // The object's size, also where `into` has no room for it.
};

// Which keys of a call exist. A snapshot: without a lease, objects may go at any time.
struct ObjectsFound {
  std::vector<uint64_t> bits{};  // Key i exists: bit i % 64 of bits[i / 64].
  uint64_t count = 0;            // How many exist...
  uint64_t leading = 0;          // ...and how many before the first that does not.
  LeaseId lease{};               // Keeps all that exist; 0: nothing does.
  // REQUIRES: i is below the number of keys.
  bool operator[](size_t i) const { return (bits[i / 64] >> (i % 64) & 1) != 0; }
};

// The properties of one object.
struct ObjectInfo {
  std::string key{};
  ObjectClass object_class{};
  uint64_t pages = 0;
  uint64_t bytes = 0;  // List: if its last page is full. Stat: its own.
  uint32_t depth = 0;
  bool pinned = false;
  // Nanoseconds: how long it is kept unused, and, since 1970, when it was put and last used.
  uint64_t ttl_ns = 0, put_at_ns = 0, used_at_ns = 0;
};
// A page of List. A copy.
struct ObjectPage {
  std::vector<ObjectInfo> objects{};
  std::string cursor{};  // Pass it on for the next page; empty: no more.
};

class Objects {
 public:
  Objects() = default;
  explicit Objects(const Store& store) : core_(store.core()) {}

  // Idempotent. Blocking: a change, durable when it returns (kPower). Errors:
  //   kInvalidArgument: names the field.
  //   kModelMismatch: a class of that name has another page size or dtype.
  //   kReadOnly: a follower cannot add a class.
  Result<ObjectClassId> RegisterClass(const ObjectClass& object_class);

  // Blocking: waits for room, and until all are as durable as was asked for, or timeout_ns is over.
  // Keys and values are borrowed until it returns. The outcome of each in its order; an error of
  // its own says that none was tried: kReadOnly, kPoisoned, kInvalidArgument (the namespace, the
  // class, or an enum). Of each:
  //   Ok: it exists as it was given, or (kKeep) as it was. If two calls put one key at once, one
  //     wins and both are Ok; within one batch the first (kKeep) or the last wins.
  //   kInvalidArgument: the key or the object is too large, or the key empty.
  //   kModelMismatch: kKeep: it exists, with another class.
  //   kNoSpace, kDeadlineExceeded, kPoisoned, kIoError, kCorruption (of the index), kOutOfMemory:
  //     it was not put.
  //   kUnknownOutcome: it exists unless the process or the machine ends now.
  // The store writes small objects together, a few MiB per log record; a crash leaves a record
  // whole or not at all. It writes a larger object alone, and so an object for which it must first
  // evict something. Until such an object is complete it counts in Usage but cannot be read, and
  // the next opening drops what a crash leaves of it.
  Result<std::vector<PutResult>> PutBatch(std::span<const ObjectPut> puts,
                                          const PutOptions& options);
  // The same by a thread of the store: one ticket, and one completion, for each; does not block on
  // the disk. Keys and values are borrowed until its ticket is released. Ticket::length() is the
  // object's size in bytes. Ticket::Cancel takes effect at the next step, until the object is in
  // the log. kCancelled: it was not put.
  Result<std::vector<Ticket>> PutBatchAsync(std::span<const ObjectPut> puts,
                                            const PutOptions& options);

  // Blocking, until timeout_ns. Straight into the caller's memory, all in one pipeline of reads,
  // 1024 objects at a time. On failure `into` is undefined. The outcome of each in its order; an
  // error of its own says that none was tried. Of each:
  //   kNotFound: there is no such object.
  //   kInvalidArgument: `into` is too small, and GetResult::bytes is what it needs; or no such key.
  //   kModelMismatch: it is of another class than was asked for.
  //   kBusy: it was replaced repeatedly meanwhile.
  //   and as Branch::Restore.
  Result<std::vector<GetResult>> GetBatch(std::span<const ObjectGet> gets,
                                          const GetOptions& options = {}) const;
  // The same on a thread of the store; tickets end a few at a time, as with PutBatchAsync. Borrowed
  // until its ticket is done.
  Result<std::vector<Ticket>> GetBatchAsync(std::span<const ObjectGet> gets,
                                            const GetOptions& options = {}) const;

  // Reports which keys exist. Answers from memory where the directory knows all objects
  // (StoreMetrics::object_directory_whole). The directory is filled in the background after an
  // opening, and has half of Options::reuse_memory_bytes, about 25 bytes per object. Other keys are
  // looked up in the index, in two rounds of reads for all keys together, so the call blocks on the
  // disk. A follower has no directory. A key that matches only by 64 bits of its hash is reported
  // as existing; Get compares the key.
  //
  // Without `lease_ns` nothing is kept: an object may be evicted before it is read. With it,
  // nothing evicts or expires the objects found for this many nanoseconds (Options::max_lease_ns at
  // most). A Delete wins, and so does a put with kReplace: that object leaves the lease, which ends
  // with its last object. A call with a lease also compares the keys themselves, reports damaged
  // objects as missing, and looks up objects that are not in memory in the index. Store::Renew and
  // Store::Release take the lease. It covers all objects found or none: ObjectsFound::lease is 0 if
  // no key exists, if the objects, counted in whole pages, take more than Options::max_leased_bytes
  // leaves, if more than kMaxLeases would be held (each object counts as one), or if the store is
  // read only. While all of a full namespace is on lease, a put into it is kNoSpace. A crash or a
  // restart ends leases. Errors:
  //   kInvalidArgument: names a key that cannot be, or the namespace.
  //   kCorruption, kIoError, kOutOfMemory: the index could not be read; nothing is held.
  Result<ObjectsFound> Exists(std::span<const std::string_view> keys, std::string_view ns = {},
                              uint64_t lease_ns = 0) const;
  // Marks keys as useful: eviction passes over each of them once, up to about a thousand in a row.
  // In memory only: does not block and writes nothing, so a crash forgets it. Keys that the
  // directory does not know are not marked. A ttl goes on. kInvalidArgument names a key that cannot
  // be, or the namespace; kReadOnly.
  Status Touch(std::span<const std::string_view> keys, std::string_view ns = {});
  // A change, and it works where there is no room for data. The outcome of each: Ok, kNotFound, or
  // why it still exists (kUnknownOutcome: it is gone unless the process or the machine ends now).
  // All in one record, up to kMaxBatchOps; more of them in several. An error of its own says that
  // none was tried: kInvalidArgument names a key that cannot be, or the namespace.
  Result<std::vector<Status>> Delete(std::span<const std::string_view> keys,
                                     std::string_view ns = {},
                                     Durability durability = Durability::kProcess);

  // Blocking: reads the last token block of the object for its exact size. kNotFound; kBusy: it was
  // replaced again and again meanwhile; kInvalidArgument: no such key.
  Result<ObjectInfo> Stat(std::string_view key, std::string_view ns = {}) const;
  // In order of key. Blocking: reads the index. An object that is put or deleted meanwhile may show
  // or not. A damaged one without a class or a key is left out. kInvalidArgument: `limit` is 0, or
  // the cursor is no key.
  Result<ObjectPage> List(std::string_view ns, size_t limit, std::string_view cursor = {}) const;

  // Namespaces with objects, or with a policy, by name: `branches` counts objects, and puts that
  // are under way. From memory.
  Result<std::vector<NamespaceInfo>> Usage() const;
  // Replaces the policy. A change. Evict::kKv and kBranches say the same: an object goes whole.
  // `persist` must be kAlways (else kInvalidArgument).
  Status SetPolicy(std::string_view ns, const NamespacePolicy& policy,
                   Durability durability = Durability::kPower);

 private:
  std::shared_ptr<StoreCore> core_;
};

}  // namespace cairn
