// SPDX-License-Identifier: Apache-2.0
#include "sim/scheduler.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/core/check.h"

namespace cairn::io {

struct SimScheduler::Task {
  SimScheduler* scheduler = nullptr;
  uint64_t number = 0;
  std::string name;
  std::function<void()> body;
  std::optional<FiberStack> stack;  // The root has none.
  std::optional<Fiber> fiber;
  const std::atomic<uint32_t>* word = nullptr;  // While waiting; null in Sleep.
  uint64_t deadline_ns = kNoDeadline;
  bool timed_out = false;
  std::atomic<uint32_t> done{0};
};

class SimScheduler::SimThread final : public Thread {
 public:
  explicit SimThread(std::unique_ptr<Task> task) : task_(std::move(task)) {}
  ~SimThread() override {
    SimScheduler* scheduler = task_->scheduler;
    while (task_->done.load() == 0) scheduler->Wait(task_->done, 0, kNoDeadline);
    scheduler->free_stacks_.push_back(std::move(*task_->stack));
  }

 private:
  const std::unique_ptr<Task> task_;
};

namespace {

class SimNotifier final : public Notifier {
 public:
  int fd() const override { return -1; }
  void Signal() override {}
  void Clear() override {}
};

}  // namespace

SimScheduler::SimScheduler(uint64_t seed)
    : thread_(std::this_thread::get_id()),
      choices_(seed),
      values_(~seed),
      root_(std::make_unique<Task>()),
      current_(root_.get()) {
  root_->scheduler = this;
  root_->name = "root";
  root_->fiber.emplace();
}

SimScheduler::~SimScheduler() {
  CAIRN_CHECK(current_ == root_.get());
  CAIRN_CHECK(ready_.empty() && waiting_.empty());
}

std::unique_ptr<Thread> SimScheduler::StartThread(std::string name, std::function<void()> body,
                                                  ThreadPriority) {
  auto task = std::make_unique<Task>();
  task->scheduler = this;
  task->number = ++next_task_;
  task->name = std::move(name);
  task->body = std::move(body);
  if (free_stacks_.empty()) {
    task->stack.emplace();
  } else {
    task->stack.emplace(std::move(free_stacks_.back()));
    free_stacks_.pop_back();
  }
  task->fiber.emplace(*task->stack, &SimScheduler::TaskEntry, task.get());
  ready_.push_back(task.get());
  return std::make_unique<SimThread>(std::move(task));
}

void SimScheduler::TaskEntry(void* argument) {
  auto* task = static_cast<Task*>(argument);
  task->body();
  task->body = nullptr;
  task->done.store(1);
  task->scheduler->WakeAll(task->done);
  task->scheduler->Dispatch(true);
}

bool SimScheduler::Wait(std::atomic<uint32_t>& word, uint32_t expected, uint64_t deadline_ns) {
  Yield();  // A real thread may be interrupted between checking the word and this.
  if (word.load() != expected) return true;
  if (deadline_ns <= now_ns_) return false;
  current_->word = &word;
  current_->deadline_ns = deadline_ns;
  waiting_.push_back(current_);
  Dispatch(false);
  return !current_->timed_out;
}

void SimScheduler::WakeAll(std::atomic<uint32_t>& word) {
  for (size_t i = 0; i < waiting_.size();) {
    if (waiting_[i]->word == &word) {
      MakeReady(i, false);
    } else {
      ++i;
    }
  }
}

void SimScheduler::Sleep(uint64_t duration_ns) {
  current_->word = nullptr;
  current_->deadline_ns = now_ns_ + duration_ns;
  waiting_.push_back(current_);
  Dispatch(false);
}

void SimScheduler::Yield() {
  ready_.push_back(current_);
  Dispatch(false);
}

uint64_t SimScheduler::WallNs() { return 1'800'000'000'000'000'000 + now_ns_; }

std::unique_ptr<Notifier> SimScheduler::NewNotifier() { return std::make_unique<SimNotifier>(); }

void SimScheduler::Run(std::function<void()> body) { StartThread("main", std::move(body)); }

// The current task has put itself among the ready or the waiting ones, or is over.
void SimScheduler::Dispatch(bool for_ever) {
  CAIRN_CHECK(std::this_thread::get_id() == thread_);
  now_ns_ += kSwitchNs;
  ++switches_;
  WakeDue();
  if (ready_.empty()) {
    AdvanceClock();
  } else {
    WakeOneForNoReason();
  }
  const size_t choice = choices_.Below(ready_.size());
  Task* next = ready_[choice];
  ready_[choice] = ready_.back();
  ready_.pop_back();
  schedule_hash_ = (schedule_hash_ ^ next->number ^ now_ns_) * 0x9e3779b97f4a7c15;
  if (next == current_) return;
  Task* previous = std::exchange(current_, next);
  if (for_ever) previous->fiber->SwitchForEver(*next->fiber);
  previous->fiber->SwitchTo(*next->fiber);
}

void SimScheduler::MakeReady(size_t waiting_index, bool timed_out) {
  Task* task = waiting_[waiting_index];
  waiting_[waiting_index] = waiting_.back();
  waiting_.pop_back();
  task->timed_out = timed_out;
  ready_.push_back(task);
}

void SimScheduler::WakeDue() {
  for (size_t i = 0; i < waiting_.size();) {
    if (waiting_[i]->deadline_ns <= now_ns_) {
      MakeReady(i, true);
    } else {
      ++i;
    }
  }
}

void SimScheduler::WakeOneForNoReason() {
  constexpr uint64_t kOneIn = 64;
  if (waiting_.empty() || choices_.Below(kOneIn) != 0) return;
  const size_t index = choices_.Below(waiting_.size());
  if (waiting_[index]->word != nullptr) MakeReady(index, false);
}

void SimScheduler::AdvanceClock() {
  uint64_t next_ns = kNoDeadline;
  for (const Task* task : waiting_) next_ns = std::min(next_ns, task->deadline_ns);
  if (next_ns == kNoDeadline) DieOfDeadlock();
  now_ns_ = std::max(now_ns_, next_ns);
  WakeDue();
}

void SimScheduler::DieOfDeadlock() const {
  std::fprintf(stderr, "cairn: all %zu fibers wait for ever:\n", waiting_.size());
  for (const Task* task : waiting_) {
    std::fprintf(stderr, "  %llu %s waits on the word at %p, which is %u\n",
                 static_cast<unsigned long long>(task->number), task->name.c_str(),
                 static_cast<const void*>(task->word), task->word->load());
  }
  CheckFailed("somebody can run", __FILE__, __LINE__);
}

}  // namespace cairn::io
