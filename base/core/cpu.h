// SPDX-License-Identifier: Apache-2.0
//
// Which instructions this processor has. Code for newer ones lies in files of its own (*_avx2.cc,
// *_avx512.cc; CMakeLists.txt gives them their options), and each question names all that the
// compiler may use there, not the first extension alone. Any thread; cheap after the first call.
#pragma once

namespace cairn {

// AVX2, BMI2 and F16C: files *_avx2.cc.
bool CpuHasAvx2();
// Also AVX-512 F, BW, VL and DQ: files *_avx512.cc.
bool CpuHasAvx512();
// Also AVX-512 VBMI and VBMI2: files *_avx512vbmi2.cc.
bool CpuHasAvx512Vbmi2();

}  // namespace cairn
