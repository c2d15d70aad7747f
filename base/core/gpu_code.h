// SPDX-License-Identifier: Apache-2.0
//
// Marks for functions that kernels (gpu/lane.h) are made of. Such a function is compiled for the
// host, and by nvcc for a card: then it calls others of its kind only.
#pragma once

#if defined(__CUDACC__)
#define CAIRN_GPU __device__ __forceinline__
#define CAIRN_UNROLL _Pragma("unroll")  // Before a loop over arrays that must stay in registers.
#else
#define CAIRN_GPU inline
#define CAIRN_UNROLL
#endif
