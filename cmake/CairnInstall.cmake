# SPDX-License-Identifier: Apache-2.0
#
# After `cmake --install`, both find_package(cairn) and `pkg-config cairn` work.

include(CMakePackageConfigHelpers)
set(cairn_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/cairn)

# Debug information is for developers: installed files have none. (CMake strips no static library by
# itself; it keeps its symbols, without which nothing could be linked.)
install(CODE "set(CMAKE_INSTALL_DO_STRIP TRUE)")
install(TARGETS cairn EXPORT cairnTargets)
if(NOT BUILD_SHARED_LIBS AND CMAKE_STRIP)
  install(CODE "execute_process(COMMAND ${CMAKE_STRIP} --strip-debug
    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/$<TARGET_FILE_NAME:cairn>\")")
endif()
install(DIRECTORY api/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT cairnTargets NAMESPACE cairn:: DESTINATION ${cairn_package_dir})
# The programs that an operator uses; the demo and the example live in the checkout.
foreach(tool cairn-cli cairn-bench)
  if(TARGET ${tool})
    install(TARGETS ${tool} OPTIONAL)  # Those that were built.
  endif()
endforeach()

install(FILES docs/prometheus/cairn.rules.yml DESTINATION ${CMAKE_INSTALL_DATADIR}/cairn)

configure_package_config_file(cmake/cairnConfig.cmake.in ${PROJECT_BINARY_DIR}/cairnConfig.cmake
  INSTALL_DESTINATION ${cairn_package_dir})
set(cairn_compatibility SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(cairn_compatibility SameMinorVersion)
endif()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cairnConfigVersion.cmake
  COMPATIBILITY ${cairn_compatibility})
install(FILES ${PROJECT_BINARY_DIR}/cairnConfig.cmake ${PROJECT_BINARY_DIR}/cairnConfigVersion.cmake
  DESTINATION ${cairn_package_dir})

# A static library passes its dependencies on; a shared one contains them.
set(CAIRN_PC_REQUIRES "libzstd libxxhash")
set(CAIRN_PC_LIBS "-lstdc++ -lm -pthread")
if(CAIRN_WITH_URING)
  string(APPEND CAIRN_PC_REQUIRES " liburing")
endif()
if(CAIRN_CUDA_COMPILED)
  get_target_property(cudart CUDA::cudart_static IMPORTED_LOCATION)
  string(APPEND CAIRN_PC_LIBS " ${cudart} -ldl -lrt")
endif()
if(BUILD_SHARED_LIBS)
  set(CAIRN_PC_SCOPE ".private")
  set(CAIRN_PC_STATIC_LIBS "")
else()
  set(CAIRN_PC_SCOPE "")
  set(CAIRN_PC_STATIC_LIBS " ${CAIRN_PC_LIBS}")
endif()
file(RELATIVE_PATH CAIRN_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/cairn.pc.in ${PROJECT_BINARY_DIR}/cairn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cairn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
