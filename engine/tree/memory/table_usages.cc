// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/table_usages.h"

#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"

namespace cairn::engine {

void TableUsages::Count(const Place& place, uint64_t count, int sign) {
  if (!place.in_table()) return;
  if (!CAIRN_KEPT(kLiveBytes) && sign < 0) return;
  const auto found = tables_.find(place.table);
  if (found == tables_.end()) return;  // Forgotten, since the index said that nothing needs it.
  TableUsage& use = found->second;
  const uint64_t bytes = place.Share(count);
  if (sign < 0 && use.live_bytes < bytes) {  // Reading the index cannot reveal that.
    use.lied = true;
    use.live_bytes = std::min<uint64_t>(use.live_bytes, 1);  // A dead table stays dead.
  } else {
    use.live_bytes += sign > 0 ? bytes : -bytes;
  }
  if (sign < 0) died_bytes_ += bytes;
  use.dirty = true;
}

void TableUsages::Name(const TableRef& table, uint64_t stored_bytes) {
  TableUsage& use = tables_.try_emplace(table.number, TableUsage{table.bytes, 0, 0}).first->second;
  use.sealed_bytes += stored_bytes;
  use.dirty = true;
}

void TableUsages::Unname(uint64_t number, uint64_t stored_bytes, bool was_new) {
  const auto named = tables_.find(number);
  if (named == tables_.end()) return;
  named->second.sealed_bytes -= stored_bytes;
  if (was_new) tables_.erase(named);
}

void TableUsages::Forget(uint64_t number) {
  const auto it = tables_.find(number);
  CAIRN_CHECK(it != tables_.end() && it->second.live_bytes == 0);
  tables_.erase(it);
}

void TableUsages::AddJoined(std::span<const Joined> joined) {
  joined_.insert(joined_.end(), joined.begin(), joined.end());
}

void TableUsages::MarkFlushed() {
  for (auto& [number, table] : tables_) table.dirty = false;
  joined_.clear();
}

}  // namespace cairn::engine
