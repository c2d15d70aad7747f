// SPDX-License-Identifier: Apache-2.0
#include "base/core/mutation.h"

#ifdef CAIRN_MUTATIONS

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace cairn {

namespace {

constexpr std::string_view kNames[] = {
#define CAIRN_MUTATION_NAME(name, kind, what) #name,
    CAIRN_EACH_MUTATION(CAIRN_MUTATION_NAME)
#undef CAIRN_MUTATION_NAME
};

// -1: nothing is left out.
int LeftOut() {
  const char* const wanted = std::getenv("CAIRN_MUTATION");
  if (wanted == nullptr || *wanted == '\0') return -1;
  for (int i = 0; const std::string_view name : kNames) {
    if (name == wanted) return i;
    ++i;
  }
  std::fprintf(stderr, "CAIRN_MUTATION: there is no \"%s\"\n", wanted);
  std::abort();
}

}  // namespace

bool IsKept(Mutation mutation) {
  static const int left_out = LeftOut();
  return static_cast<int>(mutation) != left_out;
}

}  // namespace cairn

#endif
