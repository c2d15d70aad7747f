// SPDX-License-Identifier: Apache-2.0
//
// Conditions that hold for every record of a branch and of a node that this library wrote. A
// checksum only says that a record is as it was written, not that it is right. So they are checked
// when a record is read, and later code can rely on them.
#include <string>

#include "cairn/limits.h"
#include "engine/tree/memory/reserved_names.h"
#include "engine/tree/records/tree_keys.h"

namespace cairn::engine {

namespace {

bool IsNumberOrNone(uint64_t number) { return number == 0 || IsNumber(number); }

// The fault of a place of `count` positions; empty: none.
std::string WrongPlace(const Place& place, uint64_t count) {
  if (place.in_table() && (!IsNumber(place.table) || !IsNumberOrNone(place.fragment_node))) {
    return "an impossible table, or node within it";
  }
  if (place.in_table() && place.positions < count) return "more positions than their fragment";
  return "";
}

std::string WrongLane(const Lane& lane, const Lane& tokens) {
  if (lane.start > lane.end) return "it ends before it begins";
  if (lane.start > tokens.start || lane.end > tokens.end) return "it goes beyond the tokens";
  uint64_t position = lane.start;
  for (const Extent& extent : lane.extents) {
    if (extent.begin != position) return "it has a gap at position " + std::to_string(position);
    if (extent.count == 0 || extent.count > lane.end - position) return "it goes on behind its end";
    position += extent.count;
    if (std::string wrong = WrongPlace(extent.place, extent.count); !wrong.empty()) return wrong;
  }
  return position == lane.end ? "" : "it ends at position " + std::to_string(position);
}

std::string WrongMarks(const std::vector<Mark>& marks, const Lane& tokens) {
  for (size_t i = 0; i < marks.size(); ++i) {
    const uint64_t position = marks[i].position;
    if (position < tokens.start || position > tokens.end) return "a state lies beyond the tokens";
    if (i > 0 && position <= marks[i - 1].position) return "states are not in order";
    if (std::string wrong = WrongPlace(marks[i].place, 1); !wrong.empty()) return wrong;
  }
  return "";
}

std::string WrongDerived(const std::vector<Mark>& marks, const Lane& tokens) {
  for (size_t i = 0; i < marks.size(); ++i) {
    const auto [position, kind, place] = marks[i];
    if (position <= tokens.start || position > tokens.end) {
      return "what is derived lies beyond the tokens";
    }
    if (kind == 0 || (i > 0 && !IsDerivedBefore(marks[i - 1], marks[i]))) {
      return "what is derived is not in order";
    }
    if (!IsNumber(place.table) || !place.in_table() || place.positions != 1) {
      return "what is derived lies in no table";
    }
  }
  return "";
}

std::string WrongSpans(const std::vector<ContentSpan>& spans, const Lane& tokens) {
  uint64_t from = tokens.start;
  for (const ContentSpan& span : spans) {
    if (span.begin < from || span.begin >= span.end) return "spans are not in order";
    from = span.end;
  }
  return from <= tokens.end || spans.empty() ? "" : "a span lies beyond the tokens";
}

}  // namespace

bool IsNamespace(std::string_view ns) {
  return ns.size() <= NamespaceBytesMax(ns) && ns.find('\0') == ns.npos;
}

Status CheckNode(std::string_view key, const Node& node) {
  if (!IsNumber(node.id) || !IsNumberOrNone(node.parent) || node.parent == node.id) {
    return Damaged(key, "an impossible node or parent");
  }
  if (!IsNamespace(node.ns)) return Damaged(key, "an impossible namespace");
  const Lane& tokens = node.lanes[kTokenLane];
  std::string wrong;
  for (size_t lane = 0; lane < node.lanes.size() && wrong.empty(); ++lane) {
    wrong = WrongLane(node.lanes[lane], tokens);
    if (!wrong.empty()) wrong = "lane " + std::to_string(lane) + ": " + wrong;
  }
  if (wrong.empty()) wrong = WrongMarks(node.samplers, tokens);
  if (wrong.empty()) wrong = WrongMarks(node.metadata, tokens);
  if (wrong.empty()) wrong = WrongDerived(node.derived, tokens);
  if (wrong.empty()) wrong = WrongSpans(node.spans, tokens);
  return wrong.empty() ? Status::Ok() : Damaged(key, wrong);
}

Status CheckHead(std::string_view key, const Head& head) {
  if (!IsNumber(head.id) || !IsNumber(head.model) || !IsNumberOrNone(head.node)) {
    return Damaged(key, "an impossible branch, model or node");
  }
  if (!IsNamespace(head.ns) || head.name.size() > NameBytesMax(head.ns)) {
    return Damaged(key, "an impossible name");
  }
  for (const uint64_t length : head.lengths) {
    if (length > head.lengths[kTokenLane]) return Damaged(key, "KV beyond the tokens");
    if (head.node == 0 && length > 0) return Damaged(key, "content, but no node");
  }
  return Status::Ok();
}

}  // namespace cairn::engine
