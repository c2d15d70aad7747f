# SPDX-License-Identifier: Apache-2.0
#
# tools/bench/peers/*.cc: what `cairn-bench peers` compares, with the engines whose libraries
# are here. An absent one is named by the program as skipped. Sanitizers would watch foreign code that
# was not built for them, so there it is chunk files alone.

file(GLOB peer_sources CONFIGURE_DEPENDS tools/bench/peers/*.cc)
foreach(peer lmdb rocksdb)
  string(TOUPPER ${peer} PEER)
  if(NOT CAIRN_SANITIZE)
    pkg_check_modules(${PEER} QUIET IMPORTED_TARGET ${peer})
  endif()
  if(${PEER}_FOUND)
    target_link_libraries(cairn-bench PRIVATE PkgConfig::${PEER})
  else()
    list(FILTER peer_sources EXCLUDE REGEX "/${peer}_peer\\.cc$")
    message(STATUS "cairn-bench peers: without ${peer}")
  endif()
  target_compile_definitions(cairn-bench PRIVATE CAIRN_BENCH_${PEER}=$<BOOL:${${PEER}_FOUND}>)
endforeach()
target_sources(cairn-bench PRIVATE ${peer_sources})
