// SPDX-License-Identifier: Apache-2.0
//
// The demo's output for people: lines that stay, and on a terminal one line that changes.
#pragma once

#include <chrono>
#include <string>

namespace cairn::demo {

class Console {
 public:
  // Lines go to standard output, or to standard error when that is kept for JSON.
  explicit Console(bool json);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  int columns() const { return columns_; }
  // A line that stays.
  void Say(const std::string& line);
  // Shows progress. Replaces the changing line on a terminal; elsewhere one of these is printed
  // every two seconds.
  void Update(const std::string& line);

 private:
  void Erase();

  std::FILE* out_;
  bool terminal_;
  int columns_;
  bool moving_ = false;  // The moving line is on the screen.
  std::chrono::steady_clock::time_point last_shown_;
};

// Ctrl-C and SIGTERM set a flag instead of ending the process, so that its child is killed and its
// scratch directory removed.
void CatchInterrupts();
bool Interrupted();

}  // namespace cairn::demo
