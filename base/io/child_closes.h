// SPDX-License-Identifier: Apache-2.0
//
// Descriptors that children of fork() must not keep. A child shares the open files of its parent,
// and would keep a lock, a memory or a listening socket for as long as it lives, though the process
// that made it is dead. So the child's copies are closed as soon as it exists.
//
// Children that are made by a bare system call, without the functions of pthread_atfork, keep them.
#pragma once

#include "base/io/own_fd.h"

namespace cairn::io {

// Thread-safe. `fd` lives, at this address, until StopClosingInChildren. May throw std::bad_alloc.
void CloseInChildren(const OwnFd* fd);
void StopClosingInChildren(const OwnFd* fd);

}  // namespace cairn::io
