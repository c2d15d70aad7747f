// SPDX-License-Identifier: Apache-2.0
//
// A store from elsewhere: its files say anything, under checksums that fit. Each case sets one
// number of one structure to a value that it should not have.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cairn/store.h"
#include "sim/disk.h"

namespace cairn::crash {

struct HostileCase {
  std::string name;  // "MANIFEST next_id = 0"
  std::function<void(io::SimDisk&)> apply;
};

inline constexpr char kHostileStore[] = "/store";

// A closed store with something of everything.
std::unique_ptr<io::SimDisk> HostileBase();

// The records of its index, by key; and a store whose index has exactly these.
using IndexRecords = std::map<std::string, std::string>;
IndexRecords ReadIndexRecords(const io::SimDisk& base);
void PutIndexRecords(io::SimDisk& disk, const IndexRecords& records);

std::vector<HostileCase> HostileManifests(const io::SimDisk& base);
std::vector<HostileCase> HostileIndexRecords(const io::SimDisk& base);
std::vector<HostileCase> HostileSnapshots(const io::SimDisk& base);
std::vector<HostileCase> HostileSmallFiles(const io::SimDisk& base);

// Opens the store, asks it for everything, and goes on with it, as `mode` says. Returns a forbidden
// result, or empty.
enum class HostileMode { kRead, kWrite, kSetAside };
std::string RunHostile(const io::SimDisk& base, const HostileCase& one, HostileMode mode);

// Every `stride`-th of all cases, from one that `seed` says, in each mode and in a process of its
// own. A violation is also an end by a signal, a run of a minute, and memory beyond a bound.
struct HostileSweep {
  uint64_t runs = 0;
  std::string violations;  // The first sixty, a line each.
};
HostileSweep SweepHostile(uint64_t seed, size_t stride);

}  // namespace cairn::crash
