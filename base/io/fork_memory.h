// SPDX-License-Identifier: Apache-2.0
//
// Memory that children of fork() do not get: a device reads and writes it in place, through its own
// mapping. If it were shared with a child, the next write of either process would move the page
// away from under the device.
#pragma once

#include <cstddef>
#include <span>

namespace cairn::io {

// For the whole pages of `memory`; a child that touches them is killed. Does nothing if the system
// has no such feature.
void KeepFromChildren(std::span<std::byte> memory);
// Call before the memory is freed: its next owner may need it in children.
void GiveToChildren(std::span<std::byte> memory);

}  // namespace cairn::io
