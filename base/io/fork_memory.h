// SPDX-License-Identifier: Apache-2.0
//
// Memory that children of fork() do not get: what a device reads and writes where it lies, by its
// own mapping. Were it shared with a child, the next write of either process would move the page
// away from under the device.
#pragma once

#include <cstddef>
#include <span>

namespace cairn::io {

// Of the whole pages of `memory`; a child that touches them ends. Where the system has no such
// thing nothing happens.
void KeepFromChildren(std::span<std::byte> memory);
// Before the memory is given back: who gets it next may need it in children.
void GiveToChildren(std::span<std::byte> memory);

}  // namespace cairn::io
