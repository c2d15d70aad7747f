// SPDX-License-Identifier: Apache-2.0
//
// Describes KV memory where it lies; nothing is copied to a shape of ours first.
//
// The bytes of element e of head h of position p, in layer l of a plane, are at
//
//   layer_bases[l] + block(p) * block_stride + slot(p) * token_stride + h * head_stride
//                  + e * element_stride
//
// where block(p) and slot(p) come from the block table:
//   no table:          i = p - position; block = i / tokens_per_block,
//                      slot = i % tokens_per_block (tokens_per_block 0: one endless block)
//   table of blocks:   i = p - table_position; block = table[i / tokens_per_block],
//                      slot = i % tokens_per_block
//   table of slots:    s = table[p - table_position]; block = s / tokens_per_block,
//                      slot = s % tokens_per_block
//
// This covers vLLM's NHD, HND, fused and MLA caches, SGLang's token pools, FlashInfer's pages and
// plain tensors. The layout is the caller's word; it cannot be inferred from a shape.
//
// An example: positions 32 to 79 of a sequence in a cache of 4096 blocks of 16 tokens, one tensor
// per layer, [2][4096][16][8 heads][128] bf16 (vLLM's NHD), blocks 7, 3 and 12. A row has 256
// bytes, a token 2048, a block 32 KiB, and V begins 128 MiB behind K:
//
//   std::vector<std::byte*> k, v;                        // One base a layer.
//   for (std::byte* tensor : tensors) {
//     k.push_back(tensor);
//     v.push_back(tensor + (uint64_t{4096} * 16 * 2048));
//   }
//   const PlaneView planes[] = {
//       {.layer_bases = k, .block_stride = 32768, .token_stride = 2048, .head_stride = 256},
//       {.layer_bases = v, .block_stride = 32768, .token_stride = 2048, .head_stride = 256}};
//   const int32_t table[] = {7, 3, 12};                  // Positions 32.., 48.., 64...
//   const GroupView groups[] = {{.group = 0, .position = 32, .count = 48,
//                                .tokens_per_block = 16, .blocks = 4096,
//                                .table = {.kind = TableKind::kBlocks, .entries = table,
//                                          .count = 3, .table_position = 32},
//                                .planes = planes}};
//   const KvView view{.groups = groups};
//
// OwnedKvView (cairn/kv_buffer.h) makes the same of the name of the layout.
//
// A view is a description only: it owns neither memory nor its own arrays (spans), which must live
// as long as the call, or the ticket of a borrowed append, says. The library writes to the memory
// of a view in restores alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/model.h"

namespace [[gnu::visibility("default")]] cairn {

// The meaning of a table's entries.
enum class TableKind : uint8_t { kNone, kBlocks, kSlots };

// Where the memory that a view names lies. Restores may go to a device that the store was given
// (Options::gpus), and appends, fills and drafts come from one; batches take host memory.
enum class MemoryKind : uint8_t {
  kHost = 0,
  kCuda = 1,
};
// "host", "cuda"; "unknown" for another value. The text is static.
const char* MemoryKindName(MemoryKind kind);

// Where the positions of a view lie among the blocks. Entries are not negative; those of a restore
// name no place twice.
struct BlockTable {
  TableKind kind = TableKind::kNone;
  const void* entries = nullptr;  // int32 or int64, in the order of positions.
  // `entries` lie in the view's device memory, and `blocks` bounds them; of slots, tokens_per_block
  // is not 0 then. False: in host memory.
  bool on_device = false;
  uint64_t count = 0;           // Entries.
  bool is_64_bit = false;       // int64 entries instead of int32.
  uint64_t table_position = 0;  // Position of the first entry's first token.
};

// One plane of a group (K, V, ...). All strides in bytes; they may be any sign.
struct PlaneView {
  std::span<std::byte* const> layer_bases{};  // One per layer; appends only read from them.
  int64_t block_stride = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
  int64_t element_stride = 0;  // 0: elements are adjacent.
};

// Positions [position, position + count) of one layer group. A count of 0 describes nothing.
struct GroupView {
  uint32_t group = 0;             // Index in ModelSpec::groups.
  uint32_t layer_begin = 0;       // First layer described; appends describe all.
  uint64_t position = 0;          // First position that the view describes.
  uint64_t count = 0;             // How many.
  uint32_t tokens_per_block = 0;  // 0: there are no blocks.
  // The number of blocks behind each layer base: a table's entries lie below it. 0: not said, and
  // not checked.
  uint64_t blocks = 0;
  BlockTable table{};
  std::span<const PlaneView> planes{};  // In the order of LayerGroup::planes.
};

// KV of some or all groups of a model.
struct KvView {
  // Those present. A group at most twice, the lower positions first, with none in both: sinks and
  // the window behind them. A group of states (Retention::kCheckpoint, kPerRequest) once.
  std::span<const GroupView> groups{};
  MemoryKind memory = MemoryKind::kHost;  // Where all layer bases point.
  uint32_t device = 0;                    // Its ordinal; of host memory 0.
};

// kAppend: the memory is read, and all layers are described. kRestore: it is written.
enum class KvUse : uint8_t { kAppend, kRestore };

// Checks the description against the model, once: groups and planes exist, every layer has a base,
// strides do not make rows overlap, tables cover the positions and hold no negative entry, nor one
// beyond `blocks`; for kRestore, which writes, also that no table names an entry twice and no two
// layers next to each other have one base; for kAppend that all layers are described. Whether
// planes or layers overlap otherwise is not looked at. Nor is what a table on a device holds: a
// restore checks it there, an append as it reads. Every call that takes a view does this first.
//
// kInvalidArgument naming group, plane and field. Reads the arrays and tables in host memory, no KV
// memory. Needs no store, and does not block. May throw std::bad_alloc.
Status ValidateKvView(const ModelSpec& model, const KvView& view, KvUse use);

}  // namespace cairn
