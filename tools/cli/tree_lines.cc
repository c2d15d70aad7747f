// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tree_lines.h"

#include <algorithm>
#include <tuple>

#include "base/core/check.h"

namespace cairn::cli {

namespace {

class LineMaker {
 public:
  explicit LineMaker(const Forest& forest) : forest_(forest) {}

  TreeLines Make() {
    for (const uint64_t root : forest_.roots) made_.roots.push_back(MakeLine(root, 0));
    // Lines are made while earlier ones are followed: those of a chain of forks come one by one.
    while (!pending_.empty()) {
      const auto [parent, node, head] = pending_.back();
      pending_.pop_back();
      const size_t line = node != 0 ? MakeLine(node, forest_.nodes.at(node).begin) : MakeStub(head);
      made_.lines[parent].leaving.push_back(line);
    }
    for (TreeLine& line : made_.lines) SortLeaving(&line);
    return std::move(made_);
  }

 private:
  struct Pending {
    size_t parent;
    uint64_t node;  // Or 0: a branch that has nothing of its own.
    const SeenBranch* head;
  };

  size_t MakeStub(const SeenBranch* head) {
    made_.lines.push_back({head, head->length, {}, {}});
    return made_.lines.size() - 1;
  }

  // Follows the node to its end and on into the node that goes on from there, until a branch ends.
  size_t MakeLine(uint64_t id, uint64_t begin) {
    const size_t line = made_.lines.size();
    made_.lines.push_back({nullptr, begin, {}, {}});
    for (const ForestNode* node = &forest_.nodes.at(id); node != nullptr;) {
      made_.lines[line].nodes.push_back(node->id);
      const SeenBranch* last = nullptr;
      for (const SeenBranch& head : node->heads) {
        if (head.length != node->end) continue;
        if (last == nullptr || static_cast<uint64_t>(head.id) == node->owner) last = &head;
      }
      const ForestNode* next = nullptr;
      for (const uint64_t child : node->children) {
        const ForestNode& candidate = forest_.nodes.at(child);
        if (last == nullptr && next == nullptr && candidate.begin == node->end) {
          next = &candidate;
        } else {
          pending_.push_back({line, child, nullptr});
        }
      }
      for (const SeenBranch& head : node->heads) {
        if (&head != last) pending_.push_back({line, 0, &head});
      }
      made_.lines[line].head = last;
      node = next;
    }
    // A node is as long as the longest path on it, so that path ends here or goes on from here.
    CAIRN_CHECK(made_.lines[line].head != nullptr);
    return line;
  }

  void SortLeaving(TreeLine* line) const {
    std::sort(line->leaving.begin(), line->leaving.end(), [&](size_t a, size_t b) {
      const TreeLine &left = made_.lines[a], &right = made_.lines[b];
      return std::tuple(right.begin, static_cast<uint64_t>(left.head->id)) <
             std::tuple(left.begin, static_cast<uint64_t>(right.head->id));
    });
  }

  const Forest& forest_;
  TreeLines made_;
  std::vector<Pending> pending_;
};

}  // namespace

std::vector<size_t> TreeLines::Preorder() const {
  std::vector<size_t> order;
  std::vector<size_t> open(roots.rbegin(), roots.rend());
  while (!open.empty()) {
    const TreeLine& line = lines[open.back()];
    order.push_back(open.back());
    open.pop_back();
    open.insert(open.end(), line.leaving.rbegin(), line.leaving.rend());
  }
  return order;
}

TreeLines MakeLines(const Forest& forest) { return LineMaker(forest).Make(); }

}  // namespace cairn::cli
