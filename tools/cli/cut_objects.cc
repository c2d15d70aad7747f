// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/cut_objects.h"

#include <algorithm>

#include "engine/objects/object_names.h"
#include "engine/tree/memory/op.h"
#include "engine/tree/memory/reserved_names.h"

namespace cairn::cli {

void CutObjects::Add(const wal::RecordView& view) {
  const auto ops = engine::DecodeRecord(view);
  if (!ops.ok()) return;
  for (const engine::Op& op : *ops) {
    if (op.kind == engine::OpKind::kCreate && engine::IsReserved(op.ns)) {
      puts_[op.branch] = {.space = op.ns, .object = {}};
    }
    if (op.kind == engine::OpKind::kCreate || op.kind == engine::OpKind::kRename) {
      Name(op.branch, op.name, view.sequence);
    }
    if (op.kind == engine::OpKind::kDrop) puts_.erase(op.branch);
  }
}

void CutObjects::Name(uint64_t branch, const std::string& name, uint64_t sequence) {
  const auto put = puts_.find(branch);
  if (put == puts_.end() || name.empty()) return;
  engine::KeyCapacity room;
  const auto key = engine::KeyOfName(name, &room);
  if (sequence <= last_kept_ || !key.has_value()) {
    puts_.erase(put);
    return;
  }
  put->second.object = {.ns = std::string(engine::CallersName(put->second.space)),
                        .key = std::string(*key),
                        .sequence = sequence};
}

std::vector<CutObject> CutObjects::List() const {
  std::vector<CutObject> objects;
  for (const auto& [branch, put] : puts_) {
    if (put.object.has_value()) objects.push_back(*put.object);
  }
  std::ranges::sort(objects, {}, &CutObject::sequence);
  return objects;
}

}  // namespace cairn::cli
