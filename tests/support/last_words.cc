// SPDX-License-Identifier: Apache-2.0
#include "tests/support/last_words.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iterator>

namespace cairn::testing {
namespace {

constexpr int kFatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

struct sigaction before[std::size(kFatal)];
int to = STDERR_FILENO;
char text[1024];  // For callers that cannot allocate any more.

void Restore() {
  for (size_t i = 0; i < std::size(kFatal); ++i) sigaction(kFatal[i], &before[i], nullptr);
}

void TellAndDie(int signal_number) {
  const ssize_t ignored = write(to, text, std::strlen(text));
  static_cast<void>(ignored);
  Restore();
  raise(signal_number);
}

}  // namespace

LastWords::LastWords(int file, const std::string& words) {
  to = file;
  std::snprintf(text, sizeof(text), "%s", words.c_str());
  struct sigaction action = {};
  action.sa_handler = TellAndDie;
  for (size_t i = 0; i < std::size(kFatal); ++i) sigaction(kFatal[i], &action, &before[i]);
}

LastWords::~LastWords() { Restore(); }

}  // namespace cairn::testing
