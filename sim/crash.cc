// SPDX-License-Identifier: Apache-2.0
//
// Builds the disk that a crash of a simulated disk leaves.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/codec/hash.h"
#include "base/core/check.h"
#include "sim/disk.h"

namespace cairn::io {
namespace {

enum class Fate : uint8_t { kLost, kTorn, kKept };

// The sectors of the image that survive are drawn one by one.
std::vector<bool> DrawSectors(const SimChange& change, SeededRandom random) {
  std::vector<bool> survives((change.image->size() + kSimSectorBytes - 1) / kSimSectorBytes);
  for (size_t i = 0; i < survives.size(); ++i) survives[i] = random.Below(2) != 0;
  return survives;
}

void ApplyTorn(const SimChange& change, const std::vector<bool>& survives, CowBytes& content) {
  const std::span<const std::byte> image(*change.image);
  for (size_t i = 0; i < survives.size(); ++i) {
    if (!survives[i]) continue;
    const size_t at = i * kSimSectorBytes;
    const size_t length = std::min<size_t>(kSimSectorBytes, image.size() - at);
    CAIRN_CHECK(content.Write(change.offset + at, image.subspan(at, length)));
  }
}

}  // namespace

// Collects what is not durable, decides the fate of each change, and builds what remains.
class SimDisk::Crash {
 public:
  explicit Crash(const SimDisk& disk) : disk_(disk) { Visit(disk.root_); }

  size_t size() const { return unsynced_.size(); }
  void Decide(const CrashChoice& choice);
  uint64_t Key() const;
  std::shared_ptr<SimInode> Build(SimDisk& clone);

 private:
  struct Unsynced {
    uint64_t id;
    const SimChange* change;  // A change of content; null: a change of names.
    bool is_name() const { return change == nullptr; }
    bool can_tear() const { return !is_name() && change->kind == SimChange::Kind::kWrite; }
  };

  void Visit(const std::shared_ptr<SimInode>& inode);
  Fate FateOf(uint64_t id) const { return fates_.at(id); }
  std::vector<bool> Sectors(const SimChange& change) const {
    return DrawSectors(change, SeededRandom(tear_seed_ ^ change.id));
  }
  std::shared_ptr<SimInode> Clone(SimDisk& clone, const SimInode& inode);
  void FillFile(const SimInode& inode, SimInode& copy) const;

  const SimDisk& disk_;
  std::unordered_set<const SimInode*> visited_;
  std::vector<std::shared_ptr<SimInode>> directories_;
  std::vector<Unsynced> unsynced_;
  std::unordered_map<uint64_t, Fate> fates_;
  uint64_t tear_seed_ = 0;
  std::unordered_map<const SimInode*, SimEntries> names_;  // After the crash.
  std::unordered_map<const SimInode*, std::shared_ptr<SimInode>> clones_;
};

// Visits everything that has a name now or could have one after a crash.
void SimDisk::Crash::Visit(const std::shared_ptr<SimInode>& inode) {
  if (!visited_.insert(inode.get()).second) return;
  for (const SimChange& change : inode->changes) {
    if (change.state == SimChange::State::kDurable) continue;
    unsynced_.push_back({change.id, &change});
  }
  if (!inode->is_directory) return;
  directories_.push_back(inode);
  for (const auto& [name, child] : inode->durable_entries) Visit(child);
  for (const SimEntryChange& change : inode->entry_changes) {
    if (!change.durable) unsynced_.push_back({change.id, nullptr});
    if (change.added != nullptr) Visit(change.added);
  }
}

void SimDisk::Crash::Decide(const CrashChoice& choice) {
  std::sort(unsynced_.begin(), unsynced_.end(),
            [](const Unsynced& a, const Unsynced& b) { return a.id < b.id; });
  SeededRandom random(choice.seed);
  tear_seed_ = random.Next();
  const auto names = static_cast<uint64_t>(std::count_if(
      unsynced_.begin(), unsynced_.end(), [](const Unsynced& u) { return u.is_name(); }));
  const uint64_t kept_names = random.Below(names + 1);
  uint64_t name_number = 0;
  CAIRN_CHECK(!choice.kept_mask || unsynced_.size() <= 64);
  for (size_t i = 0; i < unsynced_.size(); ++i) {
    const Unsynced& unsynced = unsynced_[i];
    const double draw = random.Fraction();
    Fate fate = draw < choice.lost                 ? Fate::kLost
                : draw < choice.lost + choice.torn ? Fate::kTorn
                                                   : Fate::kKept;
    if (fate == Fate::kTorn && !unsynced.can_tear()) fate = Fate::kLost;
    if (choice.names_in_order && unsynced.is_name()) {
      fate = name_number++ < kept_names ? Fate::kKept : Fate::kLost;
    }
    if (choice.kept_mask) fate = (*choice.kept_mask >> i & 1) != 0 ? Fate::kKept : Fate::kLost;
    fates_.emplace(unsynced.id, fate);
  }
}

// The result follows from every change up to the last surviving one, without the lost ones: the
// newest changes, if lost, might as well not have been made yet.
uint64_t SimDisk::Crash::Key() const {
  std::vector<uint64_t> lost;
  uint64_t last = disk_.next_change_;
  for (auto unsynced = unsynced_.rbegin(); unsynced != unsynced_.rend(); ++unsynced) {
    const Fate fate = FateOf(unsynced->id);
    if (fate == Fate::kKept) continue;
    std::vector<bool> survives;
    if (fate == Fate::kTorn) survives = Sectors(*unsynced->change);
    const auto count = std::count(survives.begin(), survives.end(), true);
    if (fate == Fate::kTorn && static_cast<size_t>(count) == survives.size()) continue;
    if (count == 0 && lost.empty() && unsynced->id == last) {
      --last;
      continue;
    }
    lost.push_back(unsynced->id);
    for (size_t i = 0; count != 0 && i < survives.size(); ++i) {
      if (survives[i]) lost.push_back(~static_cast<uint64_t>(i));
    }
  }
  lost.push_back(last);
  return Hash(std::as_bytes(std::span(lost)));
}

std::shared_ptr<SimInode> SimDisk::Crash::Build(SimDisk& clone) {
  struct Surviving {
    const SimEntryChange* change;
    SimInode* directory;
  };
  std::vector<Surviving> surviving;
  for (const auto& directory : directories_) {
    names_[directory.get()] = directory->durable_entries;
    for (const SimEntryChange& change : directory->entry_changes) {
      if (change.durable || FateOf(change.id) == Fate::kKept) {
        surviving.push_back({&change, directory.get()});
      }
    }
  }
  std::sort(surviving.begin(), surviving.end(),
            [](const Surviving& a, const Surviving& b) { return a.change->id < b.change->id; });
  for (const Surviving& s : surviving) {
    ApplyEntryChange(*s.change, *s.directory,
                     [&](SimInode& directory) -> SimEntries& { return names_[&directory]; });
  }
  return Clone(clone, *disk_.root_);
}

std::shared_ptr<SimInode> SimDisk::Crash::Clone(SimDisk& clone, const SimInode& inode) {
  if (const auto found = clones_.find(&inode); found != clones_.end()) return found->second;
  auto copy = clone.NewInode(inode.is_directory);
  if (!inode.is_directory) clones_.emplace(&inode, copy);  // Several names stay one file.
  if (inode.is_directory) {
    for (const auto& [name, child] : names_[&inode]) {
      copy->entries.emplace(name, Clone(clone, *child));
    }
    copy->durable_entries = copy->entries;
  } else {
    FillFile(inode, *copy);
  }
  return copy;
}

void SimDisk::Crash::FillFile(const SimInode& inode, SimInode& copy) const {
  CowBytes content = inode.durable_content;
  for (const SimChange& change : inode.changes) {
    const bool durable = change.state == SimChange::State::kDurable;
    const Fate fate = durable ? Fate::kKept : FateOf(change.id);
    if (fate == Fate::kKept) CAIRN_CHECK(change.ApplyTo(content));
    if (fate == Fate::kTorn) ApplyTorn(change, Sectors(change), content);
  }
  copy.durable_content = content;
  copy.Update([&](CowBytes& current) {
    current = content;
    return true;
  });
}

// Copies everything, including changes that are not durable.
class SimDisk::Kill {
 public:
  explicit Kill(SimDisk& clone) : clone_(clone) {}

  std::shared_ptr<SimInode> Copy(const SimInode& inode) {
    auto& copy = copies_[&inode];
    if (copy != nullptr) return copy;
    copy = clone_.NewInode(inode.is_directory);
    const std::shared_ptr<SimInode> made = copy;  // Later steps move the map.
    if (!inode.is_directory) {
      CopyContent(inode, *made);
      return made;
    }
    for (const auto& [name, child] : inode.entries) made->entries.emplace(name, Copy(*child));
    for (const auto& [name, child] : inode.durable_entries) {
      made->durable_entries.emplace(name, Copy(*child));
    }
    for (SimEntryChange change : inode.entry_changes) {
      if (change.removed != nullptr) change.removed = Copy(*change.removed);
      if (change.added != nullptr) change.added = Copy(*change.added);
      if (const auto source = change.removed_from.lock(); source != nullptr) {
        change.removed_from = Copy(*source);
      }
      made->entry_changes.push_back(std::move(change));
    }
    return made;
  }

 private:
  void CopyContent(const SimInode& inode, SimInode& copy) {
    copy.Update([&](CowBytes& content) {
      content = inode.content;
      return true;
    });
    copy.durable_content = inode.durable_content;
    copy.changes = inode.changes;
    for (SimChange& change : copy.changes) {
      if (change.state != SimChange::State::kInFlight) continue;
      change.state = SimChange::State::kCompleted;
      change.completed_at = ++clone_.completions_;
    }
  }

  SimDisk& clone_;
  std::unordered_map<const SimInode*, std::shared_ptr<SimInode>> copies_;
};

size_t SimDisk::unsynced_writes() const { return Crash(*this).size(); }

uint64_t SimDisk::CrashKey(const CrashChoice& choice) const {
  Crash crash(*this);
  crash.Decide(choice);
  return crash.Key();
}

std::unique_ptr<SimDisk> SimDisk::CrashClone(const CrashChoice& choice,
                                             SimScheduler* scheduler) const {
  SimDiskOptions options = options_;
  options.seed ^= choice.seed;
  auto clone = std::make_unique<SimDisk>(options, scheduler);
  Crash crash(*this);
  crash.Decide(choice);
  clone->root_ = crash.Build(*clone);
  return clone;
}

std::unique_ptr<SimDisk> SimDisk::KillClone(SimScheduler* scheduler) const {
  auto clone = std::make_unique<SimDisk>(options_, scheduler);
  clone->next_change_ = next_change_;
  clone->completions_ = completions_;
  clone->root_ = Kill(*clone).Copy(*root_);
  return clone;
}

}  // namespace cairn::io
