// SPDX-License-Identifier: Apache-2.0
#include "base/core/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace cairn {

#if defined(__x86_64__)

namespace {

// Not every version of clang has it in __builtin_cpu_supports. Asked once: a virtual machine takes
// microseconds for the answer.
bool HasF16c() {
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  }();
  return has;
}

}  // namespace

bool CpuHasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && HasF16c();
}

bool CpuHasAvx512() {
  return CpuHasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool CpuHasAvx512Vbmi2() {
  return CpuHasAvx512() && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512vbmi2");
}

#else

bool CpuHasAvx2() { return false; }
bool CpuHasAvx512() { return false; }
bool CpuHasAvx512Vbmi2() { return false; }

#endif

}  // namespace cairn
