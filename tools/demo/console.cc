// SPDX-License-Identifier: Apache-2.0

#include "tools/demo/console.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "tools/demo/printable.h"

namespace cairn::demo {
namespace {

constexpr int kColumnsWithoutTerminal = 100;
constexpr int kColumnsMin = 40;
constexpr auto kPlainInterval = std::chrono::seconds(2);
constexpr auto kTerminalInterval = std::chrono::milliseconds(30);

volatile sig_atomic_t interrupted = 0;

int ColumnsOf(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kColumnsWithoutTerminal;
  return std::max<int>(size.ws_col, kColumnsMin);
}

}  // namespace

Console::Console(bool json)
    : out_(json ? stderr : stdout),
      terminal_(isatty(fileno(out_)) != 0),
      columns_(ColumnsOf(fileno(out_))),
      last_shown_(std::chrono::steady_clock::now()) {}

Console::~Console() { Erase(); }

void Console::Say(const std::string& line) {
  Erase();
  std::fprintf(out_, "%s\n", line.c_str());
  std::fflush(out_);
  last_shown_ = std::chrono::steady_clock::now();
}

void Console::Update(const std::string& line) {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_shown_ < (terminal_ ? kTerminalInterval : kPlainInterval)) return;
  if (!terminal_) {
    Say(line);
    return;
  }
  Erase();
  std::fputs(Clip(line, static_cast<size_t>(columns_) - 1).c_str(), out_);
  std::fflush(out_);
  moving_ = true;
  last_shown_ = now;
}

void Console::Erase() {
  if (!moving_) return;
  std::fputs("\r\033[K", out_);
  std::fflush(out_);
  moving_ = false;
}

void CatchInterrupts() {
  struct sigaction action{};
  // Without SA_RESTART: a blocked read returns and the flag is looked at.
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return interrupted != 0; }

}  // namespace cairn::demo
