// SPDX-License-Identifier: Apache-2.0
#include "gpu/sim_grid.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "base/core/seeded_random.h"

#if defined(__SANITIZE_THREAD__)
#define CAIRN_GRID_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CAIRN_GRID_TSAN 1
#endif
#endif

#if CAIRN_GRID_TSAN
#include <sanitizer/tsan_interface.h>
// The grid's own words pass from lane to lane without an order: functions with this mark hide them,
// so that the sanitizer checks only the kernel's.
#define CAIRN_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#else
#define CAIRN_UNSEEN
#endif

namespace cairn::gpu {
namespace {

void Publish([[maybe_unused]] void* order) {
#if CAIRN_GRID_TSAN
  __tsan_release(order);
#endif
}

void Observe([[maybe_unused]] void* order) {
#if CAIRN_GRID_TSAN
  __tsan_acquire(order);
#endif
}

}  // namespace

struct SimGrid::Task {
  Task(SimGrid* grid, uint32_t thread) : fiber(stack, &SimGrid::Entry, this) {
    lane.grid_ = grid;
    lane.thread_ = thread;
  }
  io::FiberStack stack;
  io::Fiber fiber;
  SimLane lane;
  SimLane::Kind at = SimLane::kRuns;
  SimLane::Where where;
  uint64_t value = 0;
  uint32_t from = 0;
  uint64_t given = 0;
  uint32_t votes[SimLane::kMaxVotes] = {};
  uint32_t turn[2] = {};  // Syncs so far: of its warp, of its block.
};

struct SimGrid::Tables {
  Task* ready[kMaxThreads];
  Warp warps[kMaxThreads / kWarp];
  char order[2 * (kMaxThreads / kWarp + 1)];
};

SimGrid::SimGrid(uint64_t seed) : tables_(std::make_unique<Tables>()) {
  Seed(seed);
  ready_ = tables_->ready;
  warps_ = tables_->warps;
  order_ = tables_->order;
}

// Each lane ends: a sanitizer frees its data of a fiber when the fiber is left for ever.
SimGrid::~SimGrid() {
  io::Fiber here;
  main_ = &here;
  is_ending_ = true;
  for (const auto& task : tasks_) here.SwitchTo(task->fiber);
}

void SimGrid::Seed(uint64_t seed) { state_ = SeededRandom(seed).Next() | 1; }

void SimGrid::Run(const LaunchShape& shape, std::function<void(const SimLane&)> body) {
  CAIRN_CHECK(shape.blocks > 0 && shape.threads > 0 && shape.threads % kWarp == 0 &&
              shape.threads <= kMaxThreads);
  shape_ = shape;
  body_ = std::move(body);
  std::fill(std::begin(tables_->warps), std::end(tables_->warps), Warp());
  while (tasks_.size() < shape.threads) {
    tasks_.push_back(std::make_unique<Task>(this, static_cast<uint32_t>(tasks_.size())));
  }
  io::Fiber here;
  main_ = &here;
  std::vector<uint32_t> blocks(shape.blocks);
  std::iota(blocks.begin(), blocks.end(), 0u);
  for (uint32_t i = shape.blocks; i > 1; --i) std::swap(blocks[i - 1], blocks[Draw(i)]);
  for (const uint32_t block : blocks) RunBlock(block);
  main_ = nullptr;
  body_ = nullptr;
}

CAIRN_UNSEEN void SimGrid::RunBlock(uint32_t block) {
  // New memory for each block, so that the sanitizer knows its end.
  std::vector<std::byte>(shape_.shared_bytes, std::byte{0xa5}).swap(shared_);
  block_ = block;
  block_come_ = over_ = 0;
  ready_count_ = shape_.threads;
  for (uint32_t i = 0; i < shape_.threads; ++i) {
    ready_[i] = tasks_[i].get();
    ready_[i]->at = SimLane::kRuns;
    ready_[i]->turn[0] = ready_[i]->turn[1] = 0;
  }
  char* const order = &order_[2 * (shape_.threads / kWarp)];
  Publish(order);
  GoOn(main_);
  Observe(order);
}

// A lane runs block after block; it is switched away from in between.
CAIRN_UNSEEN void SimGrid::Entry(void* argument) {
  auto* const task = static_cast<Task*>(argument);
  SimGrid* const grid = task->lane.grid_;
  for (;;) {
    char* const order = &grid->order_[2 * (grid->shape_.threads / kWarp)];
    Observe(order);
    grid->body_(task->lane);
    Publish(order);
    grid->Arrive(task, SimLane::kOver);
    grid->GoOn(&task->fiber);
    if (grid->is_ending_) task->fiber.SwitchForEver(*grid->main_);
  }
}

// A lane stops: if it was the last one to come, its warp or block goes on.
CAIRN_UNSEEN void SimGrid::Arrive(Task* task, SimLane::Kind kind) {
  task->at = kind;
  const uint32_t warp_index = task->lane.thread_ / kWarp;
  Warp& warp = warps_[warp_index];
  if (kind == SimLane::kOver) {
    ++over_;
    if (warp.come != 0 || block_come_ != 0) Die("a lane is over, others wait for it");
    return;
  }
  if (warp.come == 0) warp.kind = kind;
  if (warp.kind != kind) Die("lanes of a warp meet in different operations");
  if (++warp.come < kWarp) return;
  if (kind != SimLane::kSyncBlock) {
    Release(kind, warp_index * kWarp, (warp_index + 1) * kWarp);
  } else if ((block_come_ += kWarp) == shape_.threads) {
    block_come_ = 0;
    Release(kind, 0, shape_.threads);
  }
}

CAIRN_UNSEEN void SimGrid::Release(SimLane::Kind kind, uint32_t first, uint32_t end) {
  uint32_t votes[SimLane::kMaxVotes] = {};
  if (kind == SimLane::kBallot) {
    for (uint32_t i = first; i < end; ++i) {
      for (uint32_t v = 0; v < SimLane::kMaxVotes; ++v) {
        votes[v] |= static_cast<uint32_t>(tasks_[i]->value >> v & 1) << i % kWarp;
      }
    }
  }
  for (uint32_t i = first; i < end; ++i) {
    Task* const task = tasks_[i].get();
    if (kind == SimLane::kShuffle) task->given = tasks_[first + task->from]->value;
    for (uint32_t v = 0; v < SimLane::kMaxVotes; ++v) task->votes[v] = votes[v];
    task->at = SimLane::kRuns;
    ready_[ready_count_++] = task;
  }
  for (uint32_t w = first / kWarp; w < end / kWarp; ++w) warps_[w] = Warp();
}

// Switches from `from` to a lane that can go on; to the caller of Run when all are over.
CAIRN_UNSEEN void SimGrid::GoOn(io::Fiber* from) {
  ++switches_;
  io::Fiber* next = main_;
  if (ready_count_ > 0) {
    const uint32_t choice = Draw(ready_count_);
    next = &ready_[choice]->fiber;
    ready_[choice] = ready_[--ready_count_];
  } else if (over_ < shape_.threads) {
    Die("all lanes wait");
  }
  if (next != from) from->SwitchUnordered(*next);
}

// Marsaglia's xorshift; SeededRandom's functions would be seen.
CAIRN_UNSEEN uint32_t SimGrid::Draw(uint32_t bound) {
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return static_cast<uint32_t>((state_ >> 32) * bound >> 32);
}

void SimGrid::Die(const char* what) {
  constexpr const char* kNames[] = {"runs", "SyncWarp", "SyncBlock", "Ballot", "Shuffle", "over"};
  std::fprintf(stderr, "kernel: %s; block %u:\n", what, block_);
  for (uint32_t i = 0; i < shape_.threads; ++i) {
    const Task& task = *tasks_[i];
    std::fprintf(stderr, "  thread %u: %s %s:%u\n", i, kNames[task.at], task.where.file,
                 task.where.line);
  }
  std::abort();
}

CAIRN_UNSEEN void SimLane::Meet(Kind kind, uint64_t value, uint32_t from,
                                const Where& where) const {
  SimGrid::Task* const task = grid_->tasks_[thread_].get();
  task->value = value;
  task->from = from;
  task->where = where;
  const bool of_block = kind == kSyncBlock;
  const bool orders = of_block || kind == kSyncWarp;
  if (orders) task->turn[of_block] ^= 1u;
  char* const order =
      &grid_
           ->order_[2 * (of_block ? grid_->shape_.threads / kWarp : warp()) + task->turn[of_block]];
  if (orders) Publish(order);
  grid_->Arrive(task, kind);
  grid_->GoOn(&task->fiber);
  if (orders) Observe(order);
}

CAIRN_UNSEEN uint32_t SimLane::Result(uint32_t vote) const {
  return grid_->tasks_[thread_]->votes[vote];
}

CAIRN_UNSEEN uint64_t SimLane::Given() const { return grid_->tasks_[thread_]->given; }

}  // namespace cairn::gpu
