# SPDX-License-Identifier: Apache-2.0
#
# Choices for the owner of the build, hence made only when cairn is the top project.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
# No NDEBUG: assertions stay on in every build. -g1 keeps backtraces readable at a third of the size.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O2 -Xcompiler=-g1")
foreach(language C CXX CUDA)
  set(CMAKE_${language}_FLAGS_RELEASE "-O3")
endforeach()
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g")
set(CMAKE_C_FLAGS_DEBUG "-Og -g")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(CAIRN_CCACHE ccache)
if(CAIRN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CAIRN_CCACHE})
  # Else it caches nothing that uses precompiled headers, as tests do.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CAIRN_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CAIRN_CCACHE})
endif()
# A cross compiler looks for linkers among its own.
find_program(CAIRN_MOLD mold)
if(CAIRN_MOLD AND NOT CMAKE_CROSSCOMPILING)
  add_link_options($<$<LINK_LANGUAGE:C,CXX>:-fuse-ld=mold>)
endif()
