// SPDX-License-Identifier: Apache-2.0
//
// Frames of snapshot tables in memory that is pinned for a GPU, packed as they are stored: a
// restore copies them to the card and unpacks them there, so they take a third less memory and bus
// than those of the page cache would. A frame enters after its checksum held, so a restore that
// finds it need not check again.
//
// Frames come and go in groups (frame_groups.h). There are two parts:
//
//   kept    newest tokens of branches (PinnedUse), up to 1 / kPinnedKeptShare of the arena. Beyond
//           that the namespace with the most of it moves its least recently used groups to
//   cache   everything else: base/core/s3_fifo.h. A restore of more than passing_bytes() leaves
//           names only.
//
// Nothing is written when a group goes: the tables have it. A group that is held, because it is
// being copied, keeps its place in the arena until then, wherever it is in the cache.
//
// Thread-safe; a short lock, none held while frames are copied.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/core/mutex.h"
#include "base/core/s3_fifo.h"
#include "cairn/gpu.h"
#include "engine/config/constants.h"
#include "engine/restore/gpu/pinned_arena.h"
#include "engine/restore/plan/plan.h"

namespace cairn::engine {

// As PageName; `group` counts within the fragment.
struct PinnedName {
  uint64_t table = 0;
  uint64_t fragment = 0;
  uint64_t group = 0;
  bool operator==(const PinnedName&) const = default;
};

// Adjacent frames in the arena, each present or not. Frames may be added at any time, and do not
// change afterwards. Thread-safe.
class PinnedGroup {
 public:
  // For frames of these sizes. It has no memory before Place.
  PinnedGroup(PinnedArena* arena, uint64_t seal, std::span<const uint32_t> sizes);
  ~PinnedGroup() {
    if (at_ != nullptr) arena_.Return(at_);
  }
  PinnedGroup(const PinnedGroup&) = delete;
  PinnedGroup& operator=(const PinnedGroup&) = delete;

  void Place(std::byte* at) { at_ = at; }  // cost() bytes, taken from the arena.
  uint64_t cost() const { return PinnedArena::CostOf(bytes_); }

  // The stored frame. Empty: it is not there.
  std::span<const std::byte> Find(size_t index) const;
  // Adds a verified frame. False: another thread has added it, or is adding it.
  bool Put(size_t index, std::span<const std::byte> stored);
  uint64_t seal() const { return seal_; }

 private:
  enum State : uint8_t { kNone, kComing, kThere };
  struct Frame {
    uint64_t offset = 0, bytes = 0;
    std::atomic<uint8_t> state{kNone};
  };
  PinnedArena& arena_;
  const uint64_t seal_;  // The checksum of the fragment's entries.
  std::vector<Frame> frames_;
  uint64_t bytes_ = 0;
  std::byte* at_ = nullptr;
};

class PinnedCache {
 public:
  using Group = std::shared_ptr<PinnedGroup>;
  // For a branch that is restored, or will be.
  struct BranchNeed {
    uint64_t newest_from = UINT64_MAX;  // Its newest tokens begin here; they are kept.
    uint64_t ns = 0;                    // Its namespace.
    bool Keeps(uint64_t end) const { return end > newest_from; }
  };
  // How a group comes in: with newest tokens; prefetched; as part of a restore of more than
  // passing_bytes().
  struct Coming {
    bool kept = false, ahead = false, large = false;
  };
  struct Counters {
    std::atomic<uint64_t> misses{0}, promotions{0}, refusals{0};  // Frames.
  };

  PinnedCache(std::unique_ptr<PinnedArena> arena, const GpuOptions& options);
  PinnedCache(const PinnedCache&) = delete;
  PinnedCache& operator=(const PinnedCache&) = delete;

  // Follows from a plan.
  BranchNeed NeedOf(const RestorePlan& plan) const;
  // Null when it is not there. `kept`: it holds newest tokens of a branch, of namespace `ns`, that
  // is in use now.
  Group Find(const PinnedName& name, uint64_t seal, bool kept, uint64_t ns);
  // The same, or makes a group of frames of these sizes. Null: it is not to be kept, or there is no
  // room, which counts as refused.
  Group Make(const PinnedName& name, uint64_t seal, std::span<const uint32_t> sizes,
             const Coming& coming, uint64_t ns);

  // The table is deleted: its groups are dropped.
  void Forget(uint64_t table);
  // Drops everything that is not held right now.
  void Drop();
  // Gives the memory back; nothing can be added afterwards. REQUIRES: no group is held.
  void Close();

  uint64_t bytes() const;
  uint64_t capacity() const { return capacity_; }
  uint64_t passing_bytes() const { return Cache::PassingBytes(capacity_); }
  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }

 private:
  struct NameHash {
    size_t operator()(const PinnedName& name) const;
  };
  // One shard: a large group may need all of a small arena, and groups are few.
  using Cache = S3Fifo<PinnedName, NameHash, Group, 1>;
  struct Kept {
    PinnedName name;
    Group group;
    uint64_t ns = 0;
  };
  struct Namespace {
    std::list<Kept> groups;  // Most recently used first.
    uint64_t bytes = 0;
  };

  Group FindLocked(const PinnedName& name, uint64_t seal, bool kept, uint64_t ns)
      CAIRN_REQUIRES(mutex_);
  void DropLocked() CAIRN_REQUIRES(mutex_);
  void Keep(const PinnedName& name, Group group, uint64_t ns) CAIRN_REQUIRES(mutex_);
  Kept TakeKept(std::list<Kept>::iterator at) CAIRN_REQUIRES(mutex_);
  std::byte* TakeRoom(uint64_t bytes) CAIRN_REQUIRES(mutex_);
  uint64_t cache_capacity() const CAIRN_REQUIRES(mutex_) { return capacity_ - kept_bytes_; }

  const uint64_t capacity_;
  const uint64_t tokens_;
  const std::map<std::string, uint64_t> tokens_of_;
  Counters counters_;
  mutable Mutex mutex_;
  std::unique_ptr<PinnedArena> arena_ CAIRN_GUARDED_BY(mutex_);
  std::map<uint64_t, Namespace> namespaces_ CAIRN_GUARDED_BY(mutex_);
  std::unordered_map<PinnedName, std::list<Kept>::iterator, NameHash> kept_
      CAIRN_GUARDED_BY(mutex_);
  uint64_t kept_bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
  Cache cache_;  // Lock order: its lock is taken after this one's.
};

}  // namespace cairn::engine
