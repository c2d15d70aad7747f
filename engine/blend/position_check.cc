// SPDX-License-Identifier: Apache-2.0
#include "engine/blend/position_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "base/codec/float16.h"
#include "base/codec/rotary.h"
#include "base/core/text.h"
#include "engine/blend/constants.h"
#include "engine/blend/options.h"

namespace cairn::engine {

namespace {

// Stored elements as fp32.
std::vector<float> Widened(const Plane& plane, std::span<const std::byte> bytes) {
  std::vector<float> wide(bytes.size() / DtypeBytes(plane.dtype));
  if (plane.dtype == Dtype::kF32) {
    std::memcpy(wide.data(), bytes.data(), bytes.size());
    return wide;
  }
  for (size_t i = 0; i < wide.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, sizeof(bits));
    wide[i] = cairn::Widened(plane.dtype == Dtype::kF16, bits);
  }
  return wide;
}

double NormOf(std::span<const float> row) {
  double sum = 0;
  for (const float value : row) sum += double{value} * double{value};
  return std::sqrt(sum);
}

double DistanceOf(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}

struct Tolerance {
  double pairs, turned;  // Shares of a key's length.
};
Tolerance ToleranceOf(const Plane& plane) {
  if (plane.sealed_as != SealedAs::kLossless) return {.pairs = 0.1, .turned = 0.2};
  if (plane.dtype == Dtype::kF32) return {.pairs = 0.002, .turned = 0.02};
  return {.pairs = 0.02, .turned = 0.05};
}

// How much lengths of pairs differ, which no turn changes, and elements that are in no pair.
double PairsApart(std::span<const float> a, std::span<const float> b, size_t first, size_t pairs,
                  bool adjacent) {
  double sum = 0;
  const auto add = [&](double apart) { sum += apart * apart; };
  for (size_t i = 0; i < pairs; ++i) {
    const size_t x = first + (adjacent ? 2 * i : i), y = adjacent ? x + 1 : x + pairs;
    add(std::hypot(double{a[x]}, double{a[y]}) - std::hypot(double{b[x]}, double{b[y]}));
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (i < first || i >= first + 2 * pairs) add(double{a[i]} - double{b[i]});
  }
  return std::sqrt(sum);
}

// The plane as if its rows were fp32.
LayerGroup Wide(const LayerGroup& group, size_t plane) {
  LayerGroup wide = group;
  Plane& of = wide.planes[plane];
  of.row_bytes = of.row_bytes / DtypeBytes(of.dtype) * DtypeBytes(Dtype::kF32);
  of.dtype = Dtype::kF32;
  return wide;
}

std::string NumberText(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", number);
  return text;
}

}  // namespace

Result<bool> PositionCheck::Check(const ModelSpec& model, ModelId id, const PrefixQuery& query,
                                  std::span<const Piece> pieces) {
  std::vector<PlaneKey> open;
  {
    const MutexLock lock(&mutex_);
    const Known& known = known_[id];
    CAIRN_RETURN_IF_ERROR(known.mismatch);
    for (size_t group = 0; group < model.groups.size(); ++group) {
      for (size_t plane = 0; plane < model.groups[group].planes.size(); ++plane) {
        const bool turns = model.groups[group].planes[plane].rotary.state == RotaryState::kApplied;
        if (turns && !known.decided.contains({group, plane})) open.push_back({group, plane});
      }
    }
    if (open.empty()) return known.any_checked;
  }
  // Behind content an index is not the position by which keys are turned.
  const bool to_spans = HasSeveralPositions(model) && !query.spans.empty();
  const uint64_t limit = to_spans ? query.spans.front().begin : query.tokens.size();
  const std::vector<Sample> samples = SamplesOf(query, pieces, limit);
  for (const PlaneKey& key : open) {
    if (samples.empty()) break;
    const Keys keys = ReadKeys(model, key, samples, query.memory_only);
    const MutexLock lock(&mutex_);
    Decide(model, key, samples, keys, &known_[id]);
  }
  const MutexLock lock(&mutex_);
  const Known& known = known_[id];
  CAIRN_RETURN_IF_ERROR(known.mismatch);
  return known.any_checked;
}

// Pairs of equal ids before the limit, the farthest apart first. What stands in content spans is
// more than its id.
std::vector<PositionCheck::Sample> PositionCheck::SamplesOf(const PrefixQuery& query,
                                                            std::span<const Piece> pieces,
                                                            uint64_t limit) {
  struct Ends {
    Place first, last;
  };
  std::unordered_map<TokenId, Ends> ends;
  uint64_t looked_at = 0;
  for (const Piece& piece : pieces) {
    auto differs = piece.differs.begin();
    auto span = query.spans.begin();
    for (uint64_t at = piece.begin; at < std::min(piece.end, limit) && looked_at < kCheckedIds;
         ++at) {
      ++looked_at;
      if (differs != piece.differs.end() && *differs == at) {
        ++differs;
        continue;
      }
      while (span != query.spans.end() && span->end <= at) ++span;
      if (span != query.spans.end() && span->begin <= at) continue;
      const Place place{piece.node, piece.SourceOf(at)};
      const auto [known, fresh] = ends.try_emplace(query.tokens[at], Ends{place, place});
      if (fresh) continue;
      if (place.position < known->second.first.position) known->second.first = place;
      if (place.position > known->second.last.position) known->second.last = place;
    }
  }
  std::vector<Sample> samples;
  for (const auto& [id, of] : ends) {
    const Sample sample{of.first, of.last};
    if (sample.distance() >= kCheckedDistanceMin) samples.push_back(sample);
  }
  const size_t count = std::min(samples.size(), kCheckedSamples);
  std::partial_sort(samples.begin(), samples.begin() + static_cast<ptrdiff_t>(count), samples.end(),
                    [](const Sample& a, const Sample& b) { return a.distance() > b.distance(); });
  samples.resize(count);
  return samples;
}

// The first layer of the plane's group at both positions of each sample. What cannot be read is
// empty.
PositionCheck::Keys PositionCheck::ReadKeys(const ModelSpec& model, const PlaneKey& key,
                                            std::span<const Sample> samples, bool memory_only) {
  const LayerGroup& group = model.groups[key.group];
  struct Target {
    std::vector<std::vector<std::byte>> rows;
    std::vector<std::byte*> bases;
    std::vector<PlaneView> planes;
    GroupView group;
    KvView view;
  };
  std::vector<Target> targets(2 * samples.size());
  std::vector<RestoreItem> items(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    const Place& place = i % 2 == 0 ? samples[i / 2].from : samples[i / 2].to;
    Target& target = targets[i];
    for (const Plane& plane : group.planes) {
      target.rows.emplace_back(size_t{plane.heads} * plane.row_bytes);
      target.bases.push_back(target.rows.back().data());
    }
    for (size_t plane = 0; plane < group.planes.size(); ++plane) {
      target.planes.push_back({.layer_bases = {&target.bases[plane], 1},
                               .token_stride = static_cast<int64_t>(target.rows[plane].size()),
                               .head_stride = group.planes[plane].row_bytes});
    }
    target.group = {.group = static_cast<uint32_t>(key.group),
                    .position = place.position,
                    .count = 1,
                    .planes = target.planes};
    target.view.groups = {&target.group, 1};
    items[i].node = NodeId{place.node};
    items[i].request.begin = place.position;
    items[i].request.end = place.position + 1;
    items[i].request.into = &target.view;
    items[i].request.require_kv = true;
    items[i].counts = false;
  }
  reader_->Restore(items, memory_only ? 0 : io::kNoDeadline);
  Keys keys;
  for (size_t i = 0; i < items.size(); ++i) {
    std::vector<float> row;
    if (items[i].status.ok()) row = Widened(group.planes[key.plane], targets[i].rows[key.plane]);
    (i % 2 == 0 ? keys.from : keys.to).push_back(std::move(row));
  }
  return keys;
}

// One head whose pairs differ, however they are paired, is enough: in a first layer none does.
PositionCheck::Verdict PositionCheck::Compare(const LayerGroup& group, size_t plane,
                                              std::span<const Sample> samples, const Keys& keys,
                                              double* largest) {
  const auto rotation = Rotation::Of(Wide(group, plane), plane);
  if (!rotation.ok()) return Verdict::kNothingCompared;
  const Tolerance tolerance = ToleranceOf(group.planes[plane]);
  const size_t heads = group.planes[plane].heads;
  Verdict verdict = Verdict::kNothingCompared;
  *largest = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (keys.from[i].empty() || keys.to[i].empty()) continue;
    const std::vector<uint64_t> from(rotation->positions(), samples[i].from.position);
    const std::vector<uint64_t> to(rotation->positions(), samples[i].to.position);
    std::vector<RotaryTurn> turns(rotation->pairs());
    rotation->Between(from, to, turns);
    const size_t elements = keys.from[i].size() / heads;
    for (size_t head = 0; head < heads; ++head) {
      const auto before = std::span(keys.from[i]).subspan(head * elements, elements);
      const auto after = std::span(keys.to[i]).subspan(head * elements, elements);
      const double norm = NormOf(after);
      if (!std::isfinite(norm) || !std::isfinite(NormOf(before)) || norm == 0) continue;
      const double apart =
          std::min(PairsApart(before, after, rotation->first(), rotation->pairs(), false),
                   PairsApart(before, after, rotation->first(), rotation->pairs(), true));
      if (apart > tolerance.pairs * norm) return Verdict::kOtherLayer;
      std::vector<float> turned(elements);
      rotation->Turn(turns, std::as_bytes(before), std::as_writable_bytes(std::span(turned)));
      const double error = DistanceOf(turned, after) / norm;
      *largest = std::max(*largest, error);
      if (verdict == Verdict::kNothingCompared) verdict = Verdict::kTurns;
      if (error > tolerance.turned) verdict = Verdict::kDoesNotTurn;
    }
  }
  return verdict;
}

// Which pairing or base would turn them; empty: none of those that are common.
std::string PositionCheck::FitOf(const LayerGroup& group, size_t plane,
                                 std::span<const Sample> samples, const Keys& keys) {
  const auto fits = [&](const LayerGroup& other) {
    double largest = 0;
    return Compare(other, plane, samples, keys, &largest) == Verdict::kTurns;
  };
  const bool halves = group.planes[plane].rotary.pairing == RotaryPairing::kHalves;
  LayerGroup paired = group;
  paired.planes[plane].rotary.pairing = halves ? RotaryPairing::kAdjacent : RotaryPairing::kHalves;
  const std::string pairing =
      std::string("pairing ") + RotaryPairingName(paired.planes[plane].rotary.pairing);
  if (fits(paired)) return pairing + " would fit";
  const auto width = static_cast<uint32_t>(2 * group.inv_freq.size());
  for (const double base : kCommonBases) {
    LayerGroup based = group;
    based.inv_freq = RotaryFrequencies(width, base);
    const std::string text = "a base of " + std::to_string(static_cast<uint64_t>(base));
    if (fits(based)) return text + " would fit";
    based.planes[plane].rotary.pairing = paired.planes[plane].rotary.pairing;
    if (fits(based)) return text + " with " + pairing + " would fit";
  }
  return {};
}

std::string PositionCheck::NameOf(const ModelSpec& model, const PlaneKey& key) {
  const LayerGroup& group = model.groups[key.group];
  return "group " + Quoted(group.name) + ", plane " + Quoted(group.planes[key.plane].name);
}

void PositionCheck::LeaveOut(const ModelSpec& model, const PlaneKey& key, Known* known) const {
  if (!known->decided.insert(key).second) return;
  tell_("positions of " + NameOf(model, key) + " of model " + Quoted(model.identity.name) +
        " are not checked: it does not begin with the model's first layer");
}

void PositionCheck::Decide(const ModelSpec& model, const PlaneKey& key,
                           std::span<const Sample> samples, const Keys& keys, Known* known) {
  const LayerGroup& group = model.groups[key.group];
  double largest = 0;
  switch (Compare(group, key.plane, samples, keys, &largest)) {
    case Verdict::kNothingCompared: return;
    case Verdict::kOtherLayer: return LeaveOut(model, key, known);
    case Verdict::kTurns:
      known->decided.insert(key);
      known->any_checked = true;
      return;
    case Verdict::kDoesNotTurn: break;
  }
  const std::string fit = FitOf(group, key.plane, samples, keys);
  // Only the first group of a whole model surely begins with its first layer.
  const bool may_be_later = key.group != 0 || model.shard.layer_begin != 0;
  if (fit.empty() && may_be_later) return LeaveOut(model, key, known);
  std::string text = "positions: stored keys of " + NameOf(model, key) +
                     " do not turn into each other as the model says; they differ by " +
                     NumberText(largest) + " of their length";
  if (!fit.empty()) text += "; " + fit;
  if (known->mismatch.ok()) failed_->fetch_add(1, std::memory_order_relaxed);
  known->mismatch = Status(StatusCode::kModelMismatch, text);
}

}  // namespace cairn::engine
