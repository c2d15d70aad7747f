// SPDX-License-Identifier: Apache-2.0
#include "sim/inode.h"

#include <algorithm>

#include "base/core/check.h"

namespace cairn::io {

bool SimChange::ApplyTo(CowBytes& content) const {
  switch (kind) {
    case Kind::kWrite: return content.Write(offset, *image);
    case Kind::kTruncate: return content.Resize(bytes);
    case Kind::kAllocate: return content.Allocate(bytes);
  }
  return false;
}

SimChange* SimInode::FindChange(uint64_t id) {
  const auto found = std::lower_bound(changes.begin(), changes.end(), id,
                                      [](const SimChange& c, uint64_t i) { return c.id < i; });
  return found != changes.end() && found->id == id ? &*found : nullptr;
}

void SimInode::SettleChanges() {
  while (!changes.empty() && changes.front().state == SimChange::State::kDurable) {
    CAIRN_CHECK(changes.front().ApplyTo(durable_content));
    changes.pop_front();
  }
}

void SimInode::SettleEntryChanges(uint64_t before) {
  while (!entry_changes.empty() && entry_changes.front().durable &&
         entry_changes.front().id < before) {
    const SimEntryChange& change = entry_changes.front();
    // The medium's journal has one order: earlier changes of the source directory come along.
    const auto source = change.removed_from.lock();
    const bool elsewhere = source != nullptr && source.get() != this;
    if (elsewhere) {
      for (SimEntryChange& older : source->entry_changes) {
        if (older.id < change.id) older.durable = true;
      }
      source->SettleEntryChanges(change.id);
    }
    ApplyEntryChange(change, *this,
                     [](SimInode& directory) -> SimEntries& { return directory.durable_entries; });
    entry_changes.pop_front();
    if (elsewhere) source->SettleEntryChanges(before);  // Those that waited for these.
  }
}

}  // namespace cairn::io
