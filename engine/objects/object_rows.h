// SPDX-License-Identifier: Apache-2.0
//
// The bytes of an object as rows of its class, where the caller has them: what appends gather from
// and restores write to. Each row has a token id, which is how many of its bytes are used. A last
// row that the caller's memory does not hold whole lies beside it.
//
// An object of 0 bytes is one row that uses none, and has no KV.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/branch.h"

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

  // Of what is put: the ids, and the last row. Once.
  void TakeBytes();
  // Of what came: the last row goes where the caller has room for it.
  void GiveBytes();
  // The bytes that the ids speak of; nothing: no put has made such ids.
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
  std::byte* PlaceLastRow();  // The base of the view.

  const std::span<std::byte> memory_;
  const uint32_t page_bytes_;
  std::vector<TokenId> ids_;
  // The last row, if it is not whole, and a table that tells where each lies.
  std::span<std::byte> rest_{};  // Of memory_.
  std::unique_ptr<std::byte[]> room_{};
  std::byte* last_row_ = nullptr;
  std::vector<int64_t> slots_{};
  std::byte* base_ = nullptr;
  PlaneView plane_{};
  GroupView group_{};
  KvView view_{};
};

}  // namespace cairn::engine
