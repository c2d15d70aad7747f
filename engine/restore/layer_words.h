// SPDX-License-Identifier: Apache-2.0
//
// The words of a LayerProgress (cairn/branch.h) while a restore runs. They lie in the caller's
// memory, and others may sleep on them: a Ticket on the store's scheduler, a caller's thread in
// std::atomic::wait.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "base/io/world.h"
#include "cairn/branch.h"

namespace cairn::engine {

class LayerWords {
 public:
  // From now on all are pending. `progress` may be null: nobody asked.
  LayerWords(io::Scheduler& scheduler, LayerProgress* progress);
  ~LayerWords() { End(false); }
  LayerWords(const LayerWords&) = delete;
  LayerWords& operator=(const LayerWords&) = delete;

  std::span<std::atomic<uint32_t>> words() const { return words_; }
  bool wanted() const { return wanted_; }
  bool SomeTold() const;
  // Thread-safe.
  void Enqueued(size_t index);
  void Complete(size_t index);
  // Every word gets its last state: complete, or, where it is not and `ok` is false, failed. After
  // it no word is touched any more, so it comes before the caller hears of the end. Not the first
  // time: nothing happens.
  void End(bool ok);

 private:
  void Set(std::atomic<uint32_t>& word, LayerState state);

  io::Scheduler& scheduler_;
  std::span<std::atomic<uint32_t>> words_;
  const bool wanted_;
};

}  // namespace cairn::engine
