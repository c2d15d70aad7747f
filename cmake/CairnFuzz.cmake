# SPDX-License-Identifier: Apache-2.0
#
# fuzz/<name>_fuzz.cc -> bin/<name>_fuzz, a libFuzzer program. The library is instrumented as well.

if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "CAIRN_BUILD_FUZZ needs clang: use `cmake --preset fuzz`")
endif()
# clang warns about deprecations inside libstdc++ itself.
# And only clang checks the lock annotations of base/core/mutex.h.
foreach(library cairn cairn_sim)
  target_compile_options(${library} PRIVATE -fsanitize=fuzzer-no-link -Wno-deprecated-declarations
    -Wthread-safety -Werror=thread-safety)
endforeach()
file(GLOB fuzz_sources CONFIGURE_DEPENDS fuzz/*_fuzz.cc)
foreach(source IN LISTS fuzz_sources)
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  cairn_target_defaults(${name})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE cairn_sim)
endforeach()
