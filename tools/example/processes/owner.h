// SPDX-License-Identifier: Apache-2.0
//
// The process that has the store, and the shared memory.
#pragma once

#include <string>

namespace processes {

// Serves workers on the socket until it is killed. Returns 1 if it cannot begin.
int RunOwner(const std::string& store, const std::string& socket_path);

}  // namespace processes
