// SPDX-License-Identifier: Apache-2.0
//
// Whole files at once, for small ones; and what else several have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/io/path.h"
#include "base/io/world.h"

namespace cairn::io {

// kCorruption when the file is larger than `max_bytes`: nobody wrote such a file.
Result<std::vector<std::byte>> ReadWholeFile(FileSystem& files, const std::string& path,
                                             uint64_t max_bytes);

// Writes `path`.tmp, syncs it, renames it to `path` and syncs the directory. A crash at any moment
// leaves the old content or the new one, and perhaps the temporary file. An error before the rename
// leaves the old content; one after it leaves open which of the two a crash would bring back.
Status WriteFileDurably(FileSystem& files, const std::string& path,
                        std::span<const std::byte> bytes);

// Has `world` hold the directory (FileSystem::Hold).
Status HoldDirectory(World* world, const std::string& path);

// Copies [begin, end) to the same place of another file by way of `buffer`; all multiples of
// kBlockBytes, as direct files want it. `copied` is told the bytes of each piece; not Ok ends it.
Status CopyRange(File& from, File& to, uint64_t begin, uint64_t end, std::span<std::byte> buffer,
                 const std::function<Status(uint64_t)>& copied);

// Ok as well when there is no such file. Throws nothing: destructors use it.
Status RemoveIfExists(FileSystem& files, const std::string& path);

// Of a read of what must be there: that its file is gone (kNotFound), or ends before it, is damage,
// kCorruption.
Status GoneIsDamage(const Status& status);

// Ok as well when the directory is there. Not its parents; not durable by itself.
Status CreateDirectoryIfMissing(FileSystem& files, const std::string& path);

}  // namespace cairn::io
