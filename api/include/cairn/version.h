// SPDX-License-Identifier: Apache-2.0
//
// Which Cairn this is. Versions are semantic (semver.org) and are about the API; while the major
// number is 0 a new minor number may change it, a new patch number may not. The format on disk has
// versions of its own, in each file (FORMAT.md of each layer): a newer library reads what an older
// one wrote, and refuses what a newer one wrote (kUnsupportedFormat).
//
// The macros name the headers that a program was compiled with, Version() the library that it runs
// with. With a shared library the two may differ.
//
// C as well as C++.
#pragma once

// The build takes its version from these three lines.
#define CAIRN_VERSION_MAJOR 0
#define CAIRN_VERSION_MINOR 1
#define CAIRN_VERSION_PATCH 0

#define CAIRN_VERSION_STRINGIZE_(x) #x
#define CAIRN_VERSION_JOIN_(major, minor, patch) \
  CAIRN_VERSION_STRINGIZE_(major)                \
  "." CAIRN_VERSION_STRINGIZE_(minor) "." CAIRN_VERSION_STRINGIZE_(patch)
// "0.1.0", of the headers.
#define CAIRN_VERSION_STRING \
  CAIRN_VERSION_JOIN_(CAIRN_VERSION_MAJOR, CAIRN_VERSION_MINOR, CAIRN_VERSION_PATCH)
// A number that grows with the version, to compare with: #if CAIRN_VERSION >= CAIRN_MAKE_VERSION(0,
// 2, 0). Minor and patch numbers stay below 1000.
#define CAIRN_MAKE_VERSION(major, minor, patch) ((major) * 1000000 + (minor) * 1000 + (patch))
// That number of the headers.
#define CAIRN_VERSION \
  CAIRN_MAKE_VERSION(CAIRN_VERSION_MAJOR, CAIRN_VERSION_MINOR, CAIRN_VERSION_PATCH)

#ifdef __cplusplus
namespace [[gnu::visibility("default")]] cairn {
// Version of the library that runs, which may be newer than the headers: "0.1.0". The text is
// static. Never blocks, any thread, no store needed.
const char* Version();
}  // namespace cairn
#endif
