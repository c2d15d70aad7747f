// SPDX-License-Identifier: Apache-2.0
//
// A scheduler around another: all calls go there, but for those that a test overrides.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/io/world.h"

namespace cairn::testing {

class WrappedScheduler : public io::Scheduler {
 public:
  explicit WrappedScheduler(std::shared_ptr<io::Scheduler> inner) : inner_(std::move(inner)) {}

  std::unique_ptr<io::Thread> StartThread(std::string name, std::function<void()> body,
                                          io::ThreadPriority priority) override {
    return inner_->StartThread(std::move(name), std::move(body), priority);
  }
  bool Wait(std::atomic<uint32_t>& word, uint32_t expected, uint64_t deadline_ns) override {
    return inner_->Wait(word, expected, deadline_ns);
  }
  void WakeAll(std::atomic<uint32_t>& word) override { inner_->WakeAll(word); }
  void Sleep(uint64_t duration_ns) override { inner_->Sleep(duration_ns); }
  void Yield() override { inner_->Yield(); }
  uint64_t MonotonicNs() override { return inner_->MonotonicNs(); }
  uint64_t WallNs() override { return inner_->WallNs(); }
  uint64_t Random64() override { return inner_->Random64(); }
  uint64_t ProcessId() override { return inner_->ProcessId(); }
  uint32_t Cores() override { return inner_->Cores(); }
  std::unique_ptr<io::Notifier> NewNotifier() override { return inner_->NewNotifier(); }

 private:
  const std::shared_ptr<io::Scheduler> inner_;
};

}  // namespace cairn::testing
