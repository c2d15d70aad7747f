// SPDX-License-Identifier: Apache-2.0
//
// Frames of snapshot tables in memory that is pinned for a GPU, as they are stored: a restore
// copies them to the card and unpacks them there, so that they take a third less room and bus than
// the page cache's would. A frame enters once its checksum held; who finds it need not look again.
//
// They come and go in groups (frame_groups.h). Two parts say which stay:
//
//   kept    with newest tokens of branches (PinnedUse), up to 1 / kPinnedKeptShare of the arena;
//           beyond, the namespace that has most of it gives up what it used longest ago, to
//   cache   everything else: base/core/s3_fifo.h. What a restore of more than passing_bytes() reads
//           leaves names alone.
//
// Nothing is written when they go: tables have them. A group that somebody holds, since it is being
// copied, keeps its place in the arena until then, wherever it is in the cache.
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
#include "engine/constants.h"
#include "engine/restore/pinned_arena.h"
#include "engine/restore/plan.h"

namespace cairn::engine {

// As PageName; `group` counts within the fragment.
struct PinnedName {
  uint64_t table = 0;
  uint64_t fragment = 0;
  uint64_t group = 0;
  bool operator==(const PinnedName&) const = default;
};

// Frames side by side in the arena, each there or not. Frames come in at any time, and stay as they
// are. Thread-safe.
class PinnedGroup {
 public:
  // Of frames of so many bytes. It has no place before Place.
  PinnedGroup(PinnedArena* arena, uint64_t seal, std::span<const uint32_t> sizes);
  ~PinnedGroup() {
    if (at_ != nullptr) arena_.Return(at_);
  }
  PinnedGroup(const PinnedGroup&) = delete;
  PinnedGroup& operator=(const PinnedGroup&) = delete;

  void Place(std::byte* at) { at_ = at; }  // Of cost() bytes, taken from the arena.
  uint64_t cost() const { return PinnedArena::CostOf(bytes_); }

  // The stored frame. Empty: it is not there.
  std::span<const std::byte> Find(size_t index) const;
  // A frame that was verified. False: somebody else brought it, or does.
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
  // Of a branch that is restored, or will be.
  struct Use {
    uint64_t newest_from = UINT64_MAX;  // Its newest tokens, which are kept, begin here.
    uint64_t ns = 0;                    // Of its namespace.
    bool Keeps(uint64_t end) const { return end > newest_from; }
  };
  // How a group comes in: with newest tokens; as one that was asked for ahead; as part of more than
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

  // What a plan says of the branch.
  Use UseOf(const RestorePlan& plan) const;
  // Null when it is not there. `kept`: it has newest tokens of a branch, of namespace `ns`, that is
  // used now.
  Group Find(const PinnedName& name, uint64_t seal, bool kept, uint64_t ns);
  // The same, or makes a group of frames of so many bytes. Null: it is not to be kept, or there is
  // no room, which counts as refused.
  Group Make(const PinnedName& name, uint64_t seal, std::span<const uint32_t> sizes,
             const Coming& coming, uint64_t ns);

  // The table is deleted: what is here of it goes.
  void Forget(uint64_t table);
  // All goes, but for what is held just now.
  void Drop();
  // Gives the memory back; nothing comes in any more. REQUIRES: nobody holds a group.
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
  // One part: it takes all of a small arena to hold a large group, and groups are few.
  using Cache = S3Fifo<PinnedName, NameHash, Group, 1>;
  struct Kept {
    PinnedName name;
    Group group;
    uint64_t ns = 0;
  };
  struct Namespace {
    std::list<Kept> groups;  // Used last first.
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
  Cache cache_;  // Its lock comes behind this one's.
};

}  // namespace cairn::engine
