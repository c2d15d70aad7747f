// SPDX-License-Identifier: Apache-2.0
//
// Descriptions of KV memory: any is accepted or refused, and one that a restore accepts has no two
// elements in one place (so far as the view is small enough to try).
#include <set>
#include <vector>

#include "base/core/check.h"
#include "cairn/kv_view.h"
#include "fuzz/input.h"

using namespace cairn;

namespace {

// Where the element of a view lies, from the base of its layer.
int64_t OffsetOf(const GroupView& view, const PlaneView& plane, uint64_t position, uint32_t head,
                 uint64_t element, int64_t element_stride) {
  uint64_t block = 0, slot = 0;
  if (view.table.kind == TableKind::kNone) {
    const uint64_t at = position - view.position;
    block = view.tokens_per_block == 0 ? 0 : at / view.tokens_per_block;
    slot = view.tokens_per_block == 0 ? at : at % view.tokens_per_block;
  } else {
    const auto* entries = static_cast<const int32_t*>(view.table.entries);
    const uint64_t at = position - view.table.table_position;
    if (view.table.kind == TableKind::kBlocks) {
      block = static_cast<uint64_t>(entries[at / view.tokens_per_block]);
      slot = at % view.tokens_per_block;
    } else {
      const auto entry = static_cast<uint64_t>(entries[at]);
      block = view.tokens_per_block == 0 ? 0 : entry / view.tokens_per_block;
      slot = view.tokens_per_block == 0 ? entry : entry % view.tokens_per_block;
    }
  }
  return static_cast<int64_t>(block) * plane.block_stride +
         static_cast<int64_t>(slot) * plane.token_stride + int64_t{head} * plane.head_stride +
         static_cast<int64_t>(element) * element_stride;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::Input input(data, bytes);
  const uint32_t heads = 1 + input.Take<uint8_t>() % 3u, dim = 1 + input.Take<uint8_t>() % 4u;
  ModelSpec model;
  model.identity.name = "fuzz";
  model.groups.push_back(LayerGroup::FullAttention(1, heads, dim, Dtype::kBf16));
  std::vector<int32_t> entries(input.Take<uint8_t>() % 12u);
  for (int32_t& entry : entries) entry = input.Take<int8_t>();
  // Bases that nobody follows.
  std::byte base[2];
  std::vector<std::vector<std::byte*>> bases = {{&base[0]}, {&base[1]}};
  std::vector<PlaneView> planes(2);
  for (size_t i = 0; i < planes.size(); ++i) {
    planes[i] = {.layer_bases = bases[i],
                 .block_stride = input.Take<int16_t>(),
                 .token_stride = input.Take<int16_t>(),
                 .head_stride = input.Take<int16_t>(),
                 .element_stride = input.Take<int8_t>()};
  }
  GroupView group{.group = input.Take<uint8_t>() % 2u,
                  .layer_begin = input.Take<uint8_t>() % 2u,
                  .position = input.Take<uint8_t>(),
                  .count = input.Take<uint8_t>() % 16u,
                  .tokens_per_block = input.Take<uint8_t>() % 8u,
                  .table = {.kind = static_cast<TableKind>(input.Take<uint8_t>() % 4),
                            .entries = entries.empty() ? nullptr : entries.data(),
                            .count = entries.size(),
                            .table_position = input.Take<uint8_t>()},
                  .planes = planes};
  KvView view{.groups = {&group, 1}};
  group.blocks = input.Take<uint8_t>() % 8u;
  group.table.on_device = input.Take<uint8_t>() % 8u == 7;
  view.memory = static_cast<MemoryKind>(input.Take<uint8_t>() % 8u / 6u);
  view.device = input.Take<uint8_t>() % 8u / 7u;
  static_cast<void>(ValidateKvView(model, view, KvUse::kAppend));
  if (!ValidateKvView(model, view, KvUse::kRestore).ok()) return 0;
  CAIRN_CHECK(view.memory == MemoryKind::kCuda || (view.device == 0 && !group.table.on_device));
  if (group.table.on_device) return 0;  // Its entries are checked on the device.
  for (const PlaneView& plane : planes) {
    const int64_t stride = plane.element_stride == 0 ? 2 : plane.element_stride;
    std::set<int64_t> taken;
    for (uint64_t i = 0; i < group.count; ++i) {
      for (uint32_t head = 0; head < heads; ++head) {
        for (uint64_t element = 0; element < dim; ++element) {
          const int64_t at = OffsetOf(group, plane, group.position + i, head, element, stride);
          CAIRN_CHECK(taken.insert(at).second && taken.insert(at + 1).second);
        }
      }
    }
  }
  return 0;
}
