# SPDX-License-Identifier: Apache-2.0
#
# cairn_precompile(<target> <argument>...): target_precompile_headers, without the wrong warnings of gcc
# 12 about std::string, which it then does not recognise as a system header's.
function(cairn_precompile target)
  target_precompile_headers(${target} ${ARGN})
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>)
endfunction()

# cairn_target_defaults(<target>): the language, warnings, code generation and sanitizers of every
# target in this tree. They are target properties, so a project that embeds cairn keeps its own.

function(cairn_target_defaults target)
  set_target_properties(${target} PROPERTIES
    C_STANDARD 11
    C_STANDARD_REQUIRED ON
    C_EXTENSIONS OFF
    CXX_STANDARD 20
    CXX_STANDARD_REQUIRED ON
    CXX_EXTENSIONS OFF
    # Makefiles ask for the standard of CUDA where a target has its objects, and take that of C++,
    # which CMake 3.25 does not know of nvcc. Nothing is compiled by it.
    CUDA_STANDARD 17
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  # The results of codecs must not depend on whether the compiler fused a multiply and an add.
  set(options -Wall -Wextra -Wshadow -Wpedantic -Wimplicit-fallthrough -ffp-contract=off)
  if(CAIRN_WERROR)
    list(APPEND options -Werror)
  endif()
  # A project that embeds cairn and chooses neither a build type nor a level would get half the speed.
  if(NOT "${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS}" MATCHES "-O")
    target_compile_options(${target} PRIVATE $<$<CONFIG:>:-O2>)
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    list(APPEND options -march=x86-64-v2)
  endif()
  # libstdc++ 12 uses functions in std::stable_sort that it deprecates, and clang from 15 on warns about
  # it.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    list(APPEND options -Wno-deprecated-declarations)
  endif()
  # gcc 12 takes `"text" + std::to_string(number)` for overlapping memory (its bug 105651).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    list(APPEND options -Wno-restrict)
  endif()
  if(CAIRN_SANITIZE)
    list(APPEND options -fsanitize=${CAIRN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    # Instrumented, std::regex and others look uninitialized to gcc 12.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      list(APPEND options -Wno-maybe-uninitialized)
    endif()
    target_link_options(${target} PRIVATE -fsanitize=${CAIRN_SANITIZE})
  endif()
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:C,CXX>:${options}>"
    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
endfunction()
