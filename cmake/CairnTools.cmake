# SPDX-License-Identifier: Apache-2.0
#
# tools/cli -> bin/cairn (target cairn-cli: the library holds the name), tools/bench -> bin/cairn-bench,
# tools/bench/micro -> bin/cairn-micro (where Google Benchmark is installed),
# tools/demo -> bin/cairn-demo, tools/example -> bin/cairn-example (the README's),
# tools/example/c -> bin/cairn-example-c (in C11), tools/example/hybrid -> bin/cairn-example-hybrid,
# tools/example/processes -> bin/cairn-example-processes (two processes, one store),
# tools/llama -> the library cairn_llama by its own CMakeLists.txt.
# Sets CAIRN_TOOL_TARGETS.

set(CAIRN_TOOL_TARGETS)

# cairn_add_tool(<target> <folder> [SYSTEM_MALLOC] [OUTPUT_NAME <name>] [LIBRARIES <target>...])
function(cairn_add_tool target folder)
  cmake_parse_arguments(PARSE_ARGV 2 arg "SYSTEM_MALLOC" "OUTPUT_NAME" "LIBRARIES")
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cc ${folder}/*.c)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(NOT sources)
    return()
  endif()
  add_executable(${target} ${sources})
  cairn_target_defaults(${target})
  target_link_libraries(${target} PRIVATE cairn_internal ${arg_LIBRARIES})
  # A sanitizer replaces the allocator itself.
  if(NOT CAIRN_SANITIZE AND NOT arg_SYSTEM_MALLOC)
    target_link_libraries(${target} PRIVATE mimalloc)
  endif()
  if(arg_OUTPUT_NAME)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${arg_OUTPUT_NAME})
  endif()
  set(CAIRN_TOOL_TARGETS ${CAIRN_TOOL_TARGETS} ${target} PARENT_SCOPE)
endfunction()

# Defines what tools/cli/tree_page_parts.h declares: the files of tools/cli/page, as they are.
function(cairn_embed_tree_page target)
  set(folder ${PROJECT_SOURCE_DIR}/tools/cli/page)
  set(files ${folder}/tree.html ${folder}/tree.css ${folder}/tree.js)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  file(READ ${folder}/tree.html html)
  file(READ ${folder}/tree.css css)
  file(READ ${folder}/tree.js script)
  file(SHA256 ${folder}/tree.js digest)
  set(made ${PROJECT_BINARY_DIR}/tree_page_parts.cc)
  file(CONFIGURE OUTPUT ${made} @ONLY CONTENT [=[
#include "tools/cli/tree_page_parts.h"
namespace cairn::cli {
const std::string_view kTreeHtml = R"page(@html@)page";
const std::string_view kTreeCss = R"page(@css@)page";
const std::string_view kTreeScript = R"page(@script@)page";
const std::string_view kTreeScriptSha256 = "@digest@";
}  // namespace cairn::cli
]=])
  target_sources(${target} PRIVATE ${made})
endfunction()

if(CAIRN_BUILD_TOOLS OR CAIRN_BUILD_BENCH)
  if(NOT CAIRN_SANITIZE)
    find_package(mimalloc REQUIRED)
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/tools/llama/CMakeLists.txt)
    add_subdirectory(tools/llama)
  endif()
endif()
if(CAIRN_BUILD_TOOLS)
  cairn_add_tool(cairn-cli tools/cli OUTPUT_NAME cairn)
  # A few files at a time: each alone compiles nearly all of CLI11 anew, six seconds long.
  set_target_properties(cairn-cli PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  cairn_embed_tree_page(cairn-cli)
  cairn_precompile(cairn-cli PRIVATE <CLI/CLI.hpp> <nlohmann/json.hpp>)
  cairn_add_tool(cairn-example tools/example)
  cairn_add_tool(cairn-example-c tools/example/c)
  cairn_add_tool(cairn-example-hybrid tools/example/hybrid)
  cairn_add_tool(cairn-example-processes tools/example/processes)
  if(TARGET cairn_llama)
    cairn_add_tool(cairn-demo tools/demo LIBRARIES cairn_llama)
  endif()
endif()
if(CAIRN_BUILD_BENCH)
  pkg_check_modules(ARCHIVE REQUIRED IMPORTED_TARGET libarchive)
  # Uses the malloc of a user's process.
  cairn_add_tool(cairn-bench tools/bench SYSTEM_MALLOC
                 LIBRARIES cairn_sim cairn_llama PkgConfig::ARCHIVE)
  include(cmake/CairnPeers.cmake)
  if(NOT CAIRN_SANITIZE)  # A sanitizer would watch foreign code not built for it.
    find_package(benchmark QUIET)
  endif()
  if(benchmark_FOUND)
    cairn_add_tool(cairn-micro tools/bench/micro SYSTEM_MALLOC LIBRARIES benchmark::benchmark)
    target_sources(cairn-micro PRIVATE tools/bench/kv_source.cc tools/bench/machine.cc)
  else()
    message(STATUS "cairn-micro: without Google Benchmark (Debian: libbenchmark-dev)")
  endif()
endif()
