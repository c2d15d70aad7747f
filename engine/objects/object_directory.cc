// SPDX-License-Identifier: Apache-2.0
#include "engine/objects/object_directory.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/codec/hash.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "engine/objects/object_names.h"
#include "engine/tree/memory/reserved_names.h"

namespace cairn::engine {

namespace {

size_t Next(size_t i, size_t slots) { return i + 1 == slots ? 0 : i + 1; }

}  // namespace

// ---------------------------------------------------------------- hashes

uint64_t ObjectDirectory::SeedOf(std::string_view ns) const {
  return SealHash(Hash(std::as_bytes(std::span(ns))), seed_.load(std::memory_order_relaxed));
}

uint64_t ObjectDirectory::HashOf(std::string_view key, uint64_t ns_seed) {
  return SealHash(Hash(std::as_bytes(std::span(key))), ns_seed);
}

// False: it is no object, or has no name yet.
bool ObjectDirectory::HashOf(const Head& head, uint64_t* hash) const {
  KeyCapacity room;
  if (!IsReserved(head.ns)) return false;
  const auto key = KeyOfName(head.name, &room);
  if (!key.has_value()) return false;
  *hash = HashOf(*key, SeedOf(CallersName(head.ns)));
  return true;
}

// ---------------------------------------------------------------- places

size_t ObjectDirectory::FindLocked(uint64_t hash, uint64_t branch) const {
  const std::vector<Entry>& slots = shards_[ShardOf(hash)].slots;
  if (slots.empty()) return SIZE_MAX;
  for (size_t i = HomeOf(hash, slots.size()); slots[i].branch != 0; i = Next(i, slots.size())) {
    const bool same = branch == 0 || (slots[i].branch & ~kTouched) == branch;
    if (slots[i].hash == hash && same) return i;
  }
  return SIZE_MAX;
}

void ObjectDirectory::InsertLocked(uint64_t hash, uint64_t branch) {
  if (FindLocked(hash, branch) != SIZE_MAX) return;
  Shard& shard = shards_[ShardOf(hash)];
  if ((shard.used + 1) * kShardFullDenominator > shard.slots.size() * kShardFullNumerator &&
      !GrowLocked(&shard)) {
    ++left_out_;
    if (shard.used == 0) return;
    EraseLocked(&shard, VictimOf(&shard));
  }
  size_t i = HomeOf(hash, shard.slots.size());
  while (shard.slots[i].branch != 0) i = Next(i, shard.slots.size());
  shard.slots[i] = {hash, branch};
  ++shard.used;
  ++entries_;
}

bool ObjectDirectory::GrowLocked(Shard* shard) {
  const size_t slots = std::max(kShardSlotsMin, shard->slots.size() + shard->slots.size() / 2);
  const uint64_t more = (slots - shard->slots.size()) * sizeof(Entry);
  if (bytes_ + more > bytes_max_) return false;
  std::vector<Entry> grown;
  const Status made = CatchBadAlloc([&] { grown.resize(slots); });
  if (!made.ok()) return false;
  for (const Entry& entry : shard->slots) {
    if (entry.branch == 0) continue;
    size_t i = HomeOf(entry.hash, slots);
    while (grown[i].branch != 0) i = Next(i, slots);
    grown[i] = entry;
  }
  shard->slots.swap(grown);
  bytes_ += more;
  budget_.Take(more);
  return true;
}

size_t ObjectDirectory::VictimOf(Shard* shard) {
  const std::vector<Entry>& slots = shard->slots;
  size_t victim = SIZE_MAX;
  for (int looked = 0; looked < kVictimsLookedAt; shard->hand = Next(shard->hand, slots.size())) {
    if (slots[shard->hand].branch == 0) continue;
    ++looked;
    if (victim == SIZE_MAX) victim = shard->hand;
    if ((slots[shard->hand].branch & kTouched) == 0) return shard->hand;
  }
  return victim;
}

// Moves up later entries that would not be found across the gap.
void ObjectDirectory::EraseLocked(Shard* shard, size_t at) {
  std::vector<Entry>& slots = shard->slots;
  size_t gap = at;
  for (size_t i = Next(gap, slots.size()); slots[i].branch != 0; i = Next(i, slots.size())) {
    const size_t home = HomeOf(slots[i].hash, slots.size());
    const bool stays = gap < i ? home > gap && home <= i : home > gap || home <= i;
    if (stays) continue;
    slots[gap] = slots[i];
    gap = i;
  }
  slots[gap] = {};
  --shard->used;
  --entries_;
}

// ---------------------------------------------------------------- filling

void ObjectDirectory::BeginFill(uint64_t seed) {
  const MutexLock lock(&mutex_);
  seed_.store(seed, std::memory_order_relaxed);
  state_ = State::kFilling;
}

void ObjectDirectory::Insert(const Head& head) {
  uint64_t hash = 0;
  if (!IsWhole(head) || !HashOf(head, &hash)) return;
  const MutexLock lock(&mutex_);
  if (state_ != State::kFilling) return;
  if (CAIRN_KEPT(kObjectDropped) && dropped_.contains(head.id)) return;
  InsertLocked(hash, head.id);
}

void ObjectDirectory::EndFill(bool all) {
  const MutexLock lock(&mutex_);
  if (state_ == State::kFilling) EndFillLocked(all);
}

void ObjectDirectory::EndFillLocked(bool all) {
  state_ = State::kFilled;
  unread_ = !all;
  dropped_ = {};
}

void ObjectDirectory::Close() {
  const MutexLock lock(&mutex_);
  CloseLocked();
}

void ObjectDirectory::CloseLocked() {
  state_ = State::kClosed;
  for (Shard& shard : shards_) shard = {};
  dropped_ = {};
  entries_ = 0;
  left_out_ = 0;
  budget_.Return(std::exchange(bytes_, 0));
}

// ---------------------------------------------------------------- asking

void ObjectDirectory::Look(std::string_view ns, std::span<const std::string_view> keys,
                           std::span<Answer> answers) const {
  const uint64_t ns_seed = SeedOf(ns);
  std::array<uint64_t, kKeysAtOnce> hashes;
  for (size_t first = 0; first < keys.size(); first += kKeysAtOnce) {
    const size_t count = std::min(kKeysAtOnce, keys.size() - first);
    for (size_t i = 0; i < count; ++i) hashes[i] = HashOf(keys[first + i], ns_seed);
    const MutexLock lock(&mutex_);
    for (size_t i = 0; i < count; ++i) {
      const std::vector<Entry>& slots = shards_[ShardOf(hashes[i])].slots;
      __builtin_prefetch(slots.data() + HomeOf(hashes[i], slots.size()));
    }
    const bool all = KnowsAllLocked();
    for (size_t i = 0; i < count; ++i) {
      const bool there = FindLocked(hashes[i], 0) != SIZE_MAX;
      answers[first + i] = there ? Answer::kPresent : all ? Answer::kAbsent : Answer::kUnknown;
    }
  }
}

void ObjectDirectory::Touch(std::string_view ns, std::span<const std::string_view> keys) {
  const uint64_t ns_seed = SeedOf(ns);
  for (const std::string_view key : keys) {
    const uint64_t hash = HashOf(key, ns_seed);
    const MutexLock lock(&mutex_);
    const size_t found = FindLocked(hash, 0);
    if (found != SIZE_MAX) shards_[ShardOf(hash)].slots[found].branch |= kTouched;
  }
}

bool ObjectDirectory::TakeTouched(const Head& head) {
  uint64_t hash = 0;
  if (!HashOf(head, &hash)) return false;
  const MutexLock lock(&mutex_);
  const size_t found = FindLocked(hash, head.id);
  if (found == SIZE_MAX) return false;
  uint64_t& branch = shards_[ShardOf(hash)].slots[found].branch;
  const bool touched = (branch & kTouched) != 0;
  branch &= ~kTouched;
  return touched;
}

ObjectDirectory::Figures ObjectDirectory::figures() const {
  const MutexLock lock(&mutex_);
  return {entries_, bytes_, KnowsAllLocked()};
}

// ---------------------------------------------------------------- what is committed

void ObjectDirectory::OnCommitted(const CommittedOp& op) noexcept {
  // Most ops are about other things, and should cost nothing here. All ops of the record are
  // applied.
  const OpKind kind = op.op.kind;
  const bool comes = (kind == OpKind::kCreate && IsReserved(op.op.ns)) || kind == OpKind::kRename;
  if (!comes && kind != OpKind::kDrop && kind != OpKind::kEvict) return;
  const Head* const head = tree_.residency().HeadOrGone(op.op.branch);
  if (head == nullptr) return;
  if (comes) {
    Add(*head);
  } else {
    Remove(*head, kind == OpKind::kDrop);
  }
}

void ObjectDirectory::Add(const Head& head) {
  uint64_t hash = 0;
  if (!IsWhole(head) || !HashOf(head, &hash)) return;
  const MutexLock lock(&mutex_);
  if (state_ == State::kClosed) return;
  if (!head.gone) return InsertLocked(hash, head.id);
  if (state_ == State::kFilled) ++left_out_;  // A later op drops it, and decrements.
}

void ObjectDirectory::Remove(const Head& head, bool dropped) {
  uint64_t hash = 0;
  if (!HashOf(head, &hash)) return;
  const Head* next = nullptr;  // The present holder of the key.
  const Status looked = CatchBadAlloc([&] { next = tree_.FindHead(head.ns, head.name); });
  const MutexLock lock(&mutex_);
  if (!looked.ok()) return CloseLocked();
  const size_t found = FindLocked(hash, head.id);
  Shard& shard = shards_[ShardOf(hash)];
  // Exists does not take the commit lock, so the object must stay visible between the ops of a
  // record that replaces it.
  if (found != SIZE_MAX && next != nullptr && IsWhole(*next)) {
    shard.slots[found].branch = next->id;
  } else if (found != SIZE_MAX) {
    EraseLocked(&shard, found);
  } else if (state_ == State::kFilled && dropped && IsWhole(head) && left_out_ != 0) {
    --left_out_;
  }
  if (state_ != State::kFilling) return;
  // If there is no memory for that the truth is unknown, so the directory does not claim to be
  // complete.
  const Status noted = CatchBadAlloc([&] {
    mutex_.AssertHeld();
    dropped_.insert(head.id);
  });
  if (!noted.ok()) return CloseLocked();
  if (dropped_.size() == kDroppedWhileFilledMax) EndFillLocked(false);
}

}  // namespace cairn::engine
