// SPDX-License-Identifier: Apache-2.0
//
// Fails every single I/O operation of small scripted runs in turn, in every way that a disk may,
// and checks what the store says, what it shows, and what it holds when it is opened again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cairn::crash {

struct IoFaultsOptions {
  std::vector<std::string> scripts{};  // Empty: all.
  uint64_t point_stride = 1;  // Every how many operations one fails; the seed says which.
  uint64_t seed = 0;
  // A canary that the check must find: operations at kMemory are taken for acknowledged.
  bool claim_memory = false;
};

struct IoFaultsResult {
  uint64_t runs = 0;                                  // In each the fault occurred.
  uint64_t indexes = 0;                               // Operations of the scripts, without faults.
  uint64_t poisoned = 0, refused = 0, unnoticed = 0;  // Runs, by the worst that was seen.
  std::string violation;                              // The first; empty if none.
};

IoFaultsResult RunIoFaults(const IoFaultsOptions& options);
std::string Counts(const IoFaultsResult& result);  // One line.

}  // namespace cairn::crash
