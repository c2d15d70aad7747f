# SPDX-License-Identifier: Apache-2.0
#
# For builds that are made seldom: the library in a fraction of the time.

# A folder is compiled as one file, since most of the time went into the headers that its files share.
# Files with options of their own are compiled alone, and so are those that redefine a name of another
# file in their folder.
set(alone api/c/model api/c/objects base/codec/kv64 base/codec/kv_frame base/codec/kv_view
          base/codec/model base/codec/token_block base/core/slab_arena base/io/fiber
          engine/device/gpu_views engine/manifest/manifest engine/objects/object_gets
          engine/background/rate_limiter engine/tree/memory/op engine/tree/records/tree_check engine/tree/records/tree_roots
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
# gcc takes an included file for a header, whose unnamed namespaces would be a mistake; and inlined into so
# large a file, more results look uninitialised to it.
target_compile_options(cairn PRIVATE
  $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
