// SPDX-License-Identifier: Apache-2.0
//
// The index and the policy of a cache over any payload: a hash table from names to payloads, and
// the choice of those that stay (S3-FIFO, as in Yang and others, SOSP 2023). A new payload enters a
// queue of an eighth of the capacity. If it leaves that queue without having been used again, its
// name stays. A payload that comes back while its name is known goes to the rest of the capacity,
// from which one is evicted that was not used since its last turn. So payloads used once pass
// through an eighth, and the rest stays.
//
// The owner says what each payload costs and, with each call, how much all may cost: the capacity
// may change at any time. Evicted payloads are destroyed by the calling thread, outside of every
// lock.
//
// Thread-safe; a short lock for each of `kShards` parts. A part has its share of the capacity.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/core/check.h"
#include "base/core/mutex.h"

namespace cairn {

struct S3FifoCosts {
  uint64_t entry_bytes = 0;  // Overhead of a payload, beside its own bytes.
  uint64_t name_bytes = 0;   // Cost of a name alone.
  uint64_t names_share = 1;  // Names take this part of the capacity at most: 1 / names_share.
};

enum class CacheAdmission : uint8_t {
  kNo,
  kNew,    // Not known: into the passing queue.
  kAgain,  // Known by name: it stays.
};

// `Hash` gives 64 good bits for a `Name`: the upper half chooses the part, the lower one the
// bucket.
template <typename Name, typename Hash, typename Payload, size_t kShards>
class S3Fifo {
 public:
  explicit S3Fifo(const S3FifoCosts& costs) : costs_(costs) {}
  S3Fifo(const S3Fifo&) = delete;
  S3Fifo& operator=(const S3Fifo&) = delete;

  // Counts as a use. Nothing when it is not there.
  std::optional<Payload> Find(const Name& name) {
    Shard& shard = ShardOf(name);
    const MutexLock lock(&shard.mutex);
    const auto found = shard.entries.find(name);
    if (found == shard.entries.end() || !found->second->payload) return std::nullopt;
    Entry& entry = *found->second;
    entry.uses = std::min<uint8_t>(entry.uses + 1, kUsesMax);
    return *entry.payload;
  }
  bool Contains(const Name& name) const {
    const Shard& shard = const_cast<S3Fifo*>(this)->ShardOf(name);
    const MutexLock lock(&shard.mutex);
    const auto found = shard.entries.find(name);
    return found != shard.entries.end() && found->second->payload;
  }

  // Whether a payload that is about to be made should be kept, and where. `names_only`: an unknown
  // one leaves only its name, and is kept when it comes again.
  CacheAdmission Admit(const Name& name, uint64_t bytes, bool names_only, uint64_t capacity) {
    if (bytes + costs_.entry_bytes > capacity / kShards / 2) return CacheAdmission::kNo;
    Shard& shard = ShardOf(name);
    CacheAdmission admission = names_only ? CacheAdmission::kNo : CacheAdmission::kNew;
    Changing(&shard, capacity, [&](const Change& change) {
      shard.mutex.AssertHeld();
      const auto found = shard.entries.find(name);
      if (found != shard.entries.end()) {
        // Another thread was faster, or the name is known.
        admission = found->second->payload ? CacheAdmission::kNo : CacheAdmission::kAgain;
        return;
      }
      if (!names_only) return;
      MakeRoom(shard, change, costs_.name_bytes);
      List one;
      one.push_front({.name = name});
      shard.entries.emplace(name, one.begin());
      shard.names.splice(shard.names.begin(), one);
      ForgetNames(shard, change, NamesMax(change));
    });
    return admission;
  }

  // Does nothing if the name has a payload already, or there is no room any more.
  void Insert(const Name& name, Payload payload, uint64_t bytes, CacheAdmission admission,
              uint64_t capacity) {
    CAIRN_CHECK(admission != CacheAdmission::kNo);
    const uint64_t charge = bytes + costs_.entry_bytes;
    Shard& shard = ShardOf(name);
    Changing(&shard, capacity, [&](const Change& change) {
      shard.mutex.AssertHeld();
      if (const auto found = shard.entries.find(name); found != shard.entries.end()) {
        if (found->second->payload) return;
        change.leaving->splice(change.leaving->begin(), shard.names, found->second);
        shard.entries.erase(found);
      }
      MakeRoom(shard, change, charge);
      if (BytesOf(shard) + charge > change.capacity) return;  // It has shrunk meanwhile.
      const bool staying = admission == CacheAdmission::kAgain;
      List& list = staying ? shard.staying : shard.passing;
      List one;
      one.push_front({name, std::move(payload), charge, 0, staying});
      shard.entries.emplace(name, one.begin());
      list.splice(list.begin(), one);
      (staying ? shard.staying_bytes : shard.passing_bytes) += charge;
    });
  }

  // Forgets the payload and the name.
  void Erase(const Name& name) {
    Shard& shard = ShardOf(name);
    Changing(&shard, 0, [&](const Change& change) {
      shard.mutex.AssertHeld();
      const auto found = shard.entries.find(name);
      if (found != shard.entries.end()) Forget(shard, change, found->second);
    });
  }
  // The same for all names for which `gone` is true; examines each.
  template <typename Gone>
  void EraseIf(const Gone& gone) {
    for (Shard& shard : shards_) {
      Changing(&shard, 0, [&](const Change& change) {
        shard.mutex.AssertHeld();
        for (List* list : {&shard.passing, &shard.staying, &shard.names}) {
          for (auto at = list->begin(); at != list->end();) {
            const auto entry = at++;
            if (gone(entry->name)) Forget(shard, change, entry);
          }
        }
      });
    }
  }

  void ShrinkTo(uint64_t capacity) {
    for (Shard& shard : shards_) {
      Changing(&shard, capacity, [&](const Change& change) {
        shard.mutex.AssertHeld();
        MakeRoom(shard, change, 0);
      });
    }
  }

  void Clear() {
    for (Shard& shard : shards_) {
      Changing(&shard, 0, [&](const Change& change) {
        shard.mutex.AssertHeld();
        for (List* list : {&shard.passing, &shard.staying, &shard.names}) {
          change.leaving->splice(change.leaving->end(), *list);
        }
        shard.entries.clear();
        shard.passing_bytes = shard.staying_bytes = 0;
      });
    }
  }

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // How much may come in at first sight without evicting payloads that stay.
  static uint64_t PassingBytes(uint64_t capacity) { return capacity / kPassingShare; }

 private:
  struct Entry {
    Name name{};
    std::optional<Payload> payload{};  // None: a name alone.
    uint64_t charge = 0;
    uint8_t uses = 0;  // Since its last turn, up to kUsesMax.
    bool staying = false;
  };
  using List = std::list<Entry>;
  struct Shard {
    mutable Mutex mutex;
    // Newest first.
    List passing CAIRN_GUARDED_BY(mutex), staying CAIRN_GUARDED_BY(mutex),
        names CAIRN_GUARDED_BY(mutex);
    uint64_t passing_bytes CAIRN_GUARDED_BY(mutex) = 0, staying_bytes CAIRN_GUARDED_BY(mutex) = 0;
    std::unordered_map<Name, typename List::iterator, Hash> entries CAIRN_GUARDED_BY(mutex);
  };
  struct Change {
    uint64_t capacity;  // The shard's.
    List* leaving;      // Freed without the lock.
  };
  static constexpr uint8_t kUsesMax = 3;
  static constexpr uint64_t kPassingShare = 8;

  Shard& ShardOf(const Name& name) { return shards_[(Hash()(name) >> 32) % kShards]; }
  uint64_t BytesOf(const Shard& shard) const CAIRN_REQUIRES(shard.mutex) {
    return shard.passing_bytes + shard.staying_bytes + shard.names.size() * costs_.name_bytes;
  }
  uint64_t NamesMax(const Change& change) const {
    return change.capacity / costs_.names_share / costs_.name_bytes;
  }

  // Runs `run` under the lock of the shard and keeps the sum right, also without memory: then `run`
  // has changed the lists and their bytes together, or not at all.
  template <typename Run>
  void Changing(Shard* shard, uint64_t capacity, const Run& run) {
    List leaving;
    const MutexLock lock(&shard->mutex);
    const uint64_t before = BytesOf(*shard);
    try {
      run(Change{capacity / kShards, &leaving});
    } catch (...) {
      bytes_.fetch_add(BytesOf(*shard) - before, std::memory_order_relaxed);
      throw;
    }
    bytes_.fetch_add(BytesOf(*shard) - before, std::memory_order_relaxed);  // Or less: it wraps.
  }

  void Forget(Shard& shard, const Change& change, typename List::iterator entry)
      CAIRN_REQUIRES(shard.mutex) {
    List* list = &shard.names;
    if (entry->payload) {
      list = entry->staying ? &shard.staying : &shard.passing;
      (entry->staying ? shard.staying_bytes : shard.passing_bytes) -= entry->charge;
    }
    shard.entries.erase(entry->name);
    change.leaving->splice(change.leaving->begin(), *list, entry);
  }

  void MakeRoom(Shard& shard, const Change& change, uint64_t bytes) CAIRN_REQUIRES(shard.mutex) {
    ForgetNames(shard, change, NamesMax(change));
    while (BytesOf(shard) + bytes > change.capacity) {
      if (shard.passing_bytes > PassingBytes(change.capacity) ||
          (shard.staying.empty() && !shard.passing.empty())) {
        EvictPassing(shard, change);
      } else if (!shard.staying.empty()) {
        EvictStaying(shard, change);
      } else if (!shard.names.empty()) {
        ForgetNames(shard, change, shard.names.size() / 2);
      } else {
        return;
      }
    }
  }

  void EvictPassing(Shard& shard, const Change& change) CAIRN_REQUIRES(shard.mutex) {
    const auto oldest = std::prev(shard.passing.end());
    List left;
    if (oldest->uses == 0) left.push_front({.name = oldest->name});
    shard.passing_bytes -= oldest->charge;
    if (oldest->uses > 0) {
      oldest->uses = 0;
      oldest->staying = true;
      shard.staying_bytes += oldest->charge;
      shard.staying.splice(shard.staying.begin(), shard.passing, oldest);
      return;
    }
    left.front().payload = std::move(oldest->payload);
    oldest->payload.reset();
    change.leaving->splice(change.leaving->begin(), left);
    shard.names.splice(shard.names.begin(), shard.passing, oldest);
  }

  void EvictStaying(Shard& shard, const Change& change) CAIRN_REQUIRES(shard.mutex) {
    const auto oldest = std::prev(shard.staying.end());
    if (oldest->uses > 0) {
      --oldest->uses;
      shard.staying.splice(shard.staying.begin(), shard.staying, oldest);
      return;
    }
    shard.staying_bytes -= oldest->charge;
    shard.entries.erase(oldest->name);
    change.leaving->splice(change.leaving->begin(), shard.staying, oldest);
  }

  void ForgetNames(Shard& shard, const Change& change, uint64_t count_max)
      CAIRN_REQUIRES(shard.mutex) {
    while (shard.names.size() > count_max) {
      const auto oldest = std::prev(shard.names.end());
      shard.entries.erase(oldest->name);
      change.leaving->splice(change.leaving->begin(), shard.names, oldest);
    }
  }

  const S3FifoCosts costs_;
  std::atomic<uint64_t> bytes_{0};
  std::array<Shard, kShards> shards_;
};

}  // namespace cairn
