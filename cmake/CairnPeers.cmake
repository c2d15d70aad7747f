# SPDX-License-Identifier: Apache-2.0
#
# tools/bench/peers/*.cc: the engines that `cairn-bench peers` compares, if their libraries are
# installed. The program reports a missing one as skipped. Sanitizers would watch foreign code that was
# not built for them, so in such builds only chunk files are compared.

# Their names for pkg-config, which does not know LevelDB.
set(peer_package_lmdb lmdb)
set(peer_package_rocksdb rocksdb)
set(peer_package_sqlite sqlite3)

file(GLOB peer_sources CONFIGURE_DEPENDS tools/bench/peers/*.cc)
foreach(peer lmdb rocksdb leveldb sqlite)
  string(TOUPPER ${peer} PEER)
  set(peer_library "")
  if(NOT CAIRN_SANITIZE)
    if(peer_package_${peer})
      pkg_check_modules(${PEER} QUIET IMPORTED_TARGET ${peer_package_${peer}})
      if(${PEER}_FOUND)
        set(peer_library PkgConfig::${PEER})
      endif()
    else()
      find_path(${PEER}_INCLUDE_DIR ${peer}/db.h)
      find_library(${PEER}_LIBRARY ${peer})
      mark_as_advanced(${PEER}_INCLUDE_DIR ${PEER}_LIBRARY)
      if(${PEER}_INCLUDE_DIR AND ${PEER}_LIBRARY)
        set(peer_library ${${PEER}_LIBRARY})
        target_include_directories(cairn-bench SYSTEM PRIVATE ${${PEER}_INCLUDE_DIR})
      endif()
    endif()
  endif()
  if(peer_library)
    target_link_libraries(cairn-bench PRIVATE ${peer_library})
    target_compile_definitions(cairn-bench PRIVATE CAIRN_BENCH_${PEER}=1)
  else()
    list(FILTER peer_sources EXCLUDE REGEX "/${peer}_peer\\.cc$")
    target_compile_definitions(cairn-bench PRIVATE CAIRN_BENCH_${PEER}=0)
    message(STATUS "cairn-bench peers: without ${peer}")
  endif()
endforeach()
target_sources(cairn-bench PRIVATE ${peer_sources})
