// SPDX-License-Identifier: Apache-2.0
//
// Conditions on every store that was found after a crash, whatever it holds.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/options.h"
#include "tests/crash/history.h"

namespace cairn::crash {

// Opens it and reads all of it.
Result<StoreState> OpenAndRead(const std::string& path, const Options& options);

// The content of the store at `path`. Reading it alone must write nothing; opened for writing it
// must be the same when it is found again, read without a write, and then be closed and opened with
// nothing left to do but to count the closing (MANIFEST, HINT) and to make segments ready: else
// kCorruption says what was wrong. `options.world` is of a SimDisk that did nothing yet. Adds to
// `second_recoveries` if it was opened for writing twice.
Result<StoreState> RecoverTwice(const std::string& path, const Options& options,
                                uint64_t* second_recoveries);

}  // namespace cairn::crash
