// SPDX-License-Identifier: Apache-2.0
#include "base/core/block_arena.h"

#include <array>
#include <atomic>
#include <new>

#include "base/core/check.h"
#include "base/core/mutex.h"
#include "base/core/size_classes.h"

namespace cairn {

namespace {

constexpr size_t kBlockAlignment = 4096;
constexpr size_t kDoublings = 32;  // From kArenaBlockMin on.

// Links a kept block through its own memory, so that keeping it allocates nothing: into the list of
// its size, of which any will do, and into the list of all kept blocks, in the order of their
// return.
struct Kept {
  Kept* next = nullptr;
  Kept* before = nullptr;
  Kept* newer = nullptr;
  Kept* older = nullptr;
  uint64_t turn = 0;  // When it was given back.
  size_t bytes = 0;
};
static_assert(sizeof(Kept) <= kArenaBlockMin);

bool IsKept(size_t bytes, size_t alignment) {
  return bytes >= kArenaBlockMin && alignment <= kBlockAlignment;
}

}  // namespace

// Lives until the arena is gone and every block of it came back.
class BlockArena::State {
 public:
  State(const Allocator& from, uint64_t keep_bytes) : from_(from), keep_bytes_(keep_bytes) {}

  static void* Allocate(void* context, size_t bytes, size_t alignment) {
    auto* self = static_cast<State*>(context);
    return IsKept(bytes, alignment) ? self->Lend(RoundUpSize(bytes))
                                    : self->from_.allocate(self->from_.context, bytes, alignment);
  }
  static void Deallocate(void* context, void* memory, size_t bytes, size_t alignment) {
    auto* self = static_cast<State*>(context);
    if (IsKept(bytes, alignment)) {
      self->Reclaim(memory, RoundUpSize(bytes));
    } else {
      self->from_.deallocate(self->from_.context, memory, bytes, alignment);
    }
  }

  const Allocator& from() const { return from_; }

  void Unref() {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  void GiveBack(bool all) {
    Kept* leaving = nullptr;
    {
      const MutexLock lock(&mutex_);
      if (all) keep_bytes_ = 0;
      while (oldest_ != nullptr && (all || oldest_->turn != turn_)) TakeOldest(&leaving);
      ++turn_;
    }
    Release(leaving);
  }
  uint64_t kept_bytes() {
    const MutexLock lock(&mutex_);
    return kept_bytes_;
  }

 private:
  static constexpr size_t kLists = kDoublings * kSizeSteps;

  static size_t IndexOf(size_t rounded) { return SizeIndex(rounded, kArenaBlockMin); }

  void* Lend(size_t rounded) {
    CAIRN_CHECK(SizeOfIndex(IndexOf(rounded), kArenaBlockMin) == rounded);
    users_.fetch_add(1, std::memory_order_relaxed);
    {
      const MutexLock lock(&mutex_);
      Kept* const block = lists_[IndexOf(rounded)];
      if (block != nullptr) {
        Unlink(block);
        return block;
      }
    }
    void* const memory = from_.allocate(from_.context, rounded, kBlockAlignment);
    if (memory == nullptr) Unref();
    return memory;
  }

  void Reclaim(void* memory, size_t rounded) {
    Kept* leaving = nullptr;
    {
      const MutexLock lock(&mutex_);
      Kept* const block = new (memory) Kept{.turn = turn_, .bytes = rounded};
      if (rounded <= keep_bytes_) {
        Link(block);
      } else {
        leaving = block;
      }
      while (kept_bytes_ > keep_bytes_) TakeOldest(&leaving);
    }
    Release(leaving);
    Unref();
  }

  void Link(Kept* block) CAIRN_REQUIRES(mutex_) {
    Kept*& list = lists_[IndexOf(block->bytes)];
    block->next = list;
    if (list != nullptr) list->before = block;
    list = block;
    block->older = newest_;
    (newest_ != nullptr ? newest_->newer : oldest_) = block;
    newest_ = block;
    kept_bytes_ += block->bytes;
  }

  void Unlink(Kept* block) CAIRN_REQUIRES(mutex_) {
    (block->before != nullptr ? block->before->next : lists_[IndexOf(block->bytes)]) = block->next;
    if (block->next != nullptr) block->next->before = block->before;
    (block->newer != nullptr ? block->newer->older : newest_) = block->older;
    (block->older != nullptr ? block->older->newer : oldest_) = block->newer;
    kept_bytes_ -= block->bytes;
  }

  void TakeOldest(Kept** leaving) CAIRN_REQUIRES(mutex_) {
    Kept* const block = oldest_;
    Unlink(block);
    block->next = *leaving;
    *leaving = block;
  }

  void Release(Kept* leaving) {
    while (leaving != nullptr) {
      Kept* const block = leaving;
      leaving = block->next;
      from_.deallocate(from_.context, block, block->bytes, kBlockAlignment);
    }
  }

  const Allocator from_;
  std::atomic<uint64_t> users_{1};  // The arena, and each block that is lent.
  Mutex mutex_;
  uint64_t keep_bytes_ CAIRN_GUARDED_BY(mutex_);
  uint64_t kept_bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
  uint64_t turn_ CAIRN_GUARDED_BY(mutex_) = 1;                  // Counts calls of Trim.
  std::array<Kept*, kLists> lists_ CAIRN_GUARDED_BY(mutex_){};  // By size, newest first.
  Kept* newest_ CAIRN_GUARDED_BY(mutex_) = nullptr;
  Kept* oldest_ CAIRN_GUARDED_BY(mutex_) = nullptr;
};

BlockArena::BlockArena(const Allocator& from, uint64_t keep_bytes)
    : state_(new State(from, keep_bytes)) {}

BlockArena::~BlockArena() {
  Clear();
  state_->Unref();
}

Allocator BlockArena::allocator() const {
  return {.allocate = State::Allocate, .deallocate = State::Deallocate, .context = state_};
}

Allocator BlockArena::from() const { return state_->from(); }

void BlockArena::Trim() { state_->GiveBack(/*all=*/false); }
void BlockArena::Clear() { state_->GiveBack(/*all=*/true); }
uint64_t BlockArena::kept_bytes() const { return state_->kept_bytes(); }

}  // namespace cairn
