// SPDX-License-Identifier: Apache-2.0
//
// The lock on a file of the operating system, a lock of the open file (F_OFD_SETLK): testing it
// takes nothing, and it excludes two openings in one process. If the kernel has no such locks,
// flock() serves; testing then takes a shared lock for an instant.
//
// A child of fork() shares the open file, and would keep the lock for as long as it lives, though
// the process that took it is dead. So the child's copies are closed (child_closes.h).
#pragma once

#include <memory>
#include <string>

#include "base/io/posix_file.h"
#include "base/io/world.h"

namespace cairn::io {

// As FileSystem::Lock and FileSystem::IsLocked; errors call the file at `place` `path`.
Result<std::unique_ptr<FileLock>> TakePosixLock(const std::string& path, const PosixPlace& place,
                                                uint32_t mode);
Result<bool> IsPosixLocked(const std::string& path, const PosixPlace& place);

}  // namespace cairn::io
