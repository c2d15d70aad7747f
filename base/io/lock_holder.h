// SPDX-License-Identifier: Apache-2.0
//
// Which process holds the lock on a file. The kernel names none for a lock of an open file, but
// /proc shows, for each descriptor, the locks of its open file.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string>

namespace cairn::io {

// The process that has `file`, whose last name is `name`, open and locked; 0 when none is found:
// it is another user's or another container's, has ended meanwhile, or there is no /proc. Takes a
// microsecond or two for each file that processes of this user have open, for a superuser those of
// all; looks at 100,000 at most. Blocks on no file but `file`; throws nothing.
pid_t LockHolder(const struct stat& file, const std::string& name);

}  // namespace cairn::io
