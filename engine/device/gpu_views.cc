// SPDX-License-Identifier: Apache-2.0
#include "engine/device/gpu_views.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/core/align.h"
#include "base/core/check.h"
#include "base/core/mutation.h"

namespace cairn::engine {

namespace {

constexpr uint64_t kAlignment = 16;

Status Bad(const GroupView& view, const std::string& what) {
  return Status(StatusCode::kInvalidArgument,
                "kv view: group " + std::to_string(view.group) + ": " + what);
}

uint64_t EntryBytes(const BlockTable& table) { return table.is_64_bit ? 8 : 4; }

// Table indices that positions of the view need.
struct Indices {
  uint64_t first = 0, end = 0;
};
Indices Used(const GroupView& view) {
  if (view.table.kind == TableKind::kNone || view.count == 0) return {};
  const uint64_t per_entry = view.table.kind == TableKind::kBlocks ? view.tokens_per_block : 1;
  const uint64_t begin = view.position - view.table.table_position;
  return {begin / per_entry, (begin + view.count - 1) / per_entry + 1};
}

bool HasTable(const GroupView& view) {
  return view.table.kind != TableKind::kNone && view.count != 0;
}
bool HasDeviceTable(const GroupView& view) { return HasTable(view) && view.table.on_device; }

// All entries are below it: those of a checked table in host memory, or as the caller says of one
// on the device.
uint64_t EntriesEnd(const GroupView& view) {
  const BlockTable& table = view.table;
  if (table.on_device) {
    CAIRN_CHECK(view.blocks != 0);
    return table.kind == TableKind::kSlots ? view.blocks * view.tokens_per_block : view.blocks;
  }
  uint64_t end = 0;
  const Indices used = Used(view);
  for (uint64_t i = used.first; i < used.end; ++i) {
    const auto entry =
        static_cast<uint64_t>(table.is_64_bit ? static_cast<const int64_t*>(table.entries)[i]
                                              : static_cast<const int32_t*>(table.entries)[i]);
    end = std::max(end, entry + 1);
  }
  return end;
}

uint64_t SeenBytes(const GroupView& view) { return (EntriesEnd(view) + 31) / 32 * 4; }

}  // namespace

Result<std::unique_ptr<GpuViews>> GpuViews::Make(const GpuWaits* waits, DeviceStaging* pool,
                                                 const ModelSpec& model, const KvView& view,
                                                 KvUse use,
                                                 const std::function<Status()>& await_ready) {
  std::unique_ptr<GpuViews> views(new GpuViews(waits, pool));
  CAIRN_RETURN_IF_ERROR(views->Fill(model, view));
  if (use == KvUse::kRestore &&
      std::any_of(view.groups.begin(), view.groups.end(), HasDeviceTable)) {
    CAIRN_RETURN_IF_ERROR(await_ready());
    CAIRN_RETURN_IF_ERROR(views->CheckTables(view));
  }
  return views;
}

GpuViews::~GpuViews() {
  if (staged_.bytes != 0) pool_->Return(staged_);
}

// Views first, then the tables, then the memory for checking tables.
Status GpuViews::Fill(const ModelSpec& model, const KvView& view) {
  uint64_t planes = 0, bytes = 0, seen_bytes = 0;
  for (const GroupView& group : view.groups) planes += group.planes.size();
  bytes = AlignUp(planes * sizeof(gpu::PagedView), kAlignment);
  std::vector<uint64_t> table_at;
  for (const GroupView& group : view.groups) {
    table_at.push_back(bytes);
    if (!HasTable(group)) continue;
    if (EntriesEnd(group) > UINT32_MAX) {
      return Bad(group, std::to_string(EntriesEnd(group)) + " blocks; a device counts to " +
                            std::to_string(UINT32_MAX));
    }
    if (group.table.on_device) {
      seen_bytes = std::max(seen_bytes, SeenBytes(group));
    } else {
      bytes += AlignUp(Used(group).end * EntryBytes(group.table), kAlignment);
    }
  }
  check_at_ = bytes;
  CAIRN_ASSIGN_OR_RETURN(staged_, pool_->Take(bytes + sizeof(gpu::TableVerdict) + seen_bytes));
  for (size_t i = 0; i < view.groups.size(); ++i) {
    const GroupView& group = view.groups[i];
    const BlockTable& table = group.table;
    first_.push_back(static_cast<uint32_t>(views_.size()));
    const void* entries = table.entries;
    if (HasTable(group) && !table.on_device) {
      entries = staged_.on_device + table_at[i];
      std::memcpy(staged_.pinned + table_at[i], table.entries, Used(group).end * EntryBytes(table));
    }
    const uint64_t entries_end = HasTable(group) ? EntriesEnd(group) : 0;
    for (size_t plane = 0; plane < group.planes.size(); ++plane) {
      if (group.count == 0) {  // It gets no rows.
        views_.emplace_back();
        continue;
      }
      const Dtype dtype = model.groups[group.group].planes[plane].dtype;
      CAIRN_ASSIGN_OR_RETURN(
          const gpu::PagedView described,
          gpu::DescribePlane(group, group.planes[plane], dtype, entries, entries_end));
      views_.push_back(described);
    }
  }
  std::memcpy(staged_.pinned, views_.data(), views_.size() * sizeof(gpu::PagedView));
  const gpu::CopyPiece piece{staged_.on_device, staged_.pinned, check_at_};
  gpu::Device& device = waits_.device();
  CAIRN_RETURN_IF_ERROR(device.Copy(staged_.stream, {&piece, 1}));
  return device.Record(staged_.stream, staged_.copied);
}

// Only waits for the device's own work, which ends soon.
Status GpuViews::CheckTables(const KvView& view) {
  gpu::Device& device = waits_.device();
  for (const GroupView& group : view.groups) {
    if (!HasDeviceTable(group)) continue;
    std::byte* const verdict_at = staged_.on_device + check_at_;
    const Indices used = Used(group);
    gpu::CheckTable check;
    check.entries = group.table.entries;
    check.verdict = reinterpret_cast<gpu::TableVerdict*>(verdict_at);
    check.seen = reinterpret_cast<uint32_t*>(verdict_at + sizeof(gpu::TableVerdict));
    check.first = static_cast<uint32_t>(used.first);
    check.end = static_cast<uint32_t>(used.end);
    check.entries_end = static_cast<uint32_t>(EntriesEnd(group));
    check.is_64_bit = group.table.is_64_bit;
    std::byte* const told = staged_.pinned + check_at_;
    const gpu::CopyPiece back{told, verdict_at, sizeof(gpu::TableVerdict)};
    CAIRN_RETURN_IF_ERROR(
        device.Fill(staged_.stream, {verdict_at, sizeof(gpu::TableVerdict)}, std::byte{0xff}));
    CAIRN_RETURN_IF_ERROR(device.Fill(
        staged_.stream, {verdict_at + sizeof(gpu::TableVerdict), SeenBytes(group)}, std::byte{0}));
    CAIRN_RETURN_IF_ERROR(device.Launch(staged_.stream, check));
    CAIRN_RETURN_IF_ERROR(device.Copy(staged_.stream, {&back, 1}));
    CAIRN_RETURN_IF_ERROR(device.Record(staged_.stream, staged_.copied));
    if (!CAIRN_KEPT(kGpuTableChecked)) continue;
    CAIRN_RETURN_IF_ERROR(waits_.For(staged_.copied, io::kNoDeadline));
    gpu::TableVerdict verdict;
    std::memcpy(&verdict, told, sizeof verdict);
    if (verdict.outside != gpu::TableVerdict::kFine) {
      return Bad(group, "table entry " + std::to_string(verdict.outside) + ", on the device, is " +
                            "not below " + std::to_string(check.entries_end));
    }
    if (verdict.twice != gpu::TableVerdict::kFine) {
      return Bad(group,
                 "the table on the device names entry " + std::to_string(verdict.twice) + " twice");
    }
  }
  return Status::Ok();
}

}  // namespace cairn::engine
