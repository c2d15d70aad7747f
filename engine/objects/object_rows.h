// SPDX-License-Identifier: Apache-2.0
//
// The bytes of an object as rows of its class, in the caller's memory: appends gather from them and
// restores write to them. Each row has a token id: how many of its bytes are used. A last row that
// does not fit into the caller's memory has memory of its own.
//
// An object of 0 bytes is one row that uses none, and has no KV.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/branch_types.h"

namespace cairn::engine {

class ObjectRows {
 public:
  // `memory` outlives this. REQUIRES: it is 1 GiB at most.
  ObjectRows(std::span<std::byte> memory, uint32_t page_bytes);
  ObjectRows(const ObjectRows&) = delete;
  ObjectRows& operator=(const ObjectRows&) = delete;

  static uint64_t RowsOf(uint64_t bytes, uint32_t page_bytes) {
    return bytes == 0 ? 1 : (bytes + page_bytes - 1) / page_bytes;
  }

  // For a put: sets the ids, and the last row. Once.
  void TakeBytes();
  // For a get: copies the last row into the caller's memory.
  void GiveBytes();
  // The size according to the ids; nothing: no put makes such ids.
  std::optional<uint64_t> bytes() const;

  std::span<TokenId> ids() { return ids_; }
  const KvView* view() const { return memory_.empty() ? nullptr : &view_; }
  Delta delta() const {
    Delta delta;
    delta.tokens = ids_;
    delta.kv = view();
    return delta;
  }

 private:
  std::byte* PlaceLastRow();  // Returns the base of the view.

  const std::span<std::byte> memory_;
  const uint32_t page_bytes_;
  std::vector<TokenId> ids_;
  // The last row, if it is not whole, and a table of where each row lies.
  std::span<std::byte> rest_{};  // The end of memory_.
  std::unique_ptr<std::byte[]> room_{};
  std::byte* last_row_ = nullptr;
  std::vector<int64_t> slots_{};
  std::byte* base_ = nullptr;
  PlaneView plane_{};
  GroupView group_{};
  KvView view_{};
};

}  // namespace cairn::engine
