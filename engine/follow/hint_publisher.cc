// SPDX-License-Identifier: Apache-2.0
#include "engine/follow/hint_publisher.h"

#include <new>
#include <utility>

#include "engine/config/constants.h"

namespace cairn::engine {

void HintPublisher::Start(const wal::Log* log, Timer* timer, io::Executor* executor) {
  log_ = log;
  timer_ = timer;
  executor_ = executor;
}

void HintPublisher::Publish() {
  const io::Turn::Holder turn(&turn_);
  Hint hint;
  hint.epoch = manifest_.epoch();
  hint.durable = log_->durable_sequence();
  hint.manifest = manifest_.number();
  hint.history = manifest_.history();
  hint.indexing = options_.index == Index::kNone ? Indexing::kOff : Indexing::kOn;
  hint.max_bytes = options_.max_bytes;
  sequence_.store(hint.durable, std::memory_order_relaxed);
  const Status status = writer_.Write(hint, manifest_.store());
  if (!status.ok() && !failed_) {
    on_event_("readers beside are not told how far the log is: " + status.ToString());
  }
  failed_ = !status.ok();
}

void HintPublisher::PublishSoon(uint64_t durable_sequence) {
  if (durable_sequence <= sequence_.load(std::memory_order_relaxed)) return;
  if (!open_.load(std::memory_order_relaxed)) return;  // Close publishes the final state.
  if (due_.exchange(true)) return;
  // If there is no memory the next progress publishes this as well.
  const auto without_memory = [this](const auto& call) {
    try {
      call();
    } catch (const std::bad_alloc&) {
      due_.store(false);
    }
  };
  without_memory([&] {
    auto entry = Timer::Make([this, without_memory] {
      without_memory([&] {
        executor_->Post([this, without_memory] {
          due_.store(false);
          without_memory([&] { Publish(); });
        });
      });
      return io::kNoDeadline;
    });
    timer_->At(world_.scheduler->MonotonicNs() + kHintPeriodNs, std::move(entry));
  });
}

void HintPublisher::Close() {
  const io::Turn::Holder turn(&turn_);
  writer_.Close();
}

}  // namespace cairn::engine
