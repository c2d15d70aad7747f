// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/residency.h"

#include <algorithm>

#include "base/core/check.h"

namespace cairn::engine {

namespace {

// Overhead of a map or set for each entry.
constexpr size_t kLinkBytes = 48;
// A namespace: its sums and its name, which is short or 40 bytes.
constexpr size_t kNamespaceBytes = sizeof(NamespaceUsage) + sizeof(std::string) + 2 * kLinkBytes;

}  // namespace

// ---------------------------------------------------------------- looking

const Head* Residency::FindHead(uint64_t branch) const {
  const auto it = heads_.find(branch);
  if (it == heads_.end() || it->second.gone) return nullptr;
  it->second.used = true;
  return &it->second;
}

const Head* Residency::FindHead(std::string_view ns, std::string_view name) const {
  if (name.empty()) return nullptr;
  const auto it = names_.lower_bound({std::string(ns), std::string(name), 0});
  if (it == names_.end() || std::get<0>(*it) != ns || std::get<1>(*it) != name) return nullptr;
  return FindHead(std::get<2>(*it));
}

const Node* Residency::FindNode(uint64_t node) const {
  const auto it = nodes_.find(node);
  return it == nodes_.end() || it->second->gone ? nullptr : it->second.get();
}

void Residency::VisitNames(const NameKey& from,
                           const std::function<bool(const NameKey&)>& visit) const {
  for (auto it = names_.lower_bound(from); it != names_.end(); ++it) {
    if (!visit(*it)) return;
  }
}

bool Residency::AnyUsedAfter(uint64_t at_ns) const {
  return std::any_of(heads_.begin(), heads_.end(),
                     [&](const auto& entry) { return entry.second.used_at_ns > at_ns; });
}

// ---------------------------------------------------------------- changing

Node* Residency::MutableNode(uint64_t id) {
  Node* const node = NodeOrGone(id);
  return node == nullptr || node->gone ? nullptr : node;
}

Head* Residency::MutableHead(uint64_t id) {
  Head* const head = HeadOrGone(id);
  return head == nullptr || head->gone ? nullptr : head;
}

Node* Residency::NodeOrGone(uint64_t id) {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? nullptr : it->second.get();
}

Head* Residency::HeadOrGone(uint64_t id) {
  const auto it = heads_.find(id);
  return it == heads_.end() ? nullptr : &it->second;
}

void Residency::Charge(Node* node) {
  size_t bytes =
      sizeof(Node) + 2 * kLinkBytes + node->lanes.capacity() * sizeof(Lane) +
      (node->samplers.capacity() + node->metadata.capacity() + node->derived.capacity()) *
          sizeof(Mark) +
      node->spans.capacity() * sizeof(ContentSpan) + node->refs.size() * (sizeof(Ref) + kLinkBytes);
  for (const Lane& lane : node->lanes) bytes += lane.extents.capacity() * sizeof(Extent);
  bytes_ += bytes - node->charge;
  node->charge = bytes;
}

void Residency::Charge(Head* head) {
  const size_t bytes = sizeof(Head) + 2 * kLinkBytes + sizeof(NameKey) +
                       2 * (head->name.size() + head->ns.size()) +
                       head->lengths.capacity() * sizeof(uint64_t);
  bytes_ += bytes - head->charge;
  head->charge = bytes;
}

// ---------------------------------------------------------------- coming and going

void Residency::RememberDirty(const DirtyRecords& dirty) {
  for (const uint64_t id : dirty.heads()) {
    Head* const head = MutableHead(id);
    if (head == nullptr || !head->off_clock) continue;
    RememberHead(id);
    head->off_clock = false;
  }
  for (const uint64_t id : dirty.nodes()) {
    Node* const node = MutableNode(id);
    if (node == nullptr || !node->off_clock) continue;
    RememberNode(id);
    node->off_clock = false;
  }
}

void Residency::AddUser(const NamespaceUsage* use) {
  if (use->users++ == 0) bytes_ += kNamespaceBytes;
}

void Residency::RemoveUser(const NamespaceUsage* use) {
  CAIRN_CHECK(use->users > 0);
  if (--use->users == 0) bytes_ -= kNamespaceBytes;
}

Head* Residency::AddHead(Head head) {
  const uint64_t id = head.id;
  Head* const added = &heads_.emplace(id, std::move(head)).first->second;
  AddUser(added->use);
  return added;
}

Node* Residency::AddNode(std::unique_ptr<Node> node) {
  const uint64_t id = node->id;
  Node* const added = nodes_.emplace(id, std::move(node)).first->second.get();
  AddUser(added->use);
  return added;
}

void Residency::RemoveHead(uint64_t id) {
  const auto found = heads_.find(id);
  if (found == heads_.end()) return;
  bytes_ -= found->second.charge;
  RemoveUser(found->second.use);
  heads_.erase(found);
}

void Residency::RemoveNode(uint64_t id) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  bytes_ -= found->second->charge;
  RemoveUser(found->second->use);
  nodes_.erase(found);
}

// ---------------------------------------------------------------- making room

void Residency::RemoveUser(uint64_t id) {
  Node* const node = MutableNode(id);
  if (node == nullptr) return;
  CAIRN_CHECK(node->users > 0);
  --node->users;
}

void Residency::TrimRefs(uint64_t id) {
  Node* const node = MutableNode(id);
  if (node == nullptr || node->refs.size() <= 2 * kRefsKept) return;
  const auto kept = std::prev(node->refs.end(), kRefsKept);
  node->refs_from = std::max(node->refs_from, *kept);
  node->refs.erase(node->refs.begin(), kept);
}

void Residency::Trim(size_t max_bytes, size_t steps) {
  steps = std::min(steps, 2 * clock_.size());
  // Entries of removed objects are dropped on the way; without pressure, once they are the
  // majority.
  const bool sweep = clock_.size() > 2 * (heads_.size() + nodes_.size()) + 1024;
  while (!clock_.empty() && steps-- > 0 && (sweep || bytes_ > max_bytes)) {
    const auto entry = clock_.front();
    clock_.pop_front();
    const auto [is_head, id] = entry;
    if (is_head ? PassHead(id, max_bytes) : PassNode(id, max_bytes)) clock_.push_back(entry);
  }
}

bool Residency::PassHead(uint64_t id, size_t max_bytes) {
  Head* const head = HeadOrGone(id);
  if (head == nullptr) return false;
  if (head->dirty) {
    head->off_clock = true;
    return false;
  }
  if (std::exchange(head->used, false) || bytes_ <= max_bytes) return true;
  names_.erase({head->ns, head->name, id});
  RemoveUser(head->node);
  RemoveHead(id);
  return false;
}

bool Residency::PassNode(uint64_t id, size_t max_bytes) {
  Node* const node = NodeOrGone(id);
  if (node == nullptr) return false;
  if (node->dirty) {
    node->off_clock = true;
    return false;
  }
  if (node->users > 0 || bytes_ <= max_bytes) return true;
  RemoveUser(node->parent);
  RemoveNode(id);
  return false;
}

}  // namespace cairn::engine
