#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Property: what is installed can be linked, by CMake and by pkg-config, has no debug information, and
# is refused to who asks for another minor version; the library alone, or with `cairn`, installs where
# nothing else was built.
# Usage: tests/house/install_test.sh BUILD COMPILER

set -euo pipefail
build="$1" compiler="$2"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

cmake --install "$build" --prefix "$folder/all" >"$folder/log" || { cat "$folder/log"; exit 1; }
for installed in include/cairn/store.h bin/cairn share/cairn/cairn.rules.yml; do
  [ -e "$folder/all/$installed" ] || { echo "$installed was not installed"; exit 1; }
done
library="$(find "$folder/all" -name 'libcairn.*' -type f)"
for file in "$library" "$folder/all/bin/cairn"; do
  if readelf -SW "$file" 2>/dev/null | grep -q '\.debug_info'; then
    echo "$file has debug information" && exit 1
  fi
done

# A build folder where only the library is, as after a build of the target `cairn` alone, installs that.
mkdir "$folder/alone"
cp -r "$build"/{cmake_install.cmake,cairnConfig.cmake,cairnConfigVersion.cmake,cairn.pc} "$folder/alone"
[ -d "$build/CMakeFiles/Export" ] && mkdir "$folder/alone/CMakeFiles" &&
  cp -r "$build/CMakeFiles/Export" "$folder/alone/CMakeFiles"
find "$build" -maxdepth 1 -name 'libcairn.*' -exec cp {} "$folder/alone" \;
real="$(realpath "$build")"
sed -i "s#$real#$folder/alone#g" "$folder/alone/cmake_install.cmake"
sed -i '/include(.*cmake_install.cmake/d' "$folder/alone/cmake_install.cmake"
cmake -DCMAKE_INSTALL_PREFIX="$folder/library" -P "$folder/alone/cmake_install.cmake" >"$folder/log" ||
  { cat "$folder/log"; exit 1; }
[ ! -e "$folder/library/bin/cairn" ] && [ -e "$folder/library/include/cairn/store.h" ]
mkdir "$folder/alone/bin"
cp "$build/bin/cairn" "$folder/alone/bin"
cmake -DCMAKE_INSTALL_PREFIX="$folder/both" -P "$folder/alone/cmake_install.cmake" >"$folder/log" ||
  { cat "$folder/log"; exit 1; }
"$folder/both/bin/cairn" --version
[ ! -e "$folder/both/bin/cairn-bench" ]

cp tools/example/first_store.cc "$folder"
cat >"$folder/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(consumer CXX)
find_package(cairn ${WANTED} REQUIRED)
add_executable(consumer first_store.cc)
target_link_libraries(consumer PRIVATE cairn::cairn)
END
version="$(sed -n 's/^Version: \([0-9]*\.[0-9]*\).*/\1/p' "$build/cairn.pc")"
configure() {
  cmake -S "$folder" -B "$folder/build" -DCMAKE_PREFIX_PATH="$folder/all" -DWANTED="$1" \
    -DCMAKE_CXX_COMPILER="$compiler" >"$folder/log" 2>&1
}
if configure "${version%.*}.$((${version#*.} + 1))"; then
  echo "another minor version was taken for this one" && exit 1
fi
rm -r "$folder/build"
configure "$version" || { cat "$folder/log"; exit 1; }
cmake --build "$folder/build" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
(cd "$folder" && build/consumer)

pc="$(dirname "$(find "$folder/all" -name cairn.pc)")"
# shellcheck disable=SC2046
"$compiler" -std=c++20 "$folder/first_store.cc" -o "$folder/by-pkg-config" \
  $(PKG_CONFIG_PATH="$pc" pkg-config --cflags --libs cairn)
(cd "$folder" && LD_LIBRARY_PATH="$(dirname "$library")" ./by-pkg-config)
echo "installed, linked twice, and run"
