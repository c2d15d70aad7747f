// SPDX-License-Identifier: Apache-2.0
//
// The state of a SimDevice: streams with their enqueued work, events, memory. For host_device.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/io/guarded_memory.h"
#include "gpu/device.h"

namespace cairn::gpu {

// One Record of an event: a waiter waits for the one that was last when it asked.
struct Recorded {
  bool done = false;
  size_t stream = 0;
  uint64_t number = 0;  // The operation's place in its stream.
  uint64_t late = 0;
};
using RecordRef = std::shared_ptr<Recorded>;

struct Operation {
  enum Kind { kCopy, kFill, kLaunch, kRecord, kStreamWait, kSetWord, kAwaitWord };
  Kind kind;
  std::vector<CopyPiece> pieces{};
  std::span<std::byte> at{};
  std::byte with{};
  Kernel kernel{};
  LaunchShape shape{};
  std::vector<std::byte> arguments{};
  RecordRef record{};
  uint32_t* word = nullptr;
  uint32_t value = 0;
  bool begun = false;
};

struct StreamState {
  std::deque<Operation> waiting;
  uint64_t ended = 0;    // Operations before the first that waits.
  uint64_t adopted = 0;  // Returns that leave it to its owner.
  bool returned = false;
  std::unique_ptr<std::vector<Operation>> captured;  // Not null: what is enqueued comes here.
};

struct EventState {
  RecordRef last;
  uint64_t owner = 0;  // The event that an adopted one stands for, from 1 on.
  bool returned = false;
};

struct Block {
  std::unique_ptr<io::GuardedMemory> memory;
  uint64_t bytes = 0;
  Memory kind = Memory::kDevice;
  bool freed = false;
};

}  // namespace cairn::gpu
