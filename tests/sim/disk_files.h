// SPDX-License-Identifier: Apache-2.0
//
// Files of a simulated disk, as its tests make and compare them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "sim/disk.h"

namespace cairn::io::testing {

std::vector<std::byte> Filled(size_t bytes, char with);

std::unique_ptr<File> MustOpen(SimDisk& disk, const std::string& path, bool direct = false);

// A file of `blocks` blocks, all 'o', with everything about it durable.
std::unique_ptr<File> DurableFile(SimDisk& disk, const std::string& path, size_t blocks);

// One letter for each block: 'o' old, 'n' new, '?' mixed.
std::string Blocks(const SimDisk& disk, const std::string& path);

}  // namespace cairn::io::testing
