# SPDX-License-Identifier: Apache-2.0
#
# fuzz/<name>_fuzz.cc -> bin/<name>_fuzz, a libFuzzer program. The library is instrumented as well.

if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "CAIRN_BUILD_FUZZ needs clang: use `cmake --preset fuzz`")
endif()
# clang warns about deprecations inside libstdc++ itself.
# And only clang checks the lock annotations of base/core/mutex.h.
target_compile_options(cairn PRIVATE -fsanitize=fuzzer-no-link -Wno-deprecated-declarations
  -Wthread-safety -Werror=thread-safety)
# A folder is compiled as one file, since most of the time went into the headers that its files share.
# Files with options of their own are compiled alone, and so are those that redefine a name of another
# file in their folder.
set(alone api/c/model api/c/objects base/codec/kv64 base/codec/kv_frame base/codec/kv_view
          base/codec/model base/codec/token_block base/core/slab_arena base/io/fiber
          engine/gpu/gpu_views engine/manifest/manifest engine/objects/object_gets
          engine/space/rate_limiter engine/tree/op engine/tree/tree_check engine/tree/tree_roots
          sstable/index_format sstable/snapshot_format)
foreach(source IN LISTS cairn_sources)
  cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  cmake_path(GET source PARENT_PATH folder)
  string(MAKE_C_IDENTIFIER ${folder} folder)
  set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder})
endforeach()
list(TRANSFORM alone APPEND .cc)
set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
set_target_properties(cairn PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
file(GLOB fuzz_sources CONFIGURE_DEPENDS fuzz/*_fuzz.cc)
foreach(source IN LISTS fuzz_sources)
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  cairn_target_defaults(${name})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE cairn_internal)
endforeach()
