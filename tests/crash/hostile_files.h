// SPDX-License-Identifier: Apache-2.0
//
// A store from elsewhere: its files say anything, under checksums that fit. Each case sets one
// number of one structure to a value that it should not have.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/io/sim_disk.h"
#include "cairn/store.h"

namespace cairn::crash {

struct HostileCase {
  std::string name;  // "MANIFEST next_id = 0"
  std::function<void(io::SimDisk&)> apply;
};

inline constexpr char kHostileStore[] = "/store";

// A closed store with something of everything.
std::unique_ptr<io::SimDisk> HostileBase();

std::vector<HostileCase> HostileManifests(const io::SimDisk& base);
std::vector<HostileCase> HostileIndexRecords(const io::SimDisk& base);
std::vector<HostileCase> HostileSnapshots(const io::SimDisk& base);
std::vector<HostileCase> HostileSmallFiles(const io::SimDisk& base);

// Opens the store, asks it for everything, and goes on with it, as `mode` says. What must not be,
// or empty.
enum class HostileMode { kRead, kWrite, kSalvage };
std::string RunHostile(const io::SimDisk& base, const HostileCase& one, HostileMode mode);

}  // namespace cairn::crash
