// SPDX-License-Identifier: Apache-2.0
//
// The lane of gpu/lane.h on a CUDA device.
#pragma once

#include <cstdint>

#include "gpu/lane.h"

namespace cairn::gpu {

struct DeviceLane {
  __device__ uint32_t thread() const { return threadIdx.x; }
  __device__ uint32_t threads() const { return blockDim.x; }
  __device__ uint32_t block() const { return blockIdx.x; }
  __device__ uint32_t lane() const { return threadIdx.x % kWarp; }
  __device__ uint32_t warp() const { return threadIdx.x / kWarp; }
  template <typename T>
  __device__ T* Shared(uint32_t offset) const {
    extern __shared__ __align__(16) unsigned char memory[];
    return reinterpret_cast<T*>(memory + offset);
  }
  __device__ void SyncWarp() const { __syncwarp(); }
  __device__ void SyncBlock() const { __syncthreads(); }
  __device__ uint32_t Ballot(bool vote) const { return __ballot_sync(~0u, vote); }
  template <uint32_t kCount>
  __device__ Votes<kCount> Ballots(const Votes<kCount>& votes) const {
    Votes<kCount> result;
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i) result.of[i] = __ballot_sync(~0u, votes.of[i] != 0);
    return result;
  }
  template <typename T>
  __device__ T Shuffle(T value, uint32_t from) const {
    return __shfl_sync(~0u, value, static_cast<int>(from));
  }
  __device__ uint32_t AtomicOr(uint32_t* at, uint32_t bits) const { return atomicOr(at, bits); }
  __device__ uint32_t AtomicCas(uint32_t* at, uint32_t expected, uint32_t value) const {
    return atomicCAS(at, expected, value);
  }
  __device__ uint32_t AtomicAdd(uint32_t* at, uint32_t value) const { return atomicAdd(at, value); }
  __device__ uint64_t AtomicMin(uint64_t* at, uint64_t value) const {
    return atomicMin(reinterpret_cast<unsigned long long*>(at), value);
  }
  __device__ void Flag(uint8_t* at) const { *static_cast<volatile uint8_t*>(at) = 1; }
  template <typename T>
  __device__ T Load(const void* at) const {
    return *static_cast<const T*>(at);
  }
  template <typename T>
  __device__ void Store(void* at, const T& value) const {
    *static_cast<T*>(at) = value;
  }
  __device__ uint32_t PopCount(uint32_t x) const { return static_cast<uint32_t>(__popc(x)); }
  __device__ uint32_t BitWidth(uint32_t x) const { return 32 - static_cast<uint32_t>(__clz(x)); }
};

}  // namespace cairn::gpu
