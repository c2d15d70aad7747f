// SPDX-License-Identifier: Apache-2.0
//
// The process that runs the model, and has no store.
#pragma once

#include <string>

namespace processes {

// Goes on with one conversation after the other until it is killed, with whatever owner there is.
// Prints "saved CONVERSATION LENGTH" for each answer of the owner.
int RunWorker(const std::string& socket_path);

}  // namespace processes
