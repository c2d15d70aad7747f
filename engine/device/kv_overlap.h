// SPDX-License-Identifier: Apache-2.0
//
// What two models hold of one logical model: pairs of layer groups, with the heads and layers in
// common; and, for the views of a copy, the same rows as two views of one shape.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "cairn/kv_view.h"
#include "cairn/model.h"

namespace cairn::engine {

// A plane of a pair of groups. Both models have heads of `shape`, from these on; where a row has
// parts (Plane::state_parts), a part counts as a head.
struct PlanePair {
  Plane shape{};
  uint32_t from_head = 0, to_head = 0;
  bool of_parts = false;
};

struct GroupPair {
  uint32_t from = 0, to = 0;              // Indices in the models.
  uint32_t from_layer = 0, to_layer = 0;  // The logical layers of their first ones.
  std::vector<PlanePair> planes{};
};

class KvOverlap {
 public:
  // kInvalidArgument: a model. kModelMismatch naming what differs.
  static Result<KvOverlap> Make(const ModelSpec& from, const ModelSpec& to);
  // Null: the other model holds nothing of it.
  const GroupPair* PairOf(uint32_t from_group) const;

 private:
  std::vector<GroupPair> pairs_;
};

// A copy, as views of the rows that are copied: group i of `from` and of `to` is group i of
// `model`, and its positions [begin, begin + count) are copied. Points into itself, and into the
// tables of the views that it was made of; must not move.
class KvCut {
 public:
  struct Piece {
    uint64_t begin = 0, count = 0;
  };
  KvCut() = default;
  KvCut(const KvCut&) = delete;
  KvCut& operator=(const KvCut&) = delete;

  // The views are valid. kInvalidArgument: `to` lacks a position of `from`, or all layers of it.
  Status Fill(const KvOverlap& overlap, const KvView& from, const KvView& to);

  const ModelSpec& model() const { return model_; }
  const KvView& from() const { return from_.view; }
  const KvView& to() const { return to_.view; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  uint64_t bytes() const;

 private:
  struct Side {
    KvView view{};
    std::vector<GroupView> groups{};
    std::deque<std::vector<PlaneView>> planes{};
    std::deque<std::vector<std::byte*>> bases{};
  };
  struct Layers {
    uint32_t begin = 0, end = 0;  // Logical ones.
  };
  static void AddSide(const GroupPair& pair, const GroupView& view, bool is_from,
                      const Layers& layers, uint32_t group, Side* side);
  Status Add(const GroupPair& pair, const GroupView& from, const KvView& to);

  ModelSpec model_;
  Side from_, to_;
  std::vector<Piece> pieces_;
};

}  // namespace cairn::engine
