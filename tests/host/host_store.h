// SPDX-License-Identifier: Apache-2.0
//
// A store on the real kernel with one branch in it, and what to do with it while the machine around
// it changes. Made for child processes: what is wrong is printed, not asserted.
#pragma once

#include <functional>
#include <string>

#include "cairn/store.h"

namespace cairn::testing {

class HostStore {
 public:
  // The store at `path`, made if there is none, and its branch "chat".
  static Result<HostStore> Open(const std::string& path, const Options& options);
  static Result<HostStore> Open(const std::string& path);

  // `count` positions of 8 KiB KV, at least kProcess.
  Status Append(uint64_t count = 16);
  // Several segments, tables, an index and manifests, and all of it read again.
  Status DoEverything();
  // All that was appended comes back as it was, and Verify finds no damage.
  Status Check();
  Status Close() { return store.Close(); }

  Store store;
  Branch chat;
  uint64_t length = 0;
};

// Opens the store at `path` alone, and finds `length` positions, whole.
Status CheckStore(const std::string& path, uint64_t length);

// Expect(), for a status that should be Ok.
bool ExpectOk(const Status& status, const std::string& what);

// Makes a store at `path`/state, uses it, copies it and opens both again: for every file system.
bool WorksOn(const std::string& path);

// Has a mount namespace of its own from here on: what is mounted is unmounted with the process.
// False where that is not allowed.
bool EnterOwnMounts();

// Whether this machine lets tests mount; asked in a child.
bool MayMount();

}  // namespace cairn::testing
