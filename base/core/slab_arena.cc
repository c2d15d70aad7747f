// SPDX-License-Identifier: Apache-2.0
#include "base/core/slab_arena.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <utility>

#include "base/core/check.h"
#include "base/core/mutex.h"
#include "base/core/size_classes.h"

namespace cairn {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPage = 4096;
constexpr size_t kDoublings = 16;  // From kSlabFrameMin on: half a slab is less than that.

}  // namespace

// Lives until the arena is gone and every frame of it came back.
class SlabArena::State {
 public:
  State(const Allocator& from, size_t slab_bytes, uint64_t keep_bytes)
      : from_(from), slab_bytes_(slab_bytes), keep_bytes_(keep_bytes) {
    CAIRN_CHECK(slab_bytes / 2 < kSlabFrameMin << kDoublings);
  }

  static void* Allocate(void* context, size_t bytes, size_t alignment) {
    auto* self = static_cast<State*>(context);
    return self->IsFrame(bytes, alignment)
               ? self->Lend(RoundUpSize(bytes))
               : self->from_.allocate(self->from_.context, bytes, alignment);
  }
  static void Deallocate(void* context, void* memory, size_t bytes, size_t alignment) {
    auto* self = static_cast<State*>(context);
    if (self->IsFrame(bytes, alignment)) {
      self->Reclaim(memory, RoundUpSize(bytes));
    } else {
      self->from_.deallocate(self->from_.context, memory, bytes, alignment);
    }
  }

  bool IsFrame(size_t bytes, size_t alignment) const {
    return bytes >= kSlabFrameMin && bytes <= slab_bytes_ / 2 && alignment <= kSlabCell;
  }
  void Unref() {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  void GiveBack(bool all) {
    Slab* leaving = nullptr;
    {
      const MutexLock lock(&mutex_);
      if (all) keep_bytes_ = 0;
      for (Slab*& first : open_) {
        for (Slab* slab = first; slab != nullptr;) {
          Slab* const next = slab->next;
          if (slab->lent == 0 && (all || slab->turn != turn_)) {
            Unlink(slab);
            unused_bytes_ -= slab->bytes();
            kept_bytes_ -= slab->bytes();
            slab->next = leaving;
            leaving = slab;
          }
          slab = next;
        }
      }
      ++turn_;
    }
    while (leaving != nullptr) Free(std::exchange(leaving, leaving->next));
  }
  uint64_t unused_bytes() {
    const MutexLock lock(&mutex_);
    return unused_bytes_;
  }
  uint64_t kept_bytes() {
    const MutexLock lock(&mutex_);
    return kept_bytes_;
  }

 private:
  struct Slab;
  struct Cell {
    Slab* slab = nullptr;
    Cell* next = nullptr;  // While it is free.
  };
  static_assert(sizeof(Cell) <= kSlabCell);
  struct Slab {
    std::byte* memory = nullptr;
    size_t frame_bytes = 0;  // Rounded.
    uint32_t places = 0, lent = 0;
    uint32_t touched = 0;  // Places that were lent once: those behind have no cell yet.
    uint64_t turn = 0;     // When the last frame came back.
    Cell* free = nullptr;
    Slab *next = nullptr, *previous = nullptr;  // In open_, while it has a free place.
    size_t stride() const { return frame_bytes + kSlabCell; }
    size_t bytes() const { return places * stride(); }
  };

  static size_t IndexOf(size_t rounded) { return SizeIndex(rounded, kSlabFrameMin); }
  size_t AlignmentOf(const Slab& slab) const {
    return slab.bytes() >= kHugePage ? kHugePage : kPage;
  }

  void* Lend(size_t rounded) {
    users_.fetch_add(1, std::memory_order_relaxed);
    {
      const MutexLock lock(&mutex_);
      if (open_[IndexOf(rounded)] != nullptr) return TakePlace(open_[IndexOf(rounded)]);
    }
    Slab* const made = Make(rounded);
    if (made == nullptr) {
      Unref();
      return nullptr;
    }
    const MutexLock lock(&mutex_);
    unused_bytes_ += made->bytes();
    kept_bytes_ += made->bytes();
    Link(made);
    return TakePlace(made);
  }

  Slab* Make(size_t rounded) {
    auto slab = std::unique_ptr<Slab>(new (std::nothrow) Slab);
    if (slab == nullptr) return nullptr;
    slab->frame_bytes = rounded;
    // Rounds to the nearest, so that a slab of power-of-two frames does not lose one for its cells.
    slab->places = static_cast<uint32_t>(
        std::max<size_t>(1, (slab_bytes_ + slab->stride() / 2) / slab->stride()));
    void* const memory = from_.allocate(from_.context, slab->bytes(), AlignmentOf(*slab));
    if (memory == nullptr) return nullptr;
    slab->memory = static_cast<std::byte*>(memory);
    return slab.release();
  }

  void* TakePlace(Slab* slab) CAIRN_REQUIRES(mutex_) {
    Cell* cell = slab->free;
    if (cell != nullptr) {
      slab->free = cell->next;
    } else {
      cell = new (slab->memory + slab->touched * slab->stride()) Cell{.slab = slab};
      ++slab->touched;
    }
    CAIRN_CHECK(cell->slab == slab);
    if (slab->lent == 0) kept_bytes_ -= slab->bytes();
    ++slab->lent;
    unused_bytes_ -= slab->stride();
    if (slab->lent == slab->places) Unlink(slab);
    return reinterpret_cast<std::byte*>(cell) + kSlabCell;
  }

  void Reclaim(void* memory, size_t rounded) {
    auto* const cell = reinterpret_cast<Cell*>(static_cast<std::byte*>(memory) - kSlabCell);
    Slab* const slab = cell->slab;
    bool leaves = false;
    {
      const MutexLock lock(&mutex_);
      CAIRN_CHECK(slab->frame_bytes == rounded && slab->lent > 0);
      if (slab->lent == slab->places) Link(slab);
      --slab->lent;
      slab->turn = turn_;
      unused_bytes_ += slab->stride();
      cell->next = slab->free;
      slab->free = cell;
      leaves = slab->lent == 0 && unused_bytes_ > keep_bytes_;
      if (slab->lent == 0 && !leaves) kept_bytes_ += slab->bytes();
      if (leaves) {
        Unlink(slab);
        unused_bytes_ -= slab->bytes();
      }
    }
    if (leaves) Free(slab);
    Unref();
  }

  void Free(Slab* slab) {
    from_.deallocate(from_.context, slab->memory, slab->bytes(), AlignmentOf(*slab));
    delete slab;
  }

  void Link(Slab* slab) CAIRN_REQUIRES(mutex_) {
    Slab*& first = open_[IndexOf(slab->frame_bytes)];
    slab->previous = nullptr;
    slab->next = first;
    if (first != nullptr) first->previous = slab;
    first = slab;
  }
  void Unlink(Slab* slab) CAIRN_REQUIRES(mutex_) {
    Slab*& first = open_[IndexOf(slab->frame_bytes)];
    (slab->previous != nullptr ? slab->previous->next : first) = slab->next;
    if (slab->next != nullptr) slab->next->previous = slab->previous;
    slab->next = slab->previous = nullptr;
  }

  const Allocator from_;
  const size_t slab_bytes_;
  std::atomic<uint64_t> users_{1};  // The arena, and each frame that is lent.
  Mutex mutex_;
  uint64_t keep_bytes_ CAIRN_GUARDED_BY(mutex_);
  uint64_t unused_bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
  uint64_t kept_bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
  uint64_t turn_ CAIRN_GUARDED_BY(mutex_) = 1;  // Counts calls of Trim.
  // By size class: slabs with a free place, the most recent first.
  std::array<Slab*, kDoublings * kSizeSteps> open_ CAIRN_GUARDED_BY(mutex_){};
};

SlabArena::SlabArena(const Allocator& from, size_t slab_bytes, uint64_t keep_bytes)
    : state_(new State(from, slab_bytes, keep_bytes)) {}

SlabArena::~SlabArena() {
  Clear();
  state_->Unref();
}

Allocator SlabArena::allocator() const {
  return {.allocate = State::Allocate, .deallocate = State::Deallocate, .context = state_};
}

size_t SlabArena::CostOf(size_t bytes) const {
  return state_->IsFrame(bytes, 1) ? RoundUpSize(bytes) + kSlabCell : bytes;
}
void SlabArena::Trim() { state_->GiveBack(/*all=*/false); }
void SlabArena::Clear() { state_->GiveBack(/*all=*/true); }
uint64_t SlabArena::kept_bytes() const { return state_->kept_bytes(); }
uint64_t SlabArena::unused_bytes() const { return state_->unused_bytes(); }

}  // namespace cairn
