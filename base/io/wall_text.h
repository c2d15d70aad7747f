// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cairn::io {

// "2026-01-31T12-00-00Z" of Scheduler::WallNs: in order of time as text, and a name on every file
// system.
std::string WallText(uint64_t wall_ns);

}  // namespace cairn::io
