// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/known_branches.h"

#include <algorithm>

namespace cairn::sim {
namespace {

// The first operation of which a part is kept and a part is lost matters, not how much of it.
constexpr int kLost = -1, kMaybe = 0, kKept = 1;

bool Matches(const Version& version, const BranchState& found) {
  const BranchState& state = *version.state;
  if (!version.loses_kv) return state == found;
  if (state.mixed != found.mixed || state.tokens != found.tokens ||
      state.samplers != found.samplers) {
    return false;
  }
  for (size_t group = 0; group < state.kv_lengths.size(); ++group) {
    if (found.kv_lengths[group] > state.kv_lengths[group]) return false;
  }
  const auto rows = state.rows, found_rows = found.ReachedRows();
  return std::includes(rows.begin(), rows.end(), found_rows.begin(), found_rows.end());
}

std::string Lengths(const BranchState& state) {
  std::string text = std::to_string(state.tokens.size()) + " tokens, KV";
  for (const uint64_t length : state.kv_lengths) text += " " + std::to_string(length);
  return text + ", " + std::to_string(state.samplers.size()) + " samplers, " +
         std::to_string(state.ReachedRows().size()) + " rows";
}

std::string Describe(const KnownBranch& branch, size_t lowest) {
  std::string text = "; known, from " + std::to_string(lowest) + " on:";
  for (size_t i = lowest; i < branch.versions.size(); ++i) {
    const Version& version = branch.versions[i];
    text += " [" + (version.state ? version.name + " " + Lengths(*version.state) : "none") +
            ", operation " + std::to_string(version.operation) + (version.open ? ", open" : "") +
            ", acknowledged " + std::to_string(version.acknowledged) + "]";
  }
  return text;
}

}  // namespace

size_t KnownBranches::count(uint32_t owner) const {
  return static_cast<size_t>(
      std::count_if(branches_.begin(), branches_.end(),
                    [&](const KnownBranch& b) { return b.owner == owner && b.exists(); }));
}

size_t KnownBranches::Add(uint32_t owner, const std::string& ns) {
  KnownBranch branch;
  branch.owner = owner;
  branch.ns = ns;
  branch.versions.push_back({.state = nullptr, .name = {}, .applied = 0, .end = 0});
  branches_.push_back(std::move(branch));
  return branches_.size() - 1;
}

void KnownBranches::Acknowledge(uint64_t time, Durability level) {
  for (KnownBranch& branch : branches_) {
    for (Version& version : branch.versions) {
      if (version.applied > time) continue;
      version.acknowledged = std::max(version.acknowledged, static_cast<int>(level));
    }
  }
}

std::vector<size_t> KnownBranches::Lowest(Durability level) const {
  std::vector<size_t> lowest(branches_.size());
  for (size_t i = 0; i < branches_.size(); ++i) {
    const auto& versions = branches_[i].versions;
    for (size_t v = 0; v < versions.size(); ++v) {
      if (versions[v].acknowledged >= static_cast<int>(level)) lowest[i] = v;
    }
  }
  return lowest;
}

// By any name that it has had.
const FoundBranch* KnownBranches::Find(size_t index, const FoundBranches& found,
                                       BranchName* name) const {
  const KnownBranch& branch = branches_[index];
  for (const Version& version : branch.versions) {
    if (version.state == nullptr) continue;
    const auto at = found.find({branch.ns, version.name});
    if (at == found.end()) continue;
    *name = at->first;
    return &at->second;
  }
  return nullptr;
}

std::string KnownBranches::Match(const FoundBranches& found, const std::vector<size_t>& lowest,
                                 std::vector<Range>* ranges) const {
  for (const auto& [name, branch] : found) {
    if (!names_.contains(name)) return "a branch from nowhere: " + name.first + "/" + name.second;
  }
  size_t seen = 0;
  ranges->resize(branches_.size());
  for (size_t i = 0; i < branches_.size(); ++i) {
    const KnownBranch& branch = branches_[i];
    BranchName name;
    const FoundBranch* const at = Find(i, found, &name);
    seen += at != nullptr;
    if (at != nullptr && at->state == nullptr) {  // Damaged: any of them.
      (*ranges)[i] = {0, branch.versions.size() - 1};
      continue;
    }
    bool any = false;
    for (size_t v = lowest[i]; v < branch.versions.size(); ++v) {
      const Version& version = branch.versions[v];
      const bool is =
          (version.state == nullptr) != (at != nullptr) &&
          (at == nullptr || (version.name == name.second && Matches(version, *at->state)));
      if (!is) continue;
      if (!any) (*ranges)[i].first = v;
      (*ranges)[i].last = v;
      any = true;
    }
    if (any) continue;
    return (at == nullptr ? "a branch is missing"
                          : name.first + "/" + name.second + " has " + Lengths(*at->state)) +
           Describe(branch, lowest[i]);
  }
  return seen == found.size() ? "" : "a branch is there under two names";
}

// If one of two changes ended before the other began, it survives if the other does; and an
// operation survives whole or not at all.
std::string KnownBranches::CheckOrder(const std::vector<Range>& ranges) const {
  uint64_t newest = 0;
  size_t newest_branch = 0;
  for (size_t i = 0; i < branches_.size(); ++i) {
    const Version& found = branches_[i].versions[ranges[i].first];
    if (found.begin <= newest) continue;
    newest = found.begin;
    newest_branch = i;
  }
  std::map<uint64_t, int> fates;
  for (size_t i = 0; i < branches_.size(); ++i) {
    const auto& versions = branches_[i].versions;
    for (size_t v = 1; v < versions.size(); ++v) {
      const int fate = v <= ranges[i].first ? kKept : v > ranges[i].last ? kLost : kMaybe;
      if (fate == kLost && versions[v].end < newest) {
        const size_t other = newest_branch;
        return "a change is lost" + Describe(branches_[i], ranges[i].last) +
               "; a later one is there" + Describe(branches_[other], ranges[other].first);
      }
      if (fate == kMaybe) continue;
      const auto [other, first] = fates.emplace(versions[v].operation, fate);
      if (!first && other->second != fate) {
        return "half of an operation is there" + Describe(branches_[i], ranges[i].last);
      }
    }
  }
  return "";
}

std::string KnownBranches::Compare(const FoundBranches& found, Durability level, bool lied) const {
  std::vector<Range> ranges;
  if (lied) return Match(found, std::vector<size_t>(branches_.size()), &ranges);
  std::string wrong = Match(found, Lowest(level), &ranges);
  return wrong.empty() ? CheckOrder(ranges) : wrong;
}

std::string KnownBranches::CompareCopy(const FoundBranches& found, uint64_t from,
                                       uint64_t until) const {
  std::vector<size_t> lowest(branches_.size());
  for (size_t i = 0; i < branches_.size(); ++i) {
    const auto& versions = branches_[i].versions;
    for (size_t v = 0; v < versions.size(); ++v) {
      if (versions[v].end <= from) lowest[i] = v;
    }
  }
  std::vector<Range> ranges;
  std::string wrong = Match(found, lowest, &ranges);
  if (wrong.empty()) wrong = CheckOrder(ranges);
  for (size_t i = 0; wrong.empty() && i < branches_.size(); ++i) {
    if (branches_[i].versions[ranges[i].first].begin > until) wrong = "it holds what came later";
  }
  return wrong;
}

std::string KnownBranches::Adopt(const FoundBranches& found, Durability level, bool lied) {
  std::vector<Range> ranges;
  const auto lowest = lied ? std::vector<size_t>(branches_.size()) : Lowest(level);
  std::string wrong = Match(found, lowest, &ranges);
  if (wrong.empty() && !lied) wrong = CheckOrder(ranges);
  if (!wrong.empty()) return wrong;
  for (size_t i = 0; i < branches_.size(); ++i) {
    KnownBranch& branch = branches_[i];
    branch.holders = 0;
    BranchName name;
    const FoundBranch* const at = Find(i, found, &name);
    if (at != nullptr) branch.id = at->id;
    branch.damaged = at != nullptr && at->state == nullptr;
    if (branch.damaged) continue;
    if (lied) {  // Any version may come back.
      Version again = branch.versions[ranges[i].last];
      again.operation = NewOperation();
      again.begin = Tick();
      again.acknowledged = -1;
      branch.versions.push_back(std::move(again));
    } else {
      branch.versions.resize(ranges[i].last + 1);
    }
    Version& last = branch.versions.back();
    if (at != nullptr) last.state = at->state;
    last.loses_kv = false;
    for (Version& version : branch.versions) {
      version.open = false;
      if (version.end == Version::kNever) version.end = Tick();
      version.applied = std::min(version.applied, version.end);
      if (level == Durability::kPower && !lied) {
        version.acknowledged = static_cast<int>(Durability::kPower);
      }
    }
  }
  return "";
}

bool KnownBranches::WasOnce(const BranchName& name, const BranchState& state) const {
  const auto at = names_.find(name);
  if (at == names_.end()) return false;
  const auto& versions = branches_[at->second].versions;
  return std::any_of(versions.begin(), versions.end(), [&](const Version& version) {
    return version.state != nullptr && version.name == name.second && Matches(version, state);
  });
}

bool KnownBranches::MayBe(size_t index, const BranchName& name, const BranchState& state,
                          Durability level) const {
  const auto& versions = branches_[index].versions;
  for (size_t v = Lowest(level)[index]; v < versions.size(); ++v) {
    if (versions[v].state != nullptr && versions[v].name == name.second &&
        Matches(versions[v], state)) {
      return true;
    }
  }
  return false;
}

}  // namespace cairn::sim
