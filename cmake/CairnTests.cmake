# SPDX-License-Identifier: Apache-2.0
#
# A folder tests/<area>/ becomes up to three programs, by file name:
#   *_test.cc         cairn_<area>_test         label quick
#   *_serial_test.cc  cairn_<area>_serial_test  label quick-serial; runs with nothing beside it
#   *_slow_test.cc    cairn_<area>_slow_test    label slow
# `ctest -L` takes a regular expression, so `-L quick` and `-L serial` both find quick-serial.
# In ctest a test is called <area>.<Suite>.<Name>. Other .cc files make a library, from which every
# program takes what it uses; but those of tests/memory, which replace operator new, and of tests/tools
# are linked into the programs of their folder alone.
# Tests that draw begin at a seed that follows from the commit (tests/support/test_seed.h).
# tests/support/source_dir.h names this tree, for golden files; tests/tools also gets CAIRN_BIN_DIR,
# and the parts of cairn-bench that are tested alone.

enable_testing()
include(GoogleTest)
find_package(GTest REQUIRED)
find_package(rapidcheck REQUIRED)
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp)
pkg_check_modules(FUSE3 IMPORTED_TARGET fuse3)

function(cairn_test_settings target)
  cairn_target_defaults(${target})
  target_link_libraries(${target} PUBLIC cairn_sim GTest::gmock rapidcheck PkgConfig::SECCOMP)
endfunction()

set_source_files_properties(tests/support/source_dir.cc
                            PROPERTIES COMPILE_DEFINITIONS "CAIRN_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")

# The commit, as a number; configured anew when another one is checked out.
execute_process(COMMAND git rev-parse --short=15 HEAD WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(commit MATCHES "^[0-9a-f]+$")
  set_source_files_properties(tests/support/test_seed.cc
                              PROPERTIES COMPILE_DEFINITIONS CAIRN_COMMIT=0x${commit})
  execute_process(COMMAND git rev-parse --git-path logs/HEAD WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                  OUTPUT_VARIABLE head_log OUTPUT_STRIP_TRAILING_WHITESPACE)
  cmake_path(ABSOLUTE_PATH head_log BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  if(EXISTS ${head_log})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${head_log})
  endif()
endif()

file(GLOB support_sources CONFIGURE_DEPENDS tests/*/*.cc)
list(FILTER support_sources EXCLUDE REGEX "_test\\.cc$|tests/(agent|memory|soak|tools)/")
add_library(cairn_test_support STATIC ${support_sources})
cairn_test_settings(cairn_test_support)
if(CAIRN_CUDA_COMPILED)  # tests/gpu/callers_events.cc makes events of CUDA.
  target_include_directories(cairn_test_support SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
endif()
if(FUSE3_FOUND)  # Else tests/crash/lossy_mount.cc says so and mounts nothing.
  target_compile_definitions(cairn_test_support PRIVATE CAIRN_TESTS_FUSE)
  target_link_libraries(cairn_test_support PRIVATE PkgConfig::FUSE3)
endif()

set(sanitizer_environment "")
if(CAIRN_SANITIZE MATCHES "thread")
  set(sanitizer_environment ENVIRONMENT
      "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/house/tsan.supp")
elseif(CAIRN_SANITIZE)
  set(sanitizer_environment ENVIRONMENT "UBSAN_OPTIONS=print_stacktrace=1")
endif()

# cairn_add_test_program(<area> <suffix> <label> <timeout_s> <file>...)
function(cairn_add_test_program area suffix label timeout_s)
  set(target cairn_${area}_${suffix})
  if(CAIRN_SANITIZE)  # Some are a hundred times slower then.
    math(EXPR timeout_s "4 * ${timeout_s}")
  endif()
  add_executable(${target} ${ARGN})
  cairn_test_settings(${target})
  target_link_libraries(${target} PRIVATE cairn_test_support GTest::gtest_main)
  # Compiling tests mostly means compiling the expansions of gtest's macros: a third of the time. A third
  # of the rest went into reading gtest's headers, so the first program's precompiled headers serve them
  # all.
  target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  get_property(headers_of GLOBAL PROPERTY CAIRN_TEST_HEADERS)
  if(headers_of)
    cairn_precompile(${target} REUSE_FROM ${headers_of})
  else()
    cairn_precompile(${target} PRIVATE
      <gtest/gtest.h> <algorithm> <filesystem> <fstream> <functional> <map> <random> <set> <thread>)
    set_property(GLOBAL PROPERTY CAIRN_TEST_HEADERS ${target})
  endif()
  if(area MATCHES "^(llama|tools)$")
    target_link_libraries(${target} PRIVATE cairn_llama)
  endif()
  if(area STREQUAL "tools")
    target_compile_definitions(${target} PRIVATE CAIRN_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
    target_sources(${target} PRIVATE tools/bench/find_set.cc tools/bench/radix_tree.cc)
    if(CAIRN_TOOL_TARGETS)
      add_dependencies(${target} ${CAIRN_TOOL_TARGETS})
    endif()
  endif()
  gtest_discover_tests(${target} TEST_PREFIX ${area}. DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${label} TIMEOUT ${timeout_s} RUN_SERIAL $<STREQUAL:${label},quick-serial>
               ${sanitizer_environment})
endfunction()

file(GLOB test_areas CONFIGURE_DEPENDS LIST_DIRECTORIES true RELATIVE ${PROJECT_SOURCE_DIR}/tests tests/*)
foreach(area IN LISTS test_areas)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS tests/${area}/*_test.cc)
  if(NOT sources)
    continue()
  endif()
  if(NOT TARGET cairn_llama AND area MATCHES "^(llama|tools)$")
    message(STATUS "Tests of ${area}: need CAIRN_BUILD_TOOLS")
    continue()
  endif()
  file(GLOB_RECURSE helpers CONFIGURE_DEPENDS tests/${area}/*.cc)
  list(REMOVE_ITEM helpers ${sources} ${support_sources})
  set(slow ${sources})
  set(serial ${sources})
  list(FILTER slow INCLUDE REGEX "_slow_test\\.cc$")
  list(FILTER serial INCLUDE REGEX "_serial_test\\.cc$")
  list(REMOVE_ITEM sources ${slow} ${serial})
  if(sources)
    cairn_add_test_program(${area} test quick 300 ${sources} ${helpers})
  endif()
  if(serial)
    cairn_add_test_program(${area} serial_test quick-serial 300 ${serial} ${helpers})
  endif()
  if(slow)
    cairn_add_test_program(${area} slow_test slow 1800 ${slow} ${helpers})
  endif()
endforeach()

# tests/c_abi/*.c is one program in C11, cairn_c_program, whose arguments are a story and an empty
# directory; c_abi.program.<story> runs each. It links a shared library, so that it finds only exported
# symbols.
if(BUILD_SHARED_LIBS)
  set(shared cairn)
else()
  set(shared cairn_as_shared)
  add_library(${shared} SHARED $<TARGET_OBJECTS:cairn>)
  cairn_library_settings(${shared})
  set_target_properties(${shared} PROPERTIES LINKER_LANGUAGE CXX LINK_DEPENDS ${CAIRN_EXPORTS})
  target_link_options(${shared} PRIVATE -Wl,--version-script=${CAIRN_EXPORTS})
endif()
file(GLOB c_sources CONFIGURE_DEPENDS tests/c_abi/*.c)
add_executable(cairn_c_program ${c_sources})
cairn_target_defaults(cairn_c_program)
target_link_libraries(cairn_c_program PRIVATE ${shared})
target_include_directories(cairn_c_program PRIVATE ${PROJECT_SOURCE_DIR})
set(stories errors nulls sizes models branches appends states restores batches find objects care gpu sparse
  sparse_calls shadow blend export shared_memory slots)
list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
foreach(story IN LISTS stories)
  set(folder ${PROJECT_BINARY_DIR}/c_abi/${story})
  add_test(NAME c_abi.program.${story} COMMAND sh -c
    "rm -rf '${folder}' && mkdir -p '${folder}' && ${emulator} '$<TARGET_FILE:cairn_c_program>' ${story} '${folder}'")
  set_tests_properties(c_abi.program.${story} PROPERTIES LABELS quick TIMEOUT 300 ${sanitizer_environment})
endforeach()
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME c_abi.symbols COMMAND ${Python3_EXECUTABLE} tests/c_abi/check_symbols.py
  $<TARGET_FILE:${shared}> WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
add_test(NAME c_abi.complete COMMAND ${Python3_EXECUTABLE} tests/c_abi/check_complete.py
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
add_test(NAME c_abi.complete_self_test COMMAND ${Python3_EXECUTABLE} tests/c_abi/check_complete.py --self-test
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(c_abi.symbols c_abi.complete c_abi.complete_self_test PROPERTIES
  LABELS quick TIMEOUT 60 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)

# For machines that lose their power: tools/powercut.
add_executable(cairn_crash_agent tests/agent/agent.cc)
cairn_test_settings(cairn_crash_agent)
target_link_libraries(cairn_crash_agent PRIVATE cairn_test_support)

# The long forms: tools/soak.
add_executable(cairn_soak tests/soak/soak.cc)
cairn_test_settings(cairn_soak)
target_link_libraries(cairn_soak PRIVATE cairn_test_support)
if(TARGET mimalloc)  # A sixth faster than with malloc.
  target_link_libraries(cairn_soak PRIVATE mimalloc)
endif()

add_subdirectory(tests/house)
if(CAIRN_BUILD_PYTHON)
  add_subdirectory(api/python/tests)
endif()

# fuzz/<name>_fuzz.cc on the inputs of fuzz/corpus/<name>, without libFuzzer: fuzz.<name>; and for four
# seconds with it, after another build, by clang with its sanitizers: fuzz.live.<name>
add_test(NAME fuzz.build COMMAND ${PROJECT_SOURCE_DIR}/tools/fuzz --build --no-setup)
set_tests_properties(fuzz.build PROPERTIES
  LABELS slow TIMEOUT 1800 SKIP_RETURN_CODE 77 FIXTURES_SETUP fuzz_build)
file(GLOB fuzz_sources CONFIGURE_DEPENDS fuzz/*_fuzz.cc)
add_library(cairn_fuzz_replay OBJECT fuzz/replay.cc)
cairn_target_defaults(cairn_fuzz_replay)
foreach(source IN LISTS fuzz_sources)
  cmake_path(GET source STEM target)
  string(REGEX REPLACE "_fuzz$" "" name ${target})
  add_executable(${target}_replay ${source} $<TARGET_OBJECTS:cairn_fuzz_replay>)
  cairn_test_settings(${target}_replay)
  add_test(NAME fuzz.${name} COMMAND ${target}_replay ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
  set_tests_properties(fuzz.${name} PROPERTIES LABELS quick TIMEOUT 300)
  add_test(NAME fuzz.live.${name}
    COMMAND ${PROJECT_SOURCE_DIR}/tools/fuzz --seconds 4 --no-build ${name})
  set_tests_properties(fuzz.live.${name} PROPERTIES
    LABELS slow TIMEOUT 120 SKIP_RETURN_CODE 77 FIXTURES_REQUIRED fuzz_build)
endforeach()
