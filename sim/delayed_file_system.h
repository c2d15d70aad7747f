// SPDX-License-Identifier: Apache-2.0
//
// A world whose syncs and durable writes take at least a given time, counted from their start: a
// fast device that behaves like a slow one. For benchmarks and for tests of work that overlaps a
// sync.
#pragma once

#include <cstdint>

#include "base/io/world.h"

namespace cairn::io {

// Queued requests are delayed in Reap, so the thread that reaps a slow one sleeps for it even if
// another is complete by then.
World MakeDelayedWorld(World inner, uint64_t sync_delay_ns);

}  // namespace cairn::io
