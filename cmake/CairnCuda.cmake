# SPDX-License-Identifier: Apache-2.0
#
# Sets CAIRN_CUDA_COMPILED and, if it is ON, CAIRN_CUDA_OBJECTS. A toolkit that is missing or cannot
# compile costs the CUDA device, never the build. cudart is linked statically, so a binary with CUDA
# also starts on machines without a driver.

set(CAIRN_CUDA_COMPILED OFF)
set(CAIRN_CUDA_OBJECTS)
set(CAIRN_CUDA_USABLE OFF)

# The whole way once: host headers, C++20 and code generation, by the compiler that will be used.
function(cairn_probe_cuda result)
  set(probe ${PROJECT_BINARY_DIR}/cuda_probe.cu)
  file(WRITE ${probe} [[
#include <cuda_runtime.h>
#include <concepts>
#include <span>
template <std::integral T>
__global__ void Add(T* data, T value) {
  data[threadIdx.x] += value;
}
cudaError_t Launch(std::span<int> data) {
  Add<int><<<1, 32>>>(data.data(), 1);
  return cudaGetLastError();
}
]])
  execute_process(
    COMMAND ${CAIRN_NVCC} -std=c++20 -ccbin ${CMAKE_CXX_COMPILER} -c ${probe} -o ${probe}.o
    RESULT_VARIABLE exit_code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(exit_code EQUAL 0)
    set(${result} ON CACHE INTERNAL "nvcc compiles C++20")
  else()
    set(${result} OFF CACHE INTERNAL "nvcc compiles C++20")
    message(STATUS "CUDA: the probe failed: ${output}")
  endif()
endfunction()

if(NOT CAIRN_WITH_CUDA)
  message(STATUS "CUDA: off")
elseif(NOT CAIRN_NVCC)
  message(STATUS "CUDA: not built: no toolkit found (tools/setup cuda brings one)")
else()
  execute_process(COMMAND ${CAIRN_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
  string(REGEX MATCH "release ([0-9.]+)" nvcc_release "${nvcc_version}")
  set(nvcc_release "${CMAKE_MATCH_1}")
  # Keyed by what it depends on, so that it runs again only for another compiler.
  string(MD5 probe_key "${CAIRN_NVCC} ${nvcc_version} ${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION}")
  if(NOT DEFINED CAIRN_CUDA_PROBE_${probe_key})
    cairn_probe_cuda(CAIRN_CUDA_PROBE_${probe_key})
  endif()
  set(CAIRN_CUDA_USABLE ${CAIRN_CUDA_PROBE_${probe_key}})
  if(CAIRN_CUDA_USABLE)
    message(STATUS "CUDA: toolkit ${nvcc_release} found, compiles yes")
  else()
    message(STATUS "CUDA: toolkit ${nvcc_release} found, compiles no")
  endif()
endif()

file(GLOB cairn_cuda_sources CONFIGURE_DEPENDS gpu/cuda/*.cu gpu/cuda/*.cc)
list(FILTER cairn_cuda_sources EXCLUDE REGEX "_test\\.cc$")
if(CAIRN_CUDA_USABLE AND cairn_cuda_sources)
  set(CMAKE_CUDA_COMPILER ${CAIRN_NVCC})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  add_library(cairn_cuda OBJECT ${cairn_cuda_sources})
  cairn_target_defaults(cairn_cuda)
  # CMake 3.25 does not know that this nvcc speaks C++20: from these properties it would fail or
  # choose C++17. So the standard is a plain option here.
  foreach(property CUDA_STANDARD CXX_STANDARD CXX_STANDARD_REQUIRED CXX_EXTENSIONS)
    set_property(TARGET cairn_cuda PROPERTY ${property})
  endforeach()
  # A kernel that spills registers, or has an array that does not fit them, is not built.
  target_compile_options(cairn_cuda PRIVATE -std=c++20
    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false -Xcompiler=-Wall,-Wextra,-ffp-contract=off
    -Xptxas=--warn-on-spills,--warn-on-local-memory-usage,--warning-as-error>)
  set_target_properties(cairn_cuda PROPERTIES CUDA_VISIBILITY_PRESET hidden)
  target_include_directories(cairn_cuda PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/api/include)
  target_compile_definitions(cairn_cuda PRIVATE CAIRN_WITH_CUDA=1
    CAIRN_WITH_URING=$<BOOL:${CAIRN_WITH_URING}>)
  target_link_libraries(cairn_cuda PRIVATE CUDA::cudart_static)
  set(CAIRN_CUDA_OBJECTS $<TARGET_OBJECTS:cairn_cuda>)
  set(CAIRN_CUDA_COMPILED ON)
endif()
