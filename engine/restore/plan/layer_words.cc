// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/plan/layer_words.h"

#include <algorithm>
#include <utility>

namespace cairn::engine {

LayerWords::LayerWords(io::Scheduler& scheduler, LayerProgress* progress)
    : scheduler_(scheduler), wanted_(progress != nullptr) {
  if (progress != nullptr) words_ = progress->layers;
  for (std::atomic<uint32_t>& word : words_) word.store(kLayerPending, std::memory_order_relaxed);
}

bool LayerWords::SomeTold() const {
  return std::any_of(words_.begin(), words_.end(), [](const std::atomic<uint32_t>& word) {
    return word.load(std::memory_order_relaxed) != kLayerPending;
  });
}

void LayerWords::Enqueued(size_t index) {
  if (wanted_) Set(words_[index], kLayerEnqueued);
}

void LayerWords::Complete(size_t index) {
  if (wanted_) Set(words_[index], kLayerComplete);
}

void LayerWords::End(bool ok) {
  for (std::atomic<uint32_t>& word : std::exchange(words_, {})) {
    if (word.load(std::memory_order_relaxed) == kLayerComplete) continue;
    Set(word, ok ? kLayerComplete : kLayerFailed);
  }
}

// Wakes both: the standard library alone knows sleepers in std::atomic::wait, the scheduler alone
// knows its own.
void LayerWords::Set(std::atomic<uint32_t>& word, LayerState state) {
  word.store(state, std::memory_order_release);
  word.notify_all();
  scheduler_.WakeAll(word);
}

}  // namespace cairn::engine
