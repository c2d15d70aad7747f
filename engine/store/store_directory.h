// SPDX-License-Identifier: Apache-2.0
//
// The directory of a store before anything in it is opened: whether it may become a store, and
// whether it was one. Nothing is put into a directory that belongs to something else.
#pragma once

#include <string>

#include "base/io/world.h"
#include "cairn/status.h"

namespace cairn::engine {

// Opens the directory; makes it if `create` says so. From here on it is held open, and later steps
// work in it whatever becomes of its path. kNotFound; kInvalidState: it is a file; kIoError: a
// symbolic link is in the place of one of its files.
Status EnterDirectory(io::World* world, const std::string& path, bool create);

// A directory without a manifest may become a store if nothing of anybody else's is in it. Looked
// at before the lock file is put there. kInvalidState naming a file that is not a store's.
Status CheckDirectoryIsFree(io::FileSystem& files, const std::string& path);

// Without a manifest there is no store; but a log that was written, or a table, says that there was
// one: kCorruption. Else kNotFound with `why`, if that is not empty.
Status NoStoreHere(io::FileSystem& files, const std::string& path, const std::string& why);

}  // namespace cairn::engine
