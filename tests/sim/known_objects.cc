// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/known_objects.h"

#include <algorithm>
#include <span>

#include "base/codec/hash.h"

namespace cairn::sim {

ObjectBytes MakeObject(std::string_view key, uint64_t generation) {
  constexpr size_t kSizes[] = {0, 1, 100, kObjectPageBytes, 300, 1000, 1280, 77};
  constexpr size_t kLarge = 140'000;
  uint64_t state = Hash(std::as_bytes(std::span(key))) ^ (generation * 0x9E3779B97F4A7C15);
  const bool large = key.starts_with('L') && state % 4 == 0;
  ObjectBytes bytes(large ? kLarge : kSizes[state / 4 % std::size(kSizes)]);
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

std::vector<std::string> KnownObjects::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, versions] : versions_) keys.push_back(key);
  return keys;
}

size_t KnownObjects::BytesMax(const std::string& key) const {
  size_t most = 0;
  for (const ObjectVersion& version : versions_.at(key)) {
    if (version.generation != 0) most = std::max(most, MakeObject(key, version.generation).size());
  }
  return most;
}

std::optional<bool> KnownObjects::IsThere(const std::string& key) const {
  const ObjectVersion& last = versions_.at(key).back();
  if (last.open) return std::nullopt;
  return last.generation != 0;
}

void KnownObjects::Begin(const std::string& key, uint64_t generation) {
  Versions& versions = versions_[key];
  if (versions.empty()) {
    versions.push_back({.applied = 0, .acknowledged = static_cast<int>(Durability::kPower)});
  }
  versions.push_back({.generation = generation, .open = true});
}

void KnownObjects::Make(const std::string& key, uint64_t time, int acknowledged) {
  ObjectVersion& version = versions_.at(key).back();
  version.open = false;
  version.applied = time;
  version.acknowledged = std::max(version.acknowledged, acknowledged);
}

void KnownObjects::Acknowledge(uint64_t time, Durability level) {
  for (auto& [key, versions] : versions_) {
    for (ObjectVersion& version : versions) {
      if (version.applied > time) continue;
      version.acknowledged = std::max(version.acknowledged, static_cast<int>(level));
    }
  }
}

// The newest from `first` on that it is.
std::optional<size_t> KnownObjects::Match(const std::string& key, const Versions& versions,
                                          size_t first, const std::optional<ObjectBytes>& read) {
  for (size_t i = versions.size(); i-- > first;) {
    const uint64_t generation = versions[i].generation;
    const bool is = read.has_value() ? generation != 0 && *read == MakeObject(key, generation)
                                     : generation == 0;
    if (is) return i;
  }
  return std::nullopt;
}

std::string KnownObjects::Describe(const std::string& key, const Versions& versions,
                                   const std::optional<ObjectBytes>& read) {
  std::string text =
      "object " + key +
      (read.has_value() ? " has " + std::to_string(read->size()) + " other bytes" : " is missing") +
      "; known:";
  for (const ObjectVersion& version : versions) {
    text += " [" + std::to_string(version.generation) + (version.open ? ", open" : "") +
            ", acknowledged " + std::to_string(version.acknowledged) + "]";
  }
  return text;
}

std::string KnownObjects::Look(const std::string& key, const std::optional<ObjectBytes>& read,
                               Doubts doubts) const {
  const Versions& versions = versions_.at(key);
  if (!read.has_value() && (doubts.lied || doubts.may_go)) return "";
  size_t first = versions.size() - 1;
  while (first > 0 && versions[first].open) --first;
  if (doubts.lied) first = 0;
  return Match(key, versions, first, read).has_value() ? "" : Describe(key, versions, read);
}

std::string KnownObjects::Adopt(const std::string& key, const std::optional<ObjectBytes>& read,
                                Durability level, Doubts doubts) {
  Versions& versions = versions_.at(key);
  size_t first = 0;
  for (size_t i = 0; i < versions.size() && !doubts.lied; ++i) {
    if (versions[i].acknowledged >= static_cast<int>(level)) first = i;
  }
  const std::optional<size_t> match = Match(key, versions, first, read);
  // One that was evicted may come back with the next crash.
  if (!match.has_value() && !read.has_value() && (doubts.lied || doubts.may_go)) return "";
  if (!match.has_value()) return Describe(key, versions, read);
  if (doubts.lied) {  // Any version may come back.
    versions.push_back(versions[*match]);
    versions.back().acknowledged = -1;
  } else {
    versions.resize(*match + 1);
  }
  for (ObjectVersion& version : versions) {
    version.open = false;
    version.applied = version.applied == ObjectVersion::kNever ? 0 : version.applied;
    if (level == Durability::kPower && !doubts.lied) {
      version.acknowledged = static_cast<int>(Durability::kPower);
    }
  }
  return "";
}

}  // namespace cairn::sim
