// SPDX-License-Identifier: Apache-2.0
//
// Where this tree was when the tests were built: for golden files and documents under test.
#pragma once

#include <string>

namespace cairn::testing {

// "/path/to/cairn" + "/wal/FORMAT.md". In one file, so that trees at other places share what the
// compiler's cache holds of all others.
std::string SourcePath(const std::string& below);

}  // namespace cairn::testing
