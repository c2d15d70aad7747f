#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Property: a first `cmake -S . -B build` works with the generator that CMake chooses, optimises, and makes
# no warning an error; library and command line build without the tests. A project that embeds cairn gets
# it optimised without a build type, and keeps its own options.
# Method: build folders are configured, and their commands looked at; nothing is compiled.
# Usage: tests/house/fresh_build_test.sh COMPILER

set -euo pipefail
compiler="$1" root="$PWD"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
unset CMAKE_GENERATOR CFLAGS CXXFLAGS

configure() {  # SOURCE BUILD OPTION...
  cmake -S "$1" -B "$folder/$2" -DCMAKE_CXX_COMPILER="$compiler" -DCAIRN_WITH_CUDA=OFF \
    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "${@:3}" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
}
expect() {  # BUILD COMMAND REGEX: every such command matches; with ! before REGEX, none
  local commands
  commands="$(grep -F -- "$2" "$folder/$1/compile_commands.json" | grep '"command"')"
  if [ "$3" = "!" ]; then
    if grep -Eq -- "$4" <<<"$commands"; then echo "$1: $2 is compiled with $4" && exit 1; fi
  elif grep -Evq -- "$3" <<<"$commands"; then
    echo "$1: $2 is not compiled with $3" && exit 1
  fi
}
readonly store=CMakeFiles/cairn.dir/api/cpp/store.cc.o

configure "$root" plain
expect plain "$store" ' -O2( |$)'
expect plain "$store" ! 'Werror|NDEBUG'
touch "$folder/plain/libcairn.a"  # Else `make -n` misses it before the command line.
make -C "$folder/plain" -n cairn cairn-cli >"$folder/commands" 2>&1 ||
  { tail -n 5 "$folder/commands"; exit 1; }
if grep -Eq 'tests/[a-z]+/[a-z_]+\.cc|tools/bench/' "$folder/commands"; then
  echo "library and command line alone build tests, or cairn-bench" && exit 1
fi

configure "$root" release -DCMAKE_BUILD_TYPE=Release -DCAIRN_BUILD_TESTS=OFF -DCAIRN_BUILD_BENCH=OFF
expect release "$store" ' -O3( |$)'
expect release "$store" ! 'Werror|NDEBUG'

mkdir "$folder/engine"
cat >"$folder/engine/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(engine C CXX)
add_subdirectory($root cairn)
add_executable(engine engine.cc)
target_link_libraries(engine PRIVATE cairn::cairn)
END
echo 'int main() {}' >"$folder/engine/engine.cc"
configure "$folder/engine" embedded
expect embedded "$store" ' -O2( |$)'
expect embedded engine.dir/engine.cc.o ! '-O|-Wall|-march'
configure "$folder/engine" embedded-debug -DCMAKE_BUILD_TYPE=Debug
expect embedded-debug "$store" ! '-O'
configure "$folder/engine" embedded-level -DCMAKE_CXX_FLAGS=-O1
expect embedded-level "$store" ! '-O2'
echo "five ways configured"
