// SPDX-License-Identifier: Apache-2.0
//
// Views of KV that own what they point at. An OwnedKvView has its arrays, so that a function can
// return it, and is made of the tensors that an engine has; a KvBuffer has the memory as well.
//
//   KvBuffer kv(spec, 512);                                      // Rows of positions [0, 512).
//   chat.AppendSync({.tokens = ids, .kv = kv.view()});
//
//   auto paged = OwnedKvView::Make(spec, {{.layout = TensorLayout::kVllmNhd,
//                                          .tensors = layer_pools,
//                                          .blocks = 4096,
//                                          .tokens_per_block = 16,
//                                          .count = ids.size(),
//                                          .table = {.kind = TableKind::kBlocks,
//                                                    .entries = block_ids.data(),
//                                                    .count = block_ids.size()}}},
//                                  KvUse::kAppend);
//   chat.AppendSync({.tokens = ids, .kv = *paged});
//
// Neither needs a store, takes a lock or does I/O. Neither is thread-safe; both may be moved, and
// what view() gave stays valid then. Where memory is short both throw std::bad_alloc, as
// std::vector does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "cairn/kv_view.h"
#include "cairn/model.h"

namespace [[gnu::visibility("default")]] cairn {

// How one layer's tensors lie, dense, the last index fastest. Blocks are the first index where
// there are blocks (GroupTensors::blocks); then a tensor has tokens_per_block tokens in each.
//
// One tensor for each layer and plane: `tensors` has layer 0's planes in their order, then layer
// 1's, as K0, V0, K1, V1, ...
//   kTokenMajor  [block][token][head][row]     SGLang's pools, FlashInfer's (K, V) pairs in NHD,
//                                              latent caches
//   kHeadMajor   [block][head][token][row]     transformers' caches of one sequence, HND pairs
//   kLlamaCpp    [token][head][row], but value planes [head][element][token]: llama.cpp without
//                flash attention. No blocks.
// One tensor for each layer, which holds all its planes; they must have the same heads and rows:
//   kVllmNhd        [plane][block][token][head][row]
//   kVllmHnd        [plane][block][head][token][row]
//   kFlashInferNhd  [block][plane][token][head][row]
//   kFlashInferHnd  [block][plane][head][token][row]
enum class TensorLayout : uint8_t {
  kTokenMajor,
  kHeadMajor,
  kLlamaCpp,
  kVllmNhd,
  kVllmHnd,
  kFlashInferNhd,
  kFlashInferHnd,
};
// "token_major", "vllm_nhd", ...; "unknown" for another value. The text is static.
const char* TensorLayoutName(TensorLayout layout);

// The tensors of one layer group, and what of them is described. A description only: it owns
// nothing, and Make copies it.
struct GroupTensors {
  uint32_t group = 0;  // Index in ModelSpec::groups.
  TensorLayout layout = TensorLayout::kTokenMajor;
  // First bytes; not null. As many as the layout says, of all layers or of some.
  std::span<std::byte* const> tensors{};
  // The first layer that there are tensors of; appends need all.
  uint32_t layer_begin = 0;
  // The size of each tensor: `blocks` blocks of tokens_per_block tokens or, with tokens_per_block
  // 0, `tokens` tokens. Just one of `blocks` and `tokens` is given.
  uint64_t blocks = 0;
  uint32_t tokens_per_block = 0;
  uint64_t tokens = 0;
  // Positions [position, position + count). Without a table they lie in a row from token
  // `first_token` of the tensors on: a multiple of tokens_per_block where there are blocks.
  uint64_t position = 0, count = 0;
  uint64_t first_token = 0;
  BlockTable table{};  // With one, first_token is 0.
};

// A KvView with all its arrays and its tables of host memory. The tensors stay the caller's.
class OwnedKvView {
 public:
  OwnedKvView();  // Has no groups.
  OwnedKvView(OwnedKvView&&) noexcept;
  OwnedKvView& operator=(OwnedKvView&&) noexcept;
  ~OwnedKvView();

  // Copies every array, and tables in host memory; the tensors stay where they are and must live as
  // long as the call that is given the view says. `memory` and `device` as in KvView. The view
  // itself must live as long: an asynchronous call that borrows reads its arrays until its ticket
  // is released.
  //
  // kInvalidArgument naming group and field: as ValidateKvView, or the wrong number of tensors,
  // positions beyond their end, or planes that cannot share one.
  static Result<OwnedKvView> Make(const ModelSpec& model, std::span<const GroupTensors> groups,
                                  KvUse use, MemoryKind memory = MemoryKind::kHost,
                                  uint32_t device = 0);
  static Result<OwnedKvView> Make(const ModelSpec& model,
                                  std::initializer_list<GroupTensors> groups, KvUse use,
                                  MemoryKind memory = MemoryKind::kHost, uint32_t device = 0) {
    return Make(model, std::span(groups.begin(), groups.size()), use, memory, device);
  }

  // Never null; lives as long as what it owns, wherever that is moved.
  const KvView* view() const;
  operator const KvView*() const { return view(); }  // NOLINT: what calls take.

 private:
  struct Arrays;
  std::unique_ptr<Arrays> arrays_;
};

// Host memory for what a branch of `tokens` tokens has of a model: of every layer group the rows of
// positions [0, tokens), [layer][plane][head][position][row]; of a recurrent state its row after
// all of them; of an encoder's output row 0. All zeros at first. Groups follow each other in
// `bytes`, in the order of the model.
class KvBuffer {
 public:
  // REQUIRES: model.Validate() is Ok, else the process ends.
  KvBuffer(const ModelSpec& model, uint64_t tokens);

  // All of it: what an append to an empty branch takes, and a restore of all its tokens.
  const KvView* view() const { return all_; }
  // The rows of positions [begin, end) alone. Of a state its row, if it lies there. The memory
  // stays the buffer's, which must outlive the view. REQUIRES: begin <= end <= tokens().
  OwnedKvView View(uint64_t begin, uint64_t end) const;

  uint64_t tokens() const { return tokens_; }
  // All of its memory; lives as long as the buffer, wherever that is moved.
  std::span<std::byte> bytes() { return bytes_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  // One head's row of one position, row_bytes long. REQUIRES: there is one, else the process ends.
  std::span<std::byte> Row(uint32_t group, uint32_t layer, uint32_t plane, uint32_t head,
                           uint64_t position);
  // Whether both hold the same bytes, of the same model.
  bool operator==(const KvBuffer& other) const {
    return model_ == other.model_ && tokens_ == other.tokens_ && bytes_ == other.bytes_;
  }

 private:
  struct Part {  // The rows of a group.
    uint64_t position = 0, count = 0;
    std::vector<std::byte*> tensors;
  };

  ModelSpec model_;
  uint64_t tokens_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<Part> parts_;
  OwnedKvView all_;
};

}  // namespace cairn
