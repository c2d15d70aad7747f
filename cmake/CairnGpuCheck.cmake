# SPDX-License-Identifier: Apache-2.0
#
# The programs that tools/gpu-check runs on a machine with a GPU: the tests that can use a card, and the
# benchmarks of `cairn-bench gpu` and `shadow-step`. Each needs nothing there but libc and the driver.
# They are linked from objects that other programs need anyway, and only when asked for.
#
#   cairn-gpu-check-tests   tests/gpu, tests/engine/gpu_restore_test.cc and gpu_card_test.cc
#   cairn-gpu-check-bench   tools/gpu_check/main.cc, tools/bench/gpu*

set(gpu_check_libraries)
foreach(name zstd xxhash uring gtest gtest_main)
  find_library(CAIRN_STATIC_${name} lib${name}.a)
  mark_as_advanced(CAIRN_STATIC_${name})
  if(NOT CAIRN_STATIC_${name} AND (CAIRN_WITH_URING OR NOT name STREQUAL "uring"))
    message(STATUS "tools/gpu-check: lib${name}.a is not there")
    return()
  endif()
  if(NOT name MATCHES "gtest")
    list(APPEND gpu_check_libraries ${CAIRN_STATIC_${name}})
  endif()
endforeach()
set(gpu_check_library cairn)
if(TARGET cairn_static)
  set(gpu_check_library cairn_static)
endif()

# cairn_add_gpu_check(<target> OBJECTS <object or source>... LIBRARIES <target or file>...)
function(cairn_add_gpu_check target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "OBJECTS;LIBRARIES")
  add_executable(${target} EXCLUDE_FROM_ALL ${arg_OBJECTS} tools/gpu_check/arc4random.cc)
  cairn_target_defaults(${target})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/api/include)
  add_dependencies(${target} ${gpu_check_library})
  # By file: as targets they would bring shared libraries along.
  target_link_libraries(${target} PRIVATE ${arg_LIBRARIES} $<TARGET_FILE:${gpu_check_library}>
    ${gpu_check_libraries} CUDA::cudart_static)
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -s)
endfunction()

cairn_add_gpu_check(cairn-gpu-check-tests
  OBJECTS $<TARGET_OBJECTS:cairn_gpu_test>
          $<FILTER:$<TARGET_OBJECTS:cairn_engine_test>,INCLUDE,/gpu_[rc][a-z]*_test>
  LIBRARIES $<TARGET_FILE:cairn_test_support> $<TARGET_FILE:cairn_sim> ${CAIRN_STATIC_gtest}
            ${CAIRN_STATIC_gtest_main})
add_dependencies(cairn-gpu-check-tests cairn_test_support cairn_sim)

cairn_add_gpu_check(cairn-gpu-check-bench
  OBJECTS tools/gpu_check/main.cc
          "$<FILTER:$<TARGET_OBJECTS:cairn-bench>,INCLUDE,/bench/(gpu[a-z_]*|bench|fixture|kv_source|machine|raw|ring)[.]cc>")

# Makes the folder, and runs the programs in it: on the CPU, if there is no card.
set(gpu_check_folder ${PROJECT_BINARY_DIR}/gpu-check)
add_test(NAME gpu_check.build
  COMMAND ${PROJECT_SOURCE_DIR}/tools/gpu-check --build ${PROJECT_BINARY_DIR} ${gpu_check_folder})
set_tests_properties(gpu_check.build PROPERTIES LABELS slow TIMEOUT 600 FIXTURES_SETUP gpu_check)
add_test(NAME gpu_check.simulated
  COMMAND ${gpu_check_folder}/run --device simulated --seconds 1)
set_tests_properties(gpu_check.simulated PROPERTIES LABELS slow TIMEOUT 300
  FIXTURES_REQUIRED gpu_check)
