# SPDX-License-Identifier: Apache-2.0
#
# The Python package, once there is one. Until then who asks for it is told: an option that is taken
# without a word looks like one that works.

if(CAIRN_BUILD_PYTHON)
  if(EXISTS ${PROJECT_SOURCE_DIR}/api/python/CMakeLists.txt)
    add_subdirectory(api/python)
  else()
    message(WARNING "CAIRN_BUILD_PYTHON is ON, but this version of Cairn has no Python package: "
                    "the option builds nothing")
  endif()
endif()
