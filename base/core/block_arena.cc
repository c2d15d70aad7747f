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

// A block that is kept knows the next one by itself: keeping it needs no memory.
struct Kept {
  Kept* next = nullptr;
  uint64_t turn = 0;  // When it was given back.
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
      self->TakeBack(memory, RoundUpSize(bytes));
    } else {
      self->from_.deallocate(self->from_.context, memory, bytes, alignment);
    }
  }

  void Unref() {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  void GiveBack(bool all) {
    std::array<Kept*, kLists> leaving{};
    {
      const MutexLock lock(&mutex_);
      if (all) keep_bytes_ = 0;
      for (size_t i = 0; i < kLists; ++i) {
        // Newest first, so all behind the first old one are old.
        Kept** at = &lists_[i];
        while (*at != nullptr && !all && (*at)->turn == turn_) at = &(*at)->next;
        leaving[i] = *at;
        *at = nullptr;
        for (const Kept* one = leaving[i]; one != nullptr; one = one->next) {
          kept_bytes_ -= SizeOf(i);
        }
      }
      ++turn_;
    }
    for (size_t i = 0; i < kLists; ++i) {
      while (leaving[i] != nullptr) {
        Kept* const one = leaving[i];
        leaving[i] = one->next;
        from_.deallocate(from_.context, one, SizeOf(i), kBlockAlignment);
      }
    }
  }
  uint64_t kept_bytes() {
    const MutexLock lock(&mutex_);
    return kept_bytes_;
  }

 private:
  static constexpr size_t kLists = kDoublings * kSizeSteps;

  static size_t SizeOf(size_t index) { return SizeOfIndex(index, kArenaBlockMin); }
  static size_t IndexOf(size_t rounded) { return SizeIndex(rounded, kArenaBlockMin); }

  void* Lend(size_t rounded) {
    CAIRN_CHECK(SizeOf(IndexOf(rounded)) == rounded);
    users_.fetch_add(1, std::memory_order_relaxed);
    {
      const MutexLock lock(&mutex_);
      Kept*& list = lists_[IndexOf(rounded)];
      if (list != nullptr) {
        Kept* const block = list;
        list = block->next;
        kept_bytes_ -= rounded;
        return block;
      }
    }
    void* const memory = from_.allocate(from_.context, rounded, kBlockAlignment);
    if (memory == nullptr) Unref();
    return memory;
  }

  void TakeBack(void* memory, size_t rounded) {
    bool kept = false;
    {
      const MutexLock lock(&mutex_);
      kept = kept_bytes_ + rounded <= keep_bytes_;
      if (kept) {
        Kept*& list = lists_[IndexOf(rounded)];
        list = new (memory) Kept{list, turn_};
        kept_bytes_ += rounded;
      }
    }
    if (!kept) from_.deallocate(from_.context, memory, rounded, kBlockAlignment);
    Unref();
  }

  const Allocator from_;
  std::atomic<uint64_t> users_{1};  // The arena, and each block that is lent.
  Mutex mutex_;
  uint64_t keep_bytes_ CAIRN_GUARDED_BY(mutex_);
  uint64_t kept_bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
  uint64_t turn_ CAIRN_GUARDED_BY(mutex_) = 1;  // Counts calls of Trim.
  std::array<Kept*, kLists> lists_ CAIRN_GUARDED_BY(mutex_){};
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

void BlockArena::Trim() { state_->GiveBack(/*all=*/false); }
void BlockArena::Clear() { state_->GiveBack(/*all=*/true); }
uint64_t BlockArena::kept_bytes() const { return state_->kept_bytes(); }

}  // namespace cairn
