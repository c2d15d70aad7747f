// SPDX-License-Identifier: Apache-2.0
//
// Compares a model's description of its rotation with keys that are stored, once an opening, before
// a plan turns any. In a model's first layer a key depends on id and position alone: so the key of
// an id at one position, turned to another one where the id stands, is the key there.
//
//   ids that stand at two places of what is planned     the farthest apart
//   their keys, of the first layer of each turned plane
//   pairs differ in length    the group begins behind the first layer: its plane is left out. The
//                             length of a whole key does not show it: models that normalise keys
//                             give all of them about one
//   turned, they are equal    checked
//   turned, they are not      the description is wrong: nothing of this model is planned elsewhere
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/core/mutex.h"
#include "cairn/find.h"
#include "engine/blend/piece.h"
#include "engine/restore/reader.h"

namespace cairn::engine {

class PositionCheck {
 public:
  // `tell` is called with a line when a plane is left out; `failed` counts models that are refused.
  // All outlive this.
  PositionCheck(Reader* reader, std::atomic<uint64_t>* failed,
                std::function<void(const std::string&)> tell)
      : reader_(reader), failed_(failed), tell_(std::move(tell)) {}

  // Whether it was checked, now or before; false: there was nothing to compare. kModelMismatch by
  // group and plane. REQUIRES: the pieces are held.
  Result<bool> Check(const ModelSpec& model, ModelId id, const PrefixQuery& query,
                     std::span<const Piece> pieces);

 private:
  // One id at two positions.
  struct Place {
    uint64_t node = 0, position = 0;
  };
  struct Sample {
    Place from, to;
    uint64_t distance() const {
      return std::max(from.position, to.position) - std::min(from.position, to.position);
    }
  };
  struct PlaneKey {
    size_t group = 0, plane = 0;
    auto operator<=>(const PlaneKey&) const = default;
  };
  enum class Verdict : uint8_t { kNothingCompared, kOtherLayer, kTurns, kDoesNotTurn };
  struct Known {
    std::set<PlaneKey> decided{};
    bool any_checked = false;
    Status mismatch{};
  };
  // Keys of one plane: rows of fp32, by sample, those of `from` and of `to`.
  struct Keys {
    std::vector<std::vector<float>> from{}, to{};
  };

  static std::vector<Sample> SamplesOf(const PrefixQuery& query, std::span<const Piece> pieces,
                                       uint64_t limit);
  Keys ReadKeys(const ModelSpec& model, const PlaneKey& key, std::span<const Sample> samples,
                bool memory_only);
  static Verdict Compare(const LayerGroup& group, size_t plane, std::span<const Sample> samples,
                         const Keys& keys, double* largest);
  static std::string FitOf(const LayerGroup& group, size_t plane, std::span<const Sample> samples,
                           const Keys& keys);
  static std::string NameOf(const ModelSpec& model, const PlaneKey& key);
  void LeaveOut(const ModelSpec& model, const PlaneKey& key, Known* known) const;
  void Decide(const ModelSpec& model, const PlaneKey& key, std::span<const Sample> samples,
              const Keys& keys, Known* known);

  Reader* const reader_;
  std::atomic<uint64_t>* const failed_;
  const std::function<void(const std::string&)> tell_;
  Mutex mutex_;
  std::map<ModelId, Known> known_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::engine
