// SPDX-License-Identifier: Apache-2.0
//
// Marks functions that kernels (gpu/lane.h) call. Such a function is compiled for the host, and by
// nvcc for a card: it may call only other functions of its kind.
#pragma once

#if defined(__CUDACC__)
#define CAIRN_GPU __device__ __forceinline__
#define CAIRN_UNROLL _Pragma("unroll")  // Before a loop over arrays that must stay in registers.
#else
#define CAIRN_GPU inline
#define CAIRN_UNROLL
#endif
