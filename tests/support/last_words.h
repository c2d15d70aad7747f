// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cairn::testing {

// While one lives (one at a time): a signal that ends the program, as a failed check or a crash
// does, writes the words first.
class LastWords {
 public:
  LastWords(int file, const std::string& words);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
};

}  // namespace cairn::testing
