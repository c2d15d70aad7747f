// SPDX-License-Identifier: Apache-2.0
//
// on_event of a store: its threads write lines, and a thread of Python reads them. If a thread of
// the store ran Python itself, it would wait for the interpreter's lock, whose holder may wait for
// the store; it would run Python after the interpreter's end; and it would free objects that
// garbage collection finds, even the store, which joins that thread.
#pragma once

#include <unistd.h>

#include <deque>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>

#include "api/python/src/common.h"
#include "base/core/mutex.h"
#include "cairn/options.h"

namespace cairn::python {

// Lines on their way. Thread-safe; in the child of a fork it does nothing.
class Events {
 public:
  void Push(const std::string& line) CAIRN_EXCLUDES(mutex_);
  // The oldest line; blocks until there is one. Nothing: it is closed, and there are no more.
  std::optional<std::string> Next() CAIRN_EXCLUDES(mutex_);
  void Close() CAIRN_EXCLUDES(mutex_);

 private:
  // Bound for a callback that does not return; the newest lines are lost.
  static constexpr size_t kLinesMax = 4096;
  const pid_t process_ = getpid();
  Mutex mutex_;
  std::deque<std::string> lines_ CAIRN_GUARDED_BY(mutex_);
  bool closed_ CAIRN_GUARDED_BY(mutex_) = false;
  std::counting_semaphore<> tokens_{0};  // One a line, and one for the end.
};

class Listening {
 public:
  // `call`: None, or called with each line that a store with these options reports.
  Listening(nb::handle call, Options* options);
  Listening(Listening&&) = default;
  Listening& operator=(Listening&&) = delete;
  ~Listening();
  // Returns when all lines were delivered, unless called on the delivering thread.
  void End();

 private:
  std::shared_ptr<Events> events_;
  nb::object thread_;
};

}  // namespace cairn::python
