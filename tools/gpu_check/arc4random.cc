// SPDX-License-Identifier: Apache-2.0
//
// Replaces functions that the static standard library takes from glibc 2.36, so that the programs
// run with 2.35.
#include <sys/random.h>

#include <cstdint>

#include "base/core/check.h"

extern "C" uint32_t arc4random() {
  uint32_t word = 0;
  CAIRN_CHECK(getrandom(&word, sizeof word, 0) == sizeof word);
  return word;
}
