// SPDX-License-Identifier: Apache-2.0
//
// The words of a LayerProgress (cairn/restore.h) while a restore runs. They lie in the caller's
// memory, and others may sleep on them: a Ticket on the store's scheduler, a caller's thread in
// std::atomic::wait.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "base/io/world.h"
#include "cairn/restore.h"

namespace cairn::engine {

class LayerWords {
 public:
  // Sets all to pending. `progress` null: nothing is reported.
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
  // Gives every word its last state: complete, or failed if it is not complete and `ok` is false.
  // No word is touched afterwards, so this comes before the caller learns of the end. Later calls
  // do nothing.
  void End(bool ok);

 private:
  void Set(std::atomic<uint32_t>& word, LayerState state);

  io::Scheduler& scheduler_;
  std::span<std::atomic<uint32_t>> words_;
  const bool wanted_;
};

}  // namespace cairn::engine
