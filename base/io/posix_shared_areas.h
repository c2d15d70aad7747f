// SPDX-License-Identifier: Apache-2.0
//
// Areas of the operating system (Linux): memfd_create, and a thread of the creator that answers on
// its socket.
#pragma once

#include <memory>

#include "base/io/shared_area.h"
#include "base/io/world.h"

namespace cairn::io {

// Threads and random numbers are the scheduler's, which is that of a real machine. `answer_ns`: how
// long Map waits for a creator; for tests.
std::unique_ptr<SharedAreas> MakePosixSharedAreas(std::shared_ptr<Scheduler> scheduler,
                                                  uint64_t answer_ns = 10'000'000'000);

}  // namespace cairn::io
