// SPDX-License-Identifier: Apache-2.0
//
// The clients' knowledge of their objects: the generations that each key has had, or may have had,
// and the acknowledged durability of each. The content of an object follows from its key and
// generation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/options.h"

namespace cairn::sim {

inline constexpr uint32_t kObjectPageBytes = 128;

using ObjectBytes = std::vector<std::byte>;
// From none to some ten pages; of keys that begin with 'L' some are larger than a record may be.
ObjectBytes MakeObject(std::string_view key, uint64_t generation);

struct ObjectVersion {
  static constexpr uint64_t kNever = UINT64_MAX;
  uint64_t generation = 0;    // 0: there is no object.
  bool open = false;          // It is not known whether it came.
  uint64_t applied = kNever;  // On the clock of KnownBranches.
  int acknowledged = -1;      // The highest Durability.
};

class KnownObjects {
 public:
  // Possible findings besides the known ones.
  struct Doubts {
    bool lied = false;    // Any version, and none.
    bool may_go = false;  // None: eviction takes objects.
  };

  // All keys that were ever used.
  std::vector<std::string> Keys() const;
  bool Knows(const std::string& key) const { return versions_.contains(key); }
  // Room for any that it may be.
  size_t BytesMax(const std::string& key) const;
  // Whether it exists; nothing: not known.
  std::optional<bool> IsThere(const std::string& key) const;

  // A change begins: the key has a version that is open. Then it ends.
  void Begin(const std::string& key, uint64_t generation);
  void Make(const std::string& key, uint64_t time, int acknowledged);
  void Unmake(const std::string& key) { versions_.at(key).pop_back(); }
  // Everything that was applied before `time` is safe so far.
  void Acknowledge(uint64_t time, Durability level);

  // The fault of a read beside its client, or nothing. Read nothing: the object does not exist.
  std::string Look(const std::string& key, const std::optional<ObjectBytes>& read,
                   Doubts doubts) const;
  // The same after all that was acknowledged at `level` survived; from now on that is the known
  // state.
  std::string Adopt(const std::string& key, const std::optional<ObjectBytes>& read,
                    Durability level, Doubts doubts);

 private:
  using Versions = std::vector<ObjectVersion>;
  static std::optional<size_t> Match(const std::string& key, const Versions& versions, size_t first,
                                     const std::optional<ObjectBytes>& read);
  static std::string Describe(const std::string& key, const Versions& versions,
                              const std::optional<ObjectBytes>& read);

  std::map<std::string, Versions> versions_;  // The last is the newest.
};

}  // namespace cairn::sim
