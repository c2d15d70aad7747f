// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes small files as a whole; and other helpers.
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

// kCorruption when the file is larger than `max_bytes`: no writer makes such a file.
Result<std::vector<std::byte>> ReadWholeFile(FileSystem& files, const std::string& path,
                                             uint64_t max_bytes);

// Writes `path`.tmp, syncs it, renames it to `path` and syncs the directory. A crash at any moment
// leaves the old content or the new one, and perhaps the temporary file. An error before the rename
// leaves the old content; one after it leaves open which of the two a crash would bring back.
Status WriteFileDurably(FileSystem& files, const std::string& path,
                        std::span<const std::byte> bytes);

// Makes `world` hold the directory (FileSystem::Hold).
Status HoldDirectory(World* world, const std::string& path);

// Copies [begin, end) to the same place of another file through `buffer`; all multiples of
// kBlockBytes, as direct files need. `copied` is called with the bytes of each piece; an error ends
// the copy.
Status CopyRange(File& from, File& to, uint64_t begin, uint64_t end, std::span<std::byte> buffer,
                 const std::function<Status(uint64_t)>& copied);

// Ok as well when there is no such file. Throws nothing: destructors use it.
Status RemoveIfExists(FileSystem& files, const std::string& path);

// Maps kNotFound, and a read beyond the end, to kCorruption, for files that must exist.
Status MissingIsCorruption(const Status& status);

// Ok also if the directory exists. Creates no parents, and does not sync the name.
Status CreateDirectoryIfMissing(FileSystem& files, const std::string& path);

}  // namespace cairn::io
