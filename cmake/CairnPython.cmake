# SPDX-License-Identifier: Apache-2.0
#
# The Python package. `pip install` brings an interpreter and nanobind with it; a build tree takes those
# of build/python, which tools/setup makes. If that is missing the rest is built all the same, and ctest
# reports the tests of Python as not run (api/python/tests).

if(NOT CAIRN_BUILD_PYTHON)
  return()
endif()
set(CAIRN_PYTHON_MISSING "")
if(NOT SKBUILD)
  set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/build/python/bin/python)
  if(NOT EXISTS ${Python_EXECUTABLE})
    set(CAIRN_PYTHON_MISSING "build/python is not there: tools/setup could not reach PyPI, or was not run")
    message(STATUS "Python: not built: ${CAIRN_PYTHON_MISSING}")
  endif()
endif()
if(NOT CAIRN_PYTHON_MISSING)
  find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
  execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
                  OUTPUT_VARIABLE nanobind_DIR OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  find_package(nanobind CONFIG REQUIRED)
  add_subdirectory(api/python)
endif()
